"""Waiting for a hub or a store that is away when something starts.

Owns the event that a signal handler may set (`SignalEvent`), and how long a start waits and with which pauses: they
double, up to a longest, so that what comes back is not met by everybody at once; and waiting for a file of any number
(`readable`). Promises to say once that it waits,
with the reason and for how long; to raise the last error when the time is over; and not to wait where waiting cannot
help (`errors.Verdict`). What runs already waits by itself, in each dispatch cycle. Whoever starts something calls
this, and nobody below: a store or hub raises at its time-out.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from random import Random
from typing import TypeVar

from leasehold.backoff import Backoff
from leasehold.clock import Clock, SystemClock
from leasehold.errors import LeaseholdError, Verdict
from leasehold.printable import span

INSTANCE = 60.0
"""Seconds that an instance's start waits: longer than most failovers take."""
COMMAND = 15.0
"""Seconds that a command waits, in front of which somebody sits."""

_PAUSES = Backoff(0.25, 5.0)
_LONGEST_POLL = 2**31 - 1  # milliseconds

Say = Callable[[LeaseholdError, float], object]
"""Takes what is wrong, and for how many seconds at most it will be waited for. Called at the first failure."""

T = TypeVar("T")


def when_there(
    ask: Callable[[], T],
    *,
    patience: float,
    say: Say,
    clock: Clock | None = None,
    rng: Random | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> T:
    """What `ask` returns, once it does not raise that a hub or store is away: for at most `patience` seconds from
    its first failure.

    `ask` leaves nothing open when it raises. It is not interrupted, so that one which itself takes until its time-out
    makes the whole longer by that. `pause` waits for this many seconds, or until it returns
    something true: then waiting ends with the error at once (give `Event.wait` of the event that stops you).
    """
    clock, rng = clock or SystemClock(), rng or Random()
    until: float | None = None
    failures = 0
    while True:
        try:
            return ask()
        except LeaseholdError as error:
            if not (patience > 0 and error.verdict is Verdict.PASSES):
                raise
            now = clock.monotonic()
            if until is None:
                until = now + patience
                say(error, patience)
            left = until - now
            if left <= 0:
                raise
            failures += 1
            if pause(min(left, _PAUSES.pause(failures, rng.random()))):
                raise


class SignalEvent(threading.Event):
    """An event that a signal handler may set, whatever the main thread is doing.

    `threading.Event.set` takes a lock, which the main thread may hold at that very moment, in `wait`: the handler runs
    in the same thread and would wait for ever. This one is a pipe, to which `set` writes a byte. For one process.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        weakref.finalize(self, _close, self._read, self._write)

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            os.write(self._write, b".")

    def clear(self) -> None:
        raise NotImplementedError("what was asked to stop stays asked")

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            readable(self._read, timeout)
        return self._is_set


def readable(file: int, timeout: float | None) -> bool:
    """Wait until there is something to read, or its end, for at most `timeout` seconds: None waits for ever, and so
    does what is above 24 days. Returns whether there is.

    Not `select.select`, which refuses each file whose number is 1,024 or more: a program with many connections has
    those.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    milliseconds = None if timeout is None else max(0.0, timeout) * 1000
    return bool(poll.poll(None if milliseconds is None or milliseconds > _LONGEST_POLL else milliseconds))


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def sentence(error: LeaseholdError, patience: float) -> str:
    """What to say to a person, in one line."""
    longest = "without an end" if math.isinf(patience) else f"{span(round(patience))} at most"
    return f"{' '.join(str(error).split()).rstrip('.')}. Waiting for it, {longest}"
