"""Jobs of a session in this process's own JVM, which Spark Connect does not have: see `jobs.py`.

Owns the local property that an order is in, and the accumulator that receipts come back in. An order is a property of
the job, so that one DataFrame serves every batch, as long as its plan may be executed again (`plan/row_wise.py`).

Owns, too, that there is no job where the driver reads a batch itself (`driver_reads.py`). Meanwhile Spark may still add
to the accumulator in a thread of its own: a task of a cancelled batch that ends late. Each addition reads the list and
sets another, so that two at once could lose a receipt. The driver therefore keeps its own receipt apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from leasehold.errors import UsageError
from leasehold.spark.loop import packing
from leasehold.spark.loop.driver_reads import DriverReads, check_wanted
from leasehold.spark.loop.orders import Order, Receipt, TaskOrder, check_receipts, task_order
from leasehold.spark.loop.tasks import ReadSpec, Tally, receipt_of, run_task, set_aside_imports
from leasehold.spark.plan.row_wise import is_always_empty
from leasehold.spark.plan.task_errors import as_data
from leasehold.spark.session.versions import to_arrow

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
        self._told_here: list[Receipt] = []
        self._here = DriverReads(spec)
        self._at_hand = "", threading.Event()
        """The group of the batch at hand, and whether it is cancelled."""
        self._frames: dict[tuple[int, bool], DataFrame] = {}

    @property
    def cores(self) -> int:
        return self._context.defaultParallelism

    @property
    def plan_lasts(self) -> bool:
        return True

    @property
    def kept_columns(self) -> tuple[str, ...]:
        return self._spec.kept_columns

    def events(self, order: Order) -> DataFrame:
        return self._frame(len(order.tasks), pack=False)

    def read(self, order: Order) -> pa.Table | None:
        _, cancelled = self._at_hand
        # Tasks refuse to read for a batch that is not at hand in this thread, or read for the one that is.
        is_at_hand = self._context.getLocalProperty(ORDER) == order.text()
        read = self._here.read(order, cancelled) if is_at_hand else None
        if read is None:
            check_wanted(order, cancelled)  # no job of a cancelled batch begins
            return packing.unpacked(to_arrow(self._frame(len(order.tasks), pack=True)).column(0))
        self._told_here.append(read.receipt)
        return read.events

    def _frame(self, tasks: int, *, pack: bool) -> DataFrame:
        key = tasks, pack
        if key not in self._frames:
            numbers = self._spark.range(0, tasks, 1, tasks)
            read = _by_property(self._spec, self._told, pack=pack)
            self._frames[key] = numbers.mapInArrow(read, packing.SCHEMA if pack else self._schema)
        return self._frames[key]

    def begin(self, order: Order, group: str, description: str) -> None:
        self.forget()
        self._at_hand = group, threading.Event()
        self._context.setLocalProperty(ORDER, order.text())
        self._context.setJobGroup(group, description, interruptOnCancel=True)

    def end(self) -> None:
        for name in (ORDER, "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            self._context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None takes a property away

    def forget(self) -> None:
        self._told.value = []
        self._told_here = []

    def receipts(self, order: Order) -> dict[int, Receipt]:
        return check_receipts(order, [*self._told.value, *self._told_here])

    def read_what_is_left_out(self, events: DataFrame, df: DataFrame) -> None:
        if is_always_empty(df):
            events.count()

    def cancel(self, group: str) -> None:
        at_hand, cancelled = self._at_hand
        if at_hand == group:
            cancelled.set()
        self._context.cancelJobGroup(group)

    def alive(self) -> bool:
        java = getattr(self._context, "_jsc", None)
        process = getattr(self._context._gateway, "proc", None) if java is not None else None
        return java is not None and (process is None or process.poll() is None)

    def keep(self) -> Callable[[], None]:
        return lambda: None  # nobody but this process ends its session


class _Gathered(AccumulatorParam[list[Receipt]]):
    """Receipts, one after the other."""

    def zero(self, value: list[Receipt]) -> list[Receipt]:
        return []

    def addInPlace(self, value1: list[Receipt], value2: list[Receipt]) -> list[Receipt]:  # noqa: N802 - PySpark's name
        return [*value1, *value2]


def _by_property(spec: ReadSpec, receipts: Accumulator[list[Receipt]], *, pack: bool) -> Any:
    """The function of a task that finds its order in the job's local property."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with as_data():
            yield from read_order(numbers)

    def read_order(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        text = context.getLocalProperty(ORDER) if context is not None else None
        if text is None:
            raise UsageError(
                "batch.events is evaluated where no batch is at hand: outside the body of the loop, or in another "
                "thread. Evaluate it in the thread that took the batch, before the next one is asked for"
            )
        set_aside_imports()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                events = _read_and_tell(spec, task_order(text, number), receipts)
                yield from packing.packed(events) if pack else events

    return read


def _read_and_tell(spec: ReadSpec, order: TaskOrder, receipts: Accumulator[list[Receipt]]) -> Iterator[pa.RecordBatch]:
    """All events of a task; once they are read, its receipt is told."""
    tally = Tally({}, {}, [])
    yield from run_task(spec, order, tally)
    receipts.add([receipt_of(order, tally)])
