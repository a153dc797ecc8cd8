"""Leases of entities for workers: taken several at once, kept for a moment, given up several at once.

A call of the lease store for each turn at an entity would be two for each run of messages. So a worker that takes a
lease takes those of the entities that come next with it; and a lease whose turn has ended is kept, since more
messages of the entity may be at hand, and given up together with others.

Owns the leases of one process that nobody works under now, and when they are given up. Promises that this is `KEPT`
seconds after the last turn or after it was taken ahead, that one which is used again and again is given up between
two turns `LONGEST` seconds after it was taken, and that a lease has one user at a time. So long another process finds
the entity busy for nothing, where it is not worked on here. Where turns take longer than half of `KEPT`, nothing is
taken ahead, nor where the store makes a call for each key. Trusting a lease stays with who uses it:
`EntityLease.check`.

Concurrency: any thread takes and gives back; a thread of its own gives up. When a party stops:

    who takes, in the call     others who want one of these keys wait for its end: the time-out of the store
    who uses a lease           it is renewed, or lost, as any
    the thread that gives up   leases stay held; whoever wants one that is being given up waits for that
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leasehold.clock import Clock
from leasehold.leases import EntityLeases
from leasehold.leases.lease import EntityLease

logger = logging.getLogger(__name__)

KEPT, LONGEST = 0.5, 2.0
"""Seconds."""


@dataclass(slots=True)
class _Kept:
    """A lease: since when it is held, and used or kept."""

    lease: EntityLease
    taken: float
    since: float

    @property
    def due(self) -> float:
        """When it is given up, if nobody uses it."""
        return min(self.since + KEPT, max(self.since, self.taken + LONGEST))


class KeptLeases:
    """The leases of one process's workers."""

    def __init__(self, leases: EntityLeases, clock: Clock) -> None:
        self._leases, self._clock = leases, clock
        self._changed = threading.Condition()
        self._used: dict[str, _Kept] = {}
        self._idle: dict[str, _Kept] = {}
        self._moving: set[str] = set()
        """Keys that a call of the store is under way for."""
        self._turn = 0.0
        """How long the last turn took, in seconds."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, key: str, ahead: Sequence[str] = ()) -> EntityLease | None:
        """The lease of a key, or None if another process has it; those of `ahead` that are free are kept for others.

        Raises `StoreUnavailable`.
        """
        with self._changed:
            self._changed.wait_for(lambda: key not in self._moving)
            kept = self._idle.pop(key, None)
            if kept is not None and not kept.lease.lost.is_set():
                return self._use(kept)
            keys = [key, *self._others(key, ahead)]
            self._moving.update(keys)
        won: list[EntityLease] = []
        try:
            won = self._leases.acquire_many(keys)
        finally:
            self._moved(keys, won)
        with self._changed:
            mine = self._idle.pop(key, None)
            return None if mine is None else self._use(mine)

    def give_back(self, lease: EntityLease) -> None:
        """The turn has ended: keep the lease for a while."""
        with self._changed:
            kept, now = self._used.pop(lease.key), self._clock.monotonic()
            self._turn, kept.since = now - kept.since, now
            if not lease.lost.is_set():
                self._keep([kept])

    def close(self) -> None:
        """Give up what nobody uses, and end the thread."""
        with self._changed:
            self._closed, thread = True, self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()

    def _others(self, key: str, ahead: Sequence[str]) -> list[str]:
        """Under the lock."""
        if self._turn > KEPT / 2 or not self._leases.takes_many:
            return []
        known = (self._used, self._idle, self._moving)
        return [each for each in dict.fromkeys(ahead) if each != key and not any(each in those for those in known)]

    def _use(self, kept: _Kept) -> EntityLease:
        """Under the lock."""
        kept.since = self._clock.monotonic()
        self._used[kept.lease.key] = kept
        return kept.lease

    def _keep(self, kept: Iterable[_Kept]) -> None:
        """Under the lock."""
        self._idle.update((each.lease.key, each) for each in kept)
        if self._thread is None and self._idle:
            self._thread = threading.Thread(target=self._give_up, name="leasehold-queue-leases", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _moved(self, keys: Sequence[str], won: Sequence[EntityLease] = ()) -> None:
        """A call of the store has ended."""
        with self._changed:
            now = self._clock.monotonic()
            self._moving.difference_update(keys)
            self._keep([_Kept(lease, now, now) for lease in won])

    def _give_up(self) -> None:
        """The thread."""
        while True:
            with self._changed:
                self._changed.wait(self._left())
                now = self._clock.monotonic()
                if self._left() > 0 and not self._closed:
                    continue
                some = [each for each in self._idle.values() if self._closed or each.due - KEPT / 2 <= now]
                keys = [each.lease.key for each in some]
                for key in keys:
                    del self._idle[key]
                self._moving.update(keys)
                ended = self._closed
            try:
                self._leases.release_many([each.lease for each in some])
            except Exception as error:  # noqa: BLE001  whatever a store of others raises: they are told to it later
                logger.warning("leases could not be given up, trying again: %s", error)
            finally:
                self._moved(keys)
            if ended:
                return

    def _left(self) -> float:
        """Seconds until the first is given up, at most 1. Under the lock."""
        first = min((each.due for each in self._idle.values()), default=None)
        return 1.0 if first is None else min(1.0, max(0.0, first - self._clock.monotonic()))
