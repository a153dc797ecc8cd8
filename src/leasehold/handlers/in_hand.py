"""Which entities the batches of one process have in hand, so that they wait for each other and not for the store.

Owns who goes first where several partitions of a process meet the same entities in every batch. Without it each of them
but one would park what it has, and an entity with parked events goes on a commit at a time. Rules:

1. A batch waits with nothing in hand, for all that it wants at once, behind those that came before it and want any of
   the same: two batches never wait for each other.
2. It waits as long as entities that it waits for become free: after `PATIENCE` seconds without any, or a few times what
   batches take at present, if that is longer, and after `LONGEST` in all, it goes on without those that are in hand
   still, whose events are parked. Nobody waits for these again until they were free, so that a call that hangs holds up
   each of the others once. What is parked costs more than to wait, and makes the next batches longer: on a busy machine
   a fixed patience would end in all of them parking.

Any thread may take and free. A process that stops for a minute stops all its threads, and the leases of the store end
by themselves: what is in hand here never says that a lease is held.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from statistics import median

from leasehold.handlers.contract import Key

PATIENCE = 0.5
LONGEST = 3.0
"""A few commits of large batches, and less than the shortest time in which a partition is handed over."""
_TIMES, _RECENT = 4, 9


def patience_of(least: float, holds: Collection[float]) -> float:
    """Seconds that one batch is waited for, where the last ones had their entities in hand for so long."""
    return max(least, _TIMES * median(holds)) if holds else least


class InHand:
    """The entities that some batch of this process has, or asks the store for."""

    def __init__(self, *, patience: float = PATIENCE, longest: float = LONGEST) -> None:
        self._patience, self._longest = patience, longest
        self._changed = threading.Condition()
        self._taken: set[Key] = set()
        self._since: dict[Key, float] = {}
        self._holds: deque[float] = deque(maxlen=_RECENT)
        self._in_vain: set[Key] = set()
        self._queue: list[frozenset[Key]] = []

    def take(self, keys: Sequence[Key], *, waits: bool) -> list[Key]:
        """Those of `keys` that no other batch has, which are the caller's from now on, until it calls `free`."""
        wanted = frozenset(keys)
        with self._changed:
            if waits and wanted:
                self._queue.append(wanted)
                try:
                    self._wait(wanted)
                finally:
                    self._queue[:] = [one for one in self._queue if one is not wanted]
                    self._changed.notify_all()
            mine = [key for key in keys if key not in self._taken]
            self._taken.update(mine)
            if waits:
                self._since.update(dict.fromkeys(mine, time.monotonic()))
            return mine

    def free(self, keys: Collection[Key]) -> None:
        """The caller has them no more."""
        if keys:
            with self._changed:
                if began := [self._since.pop(key) for key in keys if key in self._since]:
                    self._holds.append(time.monotonic() - min(began))
                self._taken.difference_update(keys)
                self._in_vain.difference_update(keys)
                self._changed.notify_all()

    def _wait(self, keys: frozenset[Key]) -> None:
        began = last = time.monotonic()
        patience = patience_of(self._patience, self._holds)
        before = self._in_the_way(keys)
        while before:
            left = min(last + patience, began + self._longest) - time.monotonic()
            if left <= 0:
                self._in_vain |= before & self._taken
                return
            self._changed.wait(left)
            now = self._in_the_way(keys)
            if before - now:
                last = time.monotonic()
            before = now

    def _in_the_way(self, keys: frozenset[Key]) -> set[Key]:
        """What of it another batch has, or waits for since earlier."""
        found = {key for key in keys if key in self._taken}
        for earlier in _before(self._queue, keys):
            found |= keys & earlier
        return found - self._in_vain


def _before(queue: Iterable[frozenset[Key]], keys: frozenset[Key]) -> Iterable[frozenset[Key]]:
    for one in queue:
        if one is keys:
            return
        yield one
