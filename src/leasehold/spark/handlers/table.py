"""A table that a handler fills, on Spark: what `leasehold run` has in place of an `EntityTable`.

Owns the way of a batch: its events come to the driver, as rows do; it reads each partition's watermark and which
entities wait; one job, a task for each partition, reads states and calls the handler (`tasks`); then the driver commits
partition by partition, by the same code as the plain processor (`entities.handled_table`), each with its states,
watermark, rejected and parked events in one transaction. The next batch is read meanwhile. Where a watermark is not
what it was before the job (an operator has retried an event, another owner came), the driver reads the states and calls
the handler again by itself. Parked events are tried again in the driver, also while nothing arrives (`try_parked`).

Refuses Spark Connect, a SQLite table unless all tasks are on this machine, and what handlers on Spark have not.

One thread works with a table: the loop's. Stopped for a minute, or killed, at any line before a partition's commit,
nothing of it has happened; of a batch some partitions may be committed and others not, and what comes again of the
former is passed by.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from leasehold.entities.handled_table import HandledTable
from leasehold.entities.handlers import Computed
from leasehold.errors import ConfigError, HandlerUnavailable, LeaseholdError
from leasehold.handled.pipeline import made_of
from leasehold.model import EventRange
from leasehold.notices import Notice, TableApplied
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.base import LevelOf
from leasehold.sinks.batch import Batch
from leasehold.sinks.fence import Watermark
from leasehold.sinks.parking import Parking
from leasehold.sinks.staged import StagedBatch
from leasehold.sinks.table import BatchResult, Totals, counts_of
from leasehold.spark.handlers.lanes import Lane, events_only, lanes_of
from leasehold.spark.handlers.tasks import Call, Piece
from leasehold.spark.loop.jobs import is_connect
from leasehold.spark.table.expressions import Prepared
from leasehold.spark.table.staging import Beside
from leasehold.spark.versions import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from leasehold.processor.delivery import EventBatch
    from leasehold.processor.partition_client import PartitionContext

logger = logging.getLogger(__name__)

_WORKER_ENDED = "Python worker exited unexpectedly"  # Spark's words, in all its releases
AWAY = 10.0
"""Seconds until parked events are looked at again after an error."""


@dataclass(slots=True)
class _Caller:
    """What a handled table knows of who calls it."""

    start: int
    due: float = math.inf

    def call_again(self, seconds: float) -> None:
        self.due = min(self.due, time.monotonic() + seconds)


class _Table(HandledTable):
    """A handled table that is told what tasks have computed, and counts what it commits."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._url = arguments[1]
        self.ahead: dict[str, tuple[Watermark, Computed]] = {}
        self.result = BatchResult()

    def call(self, rounds: int = 1) -> Call:
        """How tasks call the handler, if they run in so many rounds, one behind the other."""
        from pyspark import cloudpickle

        last = 1 if self._on_failure == "discard" else self._retries.deliveries
        call = Call(self._handler, self._reader, self._state, self._url, self.sink.spec, last)
        timeout = self._calls.timeout
        if timeout is None:
            return call
        at_most = max(timeout, self._calls.at_most / 2 / rounds)
        pickled: bytes = cloudpickle.dumps(self._handler)  # type: ignore[no-untyped-call]
        return replace(call, timeout=timeout, at_most=at_most, pickled=pickled)

    def sharing(self) -> AbstractContextManager[None]:
        """A block in which what hangs in the driver takes half of a batch's time, all partitions together."""
        return self._calls.sharing()

    def piece(self, lane: Lane) -> tuple[Watermark, Piece] | None:
        """What a task is to compute of a partition, and under which watermark; None where there is nothing."""
        batch = cast("EventBatch", lane)
        if not self._is_owner(batch):
            return None
        mark = self._watermark(batch)
        new = tuple(event for event in lane if event.sequence_number > mark.sequence_number)
        if not new:
            return None
        waiting = frozenset(self._waiting(batch, mark))
        return mark, Piece(lane.hub, lane.partition, lane.owner_level, new, waiting)

    def take(self, lane: Lane) -> float:
        """Commit a partition's events, or try what is parked. When to call again, by the monotonic clock."""
        caller = _Caller(lane.start)
        self.on_events(cast("EventBatch", lane), cast("PartitionContext", caller))
        return caller.due

    def _compute(self, batch: EventBatch, mark: Watermark, again: int) -> Computed:
        under, done = self.ahead.pop(batch.partition, (None, None))
        return done if done is not None and under == mark else super()._compute(batch, mark, again)

    def _apply(
        self,
        done: Computed,
        batch: EventBatch,
        begin: int,
        end: int,
        read_under: Watermark | None = None,
        parking: Parking | None = None,
    ) -> BatchResult:
        result = super()._apply(done, batch, begin, end, read_under, parking)
        if not (result.outdated or result.violations) and read_under is not None and parking is not None:
            new = sum(event.sequence_number > read_under.sequence_number for event in batch)
            rejected = len(done.rejected) + len(done.dead)
            tried = len(parking.removed) if parking.retried else new - len(done.held)
            before = self.result
            self.result = BatchResult(
                applied=before.applied + tried - rejected,
                replayed=before.replayed + len(tuple(batch)) - new,
                rejected=before.rejected + rejected,
            )
        return result


