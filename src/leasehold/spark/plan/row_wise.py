"""The look into a DataFrame's plan: whether it handles each row by itself, and which columns it reads.

Owns, with `picking`, each use of a DataFrame's Java side. Promises nothing over Spark Connect, which has none: whoever
calls asks `versions.is_connect` first.

A plan may be executed again for the next batch only where it computes each row from nothing but that row. With a
shuffle Spark keeps the shuffle's files and gives the first batch's rows again; `current_timestamp()` is a constant of
the plan; `uuid()` and `rand()` have seeds that were drawn when the plan was analysed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from leasehold.errors import UsageError

ROW_WISE = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "SubqueryAlias",
        "View",
        "StreamingRelationV2",
        "LogicalRDD",
        "BatchEvalPython",
        "ArrowEvalPython",
        "ResolvedHint",
        "CollectMetrics",
        "MapInArrow",
        "PythonMapInArrow",  # its name before 4.0
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "Range",
    }
)
"""Nodes of a logical plan that handle each row by itself."""


def check_row_wise(transformed: DataFrame) -> None:
    """Refuse a plan that looks at more than one row at a time. Raises `UsageError` that names the operator."""
    plan = transformed._jdf.queryExecution().analyzed()
    for node in _nodes(plan):
        name = "a subquery" if node.subqueries().size() else node.nodeName().split(" ")[0]
        if name not in ROW_WISE:
            raise UsageError(
                f"the transform contains {name}, which looks at more than one row at a time. A replayed range would "
                "give it other rows, and the table another result. Between source and table only projection, filter "
                "and explode are allowed; aggregate what is in the table instead."
            )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in listed(plan.children()):
        yield from _nodes(child)


def used_columns(transformed: DataFrame, source_columns: Iterable[str]) -> set[str]:
    """Those columns of the source that a transform reads or hands on."""
    plan = transformed._jdf.queryExecution().optimizedPlan()
    used = set()
    for node in _nodes(plan):
        used |= {column.name().lower() for column in listed(node.references().toSeq())}
    used |= {column.name().lower() for column in listed(plan.output())}
    return {column for column in source_columns if column.lower() in used}  # named as the query writes them


def is_repeatable(df: DataFrame) -> bool:
    """Whether a DataFrame computes each row from nothing but that row, so that its plan may be executed again."""
    execution = df._jdf.queryExecution()
    if "Exchange" in execution.executedPlan().toString():
        return False
    return not any(
        _changes(expression) for node in _nodes(execution.analyzed()) for expression in listed(node.expressions())
    )


def is_always_empty(df: DataFrame) -> bool:
    """Whether Spark reads nothing for a DataFrame, since it has no rows whatever there is (`WHERE false`)."""
    plan = df._jdf.queryExecution().optimizedPlan()
    return class_name(plan) == "LocalRelation" and bool(plan.data().isEmpty())


def _changes(expression: Any) -> bool:
    """Whether an expression gives another value each time, or one for a whole query."""
    if not expression.deterministic():
        return True
    if class_name(expression).startswith(("Current", "Now", "LocalTimestamp", "UnixTimestampNow")):
        return True
    return any(_changes(child) for child in listed(expression.children()))


def class_name(node: Any) -> str:
    """The name of the Java class of a plan's node, or of an expression, without its package."""
    return str(node.getClass().getSimpleName())


def listed(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for position in range(sequence.size()):
        yield sequence.apply(position)
