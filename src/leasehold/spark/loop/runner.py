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
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from random import Random

from leasehold.errors import LeaseholdError
from leasehold.logs import about, at
from leasehold.model import EventRange
from leasehold.notices import BatchDone, BatchRetried
from leasehold.sinks.rules.table import BatchResult
from leasehold.spark.loop.evaluation import Evaluated
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.jobs import Jobs, check_alive
from leasehold.spark.loop.orders import Order, batch_id, describe
from leasehold.spark.loop.pace import Pace
from leasehold.spark.loop.poison import Sifted, TooMuchPoison
from leasehold.spark.loop.recovery import give_up, plan_again
from leasehold.spark.loop.salvage import Salvage
from leasehold.spark.loop.settings import LoopSettings
from leasehold.spark.loop.worker import Worker
from leasehold.spark.plan.failures import Failure, FailureKind, pause_before_retry, sort_failure
from leasehold.spark.plan.share import Share

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


class BatchFailed(LeaseholdError):
    """A batch fails, and trying again does not mend it."""


class Stalled(LeaseholdError):
    """Ranges that made no progress for the stall timeout, whose jobs have been cancelled."""

    def __init__(self, ranges: tuple[EventRange, ...]) -> None:
        self.ranges = ranges
        super().__init__(f"no progress for the stall timeout, then cancelled: {describe(ranges)}")

    def __reduce__(self) -> tuple[type[Stalled], tuple[tuple[EventRange, ...]]]:
        return type(self), (self.ranges,)


