"""`MicroBatches`: a loop over what an instance holds of a hub, in a program that you write.

Owns the life of the loop: it begins to hold partitions when it is entered, gives a batch at a time, records it when the
body has returned, hands over between batches, and gives all up when it is left. Promises that no checkpoint is written
for a batch whose body raised or that was abandoned, and that nothing is renewed once this process is gone: the dispatch
thread is a thread of it.

    entered ─▶ waiting ──events──▶ body ──returned──▶ recorded ─▶ waiting …
                  │                  │ └─abandoned──▶ planned again
                  │ stop(), or all   └─raised──▶ left: nothing recorded
                  ▼ consumed
                left

Concurrency: the loop belongs to the thread that iterates. `stop` may be called from any thread and from a signal
handler. A timer cancels the jobs of a batch that takes longer than the stall timeout, or than `stop_timeout` after a
stop; a body that hangs elsewhere holds its partitions until the stall timeout, and then its instance stops renewing. If
the body holds the interpreter for longer than trust lasts, the dispatch thread cannot renew: the partitions lapse, the
loop says so, and the table's fence decides whether the batch still counts.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from leasehold.errors import ConfigError, LeaseholdError, StaleBatch, StoreUnavailable, UsageError
from leasehold.logs import about
from leasehold.model import EventRange
from leasehold.notices import BatchDone, BatchRetried, Notices
from leasehold.ownership.starting import KnowsWatermarks
from leasehold.spark.loop.batch import MicroBatch, check_table
from leasehold.spark.loop.between import Between, take_session
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.jobs import Jobs, check_alive, jobs_on
from leasehold.spark.loop.orders import describe
from leasehold.spark.loop.pace import AWAY, Pace, say_losses
from leasehold.spark.loop.recovery import plan_again
from leasehold.spark.loop.settings import loop_settings, python_name
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.plan.bodies import body_reader, body_schema
from leasehold.spark.plan.failures import FailureKind, pause_before_retry
from leasehold.spark.plan.options import COLUMNS, NO_END, check_stores, require_stores
from leasehold.spark.plan.reading import reads_for, schema_of
from leasehold.spark.plan.share import FIRST_OWNERSHIP_WAIT, Share, instance_name
from leasehold.spark.plan.starting import check_start, tie
from leasehold.spark.session.endings import raise_again, silence, take_signals
from leasehold.spark.session.versions import is_connect
from leasehold.spark.table.of_loop import MetTable
from leasehold.stores import PipelineBinding
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
    partitions    a fixed share, such as ["0", "3"], in place of balancing and an ownership store
    pipeline      what the events are for: a consumer group belongs to one pipeline
    schema        of JSON bodies, as Spark writes it: then `batch.events` has its columns before the source's, and the
                  table that the batch is applied to sets aside what does not fit, with the reason
    timestamps    "truncate": times in bodies that are finer than a microsecond are cut; default: `exact`, set aside
    table         the `EntityTable` or `HandledOnSpark` that the batches are applied to: asked where the stores have
                  lost a checkpoint, and before events count as lost that it holds. A `HandledOnSpark` has to be named:
                  what it has parked is tried between batches
    available_now end when all that was in the hub at the start has been consumed, by any instance
    rng           a `random.Random` for jitter; default: a new one
    notices       where notices go; default: its own, which is `batches.notices`
    trace_links   whether tasks tell the trace contexts of their events, for which they read `properties` too: then the
                  span of `Tracing.batch` links to the producers
    options       those of the source in Python's spelling (`consumer_group`, `starting_position`,
                  `max_events_per_trigger`, `columns`, …), durations as seconds or as text ("10s"), and
                  `trigger_interval`, `max_bytes_per_trigger` and `stop_timeout` (see `LoopSettings`)

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
        timestamps: str = "exact",
        table: KnowsWatermarks | None = None,
        available_now: bool = False,
        rng: Random | None = None,
        notices: Notices | None = None,
        trace_links: bool = False,
        **options: Any,
    ) -> None:
        self.notices = notices or Notices()
        given = {"hub": hub, "store": store, "pipeline": pipeline or None, "available_now": available_now, **options}
        self._settings = loop_settings(given)
        source = self._settings.source
        check_stores(source, python_name)
        _, checkpoint_url = require_stores(source, python_name)
        if available_now and checkpoint_url is None:
            raise ConfigError("available_now", True, NO_END, "Name a checkpoint store, or leave it out")
        bodies = None if schema is None else body_schema(schema, COLUMNS)
        if bodies is not None and is_connect(spark):
            raise UsageError(
                "over Spark Connect tasks cannot set bodies aside: leave schema out, and read them with "
                'leasehold.spark.read_json(batch.events, schema) and EntityTable(reject_by="reason")'
            )
        spec = ReadSpec(
            source.hub,
            source.columns,
            source.batch_rows,
            reads_for(source),
            None if bodies is None else body_reader(bodies, timestamps=timestamps),
            links=trace_links,
        )
        fields = [] if bodies is None else list(bodies.fields)
        read = StructType([*fields, *body_schema(schema_of(source.columns), ()).fields])
        self._jobs: Jobs = jobs_on(spark, spec, read)
        self._table = table
        take_session(table, spark)
        self._rng = rng or Random()
        self._stop = SignalEvent()
        self._share: Share | None = None
        self._feed: Feed | None = None
        self._between: Between
        self._pace: Pace
        self._batch: MicroBatch | None = None
        self._watch: threading.Timer | None = None
        self._failures = 0
        self._met: str | None = None
        self._tied = False
        self._cancelled = False
        self._told = 0
        self._times = 0.0, 0.0
        self._give_back: Callable[[], None] | None = None

    # Its life

    def __enter__(self) -> MicroBatches:
        if self._share is not None:
            raise UsageError("these micro-batches are being iterated already: make another MicroBatches")
        source = self._settings.source
        self._share = share = Share(
            source,
            owner_name=instance_name(source, os.getpid()),
            alive=self._jobs.alive,
            table=self._table,
            pause=self._stop.wait,
            notices=self.notices,
            rng=self._rng,
        )
        self._pace = Pace(share.clock)
        self._between = Between(self._table, share, self._meet)
        say_losses(share.manager.notices)
        share.start()
        try:
            share.manager.wait_for_cycle(1, FIRST_OWNERSHIP_WAIT)
            self._feed = share.when_there(lambda: Feed(share, self._settings))
        except BaseException:
            share.close()
            raise
        self._give_back = take_signals(self._stop_by)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._share is not None
        errors = {}
        if self._batch is not None:
            if kind is None and self._batch.is_applied:
                self._finish()  # left by `break` after the table had it
            elif isinstance(error, Exception):  # a Ctrl-C is no bad end
                errors = dict.fromkeys(
                    (one.partition for one in self._batch.ranges), f"{type(error).__name__}: {error}"
                )
        self._unwatch()
        with suppress(Exception):  # Spark may be gone, and then there is nothing to take back
            self._jobs.end()
        try:
            self._between.leave()
        finally:
            self._share.close(errors)
        self._share = self._feed = self._batch = None
        if self._give_back is not None:
            self._give_back()
        if self._told and kind is None:
            raise_again(self._told)

    def stop(self) -> None:
        """End the loop when the batch at hand is done; its jobs are cancelled after `stop_timeout` seconds.

        `apply` then writes nothing and returns zeros, as it does where Spark ends before the batch.
        """
        self._stop.set()
        silence()
        if (batch := self._batch) is not None:
            self._cancel_after(self._settings.stop_timeout, batch)

    def _cancel_after(self, seconds: float, batch: MicroBatch) -> None:
        timer = threading.Timer(seconds, self._cancel, [batch])
        timer.daemon = True
        timer.start()

    def _cancel(self, batch: MicroBatch) -> None:
        if self._batch is not batch:
            return
        self._cancelled = True
        with suppress(Exception):  # Spark may be gone
            self._jobs.cancel(batch.id)
        self._cancel_after(1.0, batch)  # its job may begin only now

    def _stop_by(self, signum: int) -> None:
        """The program was told to end, and has no handler for it: it ends after the batch at hand."""
        self._told = signum
        self.stop()
        if self._batch is not None:
            with suppress(OSError):
                os.write(2, _STOPPING % self._settings.stop_timeout)

    def _ends_early(self, error: BaseException | None = None) -> bool:
        """Whether a failure is what a stop has brought about.

        A Java that was told to end as well loses what tasks have told, while it is still there.
        """
        if not self._stop.is_set() or isinstance(error, StaleBatch):
            return self._stop.is_set()
        return not isinstance(error, LeaseholdError) and (self._cancelled or not self._jobs.alive())

    # The loop

    def __iter__(self) -> Iterator[MicroBatch]:
        if self._batch is not None and not self._batch.is_applied and self._feed is not None:
            self._batch = None  # an earlier loop was left in the middle of it
            self._unwatch()
            self._feed.give_back()
        return self

    def __next__(self) -> MicroBatch:
        feed, share = self._running()
        self._finish()
        while not self._stop.is_set():
            check_alive(self._jobs)
            feed.record()
            self._between()
            started = share.clock.monotonic()
            with self._pace.looking():
                ranges = feed.next(self._pace.gathers)
            if ranges:
                self._pace.begun(sum(map(len, ranges)))
                batch = self._begin(ranges)
                self._times = started, share.clock.monotonic()
                return batch
            if self._settings.available_now and not feed.left_to_consume():
                break
            self._stop.wait(self._pace.pause(away=bool(feed.hub_away)))
        raise StopIteration

    def _begin(self, ranges: tuple[EventRange, ...]) -> MicroBatch:
        feed, share = self._running()
        order = feed.order(ranges, self._jobs.cores)
        events = self._jobs.events(order)
        batch = MicroBatch(
            events,
            order,
            self._jobs,
            level_of=share.level_of,
            meet=self._meet,
            stopping=self._ends_early,
            tell=self.notices.publish,
        )
        name = share.options.pipeline or share.group.name
        self._jobs.begin(order, batch.id, f"leasehold {name}: {len(batch):,} events ({describe(ranges)[:200]})")
        self._batch = batch
        self._watch_over(batch)
        return batch

    def _finish(self) -> None:
        """The body has returned: record the batch, or plan it again."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        feed, share = self._running()
        self._unwatch()
        with about(batch=batch.id):
            self._record(batch, feed, share)

    def _record(self, batch: MicroBatch, feed: Feed, share: Share) -> None:
        try:
            self._jobs.end()
        except Exception:
            if not self._ends_early():
                raise
        if batch.failure is None and not self._tied_before_record(share):
            feed.give_back()
            return
        if batch.failure is None:
            feed.learn(batch.weights(), batch.times())
            feed.committed(batch.ranges)
            self._tell_done(batch, share)
            if self._failures:
                logger.warning("batches are written again")
            self._failures = 0
            return
        self.notices.publish(BatchRetried(batch.failure.kind.name.lower()))
        plan_again(batch.failure, batch.ranges, feed, share)
        if batch.failure.kind in (FailureKind.AWAY, FailureKind.LOST):
            self._failures += 1
            if self._failures == 1 or batch.failure.kind is FailureKind.LOST:
                logger.warning("a batch is not written, and comes again until it is: %s", batch.failure.message)
            self._stop.wait(pause_before_retry(self._failures, self._rng.random()))

    def _tell_done(self, batch: MicroBatch, share: Share) -> None:
        (begun, given), now = self._times, share.clock.monotonic()
        seconds = {"plan": given - begun, "body": now - given}
        self.notices.publish(
            BatchDone(
                len(batch),
                seconds,
                batch_id=batch.id,
                elapsed=now - begun,
                producers=batch.producers(),
                parts=batch.parts(),
            )
        )

    def _meet(self, table: MetTable) -> None:
        """Tie the group to the first table that is filled from it, and refuse one that belongs elsewhere."""
        _, share = self._running()
        check_table(table, share.options.pipeline, share.group)
        if self._met is None:
            binding = PipelineBinding(table.pipeline, table.identity())
            hub = share.hub.identity
            marks = partial(table.watermarks, hub)
            check_start(share.group, share.checkpoints, binding, marks, "PIPELINE.toml", own=self._tied)
            self._met = table.name

    def _tied_before_record(self, share: Share) -> bool:
        """Tie the group to the pipeline alone, where no table has been met: what is recorded now is gone for others.

        Returns whether it is tied; not where the store is away until the end. What is held stays held meanwhile.
        """
        while self._met is None and not self._tied:
            try:
                tie(share.group, share.checkpoints, share.options.pipeline)
                self._tied = True
            except StoreUnavailable as error:
                logger.warning("the batch is recorded when the store is there again: %s", error)
                if self._stop.wait(AWAY):
                    return False
        return True

    def _running(self) -> tuple[Feed, Share]:
        if self._share is None or self._feed is None:
            raise UsageError("batches are there only inside of `with MicroBatches(…) as batches:`")
        return self._feed, self._share

    # What is watched

    def _watch_over(self, batch: MicroBatch) -> None:
        timeout = self._settings.source.settings.stall_timeout

        def cancel() -> None:
            logger.error("a batch has made no progress for %g s and is cancelled: %s", timeout, describe(batch.ranges))
            self._jobs.cancel(batch.id)

        self._watch = threading.Timer(timeout, cancel)
        self._watch.daemon = True
        self._watch.start()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
