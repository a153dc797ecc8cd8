"""A wait that somebody else may end.

Owns whether it has been called off, and who is to be woken then. Promises that a wait which begins after the call ends
at once, so that there is no moment in which it could be missed.

Concurrency: any thread may cancel, a signal handler too; it waits for no lock that is held while somebody waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancellation:
    """Hand it to calls that wait, and call `cancel` to end them all, now and later. It is not used again after that."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may cancel in the thread that is about to wait
        self._cancelled = False
        self._wakes: dict[object, Callable[[], None]] = {}

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` has been called."""
        return self._cancelled

    def cancel(self) -> None:
        """End the waits that this was handed to. Returns at once. Calling it twice is fine."""
        with self._lock:
            self._cancelled = True
            wakes = list(self._wakes.values())
        for wake in wakes:
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Have `wake` called when this is cancelled, for as long as the block lasts."""
        key = object()
        with self._lock:
            self._wakes[key] = wake
        try:
            yield
        finally:
            with self._lock:
                del self._wakes[key]


def is_cancelled(cancel: Cancellation | None) -> bool:
    """Whether there is a cancellation, and it has been called."""
    return cancel is not None and cancel.cancelled
