"""Runs the batches of a pipeline one after the other: reads the next one while this one is written.

Owns what happens when: a batch is planned, evaluated in a thread, written by this one, recorded, and what others ask
for is handed over; a failure is waited out, mended or told. Promises that batches are written in the order in which
they were planned, that no checkpoint comes before its commit, that a batch which fails is planned again with all that
were planned after it, and that a stop ends within `stop_timeout`, plus the time of one write.

    planned ─▶ evaluated ──▶ written ─▶ recorded
        ▲          │ failed     │ failed
        └──────────┴────────────┘   taken, too large, away, lost: planned again (recovery.py)
                   │                computing: again, then the events are looked for (poison.py)
                   │                unknown: again; then the partitions become suspects
                   └─ permanent: the end

Concurrency: this thread plans, writes and records. The worker's thread evaluates, one batch at a time, and may be one
batch ahead. The dispatch thread renews. If this process stops for a minute anywhere, its partitions expire, another
instance takes them, and the table's fence drops what is written here afterwards. Killed at any line, the next owner
starts at the checkpoint, and the table drops what it has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

from leasehold.errors import LeaseholdError
from leasehold.hubs.base import Hub
from leasehold.model import EventRange
from leasehold.sinks.base import BatchResult
from leasehold.spark.entity_table import with_rejected
from leasehold.spark.loop.evaluation import Evaluated
from leasehold.spark.loop.failures import Failure, Kind, pause_before_retry, sort_failure
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.jobs import Jobs
from leasehold.spark.loop.orders import Order, batch_id, describe
from leasehold.spark.loop.pace import Pace
from leasehold.spark.loop.poison import Poison, Sifted, TooMuchPoison, sift
from leasehold.spark.loop.recovery import give_up, plan_again
from leasehold.spark.loop.settings import LoopSettings
from leasehold.spark.loop.tasks import CARRIED
from leasehold.spark.loop.worker import Worker
from leasehold.spark.offsets import Range
from leasehold.spark.reading import ReadFor, owned_batches, with_level
from leasehold.spark.share import Share

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a batch that fails for an unknown reason is tried before this instance stops, if nothing else ever worked.

One that has worked goes on: the partitions of the batch become suspects (`leasehold.balancing.suspects`), and are tried
again and again, later and later, while the others are worked on. With AvailableNow it stops all the same: there is
an end to come to.
"""
LONGEST_ERROR = 500
"""How many characters of an error are kept with the partitions that it ended the work on."""
LOOK = 0.2
"""Seconds between two looks at a stop and at the time, while a batch is evaluated."""
CANCEL_PATIENCE = 15.0
"""Seconds that a cancelled batch has to end: Spark gives its workers two."""
WITNESSES = 20
"""How many events of the last good batch are computed again, where all of a batch fails."""


class BatchFailed(LeaseholdError):
    """A batch fails, and trying again does not mend it."""


@dataclass(slots=True)
class Ahead:
    """A batch that is evaluated: its order, its rows to come, and when it was begun."""

    order: Order
    rows: Future[Evaluated]
    begun: float
    stalled: bool = False

    @property
    def ranges(self) -> tuple[EventRange, ...]:
        return self.order.ranges


@dataclass(slots=True, kw_only=True)
class Policy:
    """What is done about events that cannot be computed.

    on_error    `reject`: they are set aside with the error; `stop`: the run ends
    max_poison  more of them than this in a batch are an outage, which is waited out
    overlap     whether the next batch is read while this one is written
    """

    on_error: str = "reject"
    max_poison: int = 100
    overlap: bool = True


@dataclass(slots=True)
class Counts:
    """What went wrong so far."""

    retries: int = 0
    in_a_row: int = 0
    computing: int = 0
    unknown: int = 0
    ever_applied: bool = False


