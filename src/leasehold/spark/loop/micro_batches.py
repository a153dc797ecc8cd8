"""`MicroBatches`: a loop over what an instance holds of a hub, in a program that you write.

Owns the body's side of the loop: it gives a batch at a time, has it recorded when the body has returned, and hands what
the body raises on. The loop itself is the engine's (`engine.py`), which `leasehold run` stands on too. Promises that no
checkpoint is written for a batch whose body raised or that was abandoned.

    entered ─▶ waiting ──events──▶ body ──returned──▶ recorded ─▶ waiting …
                  │                  │ └─abandoned──▶ planned again
                  │ stop(), or all   └─raised──▶ left: nothing recorded
                  ▼ consumed
                left

Concurrency: the loop belongs to the thread that iterates. `stop` may be called from any thread and from a signal
handler. A thread beside the body cancels the jobs of a batch that takes longer than the stall timeout, or than
`stop_timeout` after a stop; a body that hangs elsewhere holds its partitions until the stall timeout, and then its
instance stops renewing. If the body holds the interpreter for longer than trust lasts, the dispatch thread cannot
renew: the partitions lapse, the loop says so, and the table's fence decides whether the batch still counts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from leasehold.counts import NONE, Counts
from leasehold.errors import ConfigError, LeaseholdError, StaleBatch, UsageError
from leasehold.logs import about
from leasehold.notices import BatchDone, Notice, Notices, TableApplied
from leasehold.operations.progress import GroupProgress
from leasehold.ownership.consumed import NO_END
from leasehold.ownership.starting import KnowsWatermarks
from leasehold.printable import counted
from leasehold.sinks.rules.table_spec import Totals
from leasehold.spark.loop.batch import MicroBatch
from leasehold.spark.loop.between import take_session
from leasehold.spark.loop.driver_reads import ReadCancelled
from leasehold.spark.loop.engine import Engine, Planned, say_rejected
from leasehold.spark.loop.evaluation import Evaluated
from leasehold.spark.loop.jobs import Jobs, jobs_on
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.poison import Poison
from leasehold.spark.loop.progress import progress_of
from leasehold.spark.loop.recovery import put_on_record
from leasehold.spark.loop.settings import loop_settings
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.loop.watch import Watched
from leasehold.spark.plan.bodies import added_by, body_reader, body_schema
from leasehold.spark.plan.failures import Failure, FailureKind, sort_failure
from leasehold.spark.plan.options import COLUMNS, check_stores, require_stores
from leasehold.spark.plan.reading import reads_for, schema_of
from leasehold.spark.session.endings import raise_again, silence, take_signals
from leasehold.spark.session.versions import is_connect
from leasehold.waiting import SignalEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
_STOPPING = b"leasehold: stopping when the batch at hand is done, in %g s at most; once more ends it at once\n"


class MicroBatches:
    """Batches of the events of a hub, shared with all instances of the same consumer group.

        with MicroBatches(spark, "kafka://broker/flights", store="postgresql://…", pipeline="flights") as batches:
            for batch in batches:
                flights.apply(clean(batch.events), batch)

    spark         the session that the batches run in, Spark Connect included
    hub, store    URLs; `ownership_store` and `checkpoint_store` name two stores in place of one.
                  `checkpoint_store="none"`: nothing is remembered
    pipeline      what the events are for: a consumer group belongs to one pipeline
    schema        of the bodies, as Spark writes it: then `batch.events` has its columns before the source's, and the
                  table that the batch is applied to sets aside what does not fit, with the reason
    table         the `EntityTable` or `HandledOnSpark` that the batches are applied to: asked where the stores have
                  lost a checkpoint, and before events count as lost that it holds. A `HandledOnSpark` has to be named:
                  what it has parked is tried between batches
    rng           a `random.Random` for jitter; default: a new one
    notices       where notices go; default: its own, which is `batches.notices`
    options       the other settings by their names: `available_now`, `consumer_group`, `starting_position`,
                  `max_events_per_trigger`, `on_error`, `columns`, … docs/reference/settings.md explains each, with its
                  default. Durations are seconds or text ("10s")

    Raises `ConfigError` at once for unknown options and for options that contradict each other.
    """

    def __init__(
        self,
        spark: SparkSession,
        hub: str,
        *,
        store: str | None = None,
        pipeline: str = "",
        schema: str | None = None,
        table: KnowsWatermarks | None = None,
        rng: Random | None = None,
        notices: Notices | None = None,
        **options: Any,
    ) -> None:
        self.notices = notices or Notices()
        self._settings = loop_settings({"hub": hub, "store": store, "pipeline": pipeline or None, **options})
        source = self._settings.source
        check_stores(source, str)
        _, checkpoint_url = require_stores(source, str)
        if self._settings.available_now and checkpoint_url is None:
            raise ConfigError("available_now", True, NO_END, "Name a checkpoint store, or leave it out")
        bodies = None
        if schema is not None:
            bodies = body_schema(schema, COLUMNS, adds=added_by(self._settings.body_format))
        if bodies is not None and is_connect(spark):
            raise UsageError(
                "over Spark Connect tasks cannot set bodies aside: leave schema out, and read them with "
                'leasehold.spark.read_bodies(batch.events, schema) and EntityTable(rules=RowRules(reject_by="reason"))'
            )
        if self._settings.on_error == "reject" and is_connect(spark):
            raise ConfigError(
                "on_error",
                "reject",
                "over Spark Connect a batch cannot be computed in parts",
                "Leave it out, and guard against such events (try_cast, reject_by)",
            )
        spec = ReadSpec(
            source.hub,
            source.columns,
            source.batch_rows,
            reads_for(source),
            None if bodies is None else body_reader(bodies, self._settings.body_format),
            links=self._settings.trace_links,
        )
        fields = [] if bodies is None else list(bodies.fields)
        read = StructType([*fields, *body_schema(schema_of(source.columns), ()).fields])
        self._jobs: Jobs = jobs_on(spark, spec, read)
        self._table = table
        take_session(table, spark)
        self._rng = rng or Random()
        self._stop = SignalEvent()
        self._engine: Engine | None = None
        self._current: _Current | None = None
        self._totals: dict[str, Totals] = {}
        self._waits = False
        self._told = 0
        self._give_back: Callable[[], None] | None = None

    # Its life

    def __enter__(self) -> MicroBatches:
        if self._engine is not None:
            raise UsageError("these micro-batches are being iterated already: make another MicroBatches")
        engine = Engine(self._jobs, self._settings, self._table, self._stop, notices=self.notices, rng=self._rng)
        engine.start()
        self._engine = engine
        self._give_back = take_signals(self._stop_by)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._engine is not None
        errors: dict[str, str] = {}
        try:
            if (current := self._current) is not None:
                current.watched.end()
                if kind is None and current.batch.is_applied:
                    self._finish()  # left by `break` after the table had it
                elif isinstance(error, Exception) and (failure := sort_failure(error)).kind is FailureKind.MEND:
                    put_on_record(current.batch.ranges, failure.message, self._engine.share)
                elif isinstance(error, Exception):  # a Ctrl-C is no bad end
                    errors = dict.fromkeys(
                        (one.partition for one in current.batch.ranges), f"{type(error).__name__}: {error}"
                    )
        finally:
            self._leave(self._engine, errors)
            for table, totals in self._totals.items():
                logger.info("table %s: %s; %s", table, totals.said(), counted(totals.batches, "batch"))
        if self._told and kind is None:
            raise_again(self._told)

    def _leave(self, engine: Engine, errors: Mapping[str, str]) -> None:
        """Give everything up, whatever the end of the last batch has raised."""
        self._engine = self._current = None
        try:
            with suppress(Exception):  # Spark may be gone, and then there is nothing to take back
                self._jobs.end()
            engine.leave(errors)
        finally:
            if self._give_back is not None:
                self._give_back()

    def stop(self) -> None:
        """End the loop when the batch at hand is done; its jobs are cancelled after `stop_timeout` seconds.

        `apply` then writes nothing and returns zeros, as it does where Spark ends before the batch.
        """
        self._stop.set()
        silence()

    def progress(self) -> GroupProgress:
        """Who holds which partition of the hub, and how far it has come: of the whole consumer group, asked now.

        Before, in and behind `with`, from any thread. A notebook shows what this returns as a table. Raises
        `HubUnavailable`, `StoreUnavailable`, and `UsageError` where no instance has made the stores yet.
        """
        return progress_of(self._settings.source, self._table)

    def _stop_by(self, signum: int) -> None:
        """The program was told to end, and has no handler for it: it ends after the batch at hand."""
        self._told = signum
        self.stop()
        if self._current is not None:
            with suppress(OSError):
                os.write(2, _STOPPING % self._settings.stop_timeout)

    def _ends_early(self, current: _Current, error: BaseException | None = None) -> bool:
        """Whether a failure is what a stop has brought about.

        A Java that was told to end as well loses what tasks have told, while it is still there.
        """
        if not self._stop.is_set() or isinstance(error, StaleBatch):
            return self._stop.is_set()
        is_of_spark = isinstance(error, ReadCancelled) or not isinstance(error, LeaseholdError)
        return is_of_spark and (current.watched.late or not self._jobs.alive())

    # The loop

    def __iter__(self) -> Iterator[MicroBatch]:
        if self._current is not None and not self._current.batch.is_applied and self._engine is not None:
            self._current.watched.end()  # an earlier loop was left in the middle of it
            self._current = None
            self._engine.feed.give_back()
        return self

    def __next__(self) -> MicroBatch:
        engine = self._running()
        self._finish()
        planned = engine.next()
        if planned is None:
            raise StopIteration
        return self._begin(engine, planned)

    def _begin(self, engine: Engine, planned: Planned) -> MicroBatch:
        order, watched = planned.order, engine.watch.beside(planned.ranges)
        rejects = self._settings.on_error == "reject"
        source = self._settings.source
        batch = MicroBatch(
            self._jobs.events(order),
            order,
            self._jobs,
            level_of=engine.share.level_of,
            meet=engine.binding.meet,
            stopping=lambda error: self._ends_early(current, error),
            waits_for_people=lambda: engine.waits_for_people,
            tell=lambda notice: self._hear(notice, current),
            name=source.pipeline or engine.share.group.name,
            salvage=partial(self._salvaged, engine) if rejects else None,
        )
        current = _Current(batch, planned, watched, engine.now())
        self._current = current
        batch.begin(order)
        return batch

    def _hear(self, notice: Notice, current: _Current) -> None:
        """A table tells of the batch."""
        if isinstance(notice, TableApplied):
            current.counts.append(notice.counts)
            self._totals[notice.table] = self._totals.get(notice.table, Totals()).with_batch(notice.counts)
        self.notices.publish(notice)

    def _finish(self) -> None:
        """The body has returned: record the batch, or plan it again."""
        current, self._current = self._current, None
        if current is None:
            return
        engine = self._running()
        current.watched.end()
        with about(batch=current.batch.id):
            self._record(current, engine)

    def _record(self, current: _Current, engine: Engine) -> None:
        batch = current.batch
        try:
            self._jobs.end()
        except Exception:
            if not self._ends_early(current):
                raise
        if batch.failure is not None:
            self._again(batch.failure, current, engine)
        elif not engine.binding.before_record(self._stop):
            engine.feed.give_back()
        else:
            engine.committed(current.planned, batch.weights(), batch.times())
            self._tell_done(current, engine.now())
            say_rejected(current.poison)
            if self._waits:
                logger.warning("batches are written again")
            self._waits = False

    def _again(self, failure: Failure, current: _Current, engine: Engine) -> None:
        engine.failed(failure, current.planned)
        waited = failure.kind in (FailureKind.AWAY, FailureKind.MEND)
        if failure.kind is FailureKind.LOST or (waited and not self._waits):
            self._waits = True
            logger.warning("a batch is not written, and comes again until it is: %s", failure.message)
        engine.again(failure, current.planned)

    def _tell_done(self, current: _Current, now: float) -> None:
        batch, planned = current.batch, current.planned
        self.notices.publish(
            BatchDone(
                len(batch),
                {"plan": current.given - planned.begun, "body": now - current.given},
                current.counts[0] if len(current.counts) == 1 else NONE,
                batch_id=batch.id,
                elapsed=now - planned.begun,
                producers=batch.producers(),
                parts=batch.parts(),
            )
        )

    def _salvaged(self, engine: Engine, compute: Callable[[Order], Evaluated]) -> Evaluated:
        """The batch at hand without the events that cannot be computed: see `Engine.salvaged`."""
        current = self._current
        assert current is not None

        def part(order: Order) -> Evaluated:
            engine.share.note_progress()
            current.watched.begun = engine.now()
            return compute(order)

        engine.counts.computing += 1
        found, current.poison = engine.salvaged(current.planned, part)
        return found

    def _running(self) -> Engine:
        if self._engine is None:
            raise UsageError("batches are there only inside of `with MicroBatches(…) as batches:`")
        return self._engine


@dataclass(slots=True)
class _Current:
    """The batch at hand: as its user has it, as it was planned, the watch over it, and when it was given, in seconds.

    `counts` are what tables have told of it, `poison` its events that were rejected since they cannot be computed.
    """

    batch: MicroBatch
    planned: Planned
    watched: Watched
    given: float
    poison: tuple[Poison, ...] = ()
    counts: list[Counts] = field(default_factory=list)
