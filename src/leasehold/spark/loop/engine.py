"""The engine of every loop over what an instance holds of a hub: `MicroBatches` iterates it, `leasehold run` drives it.

Owns a loop's life and what lies between its batches: it begins to hold partitions, ties the consumer group, looks for
events at a fitting pace, plans a batch, records it when it is committed, hands over what others ask for, plans it again
when it has failed, finds the events of it that cannot be computed, and gives all up in the end. Promises that batches
are recorded in the order in which they were planned, that no checkpoint comes before its commit, and that nothing is
renewed once this process is gone: the dispatch thread is a thread of it. Evaluates and writes nothing: that is for who
uses it, and so is what a failure that the engine cannot mend comes to.

    started ─▶ looking ──events──▶ planned ─▶ evaluated and written elsewhere ──▶ committed ─▶ looking …
                  │                   ▲                  └─ failed ─▶ again: at once, or after a pause
                  │ stop, or all      └────────────────────────────────┘
                  ▼ consumed
                left

Concurrency: one thread calls all of it. The dispatch thread renews. A stop may be set from any thread.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

from leasehold.errors import LeaseholdError
from leasehold.logs import at
from leasehold.model import EventRange
from leasehold.notices import BatchRetried, Notices
from leasehold.ownership.starting import KnowsWatermarks
from leasehold.printable import span
from leasehold.spark.loop.between import Between
from leasehold.spark.loop.binding import Binding
from leasehold.spark.loop.evaluation import Evaluated
from leasehold.spark.loop.feed import Feed
from leasehold.spark.loop.jobs import Jobs, check_alive
from leasehold.spark.loop.noted import NotedEvents
from leasehold.spark.loop.orders import Order, describe
from leasehold.spark.loop.pace import Pace, say_losses
from leasehold.spark.loop.poison import Poison, TooMuchPoison
from leasehold.spark.loop.recovery import plan_again
from leasehold.spark.loop.salvage import Salvage
from leasehold.spark.loop.settings import LoopSettings
from leasehold.spark.loop.watch import Watch
from leasehold.spark.plan.failures import Failure, FailureKind, pause_before_retry
from leasehold.spark.plan.share import FIRST_OWNERSHIP_WAIT, Share, instance_name
from leasehold.spark.table.of_loop import batch_id
from leasehold.waiting import Say

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a batch that fails is tried before a loop that has an end to come to gives up."""


class BatchFailed(LeaseholdError):
    """A batch fails, and trying again does not mend it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch that is due: what its tasks read, and when its planning began and ended, in seconds of a clock."""

    order: Order
    begun: float
    ended: float

    @property
    def ranges(self) -> tuple[EventRange, ...]:
        return self.order.ranges

    @property
    def id(self) -> str:
        return batch_id(self.order.ranges)

    @property
    def events(self) -> int:
        return sum(map(len, self.order.ranges))


@dataclass(slots=True)
class FailureCounts:
    """What went wrong so far: in all, and since the last batch that went well."""

    retries: int = 0
    in_a_row: int = 0
    computing: int = 0
    unknown: int = 0
    ever_applied: bool = False


