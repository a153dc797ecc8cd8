"""The policy of `leasehold run`: reads the next batch while this one is written, and waits out what can be waited out.

Owns how batches overlap, and what a failure comes to: a batch is evaluated in a thread, written by this one and
recorded by the engine; a failure is waited out, mended or told. Promises that batches are written in the order in which
they were planned, that a batch which fails is planned again with all that were planned after it, and that a stop ends
within `stop_timeout` and the time of two writes; where cancelled jobs go on, within `watch.CANCEL_PATIENCE` more.

    planned ─▶ evaluated ──▶ written ─▶ recorded
        ▲          │ failed     │ failed
        └──────────┴────────────┘   taken, too large, away, lost: planned again (recovery.py)
                   │                computing: again, then the events are looked for (poison.py)
                   │                to be mended: again, once a batch of this run has been recorded
                   │                unknown: again; then the partitions become suspects
                   └─ permanent: the end

Concurrency: this thread plans, writes and records. The worker's thread evaluates, one batch at a time, and may be one
batch ahead. If this process stops for a minute anywhere, its partitions expire, another instance takes them, and the
table's fence drops what is written here afterwards. Killed at any line, the next owner starts at the checkpoint, and
the table drops what it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from leasehold.errors import LeaseholdError, Verdict
from leasehold.logs import about
from leasehold.model import EventRange
from leasehold.notices import BatchDone
from leasehold.printable import span
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.spark.loop.engine import ATTEMPTS, BatchFailed, Engine, Planned, say_rejected
from leasehold.spark.loop.evaluation import Evaluated
from leasehold.spark.loop.orders import Order, describe
from leasehold.spark.loop.poison import TooMuchPoison
from leasehold.spark.loop.recovery import LONGEST_ERROR, give_up
from leasehold.spark.loop.watch import LOOK, Watched
from leasehold.spark.loop.worker import Worker
from leasehold.spark.plan.failures import Failure, FailureKind, sort_failure

logger = logging.getLogger(__name__)


class Stalled(LeaseholdError):
    """Ranges that made no progress for the stall timeout, whose jobs have been cancelled."""

    verdict = Verdict.ROWS

    def __init__(self, ranges: tuple[EventRange, ...]) -> None:
        self.ranges = ranges
        super().__init__(f"no progress for the stall timeout, then cancelled: {describe(ranges)}")

    def __reduce__(self) -> tuple[type[Stalled], tuple[tuple[EventRange, ...]]]:
        return type(self), (self.ranges,)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A batch that is evaluated: what was planned, its rows to come, and the watch over it."""

    planned: Planned
    rows: Future[Evaluated]
    watched: Watched

    @property
    def ranges(self) -> tuple[EventRange, ...]:
        return self.planned.ranges


