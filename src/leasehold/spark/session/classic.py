"""What needs the session's own JVM, and Spark's classic driver: everything that Spark Connect does not have.

Owns each use of `sparkContext`, of a DataFrame's Java side and of the JVM in the package: jobs with local properties
and accumulators, and the look into a plan. Promises nothing over Spark Connect: whoever calls asks `jobs.is_connect`
first.

A plan may be executed again for the next batch only where it computes each row from nothing but that row. With a
shuffle Spark keeps the shuffle's files and gives the first batch's rows again; `current_timestamp()` is a constant of
the plan; `uuid()` and `rand()` have seeds that were drawn when the plan was analysed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from leasehold.errors import UsageError
from leasehold.spark.loop.orders import Order, Receipt, check_receipts, task_order
from leasehold.spark.loop.tasks import ReadSpec, Tally, receipt_of, run_task

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

ORDER = "leasehold.order"
"""The local property that an order is in."""
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


class ClassicJobs:
    """Jobs of a session in this process's own JVM."""

    def __init__(self, spark: SparkSession, spec: ReadSpec, schema: StructType | str) -> None:
        self._spark, self._spec, self._schema = spark, spec, schema
        self._context: SparkContext = spark.sparkContext
        self._told: Accumulator[list[Receipt]] = self._context.accumulator([], _Gathered())
        self._frames: dict[int, DataFrame] = {}

    @property
    def cores(self) -> int:
        return self._context.defaultParallelism

    @property
    def plan_lasts(self) -> bool:
        return True

    def events(self, order: Order) -> DataFrame:
        tasks = len(order.tasks)
        if tasks not in self._frames:
            numbers = self._spark.range(0, tasks, 1, tasks)
            self._frames[tasks] = numbers.mapInArrow(_by_property(self._spec, self._told), self._schema)
        return self._frames[tasks]

    def begin(self, order: Order, group: str, description: str) -> None:
        self.forget()
        self._context.setLocalProperty(ORDER, order.text())
        self._context.setJobGroup(group, description, interruptOnCancel=True)

    def end(self) -> None:
        for name in (ORDER, "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            self._context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None takes a property away

    def forget(self) -> None:
        self._told.value = []

    def receipts(self, order: Order) -> dict[int, Receipt]:
        return check_receipts(order, list(self._told.value))

    def read_what_is_left_out(self, events: DataFrame, df: DataFrame) -> None:
        if is_always_empty(df):
            events.count()

    def cancel(self, group: str) -> None:
        self._context.cancelJobGroup(group)

    def alive(self) -> bool:
        java = getattr(self._context, "_jsc", None)
        process = getattr(self._context._gateway, "proc", None) if java is not None else None
        return java is not None and (process is None or process.poll() is None)


class _Gathered(AccumulatorParam[list[Receipt]]):
    """Receipts, one after the other."""

    def zero(self, value: list[Receipt]) -> list[Receipt]:
        return []

    def addInPlace(self, value1: list[Receipt], value2: list[Receipt]) -> list[Receipt]:  # noqa: N802 - PySpark's name
        return [*value1, *value2]


def _by_property(spec: ReadSpec, told: Accumulator[list[Receipt]]) -> Any:
    """The function of a task that finds its order in the job's local property."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        text = context.getLocalProperty(ORDER) if context is not None else None
        if text is None:
            raise UsageError(
                "batch.events is evaluated where no batch is at hand: outside the body of the loop, or in another "
                "thread. Evaluate it in the thread that took the batch, before the next one is asked for"
            )
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                order, tally = task_order(text, number), Tally({}, {}, [])
                yield from run_task(spec, order, tally)
                told.add([receipt_of(order, tally)])

    return read


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


def is_repeatable(df: DataFrame) -> bool:
    """Whether a DataFrame computes each row from nothing but that row, so that its plan may be executed again."""
    execution = df._jdf.queryExecution()
    if "Exchange" in execution.executedPlan().toString():
        return False
    return not any(
        _changes(expression) for node in _nodes(execution.analyzed()) for expression in _listed(node.expressions())
    )


def is_always_empty(df: DataFrame) -> bool:
    """Whether Spark reads nothing for a DataFrame, since it has no rows whatever there is (`WHERE false`)."""
    plan = df._jdf.queryExecution().optimizedPlan()
    return str(plan.getClass().getSimpleName()) == "LocalRelation" and bool(plan.data().isEmpty())


def _changes(expression: Any) -> bool:
    """Whether an expression gives another value each time, or one for a whole query."""
    if not expression.deterministic():
        return True
    name = expression.getClass().getSimpleName()
    if name.startswith(("Current", "Now", "LocalTimestamp", "UnixTimestampNow")):
        return True
    return any(_changes(child) for child in _listed(expression.children()))


def _listed(sequence: Any) -> Iterator[Any]:
    for position in range(sequence.size()):
        yield sequence.apply(position)


def say_no_error_after(ended: Callable[[], bool], spark: SparkSession) -> None:
    """PySpark's server for accumulators prints a traceback when Java ends before it: after the end that is no news."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def tell_unless_ended(request: Any, client_address: Any) -> None:
        if not ended():
            tell(request, client_address)

    server.handle_error = tell_unless_ended


def leave_sigterm_to_python(spark: SparkSession) -> None:
    """Have a Java that this process has started ignore SIGTERM, which service managers send to a whole group.

    Python ends what runs in order, and Java ends with Python, whose end of a pipe it watches. A Java that takes the
    signal as well stops Spark under the batch at hand.
    """
    context = spark.sparkContext
    if getattr(context._gateway, "proc", None) is None:
        return
    java: Any = context._jvm
    handling = java.sun.misc
    with suppress(Exception):  # a Java started with -Xrs leaves its signals to the system
        handling.Signal.handle(handling.Signal("TERM"), handling.SignalHandler.SIG_IGN)


def silence_java(spark: SparkSession) -> None:
    """Have Java say nothing more: neither in Spark's log, nor past it."""
    spark.sparkContext.setLogLevel("OFF")
    java: Any = spark.sparkContext._jvm
    nowhere = java.java.io.OutputStream.nullOutputStream()
    java.java.lang.System.setErr(java.java.io.PrintStream(nowhere))