class BatchRunner:
    """Runs batches until it is stopped, or all is consumed. Used once.

    `write` applies rows to the table. `report` is called after each batch, and with a remark after each failure.
    """

    def __init__(
        self,
        share: Share,
        feed: Feed,
        jobs: Jobs,
        evaluate: Callable[[Order], Evaluated],
        write: Callable[[Evaluated], BatchResult],
        *,
        settings: LoopSettings,
        policy: Policy,
        stop: threading.Event,
        report: Callable[[str], None],
        rng: Random,
        columns: tuple[str, ...],
    ) -> None:
        self._share, self._feed, self._jobs = share, feed, jobs
        self._evaluate, self._write = evaluate, write
        self._settings, self._policy = settings, policy
        self._stop, self._report, self._rng = stop, report, rng
        self._columns = columns
        self._worker = Worker("leasehold-batch")
        self._pace = Pace(share.clock)
        self._last_good: tuple[EventRange, ...] = ()
        self._said_waiting = 0.0
        self.counts = Counts()

    def run(self) -> None:
        """Run. Raises `BatchFailed`, and a `UsageError` for what keeps this instance from working."""
        ahead: Ahead | None = None
        while True:
            if ahead is None and not self._stop.is_set():
                ahead = self._begin_next()
            if ahead is None:
                if self._stop.is_set() or (self._settings.available_now and self._all_consumed()):
                    return
                self._idle()
                continue
            ahead = self._one(ahead)

    def _one(self, ahead: Ahead) -> Ahead | None:
        """See one batch through. Returns the one that follows, if it is begun already."""
        following: Ahead | None = None
        writing = False
        try:
            evaluated = self._rows(ahead)
            if self._policy.overlap and not self._stop.is_set():
                following = self._begin_next()
            writing = True
            self._commit(evaluated, ahead.ranges)
        except BaseException as error:
            self._drop(following)
            if not isinstance(error, Exception | SystemExit):
                raise
            self._after_failure(error, ahead, computing=not writing)
            return None
        return following

    def _begin_next(self) -> Ahead | None:
        with self._pace.looking():
            ranges = self._feed.next()
        if not ranges:
            return None
        self._pace = Pace(self._share.clock)
        order = self._feed.order(ranges, self._jobs.cores)
        return Ahead(order, self._worker.submit(lambda: self._evaluate(order)), self._share.clock.monotonic())

    def _rows(self, ahead: Ahead) -> Evaluated:
        """The rows of a batch, once they are there; cancelled when it takes too long, or a stop has waited enough."""
        stopped_at: float | None = None
        cancelled_at: float | None = None
        stall = self._settings.source.settings.stall_timeout
        while True:
            try:
                return ahead.rows.result(timeout=LOOK)
            except NotYet:
                if ahead.rows.done():
                    raise  # the batch itself has raised one
            now = self._share.clock.monotonic()
            if self._stop.is_set() and stopped_at is None:
                stopped_at = now
            if cancelled_at is None:
                # A little before the manager would drop what is held without a word of why.
                ahead.stalled = now - ahead.begun > stall - min(1.0, 0.05 * stall)
                if ahead.stalled or (stopped_at is not None and now - stopped_at > self._settings.stop_timeout):
                    self._jobs.cancel(batch_id(ahead.ranges))
                    cancelled_at = now
            elif now - cancelled_at > CANCEL_PATIENCE:
                give_up(
                    ahead.ranges,
                    f"hangs, and does not end when its jobs are cancelled: {describe(ahead.ranges)}",
                    self._share,
                )
                raise BatchFailed(
                    f"a batch has made no progress for {now - ahead.begun:.0f} s and does not end when its jobs are "
                    f"cancelled: code of the transform hangs in the driver ({describe(ahead.ranges)}). This instance "
                    "ends"
                )

    def _commit(self, evaluated: Evaluated, ranges: tuple[EventRange, ...]) -> None:
        self._write(evaluated)
        self._feed.learn(evaluated.weights)
        self._feed.committed(ranges)
        self._last_good = ranges
        counts = self.counts
        counts.in_a_row = counts.computing = counts.unknown = 0
        counts.ever_applied = True
        self._report("")

    def _drop(self, following: Ahead | None) -> None:
        """What was begun too early is not wanted: it will be planned again."""
        if following is None or following.rows.cancel():
            return
        self._jobs.cancel(batch_id(following.ranges))
        try:
            following.rows.exception(timeout=CANCEL_PATIENCE)
        except NotYet:
            logger.warning("a batch does not end when its jobs are cancelled: %s", describe(following.ranges))

    # While nothing comes

    def _idle(self) -> None:
        self._feed.record()
        self._stop.wait(self._pace.pause(away=bool(self._feed.hub_away)))

    def _all_consumed(self) -> bool:
        """Whether there is nothing left to wait for; says now and then what there is."""
        left = self._feed.left_to_consume()
        if not left:
            return True
        now = self._share.clock.monotonic()
        if now - self._said_waiting > 10.0:
            if self._said_waiting:
                who = self._feed.owners_of(left)
                self._report(f"waiting for partitions {', '.join(left[:20])}, which are not consumed yet: {who}")
            self._said_waiting = now
        return False

    # After a failure

    def _after_failure(self, error: BaseException, ahead: Ahead, *, computing: bool) -> None:
        if isinstance(error, BatchFailed):
            raise error
        if not self._jobs.alive():
            raise error
        if self._stop.is_set() and not ahead.stalled:
            logger.info("the batch at hand was given up at the stop: %s", error)
            self._feed.give_back()
            return
        failure = sort_failure(error, computing=computing)
        if ahead.stalled:
            failure = Failure(
                Kind.UNKNOWN, f"no progress for the stall timeout, then cancelled: {describe(ahead.ranges)}"
            )
        counts = self.counts
        counts.retries += 1
        counts.in_a_row += 1
        if failure.kind is Kind.PERMANENT:
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})") from error
        if failure.kind is Kind.COMPUTING:
            self._computing(failure, ahead)
        elif failure.kind is Kind.UNKNOWN:
            self._unknown(failure, ahead, error)
        else:
            plan_again(failure, ahead.ranges, self._feed, self._share)
            if failure.kind in (Kind.AWAY, Kind.LOST):
                self._pause(failure.message)

    def _computing(self, failure: Failure, ahead: Ahead) -> None:
        """An event cannot be computed, or something that the transform needs is away."""
        counts = self.counts
        counts.computing += 1
        if counts.computing < 2:
            self._feed.give_back()
            self._report(f"{failure.message} - trying once more")
            return
        if self._policy.on_error == "stop":
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})")
        try:
            sifted = self._sift(ahead)
        except TooMuchPoison as outage:
            if self._settings.available_now and counts.computing >= ATTEMPTS:
                raise BatchFailed(f"{outage} (batch: {describe(ahead.ranges)})") from outage
            self._feed.give_back()
            self._pause(f"{outage}. That is an outage, so nothing is rejected")
            return
        except BaseException as error:
            if not isinstance(error, Exception | SystemExit):
                raise
            self._after_failure(error, ahead, computing=False)
            return
        if sifted is not None:
            self._write_sifted(sifted, ahead)

    def _sift(self, ahead: Ahead) -> Sifted[Evaluated] | None:
        def compute(ranges: Sequence[EventRange]) -> Evaluated:
            order = self._feed.order(ranges, self._jobs.cores)
            part = Ahead(order, self._worker.submit(lambda: self._evaluate(order)), self._share.clock.monotonic())
            self._share.note_progress()
            return self._rows(part)

        def why(error: Exception) -> str | None:
            failure = sort_failure(error, computing=True)
            return failure.message if failure.kind is Kind.COMPUTING and not self._stop.is_set() else None

        def witness() -> bool:
            try:
                compute(last_events(self._last_good, WITNESSES))
            except Exception as error:  # noqa: BLE001 - whatever it is: what worked does not work now
                logger.info("what was computed before cannot be computed now: %s", error)
                return False
            return bool(self._last_good)

        self._report("looking for the events that cannot be computed")
        return sift(ahead.ranges, compute, why, most=self._policy.max_poison, witness=witness)

    def _write_sifted(self, sifted: Sifted[Evaluated], ahead: Ahead) -> None:
        try:
            self._commit(self._joined(sifted, ahead), ahead.ranges)
        except Exception as error:  # noqa: BLE001 - sorted there
            self._after_failure(error, ahead, computing=False)
            return
        for one in sifted.poison:
            logger.warning("%s is rejected: it cannot be computed: %s", describe([one.event]), one.error)

    def _joined(self, sifted: Sifted[Evaluated], ahead: Ahead) -> Evaluated:
        """One batch of what could be computed, with what could not among the rejected."""
        batches = [each.batch for each in sifted.good]
        weights = {name: mean for each in sifted.good for name, mean in each.weights.items()}
        rejected = [read_raw(self._share, self._columns, one) for one in sifted.poison]
        if not batches:
            empty = self._evaluate_nothing(ahead)
            batches, weights = [empty.batch], empty.weights
        first = batches[0]
        joined = replace(
            first,
            rows=pa.concat_tables([each.rows for each in batches]),
            rejected=None,
            sequence_by=_chunks([each.sequence_by for each in batches]),
            delete=_chunks([each.delete for each in batches]),
            ranges=ahead.ranges,
        )
        for table in (*(each.rejected for each in batches), *rejected):
            if table is not None:
                joined = with_rejected(joined, table)
        return Evaluated(joined, weights)

    def _evaluate_nothing(self, ahead: Ahead) -> Evaluated:
        """Rows of no events, for their schema."""
        nothing = replace(ahead.order, tasks=((),))
        return self._worker.submit(lambda: self._evaluate(nothing)).result(timeout=CANCEL_PATIENCE)

    def _unknown(self, failure: Failure, ahead: Ahead, error: BaseException) -> None:
        counts = self.counts
        counts.unknown += 1
        gives_up = self._settings.available_now or not counts.ever_applied
        if counts.unknown >= ATTEMPTS and gives_up:
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})") from error
        if ahead.stalled or counts.unknown > 1:
            give_up(ahead.ranges, failure.message[:LONGEST_ERROR], self._share)
        self._feed.give_back()
        self._pause(failure.message)

    def _pause(self, message: str) -> None:
        pause = pause_before_retry(self.counts.in_a_row, self._rng.random())
        self._report(f"{message} - trying again in {pause:.1f} s")
        deadline = self._share.clock.monotonic() + pause
        while (left := deadline - self._share.clock.monotonic()) > 0 and not self._stop.wait(min(left, 1.0)):
            self._feed.record()  # what is held stays held, and what others ask for is handed over


