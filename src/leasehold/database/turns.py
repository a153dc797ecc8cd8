"""Whose turn it is, of the threads of one process that need the same thing one after the other.

Owns that order and nothing else. A lock of `threading` is taken by whoever comes by when it is free, and of hundreds
that wait some are passed by for seconds. Here too whoever comes by may take what is free, which is fastest, since it
takes no change of threads; but not before one that has waited for `overdue` seconds: that one is next, in the order in
which they came.

A thread that waits gives up only where nothing goes on: `timeout` seconds after it came, or after whoever had a turn
said last that it got on (`went_on`), whichever is later. So a long queue that moves is no fault, and one behind a turn
that hangs ends together, after one time-out and not after one for each.

Concurrency: any threads of one process. A child of a fork makes its own.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque

_OVERDUE = 0.25


class _Waiting:
    """A thread in the queue. `called`: it is to look; `given`: it is its turn, and nobody else can take that."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.called = self.given = False
        self._bell = threading.Lock()
        self._bell.acquire()

    def call(self) -> None:
        if not self.called:
            self.called = True
            self._bell.release()

    def wait(self, seconds: float) -> None:
        """Until it is called, at most so long."""
        if self._bell.acquire(timeout=seconds):
            self.called = False


class Turns:
    """The turns of the threads of one process. `acquire` one, and `release` it."""

    def __init__(self, overdue: float = _OVERDUE) -> None:
        self._overdue = overdue
        self._lock = threading.Lock()
        self._taken = False
        self._queue: deque[_Waiting] = deque()
        self._went_on = -math.inf

    @property
    def waiting(self) -> int:
        """How many threads wait for their turn."""
        return len(self._queue)

    def acquire(self, timeout: float) -> bool:
        """Wait for this thread's turn. False, without one, where nothing has gone on for `timeout` seconds."""
        since = time.monotonic()
        mine = _Waiting(since)
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            self._queue.append(mine)
        try:
            while (left := self.deadline(since, timeout) - time.monotonic()) > 0:
                mine.wait(left)
                if self._has(mine):
                    return True
        except BaseException:  # Ctrl-C in the main thread
            if self._leaves(mine):
                self.release()
            raise
        return self._leaves(mine)

    def deadline(self, since: float, timeout: float) -> float:
        """Until when who has come at `since` is to wait, both on the monotonic clock."""
        return max(since, self._went_on) + timeout

    def went_on(self) -> None:
        """Whoever has the turn got what it is for: those who wait behind it wait for no lost cause."""
        self._went_on = time.monotonic()

    def release(self) -> None:
        """This thread's turn is over."""
        with self._lock:
            self._taken = False
            self._call_next()

    def _call_next(self) -> None:
        """Wake the first that waits, and give it its turn if it is overdue. Under the lock."""
        if not self._queue or self._taken:
            return
        first = self._queue[0]
        if time.monotonic() - first.since >= self._overdue:
            self._queue.popleft()
            self._taken = first.given = True
        first.call()

    def _has(self, place: _Waiting) -> bool:
        """Whether it is this thread's turn, or can be."""
        with self._lock:
            if not place.given and not self._taken:
                self._queue.remove(place)
                self._taken = place.given = True
            return place.given

    def _leaves(self, place: _Waiting) -> bool:
        """Leave the queue. True where it has become this thread's turn."""
        with self._lock:
            if not place.given:
                self._queue.remove(place)
                self._call_next()  # it may have been called in vain
            return place.given