class HandledOnSpark:
    """The table of a pipeline file with a handler, for the loop. Raises `ConfigError` for what does not go together."""

    deduplication = None

    def __init__(self, file: PipelineFile) -> None:
        self._file = file
        for key, value, rule in (
            ("outbox.hub", file.outbox_url and file.outbox.hub, "on Spark nobody sends what a handler emits"),
            ("sink.on_failure", file.sink.on_failure == "wait" and "wait", "on Spark no event holds up its partition"),
            ("sink.related", ", ".join(file.sink.related), "on Spark a handler writes no rows of other tables"),
            ("sink.exclusive", file.sink.exclusive, "on Spark no entity is leased"),
            ("sink.spread", file.sink.spread, "on Spark the events of an entity are in one partition"),
        ):
            if value:
                raise ConfigError(
                    f"{file.path}: {key}", value, rule, "Leave it out, or run it with --no-spark: it is there"
                )
        self._table = made_of(_Table, file)
        self._spark: SparkSession | None = None
        self._due: dict[tuple[str, int], float] = {}
        self._totals = Totals()

    @property
    def totals(self) -> Totals:
        """The sum of what has become of all events; those that are parked are not in it until they are tried."""
        return self._totals

    @property
    def level_of(self) -> LevelOf | None:
        """From a hub and a partition to the owner level in its ownership record."""
        return self._table.level_of

    @level_of.setter
    def level_of(self, level_of: LevelOf | None) -> None:
        self._table.level_of = level_of

    def check(self, df: DataFrame) -> None:
        """Take the session of `df`, whose tasks are to call the handler. Raises `ConfigError`."""
        spark = df.sparkSession
        if is_connect(spark):
            raise ConfigError(
                f"{self._file.path}: spark.master", None, "handlers do not run over Spark Connect", "Give --no-spark"
            )
        master = spark.sparkContext.master or ""
        if self._file.sink_url.startswith("sqlite:") and not (master == "local" or master.startswith("local[")):
            raise ConfigError(
                f"{self._file.path}: sink.url",
                self._file.sink.url,
                f"tasks read states, and those of {master} have no file of this machine",
                'Use Postgres, or master = "local[2]"',
            )
        self._ship_module()
        self._spark = spark

    def prepare(self, df: DataFrame) -> Prepared:
        """The columns that handlers need."""
        return Prepared(events_only(df), ())

    def evaluate(self, prepared: Prepared) -> Batch:
        """Read the events: the job that may run ahead of a commit."""
        return Batch(to_arrow(prepared.df))

    def staged(self, prepared: Prepared, ranges: Sequence[EventRange], beside: Beside) -> None:
        """Events are not staged: what they come to is not known before the batch before them is committed."""

    def write(
        self, batch: Batch | StagedBatch, level_of: LevelOf | None = None, tell: Callable[[Notice], None] | None = None
    ) -> BatchResult:
        """Call the handler for the events of a batch, and commit what they come to, partition by partition.

        Raises `HandlerUnavailable` where most calls for a partition fail alike, with the other partitions committed.
        """
        assert isinstance(batch, Batch)
        started = time.monotonic()
        table, lanes = self._table, lanes_of(batch)
        self.level_of = level_of
        found = {lane.partition: piece for lane in lanes if (piece := table.piece(lane)) is not None}
        done = self._called([piece for _, piece in found.values()])
        table.ahead = {name: (mark, one) for (name, (mark, _)), one in zip(found.items(), done, strict=True)}
        table.result = BatchResult()
        outages: list[HandlerUnavailable] = []
        with table.sharing():
            for lane in lanes:
                try:
                    self._due[lane.partition, lane.owner_level] = table.take(lane)
                except HandlerUnavailable as error:
                    outages.append(error)
        result = self._counted()
        if tell is not None:
            tell(TableApplied(table.sink.spec.name, counts_of(result), time.monotonic() - started, result.seconds))
        if outages:
            raise outages[0]
        return result

    def try_parked(self, hub: str, held: Mapping[str, int]) -> None:
        """Try the parked events that are due, of the partitions that are held at these levels. Raises nothing of ours:
        what is away now is tried again later."""
        now = time.monotonic()
        self._due = {place: at for place, at in self._due.items() if held.get(place[0]) == place[1]}
        with self._table.sharing():
            for place in held.items():
                if self._due.get(place, 0.0) > now:
                    continue
                try:
                    self._due[place] = self._table.take(Lane(hub, *place))
                except LeaseholdError as error:
                    logger.warning("the parked events of partition %s wait: %s", place[0], error)
                    self._due[place] = time.monotonic() + AWAY
                self._counted()

    def sink_identity(self) -> str:
        """The UUID of this pipeline's table."""
        return self._table.sink.identity()

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """How far each partition of `hub` has been applied, and the highest owner level that has been there."""
        return self._table.sink.watermarks(hub)

    def close(self) -> None:
        """Close this thread's connection to the database."""
        self._table.close()

    def _called(self, pieces: Sequence[Piece]) -> Iterable[Computed]:
        """What tasks make of these pieces, a task each."""
        if not pieces:
            return ()
        assert self._spark is not None
        context = self._spark.sparkContext

        def job(call: Call) -> list[Computed]:
            answered: list[Computed] = context.parallelize(pieces, len(pieces)).map(call.task()).collect()
            return answered

        call = self._table.call(math.ceil(len(pieces) / context.defaultParallelism))
        try:
            return job(call)
        except Exception as error:
            if call.timeout is None or _WORKER_ENDED not in str(error):
                raise
            logger.warning(
                "a worker has ended in the handler %s, by a call that nothing interrupts or by itself: the batch is "
                "computed once more, with calls in processes of their own",
                call.handler.function.__name__,
            )
            return job(replace(call, careful=True))

    def _counted(self) -> BatchResult:
        result, self._table.result = self._table.result, BatchResult()
        if result != BatchResult():
            self._totals = self._totals.plus(result)
        return result

    def _ship_module(self) -> None:
        """The handler goes to the workers whole: they need not be able to import its module."""
        from pyspark import cloudpickle

        module = sys.modules.get(self._table.call().handler.function.__module__)
        if module is not None and module.__name__.partition(".")[0] not in ("leasehold", "__main__"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
