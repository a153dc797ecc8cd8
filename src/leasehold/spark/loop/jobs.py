"""The jobs of a batch on a Spark session: what tasks are told, what they tell, names, and cancelling.

Owns the face that the loop sees of Spark's driver, beyond the DataFrame API, and the way over Spark Connect:

    ClassicJobs   (`loop/classic_jobs.py`) an order reaches the tasks in a local property of the job, so that
                  one DataFrame serves every batch; receipts come back in an accumulator, which counts what the attempt
                  that succeeded has told
    ConnectJobs   Spark Connect has neither: the order goes into the function, so that each batch has a DataFrame of its
                  own, and no receipts come back. What rests on them is not checked there, which is said at the start.
                  The server closes a session that is not used, so one is kept open

Concurrency: local properties and job groups belong to the thread that sets them, so a batch is begun in the thread that
evaluates it. Any thread may cancel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from leasehold.errors import SparkEnded
from leasehold.spark.loop.orders import Order, Receipt, task_order
from leasehold.spark.loop.tasks import ReadSpec, Tally, run_task, set_aside_imports
from leasehold.spark.plan.task_errors import as_data
from leasehold.spark.session.keeping import keep_open
from leasehold.spark.session.versions import is_connect

logger = logging.getLogger(__name__)


class Jobs(Protocol):
    """The jobs of a loop's batches."""

    @property
    def cores(self) -> int:
        """How many tasks run at once, as far as it can be known."""
        ...

    @property
    def plan_lasts(self) -> bool:
        """Whether the DataFrame that `events` gives may be executed again for another order, and its plan looked at."""
        ...

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """What is kept of an event that cannot be computed (`ReadSpec.kept_columns`)."""
        ...

    def events(self, order: Order) -> DataFrame:
        """The events of an order, not yet read."""
        ...

    def read(self, order: Order) -> pa.Table | None:
        """The events of an order, read now, just as tasks read them; None if there are none. Where `plan_lasts`."""
        ...

    def begin(self, order: Order, group: str, description: str) -> None:
        """From here on, what this thread evaluates reads by this order, and shows these words in Spark's UI."""
        ...

    def end(self) -> None:
        """What this thread evaluates from here on has nothing to do with a batch."""
        ...

    def forget(self) -> None:
        """Forget what tasks have told so far: only what is evaluated from here on counts."""
        ...

    def receipts(self, order: Order) -> dict[int, Receipt] | None:
        """What the tasks of an order have told, None where they cannot. Raises `StaleBatch` if one has not run."""
        ...

    def read_what_is_left_out(self, events: DataFrame, df: DataFrame) -> None:
        """Read `events` where Spark has not, since it knows that no row of `df` is left of them, whatever they are."""
        ...

    def cancel(self, group: str) -> None:
        """Cancel the jobs of this group, in whatever thread."""
        ...

    def alive(self) -> bool:
        """Whether Spark is there."""
        ...

    def keep(self) -> Callable[[], None]:
        """Keep Spark there while nothing is asked of it, until what this returns is called."""
        ...


def jobs_on(spark: SparkSession, spec: ReadSpec, schema: StructType | str) -> Jobs:
    """The jobs that read by `spec`; `schema` is that of what they read."""
    if is_connect(spark):
        logger.warning(
            "over Spark Connect tasks cannot tell what they have read: that a batch is complete is not checked, only "
            "that its rows are of its ranges"
        )
        return ConnectJobs(spark, spec, schema)
    from leasehold.spark.loop.classic_jobs import ClassicJobs  # Spark Connect's thin client has none of what it needs

    return ClassicJobs(spark, spec, schema)


def check_alive(jobs: Jobs) -> None:
    """Raise `SparkEnded` where Spark is gone: nothing that is waited for will come, since nothing is held for it."""
    if not jobs.alive():
        raise SparkEnded()


class ConnectJobs:
    """Jobs of a session of Spark Connect."""

    def __init__(self, spark: SparkSession, spec: ReadSpec, schema: StructType | str) -> None:
        self._spark, self._spec, self._schema = spark, spec, schema

    @property
    def cores(self) -> int:
        return 2

    @property
    def plan_lasts(self) -> bool:
        return False

    @property
    def kept_columns(self) -> tuple[str, ...]:
        return self._spec.kept_columns

    def events(self, order: Order) -> DataFrame:
        numbers = self._spark.range(0, len(order.tasks), 1, len(order.tasks))
        return numbers.mapInArrow(_by_text(self._spec, order.text()), self._schema)

    def read(self, order: Order) -> pa.Table | None:
        raise NotImplementedError("over Spark Connect nobody can tell by a plan that a batch is nothing but its events")

    def begin(self, order: Order, group: str, description: str) -> None:
        self._spark.addTag(_tag(group))

    def end(self) -> None:
        self._spark.clearTags()

    def forget(self) -> None:
        """Nothing is told over Spark Connect."""

    def receipts(self, order: Order) -> None:
        return None

    def read_what_is_left_out(self, events: DataFrame, df: DataFrame) -> None:
        """Nothing is told over Spark Connect."""

    def cancel(self, group: str) -> None:
        self._spark.interruptTag(_tag(group))

    def alive(self) -> bool:
        return not getattr(self._spark, "is_stopped", False)

    def keep(self) -> Callable[[], None]:
        return keep_open(self._spark)


def _tag(group: str) -> str:
    return group.replace(",", "_")


def _by_text(spec: ReadSpec, text: str) -> Any:
    """The function of a task whose order comes with it."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        set_aside_imports()
        with as_data():
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from run_task(spec, task_order(text, number), Tally({}, {}, []))

    return read
