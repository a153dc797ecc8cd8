"""How long a batch may take: whose jobs are cancelled when it makes no progress, or when a stop has waited enough.

Owns the two limits, for every loop: the stall timeout, and `stop_timeout` from a stop on. Cancelling ends Spark's jobs;
code of the driver that hangs goes on, which whoever waits for the batch finds out (`hangs`). A job that begins after
its batch was cancelled is cancelled too: once a second, for as long as the batch is looked at. But a body's
batch that has stalled is cancelled once, since the body may do something else about it.

Concurrency: a batch is looked at by one thread: by the one that waits for its rows, or, where the rows are computed in
the user's own thread, by one beside it (`beside`). Why a batch was cancelled is noted before its jobs are, so that the
thread whose job ends knows it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from leasehold.clock import Clock
from leasehold.model import EventRange
from leasehold.spark.loop.jobs import Jobs
from leasehold.spark.loop.orders import describe
from leasehold.spark.loop.settings import LoopSettings
from leasehold.spark.table.of_loop import batch_id

logger = logging.getLogger(__name__)

LOOK = 0.2
"""Seconds between two looks at a stop and at the time, while a batch is under way."""
CANCEL_PATIENCE = 15.0
"""Seconds that a cancelled batch has to end: Spark gives its workers two."""
_AGAIN = 1.0
"""Seconds until the jobs of a batch that goes on are cancelled again: one may have begun after the last time."""


@dataclass(slots=True)
class Watched:
    """A batch that is watched from `begun` on: whether it has `stalled`, or is `late` for a stop. Times in seconds."""

    ranges: tuple[EventRange, ...]
    begun: float
    stalled: bool = False
    late: bool = False
    stopped_at: float | None = None
    cancelled_at: float | None = None
    cancelled_last: float = 0.0
    in_body: bool = False
    """Whether its user's own code evaluates it, which may do something else about a batch that has stalled."""
    _ended: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """The batch has ended: it is watched no longer."""
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait, and say whether the batch has ended."""
        return self._ended.wait(seconds)


class Watch:
    """The limits of a loop's batches."""

    def __init__(self, jobs: Jobs, clock: Clock, settings: LoopSettings, stop: threading.Event) -> None:
        self._jobs, self._clock, self._stop = jobs, clock, stop
        self._stop_timeout = settings.stop_timeout
        self.stall_timeout = settings.source.settings.stall_timeout

    def over(self, ranges: Sequence[EventRange]) -> Watched:
        """Watch a batch from now on: `look` at it every `LOOK` seconds."""
        return Watched(tuple(ranges), self._clock.monotonic())

    def beside(self, ranges: Sequence[EventRange]) -> Watched:
        """Watch a batch from now on, from a thread of its own."""
        watched = self.over(ranges)
        watched.in_body = True
        threading.Thread(target=self._keep_looking, args=[watched], name="leasehold-watch", daemon=True).start()
        return watched

    def _keep_looking(self, watched: Watched) -> None:
        while not watched.wait(LOOK):
            told = watched.stalled
            self.look(watched)
            if watched.stalled and not told:
                logger.error(
                    "a batch has made no progress for %g s and is cancelled: %s",
                    self.stall_timeout,
                    describe(watched.ranges),
                )

    def look(self, watched: Watched) -> None:
        """Cancel the jobs of a batch whose time is over."""
        now = self._clock.monotonic()
        if self._stop.is_set() and watched.stopped_at is None:
            watched.stopped_at = now
        watched.late = watched.stopped_at is not None and now - watched.stopped_at > self._stop_timeout
        if watched.cancelled_at is None:
            # A little before the manager would drop what is held without a word of why.
            watched.stalled = now - watched.begun > self.stall_timeout - min(1.0, 0.05 * self.stall_timeout)
            due = watched.stalled or watched.late
        else:
            due = watched.late or not watched.in_body
        if due:
            self.cancel(watched)

    def cancel(self, watched: Watched) -> None:
        """Cancel the jobs of a batch. Called again, it cancels what has begun since, at most once a second."""
        now = self._clock.monotonic()
        if watched.cancelled_at is None:
            watched.cancelled_at = now
        elif now - watched.cancelled_last < _AGAIN:
            return
        watched.cancelled_last = now
        with suppress(Exception):  # Spark may be gone
            self._jobs.cancel(batch_id(watched.ranges))

    def hangs(self, watched: Watched) -> bool:
        """Whether a batch goes on although its jobs were cancelled a while ago."""
        return watched.cancelled_at is not None and self._clock.monotonic() - watched.cancelled_at > CANCEL_PATIENCE

    def elapsed(self, watched: Watched) -> float:
        """Seconds since the batch was begun."""
        return self._clock.monotonic() - watched.begun