@dataclass(slots=True)
class Ahead:
    """A batch that is evaluated: its order, its rows to come, when it was begun, and how long its planning took."""

    order: Order
    rows: Future[Evaluated]
    begun: float
    planning: float

    @property
    def ranges(self) -> tuple[EventRange, ...]:
        return self.order.ranges

    @property
    def events(self) -> int:
        return sum(map(len, self.order.ranges))

    def elapsed(self, now: float) -> float:
        return now - self.begun + self.planning


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

    `write` applies rows to the table. `report` is called after each batch, and with a remark after each failure,
    `between` before each batch and with each look for events.
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
        between: Callable[[], None],
    ) -> None:
        self._share, self._feed, self._jobs, self._between = share, feed, jobs, between
        self._evaluate, self._write = evaluate, write
        self._settings, self._policy = settings, policy
        self._stop, self._report, self._rng = stop, report, rng
        self._columns = columns
        self._worker = Worker("leasehold-batch")
        self._pace = Pace(share.clock)
        self._salvage = Salvage(share, feed, jobs.cores, self._compute, stop)
        self._last_good: tuple[EventRange, ...] = ()
        self._said_waiting = 0.0
        self.counts = Counts()

    def run(self) -> None:
        """Run. Raises `BatchFailed`, and a `UsageError` for what keeps this instance from working."""
        ahead: Ahead | None = None
        while True:
            if not self._stop.is_set():
                self._between()
                ahead = ahead or self._begin_next()
            if ahead is None:
                if self._stop.is_set() or (self._settings.available_now and self._all_consumed()):
                    return
                self._idle()
                continue
            ahead = self._one(ahead)

    def _one(self, ahead: Ahead) -> Ahead | None:
        """See one batch through. Returns the one that follows, if it is begun already."""
        with about(batch=batch_id(ahead.ranges)):
            return self._see_through(ahead)

    def _see_through(self, ahead: Ahead) -> Ahead | None:
        following: Ahead | None = None
        writing = False
        try:
            evaluated = self._rows(ahead)
            if self._policy.overlap and not self._stop.is_set():
                following = self._begin_next()
            writing = True
            self._commit(evaluated, ahead)
        except BaseException as error:
            self._drop(following)
            if not isinstance(error, Exception | SystemExit):
                raise
            self._after_failure(error, ahead, computing=not writing)
            return None
        return following

    def _begin_next(self) -> Ahead | None:
        started = self._share.clock.monotonic()
        with self._pace.looking():
            ranges = self._feed.next(self._pace.gathers)
        if not ranges:
            return None
        self._pace.begun(sum(map(len, ranges)))
        return self._submit(self._feed.order(ranges, self._jobs.cores), started)

    def _submit(self, order: Order, started: float | None = None) -> Ahead:
        now = self._share.clock.monotonic()
        planning = 0.0 if started is None else now - started
        return Ahead(order, self._worker.submit(lambda: self._evaluate(order)), now, planning)

    def _rows(self, ahead: Ahead) -> Evaluated:
        """The rows of a batch, once they are there; cancelled when it takes too long, or a stop has waited enough."""
        stopped_at: float | None = None
        cancelled_at: float | None = None
        stalled = False
        stall = self._settings.source.settings.stall_timeout
        while True:
            try:
                return ahead.rows.result(timeout=LOOK)
            except NotYet:
                if ahead.rows.done():
                    raise  # the batch itself has raised one
            except Exception as error:
                if stalled:
                    raise Stalled(ahead.ranges) from error
                raise
            now = self._share.clock.monotonic()
            if self._stop.is_set() and stopped_at is None:
                stopped_at = now
            if cancelled_at is None:
                # A little before the manager would drop what is held without a word of why.
                stalled = now - ahead.begun > stall - min(1.0, 0.05 * stall)
                if stalled or (stopped_at is not None and now - stopped_at > self._settings.stop_timeout):
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

    def _commit(self, evaluated: Evaluated, ahead: Ahead) -> None:
        started = self._share.clock.monotonic()
        result = self._write(evaluated)
        written = self._share.clock.monotonic()
        self._feed.learn(evaluated.weights, evaluated.times)
        self._feed.committed(ahead.ranges)
        self._last_good = ahead.ranges
        seconds = {"plan": ahead.planning, "compute": evaluated.seconds, "write": written - started}
        self._share.manager.notices.publish(
            BatchDone(
                ahead.events,
                seconds,
                result.rejected,
                batch_id=batch_id(ahead.ranges),
                elapsed=ahead.elapsed(written),
                producers=evaluated.producers,
                parts=evaluated.parts,
            )
        )
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

    def _idle(self) -> None:
        check_alive(self._jobs)
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
        if self._stop.is_set() and not isinstance(error, Stalled):
            logger.info("the batch at hand was given up at the stop: %s", error)
            self._feed.give_back()
            return
        failure = sort_failure(error, computing=computing)
        counts = self.counts
        counts.retries += 1
        counts.in_a_row += 1
        self._share.manager.notices.publish(
            BatchRetried(
                failure.kind.name.lower(),
                events=ahead.events,
                batch_id=batch_id(ahead.ranges),
                elapsed=ahead.elapsed(self._share.clock.monotonic()),
            )
        )
        if failure.kind is FailureKind.PERMANENT:
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})") from error
        if failure.kind is FailureKind.COMPUTING:
            self._computing(failure, ahead)
        elif failure.kind is FailureKind.UNKNOWN:
            self._unknown(failure, ahead, error)
        else:
            plan_again(failure, ahead.ranges, self._feed, self._share)
            if failure.kind in (FailureKind.AWAY, FailureKind.LOST):
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
            self._report("looking for the events that cannot be computed")
            sifted = self._salvage.sift(ahead.ranges, self._last_good, self._policy.max_poison)
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
        self._write_sifted(sifted, ahead)

    def _write_sifted(self, sifted: Sifted[Evaluated], ahead: Ahead) -> None:
        try:
            joined = self._salvage.joined(sifted, ahead.order, self._columns)
            self._commit(joined, ahead)
        except Exception as error:  # noqa: BLE001 - sorted there
            self._after_failure(error, ahead, computing=False)
            return
        for one in sifted.poison:
            logger.warning(
                "%s is rejected: it cannot be computed: %s",
                describe([one.event]),
                one.error,
                extra=at(partition=one.event.partition),
            )

    def _compute(self, order: Order) -> Evaluated:
        """Evaluate a part of a batch now, watched as a batch is."""
        self._share.note_progress()
        return self._rows(self._submit(order))

    def _unknown(self, failure: Failure, ahead: Ahead, error: BaseException) -> None:
        counts = self.counts
        counts.unknown += 1
        gives_up = self._settings.available_now or not counts.ever_applied
        if counts.unknown >= ATTEMPTS and gives_up:
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})") from error
        if isinstance(error, Stalled):
            give_up(error.ranges, failure.message[:LONGEST_ERROR], self._share)
        elif counts.unknown > 1:
            give_up(ahead.ranges, failure.message[:LONGEST_ERROR], self._share)
        self._feed.give_back()
        self._pause(failure.message)

    def _pause(self, message: str) -> None:
        pause = pause_before_retry(self.counts.in_a_row, self._rng.random())
        self._report(f"{message} - trying again in {pause:.1f} s")
        deadline = self._share.clock.monotonic() + pause
        while (left := deadline - self._share.clock.monotonic()) > 0 and not self._stop.wait(min(left, 1.0)):
            self._feed.record()  # what is held stays held, and what others ask for is handed over