class BatchRunner:
    """Runs the batches of an engine until it is stopped, or all is consumed. Used once.

    `evaluate` computes the rows of an order, `write` applies them to the table. What an unknown failure comes to: a
    batch that fails `ATTEMPTS` times ends this instance if nothing else ever worked, or if there is an end to come to;
    else its partitions become suspects (`leasehold.balancing.suspects`), and are tried again and again, later and
    later, while the others are worked on.
    """

    def __init__(
        self,
        engine: Engine,
        evaluate: Callable[[Order], Evaluated],
        write: Callable[[Evaluated], BatchResult],
    ) -> None:
        self._engine, self._evaluate, self._write = engine, evaluate, write
        self._worker = Worker("leasehold-batch")

    def run(self) -> None:
        """Run. Raises `BatchFailed`, and a `UsageError` for what keeps this instance from working."""
        ahead: Ahead | None = None
        while True:
            if ahead is None:
                planned = self._engine.next()
                if planned is None:
                    return
                ahead = self._submit(planned)
            elif not self._engine.stop.is_set():
                self._engine.between()
            with about(batch=ahead.planned.id):
                ahead = self._see_through(ahead)

    def _see_through(self, ahead: Ahead) -> Ahead | None:
        """See one batch through. Returns the one that follows, if it is begun already."""
        following: Ahead | None = None
        writing = False
        try:
            evaluated = self._rows(ahead)
            if not self._engine.stop.is_set() and (planned := self._engine.look()) is not None:
                following = self._submit(planned)
            writing = True
            self._commit(evaluated, ahead.planned)
        except BaseException as error:
            self._drop(following)
            if not isinstance(error, Exception | SystemExit):
                raise
            self._after_failure(error, ahead, computing=not writing)
            return None
        return following

    def _submit(self, planned: Planned) -> Ahead:
        rows = self._worker.submit(lambda: self._evaluate(planned.order))
        return Ahead(planned, rows, self._engine.watch.over(planned.ranges))

    def _rows(self, ahead: Ahead) -> Evaluated:
        """The rows of a batch, once they are there; cancelled when it takes too long, or a stop has waited enough."""
        watch = self._engine.watch
        while not wait([ahead.rows], timeout=LOOK).done:
            watch.look(ahead.watched)
            if watch.hangs(ahead.watched):
                give_up(
                    ahead.ranges,
                    f"hangs, and does not end when its jobs are cancelled: {describe(ahead.ranges)}",
                    self._engine.share,
                )
                raise BatchFailed(
                    f"a batch has made no progress for {span(watch.elapsed(ahead.watched))} and does not end when its "
                    f"jobs are cancelled: code of the transform hangs in the driver ({describe(ahead.ranges)}). This "
                    "instance ends"
                )
        try:
            return ahead.rows.result()
        except Exception as error:
            if ahead.watched.stalled:
                raise Stalled(ahead.ranges) from error
            raise

    def _commit(self, evaluated: Evaluated, planned: Planned) -> None:
        started = self._engine.now()
        result = self._write(evaluated)
        written = self._engine.now()
        self._engine.committed(planned, evaluated.weights, evaluated.times)
        planning = planned.ended - planned.begun
        self._engine.notices.publish(
            BatchDone(
                result.read or planned.events,
                {"plan": planning, "compute": evaluated.seconds, "write": written - started},
                result.counts,
                batch_id=planned.id,
                elapsed=written - planned.begun,
                producers=evaluated.producers,
                parts=evaluated.parts,
            )
        )
        self._engine.report("")

    def _drop(self, following: Ahead | None) -> None:
        """What was begun too early is not wanted: it will be planned again."""
        if following is None or following.rows.cancel():
            return
        watch = self._engine.watch
        watch.cancel(following.watched)
        while not wait([following.rows], timeout=LOOK).done:
            watch.look(following.watched)
            if watch.hangs(following.watched):
                logger.warning("a batch does not end when its jobs are cancelled: %s", describe(following.ranges))
                return

    # After a failure

    def _after_failure(self, error: BaseException, ahead: Ahead, *, computing: bool) -> None:
        engine = self._engine
        if isinstance(error, BatchFailed):
            raise error
        if not engine.jobs.alive():
            raise error
        if engine.stop.is_set() and not isinstance(error, Stalled):
            logger.info("the batch at hand was given up at the stop: %s", error)
            engine.feed.give_back()
            return
        failure = sort_failure(error, computing=computing)
        engine.failed(failure, ahead.planned)
        refused = failure.kind is FailureKind.MEND and not engine.waits_for_people
        if failure.kind is FailureKind.PERMANENT or refused:
            verdict = Verdict.MEND if refused else None
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})", verdict=verdict) from error
        if failure.kind is FailureKind.COMPUTING:
            self._computing(failure, ahead)
        elif failure.kind is FailureKind.UNKNOWN:
            self._unknown(failure, ahead, error)
        else:
            engine.again(failure, ahead.planned)

    def _computing(self, failure: Failure, ahead: Ahead) -> None:
        """An event cannot be computed, or something that the transform needs is away."""
        engine = self._engine
        engine.counts.computing += 1
        if engine.counts.computing < 2:
            engine.feed.give_back()
            engine.report(f"{failure.message} - trying once more")
            return
        if engine.settings.on_error == "stop":
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})")
        try:
            evaluated, poison = engine.salvaged(ahead.planned, self._compute)
            self._commit(evaluated, ahead.planned)
        except TooMuchPoison as outage:
            engine.feed.give_back()
            engine.pause(outage.verdict)
            return
        except BaseException as error:
            if not isinstance(error, Exception | SystemExit):
                raise
            self._after_failure(error, ahead, computing=False)
            return
        say_rejected(poison)

    def _compute(self, order: Order) -> Evaluated:
        """Evaluate a part of a batch now, watched as a batch is."""
        self._engine.share.note_progress()
        now = self._engine.now()
        return self._rows(self._submit(Planned(order, now, now)))

    def _unknown(self, failure: Failure, ahead: Ahead, error: BaseException) -> None:
        counts = self._engine.counts
        counts.unknown += 1
        gives_up = self._engine.settings.available_now or not counts.ever_applied
        if counts.unknown >= ATTEMPTS and gives_up:
            raise BatchFailed(f"{failure.message} (batch: {describe(ahead.ranges)})") from error
        if isinstance(error, Stalled):
            give_up(error.ranges, failure.message[:LONGEST_ERROR], self._engine.share)
        elif counts.unknown > 1:
            give_up(ahead.ranges, failure.message[:LONGEST_ERROR], self._engine.share)
        self._engine.feed.give_back()
        self._engine.pause(failure.message)
