"""Looks at several pipelines at once, for whoever scrapes.

Owns when a look begins: when somebody asks, so that what is told is of now, and never more than one at a time for a
pipeline, nor two within a second: several scrapers share one. Each pipeline has a thread of its own, so that one whose
hub hangs keeps no other waiting; who asks waits `timeout` seconds at most, and is told that this one was not there. Its
look goes on, and is what the next one to ask is given, if it has ended by then and not long ago.

A pipeline is opened at its first look, and until that succeeds at each: an exporter may be started before the stores.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from leasehold.clock import Clock, SystemClock
from leasehold.errors import LeaseholdError
from leasehold.metrics.group_families import LookedAt
from leasehold.operations.group_watch import GroupSnapshot, GroupWatch, WatchedGroup

logger = logging.getLogger(__name__)

TIMEOUT = 8.0
"""Seconds that somebody waits who asks: less than a scrape of Prometheus does by default."""
_SHARED = 1.0  # seconds for which a look is taken for one of now
_LATE = 60.0  # seconds for which a look that nobody waited for is still worth telling

Open = Callable[[], WatchedGroup]


class GroupLooks:
    """Looks at pipelines by name, each opened by a function. `window` in seconds, for verdicts. Safe for threads."""

    def __init__(
        self, pipelines: Mapping[str, Open], *, window: float, timeout: float = TIMEOUT, clock: Clock | None = None
    ) -> None:
        self._timeout = timeout
        clock = clock or SystemClock()
        self._lanes = [_Lane(name, open_group, window, clock) for name, open_group in pipelines.items()]

    def look(self) -> list[LookedAt]:
        """What there is to be seen now, in the order of the pipelines."""
        begun = [(lane, lane.begin()) for lane in self._lanes]
        wait([look for _, look in begun], self._timeout)
        return [lane.outcome(look) for lane, look in begun]

    def close(self) -> None:
        """Begin no look any more. One that is under way ends by its own time-outs."""
        for lane in self._lanes:
            lane.close()


class _Lane:
    """One pipeline. Its thread alone touches the watch."""

    def __init__(self, name: str, open_group: Open, window: float, clock: Clock) -> None:
        self._name, self._open, self._window, self._clock = name, open_group, window, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"leasehold-look-{name}")
        self._lock = threading.Lock()
        self._latest: Future[GroupSnapshot] | None = None
        self._begun = self._ended = 0.0
        self._told = False  # whether somebody was given the latest look
        self._watch: GroupWatch | None = None
        self._said = ""

    def begin(self) -> Future[GroupSnapshot]:
        """The look that is under way or is of now, or else a new one."""
        with self._lock:
            now = self._clock.monotonic()
            if self._latest is None or (self._latest.done() and self._is_over(now)):
                self._latest, self._begun, self._told = self._thread.submit(self._look), now, False
            return self._latest

    def _is_over(self, now: float) -> bool:
        return now - self._begun >= _SHARED if self._told else now - self._ended >= _LATE

    def outcome(self, look: Future[GroupSnapshot]) -> LookedAt:
        if not look.done():
            return LookedAt(self._name, None, "no answer in time")
        with self._lock:
            self._told = self._told or look is self._latest
        error = look.exception()
        if error is None:
            return LookedAt(self._name, look.result())
        return LookedAt(self._name, None, " ".join(str(error).split()))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> GroupSnapshot:
        try:
            if self._watch is None:
                self._watch = GroupWatch(self._open(), window=self._window, clock=self._clock)
            found = self._watch.look()
            self._said = ""
            return found
        except LeaseholdError as error:
            self._say(str(error))
            raise
        except Exception:
            logger.exception("%s could not be looked at", self._name)
            raise
        finally:
            self._ended = self._clock.monotonic()

    def _say(self, error: str) -> None:
        if error != self._said:  # once while it stays so
            logger.warning("%s cannot be looked at: %s", self._name, error)
        self._said = error
