"""Leases in the memory of one process: for tests, and for several processors in one program.

Owns nothing that outlives the process, so that a session without an end ends with it. `memory://NAME` is the
same store wherever it is opened in the process. Its clock is the local monotonic one; one count of fences
serves all keys. One lock guards everything, and no call waits while it is held.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from leasehold.clock import Clock, SystemClock
from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import StoreFeatures
from leasehold.stores.lease_base import LeaseStatus
from leasehold.stores.lease_rules import check_duration, check_keys, check_leases, check_listing, check_owner
from leasehold.stores.memory.store import name_of


class MemoryLeaseStore:
    """Sessions and leases in dictionaries. Leases of dead sessions are forgotten when a session is opened.

    `features` can be narrowed, to see how things go with less: with other durations, for example.
    """

    def __init__(self, clock: Clock | None = None, features: StoreFeatures | None = None) -> None:
        self.features = features or StoreFeatures(shared=False, one_process=True)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._fence = 0
        self._ends: dict[str, float] = {}
        self._leases: dict[tuple[str, str], Lease] = {}

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), owner, duration)
        with self._lock:
            self._forget_the_dead()
            self._ends[session.id] = self._end(session)
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        with self._lock:
            return self._heartbeat(session)

    def close_session(self, session: LeaseSession) -> None:
        with self._lock:
            self._ends.pop(session.id, None)

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        won: list[Lease] = []
        with self._lock:
            if not self._alive(session.id):
                return won
            self._fence += 1
            for key in keys:
                if self._held(scope, key) is None:
                    lease = self._leases[scope, key] = Lease(scope, key, session, self._fence)
                    won.append(lease)
        return won

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        with self._lock:
            for session in {lease.session for lease in leases}:
                self._heartbeat(session)
            return [lease for lease in dict.fromkeys(leases) if self._held(lease.scope, lease.key) == lease]

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        released = []
        with self._lock:
            for lease in leases:
                if self._held(lease.scope, lease.key) == lease:
                    del self._leases[lease.scope, lease.key]
                    released.append(lease)
        return released

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        check_leases(leases)
        changed: list[Lease] = []
        with self._lock:
            if not self._alive(to.id):
                return changed
            self._fence += 1
            for lease in leases:
                if self._held(lease.scope, lease.key) == lease:
                    new = dataclasses.replace(lease, session=to, fence=self._fence)
                    self._leases[lease.scope, lease.key] = new
                    changed.append(new)
        return changed

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        with self._lock:
            broken = self._holders(scope, keys)
            for lease in broken:
                del self._leases[scope, lease.key]
        return broken

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        with self._lock:
            return self._holders(scope, keys)

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        with self._lock:
            asked = sorted(self._leases) if scope is None or keys is None else sorted((scope, key) for key in keys)
            held = [lease for at in dict.fromkeys(asked) if scope in (None, at[0]) and (lease := self._held(*at))]
            now = self._clock.monotonic()
            ends = [self._ends[lease.session.id] for lease in held]
        statuses = [
            LeaseStatus(lease, None if end == math.inf else end - now) for lease, end in zip(held, ends, strict=True)
        ]
        return statuses[:most]

    def _holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        return [lease for key in dict.fromkeys(keys) if (lease := self._held(scope, key))]

    def _held(self, scope: str, key: str) -> Lease | None:
        lease = self._leases.get((scope, key))
        return lease if lease and self._alive(lease.session.id) else None

    def _alive(self, session_id: str) -> bool:
        return self._clock.monotonic() < self._ends.get(session_id, -math.inf)

    def _heartbeat(self, session: LeaseSession) -> bool:
        alive = self._alive(session.id)
        if alive:
            self._ends[session.id] = self._end(session)
        return alive

    def _end(self, session: LeaseSession) -> float:
        return math.inf if session.duration is None else self._clock.monotonic() + session.duration

    def _forget_the_dead(self) -> None:
        self._ends = {session_id: end for session_id, end in self._ends.items() if self._alive(session_id)}
        self._leases = {key: lease for key, lease in self._leases.items() if lease.session.id in self._ends}


_stores: dict[str, MemoryLeaseStore] = {}
_stores_lock = threading.Lock()


def open_memory_leases(url: str, base: Path, timeout: float) -> MemoryLeaseStore:
    """The leases of `memory://NAME` in this process, made on first use; `base` and `timeout` have no meaning here."""
    with _stores_lock:
        return _stores.setdefault(name_of(url), MemoryLeaseStore())
