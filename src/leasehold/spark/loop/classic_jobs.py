"""Jobs of a session in this process's own JVM, which Spark Connect does not have: see `jobs.py`.

Owns the local property that an order is in, and the accumulator that receipts come back in. An order is a property of
the job, so that one DataFrame serves every batch, as long as its plan may be executed again (`plan/row_wise.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from leasehold.errors import UsageError
from leasehold.spark.loop import packing
from leasehold.spark.loop.orders import Order, Receipt, check_receipts, task_order
from leasehold.spark.loop.tasks import ReadSpec, Tally, receipt_of, run_task
from leasehold.spark.plan.row_wise import is_always_empty

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

ORDER = "leasehold.order"
"""The local property that an order is in."""


class ClassicJobs:
    """Jobs of a session in this process's own JVM."""

    def __init__(self, spark: SparkSession, spec: ReadSpec, schema: StructType | str) -> None:
        self._spark, self._spec, self._schema = spark, spec, schema
        self._context: SparkContext = spark.sparkContext
        self._told: Accumulator[list[Receipt]] = self._context.accumulator([], _Gathered())
        self._frames: dict[tuple[int, bool], DataFrame] = {}

    @property
    def cores(self) -> int:
        return self._context.defaultParallelism

    @property
    def plan_lasts(self) -> bool:
        return True

    def events(self, order: Order) -> DataFrame:
        return self._frame(len(order.tasks), pack=False)

    def packed(self, order: Order) -> DataFrame:
        return self._frame(len(order.tasks), pack=True)

    def _frame(self, tasks: int, *, pack: bool) -> DataFrame:
        key = tasks, pack
        if key not in self._frames:
            numbers = self._spark.range(0, tasks, 1, tasks)
            read = _by_property(self._spec, self._told, pack=pack)
            self._frames[key] = numbers.mapInArrow(read, packing.SCHEMA if pack else self._schema)
        return self._frames[key]

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


def _by_property(spec: ReadSpec, told: Accumulator[list[Receipt]], *, pack: bool) -> Any:
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
                events = run_task(spec, order, tally)
                yield from packing.packed(events) if pack else events
                told.add([receipt_of(order, tally)])

    return read