class Engine:
    """One loop. Used once: `start`, then batches, then `leave`.

    `table` is asked where the stores have lost a checkpoint, and has its moments between batches if it has a handler.
    `checked`: the start was checked before (`Binding`). `report` is told in words what goes on, `delayed` of a hub that
    is waited for at the start.
    """

    feed: Feed
    _keep_no_more: Callable[[], None]

    def __init__(
        self,
        jobs: Jobs,
        settings: LoopSettings,
        table: KnowsWatermarks | None,
        stop: threading.Event,
        *,
        notices: Notices,
        rng: Random,
        checked: bool = False,
        report: Callable[[str], None] = lambda note: None,
        delayed: Say | None = None,
    ) -> None:
        source = settings.source
        self.share = Share(
            source,
            owner_name=instance_name(source, os.getpid()),
            alive=jobs.alive,
            table=table,
            delayed=delayed,
            pause=stop.wait,
            notices=notices,
            rng=rng,
        )
        self.share.waits_for_people = not settings.available_now
        self.jobs, self.settings, self.stop, self.notices = jobs, settings, stop, notices
        self.report = report
        self.counts = FailureCounts()
        self._noted = NotedEvents(table, self.share.hub.identity, lambda: self.counts.ever_applied)
        self.binding = Binding(self.share, checked=checked)
        self.between = Between(table, self.share, self.binding.meet, lambda: self.counts.ever_applied)
        self.watch = Watch(jobs, self.share.clock, settings, stop)
        self._pace, self._rng = Pace(self.share.clock), rng
        self._last_good: tuple[EventRange, ...] = ()
        self._said_waiting = 0.0

    # Its life

    def start(self) -> None:
        """Begin to hold partitions. Raises what keeps this instance from it, and then holds nothing."""
        say_losses(self.share.manager.notices)
        self.share.start()
        self._keep_no_more = self.jobs.keep()
        try:
            self.report(f"asking for partitions as {self.share.manager.owner_id}")
            self.share.manager.wait_for_cycle(1, FIRST_OWNERSHIP_WAIT)
            self.feed = self.share.when_there(lambda: Feed(self.share, self.settings, self._noted))
        except BaseException:
            self._keep_no_more()
            self.share.close()
            raise

    def leave(self, errors: Mapping[str, str] | None = None) -> None:
        """Give all partitions up. `errors` says, by partition, what ended the work on it.

        Checkpoints that wait for their store are tried once more before, so that the next owner begins behind them.
        """
        with ExitStack() as last_steps:
            last_steps.callback(self._keep_no_more)
            last_steps.callback(self.share.close, errors)
            last_steps.callback(self.between.leave)
            try:
                self.feed.write()
            except LeaseholdError as error:
                logger.warning("what was committed last is not recorded, and will be read once more: %s", error)

    @property
    def waits_for_people(self) -> bool:
        """Whether this run waits until a person has mended what keeps its batches from being written.

        Not before its first batch: what is refused at the start is told at once. Nor where it has an end to come to.
        """
        return self.counts.ever_applied and not self.settings.available_now

    def now(self) -> float:
        """Seconds of the clock that batches are timed by."""
        return self.share.clock.monotonic()

    # The next batch

    def next(self) -> Planned | None:
        """Wait for the next batch; None at a stop, and where there is an end to come to, once all is consumed."""
        while not self.stop.is_set():
            check_alive(self.jobs)
            self.feed.record()
            self.between()
            if (planned := self.look()) is not None:
                return planned
            if self.settings.available_now and self._all_consumed():
                return None
            self.stop.wait(self._pace.pause(away=self.share.is_away))
        return None

    def look(self) -> Planned | None:
        """Look once, and plan a batch if one is due. It may be planned while the one before it is written."""
        begun = self.now()
        with self._pace.looking():
            ranges = self.feed.next(self._pace.gathers)
        if not ranges:
            return None
        self._pace.begun(sum(map(len, ranges)))
        return Planned(self.feed.order(ranges, self.jobs.cores), begun, self.now())

    def _all_consumed(self) -> bool:
        """Whether there is nothing left to wait for; says now and then what there is."""
        left = self.feed.left_to_consume()
        if not left:
            return True
        now = self.now()
        if now - self._said_waiting > 10.0:
            if self._said_waiting:
                who = self.feed.owners_of(left)
                self.report(f"waiting for partitions {', '.join(left[:20])}, which are not consumed yet: {who}")
            self._said_waiting = now
        return False

    # After a batch

    def committed(self, planned: Planned, weights: Mapping[str, float], times: Mapping[str, tuple[int, float]]) -> None:
        """A batch is in the table, or where its user wanted it: record it. What its tasks have told goes with it."""
        self.feed.learn(weights, times)
        self.feed.committed(planned.ranges)
        self._last_good = planned.ranges
        self.counts.in_a_row = self.counts.computing = self.counts.unknown = 0
        self.counts.ever_applied = True

    def failed(self, failure: Failure, planned: Planned) -> None:
        """Count a failure, and tell it. What follows is `again`, or for the caller to say."""
        self.counts.retries += 1
        self.counts.in_a_row += 1
        elapsed = self.now() - planned.begun
        self.notices.publish(
            BatchRetried(failure.kind.name.lower(), events=planned.events, batch_id=planned.id, elapsed=elapsed)
        )

    def again(self, failure: Failure, planned: Planned) -> None:
        """Plan the events of a batch again; first wait where something is away. Raises as `plan_again`."""
        plan_again(failure, planned.ranges, self.feed, self.share)
        if failure.kind in (FailureKind.AWAY, FailureKind.MEND, FailureKind.LOST):
            self.pause(failure.message)

    def pause(self, message: str) -> None:
        """Wait after a failure, the longer the more of them there were. What is held stays held."""
        pause = pause_before_retry(self.counts.in_a_row, self._rng.random())
        self.report(f"{message} - trying again in {span(pause)}")
        deadline = self.now() + pause
        while (left := deadline - self.now()) > 0 and not self.stop.wait(min(left, 1.0)):
            self.feed.record()  # and what others ask for is handed over

    # Events that cannot be computed

    def salvaged(self, planned: Planned, compute: Callable[[Order], Evaluated]) -> tuple[Evaluated, tuple[Poison, ...]]:
        """A batch without the events that cannot be computed, which are among its rejected; and these events.

        `compute` evaluates an order now. Raises `TooMuchPoison` where that is an outage: nothing is to be rejected, and
        the batch to be tried later; `BatchFailed` after `ATTEMPTS` of that, where there is an end to come to; and any
        failure that is not the events' own.
        """
        self.report("looking for the events that cannot be computed")
        salvage = Salvage(self.share, self.feed, self.jobs.cores, compute, self.stop)
        try:
            sifted = salvage.sift(planned.ranges, self._last_good, self.settings.max_poison)
        except TooMuchPoison as outage:
            if self.settings.available_now and self.counts.computing >= ATTEMPTS:
                raise BatchFailed(f"{outage} (batch: {describe(planned.ranges)})") from outage
            raise
        return salvage.joined(sifted, planned.order, self.jobs.kept_columns), sifted.poison


def say_rejected(poison: Iterable[Poison]) -> None:
    """Warn of each event that was rejected since it cannot be computed."""
    for one in poison:
        logger.warning(
            "%s is rejected: it cannot be computed: %s",
            describe([one.event]),
            one.error,
            extra=at(partition=one.event.partition),
        )
