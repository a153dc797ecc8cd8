"""Whose turn it is to ask for a key: among those in one process strictly, between processes roughly.

In a process, who wants a key queues up, and only the first of the queue asks the store (`LeaseTurns`). Between
processes, who waits takes the place behind the holder: another lease, of a key that nobody else can name (`place_of`),
which dies with its process as any lease does. Who has the place asks for the key; all others wait for the place. So
that a process that takes a key again and again lets that one pass, it looks at the place once it has had the key for a
while, and stands back if somebody is there (`Tenures`). What is left to chance: who of several gets the place, where
the one whose time is nearest to its end asks most often (`lease_times.pause`), and that somebody who has just come
finds the key free at that moment.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from leasehold.errors import ConfigError
from leasehold.stores.lease_rules import LONGEST_KEY

_MARK = "\x02"
_TENURE = 0.1  # seconds for which a process takes a key again and again without looking whether somebody waits
_APART = 1.0  # seconds between two holds that are no longer one after the other
_REMEMBERED = 1000  # keys, above which all are forgotten


def place_of(key: str) -> str:
    """The key of the place behind the holder of `key`."""
    place = f"{_MARK}{key}"
    return place if len(place.encode()) <= LONGEST_KEY else f"{_MARK}{hashlib.sha256(key.encode()).hexdigest()}"


def whose_place(key: str) -> str | None:
    """The key that this is the place behind, as far as it says; None if it is no place."""
    return key.removeprefix(_MARK) if key.startswith(_MARK) else None


def check_no_place(key: str) -> None:
    """Refuse a key that is the place of another. Raises `ConfigError`."""
    if whose_place(key) is not None:
        raise ConfigError("key", key, "begins with the character U+0002, which marks who waits", "Leave it out")


class LeaseTurns:
    """The queues of one process. Safe to use from any thread; `wake` is called from any thread, and must not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, deque[Turn]] = {}

    def join(self, key: str, wake: Callable[[], object]) -> Turn:
        """Queue up for a key."""
        turn = Turn(self, key, wake)
        with self._lock:
            self._queues.setdefault(key, deque()).append(turn)
        return turn

    def wake(self, key: str) -> None:
        """Tell the first of the queue, if there is one, that the key was given up here."""
        with self._lock:
            queue = self._queues.get(key)
            first = queue[0] if queue else None
        if first is not None:
            first.wake()

    def waiting(self, key: str) -> int:
        """How many are in the queue."""
        with self._lock:
            return len(self._queues.get(key, ()))

    def is_first(self, turn: Turn) -> bool:
        with self._lock:
            return self._queues[turn.key][0] is turn

    def leave(self, turn: Turn) -> None:
        with self._lock:
            queue = self._queues[turn.key]
            was_first = queue[0] is turn
            queue.remove(turn)
            if not queue:
                del self._queues[turn.key]
        if was_first:
            self.wake(turn.key)


class Turn:
    """A place in the queue for a key."""

    def __init__(self, turns: LeaseTurns, key: str, wake: Callable[[], object]) -> None:
        self._turns = turns
        self.key = key
        self.wake = wake

    @property
    def is_first(self) -> bool:
        """Whether it is this one's turn to ask."""
        return self._turns.is_first(self)

    def leave(self) -> None:
        """Leave the queue; the next one is told. To be called once."""
        self._turns.leave(self)


@dataclass(slots=True)
class _Tenure:
    since: float
    last: float


class Tenures:
    """For how long this process has had each key, one hold right after the other. Times are arguments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenures: dict[str, _Tenure] = {}

    def held(self, key: str, now: float) -> None:
        """Note that the key is taken or given up now."""
        with self._lock:
            tenure = self._tenures.get(key)
            if tenure is not None and now - tenure.last < _APART:
                tenure.last = now
                return
            if len(self._tenures) >= _REMEMBERED:
                self._tenures.clear()  # none of them is worth more than a look that comes later
            self._tenures[key] = _Tenure(now, now)

    def long(self, key: str, now: float) -> bool:
        """Whether it is time to look if somebody waits; then the next look is a tenure later."""
        with self._lock:
            tenure = self._tenures.get(key)
            if tenure is None or now - tenure.last >= _APART or now - tenure.since < _TENURE:
                return False
            tenure.since = now
            return True
