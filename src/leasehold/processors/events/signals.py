"""What a signal handler may do to a processor, which it interrupts between any two lines of the main thread.

Owns three parts that make this safe. Promises that a signal handler which stops the processor waits for nothing that
the interrupted lines hold. Refuses to be a `threading.Event`: in the middle of `Event.set` the main thread holds a lock
for which a signal handler, which calls `set` too, would wait for ever. `SimpleQueue.put` may be interrupted by itself.

Concurrency: any thread and any signal handler may ask for attention, and one thread waits for it; each thread has calls
of its own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType

from leasehold.signal_handlers import DEFAULTS, handle


class Attention:
    """What one thread waits for, and any other asks for. Asked for before the wait or often, it ends the wait once."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        """End the wait that is under way, or the next one. Returns at once."""
        self._asked.put(None)

    def wait(self, timeout: float) -> None:
        """Wait until somebody asks, at most `timeout` seconds."""
        try:
            self._asked.get(timeout=timeout)
            while True:
                self._asked.get_nowait()
        except Empty:
            return


class LockingCalls:
    """Which threads are inside of calls that hold locks: who interrupts one must not wait for those who want them."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @property
    def here(self) -> int:
        """How many of these calls the current thread is in."""
        return getattr(self._of_thread, "calls", 0)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A block that is such a call."""
        before = self.here
        self._of_thread.calls = before + 1
        try:
            yield
        finally:
            self._of_thread.calls = before


@contextmanager
def terminating(signals: list[int], *, interrupts: bool = False) -> Iterator[None]:
    """Note a SIGTERM in `signals`, once, in place of ending the process; only in the main thread, if nobody else does.

    With `interrupts` Ctrl-C (SIGINT) too, in place of a `KeyboardInterrupt`. After the first signal the next one does
    what it does by default. A handler that the program sets meanwhile stays.
    """
    main = threading.current_thread() is threading.main_thread()
    wanted = (signal.SIGTERM, signal.SIGINT) if interrupts else (signal.SIGTERM,)
    taken = [each for each in wanted if main and signal.getsignal(each) is DEFAULTS[each]]

    def give_back() -> None:
        for each in taken:
            if signal.getsignal(each) is note:
                handle(each, DEFAULTS[each])

    def note(signum: int, frame: FrameType | None) -> None:
        give_back()
        signals.append(signum)

    for each in taken:
        handle(each, note)
    try:
        yield
    finally:
        give_back()
