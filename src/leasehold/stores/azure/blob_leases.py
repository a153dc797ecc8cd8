"""Leases that are Azure Blob Storage's own: a blob for each key, leased from the service for 15 to 60 s or for ever.

Owns, in this process, which sessions are alive and what they hold; who holds a key the service decides
(`azure/leased_blobs.py`). Any number of threads and processes may make any call at once: each key is decided
alone, by one conditional request.

A lease is renewed by a request of its own: a heartbeat is as many requests as there are leases that were acquired
or renewed for the session by this store object, `calls.WORKERS` of them at a time. A session that has missed its
duration on this process's clock is dead here for good, though the service would still renew its leases. What is
acquired while a heartbeat is under way is renewed once more, since the session then lives longer than it was lent for.
Closing a session frees the same leases as a heartbeat renews, also when it is closed again because no answer came;
what other processes acquired for it expires.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from azure.storage.blob import ContainerClient

from leasehold.clock import Clock, SystemClock
from leasehold.errors import LeaseholdError
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.access import BLOB, StoreAccess, read_url
from leasehold.stores.azure.calls import WORKERS, Calls, ConditionFailed, Deadline, transport
from leasehold.stores.azure.leased_blobs import HeldBlob, LeasedBlobs
from leasehold.stores.base import StoreFeatures
from leasehold.stores.lease_base import LeaseStatus
from leasehold.stores.lease_rules import check_duration, check_keys, check_leases, check_listing, check_owner

A = TypeVar("A")
T = TypeVar("T")


class BlobLeaseStore:
    """Leases in a container that exists. `timeout` is the longest that a call may take for one key."""

    features = StoreFeatures(shared=True, batches=False, native_leases=True, shortest_lease=15.0, longest_lease=60.0)

    def __init__(self, access: StoreAccess, *, timeout: float = 3.0, clock: Clock | None = None) -> None:
        self._calls = Calls(access.where, timeout)
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._container = ContainerClient(
            access.endpoint, access.place, credential=access.credential, transport=transport(), retry_total=0
        )
        self._blobs = LeasedBlobs(self._container, self._calls)
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}
        self._beats: dict[str, float] = {}  # when the last heartbeat of a session began
        self._dead: set[str] = set()
        self._mine: dict[tuple[str, str], HeldBlob] = {}

    def __repr__(self) -> str:
        return f"BlobLeaseStore({self._calls.where})"

    # Sessions

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), owner, duration)
        # Asked of the service, since an hour of work on a container that is not there helps nobody.
        self._each(self._look_at_container, [session])
        self._extend(session, self._clock.monotonic())
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        if not self._alive(session):
            return False
        since = self._begin_beat(session)
        self._each(self._renew_one, self._held_by(session))
        return self._extend(session, since)

    def close_session(self, session: LeaseSession) -> None:
        with self._lock:
            self._bury(session)
        self._each(self._release_one, self._held_by(session))

    def _alive(self, session: LeaseSession) -> bool:
        """Whether the session has kept its time. One of another process is taken to live until it has not."""
        with self._lock:
            now = self._clock.monotonic()
            if session.id not in self._dead and now >= self._ends.setdefault(session.id, _end(session, now)):
                self._bury(session)
                self._mine = {at: held for at, held in self._mine.items() if held.lease.session.id != session.id}
            return session.id not in self._dead

    def _bury(self, session: LeaseSession) -> None:
        self._dead.add(session.id)
        self._ends.pop(session.id, None)
        self._beats.pop(session.id, None)

    def _begin_beat(self, session: LeaseSession) -> float:
        """The time now, noted before it is looked up what the session holds: what is noted later is renewed there."""
        with self._lock:
            since = self._clock.monotonic()
            self._beats[session.id] = max(since, self._beats.get(session.id, since))
        return since

    def _extend(self, session: LeaseSession, since: float) -> bool:
        alive = session.id not in self._ends or self._alive(session)
        with self._lock:
            if alive and session.id not in self._dead:
                self._ends[session.id] = max(_end(session, since), self._ends.get(session.id, -math.inf))
                return True
        return False

    def _held_by(self, session: LeaseSession) -> list[HeldBlob]:
        with self._lock:
            return [held for held in self._mine.values() if held.lease.session.id == session.id]

    # Leases

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        if not self._alive(session):
            return []

        def acquire(deadline: Deadline, key: str) -> Lease | None:
            since = self._clock.monotonic()
            return self._won(deadline, self._blobs.take(session, scope, key, deadline), since)

        return [lease for lease in self._each(acquire, dict.fromkeys(keys)) if lease]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        sessions = {lease.session for lease in leases}
        alive = {session: self._begin_beat(session) for session in sessions if self._alive(session)}
        asked = [lease for lease in dict.fromkeys(leases) if lease.session in alive]
        found = self._each(self._find, asked)
        mine = {held.lease: held for held in found if held}
        others = [held for session in alive for held in self._held_by(session) if held.lease not in mine]
        renewed = set(self._each(self._renew_one, [*mine.values(), *others]))
        kept = {session for session, since in alive.items() if self._extend(session, since)}
        return [lease for lease in asked if lease in renewed and lease.session in kept]

    def _renew_one(self, deadline: Deadline, held: HeldBlob) -> Lease | None:
        kept = self._blobs.keep(held, deadline)
        if kept is None:
            self._forget(held)
        return self._noted(kept)

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        asked = [lease for lease in dict.fromkeys(leases) if self._alive(lease.session)]

        def release(deadline: Deadline, lease: Lease) -> Lease | None:
            held = self._find(deadline, lease)
            return self._release_one(deadline, held) if held else None

        return [lease for lease in self._each(release, asked) if lease]

    def _release_one(self, deadline: Deadline, held: HeldBlob) -> Lease | None:
        released = self._blobs.give_up(held, deadline)
        self._forget(held)
        return held.lease if released else None

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        check_leases(leases)
        if not self._alive(to):
            return []
        asked = [lease for lease in dict.fromkeys(leases) if self._alive(lease.session)]

        def change(deadline: Deadline, lease: Lease) -> Lease | None:
            since = self._clock.monotonic()
            if (held := self._find(deadline, lease)) is None:
                return None
            changed = self._blobs.hand_over(held, to, deadline)
            self._forget(held)
            return self._won(deadline, changed, since)

        return [lease for lease in self._each(change, asked) if lease]

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)

        def break_one(deadline: Deadline, key: str) -> Lease | None:
            return self._blobs.break_one(scope, key, deadline)

        return [lease for lease in self._each(break_one, dict.fromkeys(keys)) if lease]

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)

        def holder(deadline: Deadline, key: str) -> HeldBlob | None:
            return self._blobs.holder(scope, key, deadline)

        return [held.lease for held in self._each(holder, dict.fromkeys(keys)) if held]

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        if scope is not None and keys is not None:
            found = self.holders(scope, keys)
        else:
            [found] = self._each(lambda deadline, scope: self._blobs.listed(scope, deadline), [scope])
        found = sorted(found, key=lambda lease: (lease.scope, lease.key))
        return [LeaseStatus(lease, None) for lease in found[:most]]  # the service does not tell when a lease ends

    # What this process knows

    def _find(self, deadline: Deadline, lease: Lease) -> HeldBlob | None:
        """The lease with its id: from what this process holds, else from the blob."""
        with self._lock:
            mine = self._mine.get((lease.scope, lease.key))
        if mine is not None and mine.lease == lease:
            return mine
        held = self._blobs.holder(lease.scope, lease.key, deadline)
        return held if held and held.lease == lease else None

    def _won(self, deadline: Deadline, held: HeldBlob | None, since: float) -> Lease | None:
        """Note what was won by what began at `since`, and do here what the session's other calls could not do for it.

        That is: free it if the session has been closed meanwhile, and renew it if there has been a heartbeat.
        """
        if held is None:
            return None
        self._noted(held)
        session = held.lease.session
        if not self._alive(session):
            self._release_one(deadline, held)
        elif session.duration is not None:
            with self._lock:
                beaten = self._beats.get(session.id, -math.inf) > since
            if beaten:
                return self._renew_one(deadline, held)
        return held.lease

    def _noted(self, held: HeldBlob | None) -> Lease | None:
        if held is None:
            return None
        at = held.lease.scope, held.lease.key
        with self._lock:
            if at not in self._mine or self._mine[at].lease.fence <= held.lease.fence:
                self._mine[at] = held
        return held.lease

    def _forget(self, held: HeldBlob) -> None:
        at = held.lease.scope, held.lease.key
        with self._lock:
            if at in self._mine and self._mine[at].lease == held.lease:
                del self._mine[at]

    # Requests

    def _each(self, job: Callable[[Deadline, A], T], items: Iterable[A]) -> list[T]:
        """Do the job for each item within a time-out of its own, and raise the first error after all are done."""
        todo = list(items)
        results = []
        overall = Deadline(self._timeout * max(1, math.ceil(len(todo) / WORKERS)))
        for outcome in self._calls.outcomes(lambda item: job(self._calls.deadline(), item), todo, overall):
            if isinstance(outcome, LeaseholdError):
                raise outcome
            results.append(outcome)
        return results

    def _look_at_container(self, deadline: Deadline, _: LeaseSession) -> None:
        """Ask for a blob that nobody makes: no SAS of a container allows to ask for the container's own properties."""
        nobody = self._container.get_blob_client("~leasehold/leases")
        with suppress(ConditionFailed):  # the blob is not there, and the container is
            self._blobs.until(deadline, lambda: nobody.get_blob_properties(**deadline.request()))

    def create_schema(self) -> None:
        """Make the container, unless it is there."""
        self._calls.make(self._container.create_container)

    def close(self) -> None:
        """Close all connections and end the threads. Leases stay until they expire."""
        self._calls.close()
        self._container.close()


def _end(session: LeaseSession, since: float) -> float:
    return math.inf if session.duration is None else since + session.duration


def open_blob_leases(url: str, base: Path, timeout: float) -> BlobLeaseStore:
    """The leases in the container that an `azblob://` URL names; `base` has no meaning here."""
    return BlobLeaseStore(read_url(url, BLOB), timeout=timeout)
