"""A micro-batch as its user sees it: a DataFrame, what it holds, and a name.

Owns what a table needs to know of a batch that it applies: its ranges, what its tasks have told, and whose they are. A
batch is applied to a table once: a second time in the same run is a mistake, since the first has moved the watermarks.

A batch that cannot be read whole is *abandoned*: nothing of it is applied or recorded, and the loop plans its events
again. That is for what a loop understands (`plan/failures.py`); what the user's code raises is the user's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from leasehold.errors import StaleBatch
from leasehold.model import EventRange
from leasehold.notices import Notice
from leasehold.sinks.rules.batch import Batch
from leasehold.spark.loop.evaluation import Evaluated, collecting, evaluated
from leasehold.spark.loop.jobs import Jobs
from leasehold.spark.loop.noted import check_noted
from leasehold.spark.loop.orders import Order, Receipt, fitted, title
from leasehold.spark.loop.poison import TooMuchPoison
from leasehold.spark.loop.producers import put_together
from leasehold.spark.loop.tasks import last_times, parts, sizes, with_transform
from leasehold.spark.plan.failures import Failure, FailureKind, sort_failure
from leasehold.spark.plan.picking import picked
from leasehold.spark.stream.foreach import applied_already
from leasehold.spark.table.of_loop import EvaluatesRows, MetTable, batch_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

T = TypeVar("T")


ABANDONED = frozenset(
    {
        FailureKind.TAKEN,
        FailureKind.TOO_LARGE,
        FailureKind.AWAY,
        FailureKind.LOST,
        FailureKind.GONE,
        FailureKind.STOPPED,
    }
)
"""The failures after which a loop goes on, or ends, by itself."""


class MicroBatch:
    """Some events, to be applied whole.

    events   a DataFrame with the source's columns. It reads when it is evaluated, in the thread that took the batch
    ranges   what it holds: hub, partition, begin, end (exclusive), owner level
    id       a name that is the same for the same ranges and levels in every process. After a take-over batches overlap
             under other names, so it is no key to find out what has been done: the table's watermarks are
    """

    def __init__(
        self,
        events: DataFrame,
        order: Order,
        jobs: Jobs,
        *,
        level_of: Callable[[str, str], int | None],
        meet: Callable[[MetTable], None],
        stopping: Callable[[BaseException], bool] = lambda error: False,
        waits_for_people: Callable[[], bool] = lambda: False,
        tell: Callable[[Notice], None] = lambda notice: None,
        name: str = "",
        salvage: Callable[[Callable[[Order], Evaluated]], Evaluated] | None = None,
    ) -> None:
        self.events = events
        self.ranges: tuple[EventRange, ...] = order.ranges
        self.id = batch_id(order.ranges)
        self.level_of = level_of
        """The owner level in the ownership record of a partition of a hub, None if there is no record."""
        self.failure: Failure | None = None
        """Why it was abandoned, None if it was not."""
        self.tell = tell
        """Publishes a notice of what is done with the batch."""
        self._order, self._jobs, self._meet, self._stopping = order, jobs, meet, stopping
        self._name, self._salvage, self._waits_for_people = name, salvage, waits_for_people
        self._saved: Evaluated | None = None
        self._applied: list[MetTable] = []
        self._computing: float | None = None  # seconds

    def __repr__(self) -> str:
        return f"MicroBatch({self.id}, {len(self)} events of {len(self.ranges)} partitions)"

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def receipts(self) -> dict[int, Receipt] | None:
        """What the tasks of this batch have told, by task; None where they cannot. Raises `StaleBatch`."""
        return self._jobs.receipts(self._order)

    def rows(self, table: EvaluatesRows, df: DataFrame) -> Batch:
        """What is to be written of `df`, evaluated now, with what its tasks have set aside. Raises `StaleBatch`."""
        prepared = table.prepare(df)
        started = time.monotonic()
        try:
            picks = picked(prepared.df, self.events) if self._jobs.plan_lasts else None
            collect = collecting(picks, self._order, self._jobs)
            return evaluated(table, prepared, self.events, self.events, self._order, self._jobs, collect).batch
        except Exception as error:
            if self._salvage is None or not self._is_of_events(error):
                raise
            self._saved = self._without_poison(self._salvage, table, df)
            return self._saved.batch
        finally:
            self._computing = (self._computing or 0.0) + time.monotonic() - started

    def begin(self, order: Order) -> None:
        """What this thread evaluates of `events` from here on reads by this order."""
        self._jobs.begin(order, self.id, title(self._name, order.ranges))

    def _is_of_events(self, error: Exception) -> bool:
        """Whether an error says that an event cannot be computed."""
        return sort_failure(error, computing=True).kind is FailureKind.COMPUTING and not self._stopping(error)

    def _without_poison(
        self, salvage: Callable[[Callable[[Order], Evaluated]], Evaluated], table: EvaluatesRows, df: DataFrame
    ) -> Evaluated:
        """The rows, computed once more; then, without the events that cannot be computed."""

        def compute(order: Order) -> Evaluated:
            fit = fitted(order, len(self._order.tasks))
            self.begin(fit)
            anew = table.prepare(df.select("*"))  # a shuffle's files and the time belong to one execution of a plan
            return evaluated(table, anew, self.events, self.events, fit, self._jobs)

        try:
            return compute(self._order)
        except Exception as error:
            if not self._is_of_events(error):
                raise
            logger.info("looking for the events of batch %s that cannot be computed: %s", self.id, error)
            return salvage(compute)
        finally:
            self.begin(self._order)

    def weights(self) -> dict[str, float]:
        """What an event of each partition weighs in bytes, as far as the tasks have told."""
        if self._saved is not None:
            return self._saved.weights
        return sizes(self._told())

    def times(self) -> dict[str, tuple[int, float]]:
        """When the last event of each partition was enqueued, as far as the tasks have told (`Receipt.times`)."""
        if self._saved is not None:
            return self._saved.times
        return last_times(self._told())

    def parts(self) -> dict[str, float]:
        """What tasks and tables tell of the time that its rows took, in seconds (`BatchDone.parts`)."""
        told = parts(self._told().values())
        return told if self._computing is None else with_transform(told, self._computing)

    def producers(self) -> tuple[tuple[str, str], ...]:
        """The trace contexts of the events, as far as tasks have read them: pairs of `traceparent` and `tracestate`.

        At most 128; none without `MicroBatches(trace_links=True)`.
        """
        if self._saved is not None:
            return self._saved.producers
        return put_together(receipt.producers for receipt in self._told().values())

    def _told(self) -> dict[int, Receipt]:
        """What the tasks have told; nothing where they cannot, or where the user has not evaluated all of the batch."""
        try:
            return self.receipts() or {}
        except StaleBatch:
            return {}

    def with_table(self, table: MetTable, work: Callable[[], T]) -> T | None:
        """What `work` does with the batch for a table; None, and no error, where the batch is abandoned."""
        try:
            self.begin_apply(table)
            return work()
        except Exception as error:
            if not self.abandon(error):
                raise
            logger.info("batch %s is given up and planned again: %s", self.id, self.failure)
            return None

    def begin_apply(self, table: MetTable) -> None:
        """Refuse to apply the batch to a table that has it, or that is not this loop's to fill."""
        if any(map(table.is_same, self._applied)):
            raise applied_already(f"batch {self.id}", str(table.spec.called))
        self._meet(table)
        if self._order.skipped:
            check_noted(table, self._order)
        self._jobs.forget()  # what else was evaluated of the batch says nothing of what is applied

    def end_apply(self, table: MetTable) -> None:
        """The table has committed the batch."""
        self._applied.append(table)

    @property
    def is_applied(self) -> bool:
        """Whether some table has committed the batch."""
        return bool(self._applied)

    def abandon(self, error: BaseException) -> bool:
        """Give the batch up if the loop can go on after this error by itself. Returns whether it can."""
        failure = sort_failure(error)
        if isinstance(error, TooMuchPoison):
            failure = Failure(FailureKind.AWAY, error.verdict)
        if self._stopping(error):
            failure = replace(failure, kind=FailureKind.STOPPED)
        if failure.kind in ABANDONED or (failure.kind is FailureKind.MEND and self._waits_for_people()):
            self.failure = failure
        return self.failure is not None
