"""Between source and sink: JSON bodies to columns, then the user's SQL or function, row by row.

Owns what a body must be to become a row, and the check that a transform is row-wise. A body is accepted if it
is valid UTF-8 and exactly one JSON object whose fields fit the schema; everything else is rejected with a reason
and loses nothing. Spark's parser stops at the end of the first object and ignores what follows, so a sentinel
field is put before the last brace of the text: it is found in the object only if that brace closes the object.

Refused: an aggregate, a join, a window, a stateful operator, a sort or a limit in the transform. A replayed or
re-cut range would give them other rows to work on, and the result would not be the same again.
"""

from __future__ import annotations

import importlib
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark user knows it by
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from leasehold.errors import ConfigError, UsageError

VIEW = "events"
_JSON, _CORRUPT = "__leasehold_json", "__leasehold_corrupt"
_END = f"__leasehold_end_{secrets.token_hex(8)}"  # nobody who sends a body can know it
_PARSER = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_HUGE_EXPONENT = r"[:\[,]\s*-?[0-9]+(\.[0-9]+)?[eE][+-]?0*[1-9][0-9]{3,}\s*[,}\]]"
"""A number such as 1e400000000: Spark would write out all its digits to round it to a DECIMAL, for hours."""
BAD_COUNT = "leasehold_bad_count"
"""The observed metric that counts rejected bodies."""
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
    }
)
"""Nodes of a logical plan that handle each row by itself."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Source rows with their body read: `good` has the schema's columns before the source's.

    `bad` gives the other rows, with reasons. When `good`, or what is made of it, is computed, `BAD_COUNT` counts them.
    """

    good: DataFrame
    bad: DataFrame


def check_schema(schema: StructType, source_columns: Iterable[str]) -> None:
    """Refuse a body schema whose columns clash with the source's or each other. Raises `ConfigError`."""
    names = [name.lower() for name in schema.names]
    clashes = sorted(
        {name for name in names if names.count(name) > 1} | set(names) & {c.lower() for c in source_columns}
    )
    if clashes:
        raise ConfigError(
            "transform.schema",
            ", ".join(clashes),
            "these columns occur twice, counting those that every event has",
            "Rename them in what is sent, or leave the schema out and read the body in SQL",
        )


def parse_json(source: DataFrame, schema: StructType) -> Parsed:
    """Read the JSON bodies of `source` as `schema`."""
    text = F.expr("trim(BOTH ' \\n\\r\\t' FROM cast(body AS STRING))")
    marked = F.when(text.rlike(r"^\{\s*\}$"), F.lit(f'{{"{_END}":1}}')).otherwise(
        F.concat(F.expr("left(__leasehold_text, length(__leasehold_text) - 1)"), F.lit(f',"{_END}":1}}'))
    )
    wider = StructType([*schema.fields, StructField(_END, StringType()), StructField(_CORRUPT, StringType())])
    if _holds_decimals(schema):
        marked = F.when(text.rlike(_HUGE_EXPONENT), F.lit(None)).otherwise(marked)
    parsed = source.withColumn("__leasehold_text", text).withColumn(_JSON, F.from_json(marked, wider, _PARSER))
    fits = (
        F.expr("is_valid_utf8(__leasehold_text)")
        & F.col("__leasehold_text").startswith("{")
        & F.col("__leasehold_text").endswith("}")
        & (F.col(f"{_JSON}.{_END}") == "1")
        & F.col(f"{_JSON}.{_CORRUPT}").isNull()
    )
    parsed = parsed.withColumn("__leasehold_bad", ~F.coalesce(fits, F.lit(False)))
    fields = [F.col(f"{_JSON}.`{_quoted(name)}`").alias(name) for name in schema.names]
    counted = parsed.observe(BAD_COUNT, F.count_if("__leasehold_bad").alias("bad"))
    good = counted.where(~F.col("__leasehold_bad")).select(*fields, *source.columns)
    return Parsed(good, _reasons(parsed, schema))


def _holds_decimals(type_: DataType) -> bool:
    if isinstance(type_, StructType):
        return any(_holds_decimals(field.dataType) for field in type_.fields)
    if isinstance(type_, MapType):
        return _holds_decimals(type_.valueType)
    if isinstance(type_, ArrayType):
        return _holds_decimals(type_.elementType)
    return isinstance(type_, DecimalType)


def _quoted(name: str) -> str:
    return name.replace("`", "``")


def _reasons(parsed: DataFrame, schema: StructType) -> DataFrame:
    text = F.col("__leasehold_text")
    is_json = F.expr("try_parse_json(__leasehold_text) IS NOT NULL")
    reason = (
        F.when(F.col("body").isNull(), F.lit("the event has no body"))
        .when(~F.expr("is_valid_utf8(__leasehold_text)"), F.lit("the body is not valid UTF-8"))
        .when(~is_json | ~text.startswith("{") | ~text.endswith("}"), F.lit("the body is not a JSON object"))
        .when(
            F.lit(_holds_decimals(schema)) & text.rlike(_HUGE_EXPONENT),
            F.lit("a number in the body has an exponent of four digits or more, which no DECIMAL holds"),
        )
        .when(F.col(f"{_JSON}.{_CORRUPT}").isNull(), F.lit("the body is more than one JSON object"))
        .otherwise(F.lit(f"the body does not fit the schema {_ddl(schema)}"))
    )
    carried = ["hub", "partition", "sequenceNumber", "ownerLevel", "body"]
    return parsed.where("__leasehold_bad").select(*carried, reason.alias("reason"))


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)


Transform = Callable[[DataFrame], DataFrame]


def sql_transform(sql: str) -> Transform:
    """A transform that runs a query over the view `events`."""

    def transform(events: DataFrame) -> DataFrame:
        events.createOrReplaceTempView(VIEW)
        return events.sparkSession.sql(sql)

    return transform


def python_transform(reference: str, folder: Path) -> Transform:
    """The function `module:function` of one DataFrame, looked for in `folder` first. Raises `ConfigError`."""
    module, found, name = reference.partition(":")
    if not found or not module or not name:
        raise ConfigError("transform.python", reference, "written as module:function", "For example flights:clean")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        function: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "transform.python", reference, f"cannot be imported ({error})", f"Put {module}.py into {folder}"
        ) from error
    if not callable(function):
        raise ConfigError("transform.python", reference, "not a function", "Name a function of one DataFrame")
    transform: Transform = function
    return transform


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
    children = plan.children()
    for position in range(children.size()):
        yield from _nodes(children.apply(position))


def has_bad_rows(evaluated: DataFrame) -> bool:
    """Whether bodies were rejected while this DataFrame was computed; True also if Spark did not count them.

    An `Observation` would wait for a listener that the sessions of micro-batches do not have.
    """
    metrics = evaluated._jdf.queryExecution().observedMetrics().get(BAD_COUNT)
    return bool(metrics.isEmpty() or metrics.get().getLong(0) > 0)


def used_columns(transformed: DataFrame, source_columns: Iterable[str]) -> set[str]:
    """Those columns of the source that a transform reads or hands on."""
    plan = transformed._jdf.queryExecution().optimizedPlan()
    used = set()
    for node in _nodes(plan):
        references = node.references().toSeq()
        used |= {references.apply(position).name().lower() for position in range(references.size())}
    output = plan.output()
    used |= {output.apply(position).name().lower() for position in range(output.size())}
    return {column for column in source_columns if column.lower() in used}  # named as the query writes them