def last_events(ranges: Sequence[EventRange], most: int) -> tuple[EventRange, ...]:
    """The last events of each range, at most so many in all."""
    each = max(1, most // max(1, len(ranges)))
    return tuple(replace(one, begin=max(one.begin, one.end - each)) for one in ranges[:most])


def read_raw(share: Share, columns: tuple[str, ...], poison: Poison) -> pa.Table:
    """An event as the hub has it, with the reason why it is rejected."""
    one = poison.event
    names = tuple(dict.fromkeys((*CARRIED, "body", *columns)))
    wanted = [name for name in names if name != "ownerLevel"]
    hub: Hub = share.hub
    read_for = ReadFor(share.options.consumer_group, share.options.checkpoint_store or "")
    batches = owned_batches(hub, Range(one.partition, one.begin, one.end, one.owner_level), wanted, 1, read_for)
    table = pa.Table.from_batches([with_level(batch, one.owner_level, names) for batch in batches])
    return table.append_column(
        "reason", pa.array([f"cannot be computed: {poison.error}"] * table.num_rows, pa.string())
    )


def _chunks(columns: Sequence[pa.ChunkedArray | None]) -> pa.ChunkedArray | None:
    there = [column for column in columns if column is not None]
    return pa.chunked_array([chunk for column in there for chunk in column.chunks], there[0].type) if there else None
