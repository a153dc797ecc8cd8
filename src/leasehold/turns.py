"""Whose turn it is, of the threads of one process that need the same thing one after the other.

Owns that order and nothing else. Promises that threads get their turns in the order in which they came: a lock of
`threading` is taken by whoever comes by when it is free, and of hundreds that wait some are passed by for seconds.

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


class Turns:
    """The turns of the threads of one process. `acquire` one, and `release` it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._queue: deque[threading.Lock] = deque()  # each is released when it is that thread's turn
        self._went_on = -math.inf

    @property
    def waiting(self) -> int:
        """How many threads wait for their turn."""
        return len(self._queue)

    def acquire(self, timeout: float) -> bool:
        """Wait for this thread's turn. False, without one, where nothing has gone on for `timeout` seconds."""
        since = time.monotonic()
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
        try:
            while (left := self.deadline(since, timeout) - time.monotonic()) > 0:
                if mine.acquire(timeout=left):
                    return True
        except BaseException:  # Ctrl-C in the main thread
            if not self._left(mine):
                self.release()
            raise
        return not self._left(mine)

    def deadline(self, since: float, timeout: float) -> float:
        """Until when who has come at `since` is to wait, both on the monotonic clock."""
        return max(since, self._went_on) + timeout

    def went_on(self) -> None:
        """Whoever has the turn got what it is for: those who wait behind it wait for no lost cause."""
        self._went_on = time.monotonic()

    def release(self) -> None:
        """This thread's turn is over."""
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._taken = False

    def _left(self, mine: threading.Lock) -> bool:
        """Leave the queue. False where it has just become this thread's turn."""
        with self._lock:
            if mine not in self._queue:
                return False
            self._queue.remove(mine)
        return True
