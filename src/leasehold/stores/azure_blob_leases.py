"""Leases that are Azure Blob Storage's own: a blob for each key, leased from the service for 15 to 60 s or for ever.

    ~leasehold/leases/HASH OF SCOPE/HASH OF KEY     the fence, and the session that holds it, as metadata

Owns these blobs, and in this process which sessions are alive and what they hold. The service decides who holds
a key; the lease id is random for each acquisition, so that a renewal or release is refused there once the key
has gone to somebody else. The fence is written under the lease, where nobody else can write, one above what is
there. The blob outlives the lease, so the fence rises across expiry, release, break and restart.

    acquire   1. acquire the lease     2. read the fence under it     3. write fence + 1 and the session under it
    change    1. write fence + 1 and the heir under the old lease id  2. change the lease id  3. the heir's duration

What stops after 1 in an acquisition holds the key until the lease expires; one without an end, until it is
broken. While a key goes from hand to hand `holders` may still name the former one for a request or two; `renew`
asks the service and does not.

A lease is renewed by a request of its own: a heartbeat is as many requests as there are leases that were acquired
or renewed for the session by this store object, `calls.WORKERS` of them at a time. A session that has missed its
duration on this process's clock is dead here for good, though the service would still renew its leases. Closing
a session frees the same leases as a heartbeat renews; what other processes acquired for it expires.
"""

from __future__ import annotations

import hashlib
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.storage.blob import BlobClient, BlobLeaseClient, BlobProperties, ContainerClient

from leasehold.clock import Clock, SystemClock
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.access import BLOB, Access, read_url
from leasehold.stores.azure.calls import WORKERS, Calls, Deadline, Lost, transport
from leasehold.stores.azure.layout import from_header, to_header
from leasehold.stores.base import StoreFeatures
from leasehold.stores.lease_rules import check_duration, check_keys, check_leases

_FENCE, _ID, _SESSION, _OWNER, _DURATION, _KEY = (
    *("leaseholdfence", "leaseholdlease", "leaseholdsession"),
    *("leaseholdowner", "leaseholdduration", "leaseholdkey"),
)
_SHOWN = 200  # characters of a key that are kept in its blob, for people

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Held:
    """A lease, and the id by which the service knows it."""

    lease: Lease
    id: str


class BlobLeaseStore:
    """Leases in a container that exists. `timeout` is the longest that a call may take for one key."""

    features = StoreFeatures(shared=True, batches=False, native_leases=True, shortest_lease=15.0, longest_lease=60.0)

    def __init__(self, access: Access, *, timeout: float = 3.0, clock: Clock | None = None) -> None:
        self._calls = Calls(access.where, timeout)
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._container = ContainerClient(
            access.endpoint, access.place, credential=access.credential, transport=transport(), retry_total=0
        )
        self._lock = threading.Lock()
        self._ends: dict[str, float] = {}
        self._dead: set[str] = set()
        self._mine: dict[tuple[str, str], _Held] = {}

    def __repr__(self) -> str:
        return f"BlobLeaseStore({self._calls.where})"

    # Sessions

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), owner, duration)
        # Asked of the service, since an hour of work on a container that is not there helps nobody.
        self._each(lambda deadline, _: self._until(deadline, self._look_at_container), [None])
        self._extend(session, self._clock.monotonic())
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        if not self._alive(session):
            return False
        since = self._clock.monotonic()
        self._each(self._renew_one, self._held_by(session))
        return self._extend(session, since)

    def close_session(self, session: LeaseSession) -> None:
        held = self._held_by(session)
        with self._lock:
            alive = session.id not in self._dead
            self._dead.add(session.id)
            self._ends.pop(session.id, None)
        if alive:
            self._each(self._release_one, held)

    def _alive(self, session: LeaseSession) -> bool:
        """Whether the session has kept its time. One of another process is taken to live until it has not."""
        with self._lock:
            now = self._clock.monotonic()
            if session.id not in self._dead and now >= self._ends.setdefault(session.id, _end(session, now)):
                self._dead.add(session.id)
                self._mine = {at: held for at, held in self._mine.items() if held.lease.session.id != session.id}
            return session.id not in self._dead

    def _extend(self, session: LeaseSession, since: float) -> bool:
        alive = session.id not in self._ends or self._alive(session)
        with self._lock:
            if alive and session.id not in self._dead:
                self._ends[session.id] = _end(session, since)
                return True
        return False

    def _held_by(self, session: LeaseSession) -> list[_Held]:
        with self._lock:
            return [held for held in self._mine.values() if held.lease.session.id == session.id]

    # Leases

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        if not self._alive(session):
            return []

        def acquire(deadline: Deadline, key: str) -> Lease | None:
            return self._acquire_one(session, scope, key, deadline)

        return [lease for lease in self._each(acquire, dict.fromkeys(keys)) if lease]

    def _acquire_one(self, session: LeaseSession, scope: str, key: str, deadline: Deadline) -> Lease | None:
        blob, lease_id = self._blob(scope, key), str(uuid.uuid4())
        lent = BlobLeaseClient(blob, lease_id)
        length = -1 if session.duration is None else math.ceil(session.duration)

        def take(deadline: Deadline) -> bool:
            lent.acquire(lease_duration=length, **deadline.request())
            return True

        try:
            self._until(deadline, take)
        except Lost as refused:
            if str(refused) != "BlobNotFound":
                return None  # somebody holds it
            self._make(blob, deadline)
            if not self._attempt(deadline, lambda: take(deadline)):
                return None
        stands = self._look(blob, deadline)
        fence = 1 + int((stands.metadata or {}).get(_FENCE) or 0) if stands else 1
        lease = Lease(scope, key, session, fence)
        held = _Held(lease, lease_id)
        if not self._write(blob, held, lease_id, None, deadline):
            return None  # it took so long that the lease has expired
        with self._lock:
            self._mine[scope, key] = held
        return lease

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        sessions = {lease.session for lease in leases}
        since = self._clock.monotonic()
        alive = {session for session in sessions if self._alive(session)}
        asked = [lease for lease in dict.fromkeys(leases) if lease.session in alive]
        found = self._each(lambda deadline, lease: self._find(lease, deadline), asked)
        mine = {held.lease: held for held in found if held}
        others = [held for session in alive for held in self._held_by(session) if held.lease not in mine]
        renewed = set(self._each(self._renew_one, [*mine.values(), *others]))
        kept = {session for session in alive if self._extend(session, since)}
        return [lease for lease in asked if lease in renewed and lease.session in kept]

    def _renew_one(self, deadline: Deadline, held: _Held) -> Lease | None:
        lent = BlobLeaseClient(self._blob(held.lease.scope, held.lease.key), held.id)

        def renew() -> bool:
            lent.renew(**deadline.request())
            return True

        kept = self._attempt(deadline, renew)
        self._note(held, kept)
        return held.lease if kept else None

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        asked = [lease for lease in dict.fromkeys(leases) if self._alive(lease.session)]

        def release(deadline: Deadline, lease: Lease) -> Lease | None:
            # The service lets a lease that was broken or has expired be released too, so look first.
            stands = self._look(self._blob(lease.scope, lease.key), deadline)
            held = _held(stands, lease.scope, lease.key) if stands else None
            return self._release_one(deadline, held) if held and held.lease == lease else None

        return [lease for lease in self._each(release, asked) if lease]

    def _release_one(self, deadline: Deadline, held: _Held) -> Lease | None:
        lent = BlobLeaseClient(self._blob(held.lease.scope, held.lease.key), held.id)

        def release() -> bool:
            lent.release(**deadline.request())
            return True

        released = self._attempt(deadline, release)
        self._note(held, False)
        return held.lease if released else None

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        check_leases(leases)
        if not self._alive(to):
            return []
        asked = [lease for lease in dict.fromkeys(leases) if self._alive(lease.session)]

        def change(deadline: Deadline, lease: Lease) -> Lease | None:
            return self._change_one(lease, to, deadline)

        return [lease for lease in self._each(change, asked) if lease]

    def _change_one(self, lease: Lease, to: LeaseSession, deadline: Deadline) -> Lease | None:
        blob = self._blob(lease.scope, lease.key)
        stands = self._look(blob, deadline)
        if stands is None or (held := _held(stands, lease.scope, lease.key)) is None or held.lease != lease:
            return None
        new = _Held(replace(lease, session=to, fence=lease.fence + 1), str(uuid.uuid4()))
        if not self._write(blob, new, held.id, stands.etag, deadline) and not self._says(blob, new, deadline):
            return None
        length = -1 if to.duration is None else math.ceil(to.duration)

        def hand_over() -> bool:
            BlobLeaseClient(blob, held.id).change(new.id, **deadline.request())
            return True

        def lengthen() -> bool:
            # A lease keeps its length when its id changes; acquired again by its own id it gets another.
            BlobLeaseClient(blob, new.id).acquire(lease_duration=length, **deadline.request())
            return True

        # Refused, the id may have changed all the same, and the answer been lost: the second tells.
        self._attempt(deadline, hand_over)
        changed = self._attempt(deadline, lengthen) and self._says(blob, new, deadline)
        self._note(held, False)
        if changed:
            self._note(new, True)
        return new.lease if changed else None

    def _says(self, blob: BlobClient, held: _Held, deadline: Deadline) -> bool:
        stands = self._look(blob, deadline)
        return stands is not None and _held(stands, held.lease.scope, held.lease.key) == held

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)

        def break_one(deadline: Deadline, key: str) -> Lease | None:
            blob = self._blob(scope, key)
            stands = self._look(blob, deadline)
            if stands is None or not _leased(stands):
                return None

            def break_it() -> bool:
                BlobLeaseClient(blob).break_lease(lease_break_period=0, **deadline.request())
                return True

            broken = self._attempt(deadline, break_it)
            held = _held(stands, scope, key)
            return held.lease if held and broken else None

        return [lease for lease in self._each(break_one, dict.fromkeys(keys)) if lease]

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)

        def holder(deadline: Deadline, key: str) -> Lease | None:
            stands = self._look(self._blob(scope, key), deadline)
            held = _held(stands, scope, key) if stands else None
            return held.lease if held else None

        return [lease for lease in self._each(holder, dict.fromkeys(keys)) if lease]

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

    def _until(self, deadline: Deadline, request: Callable[[Deadline], T]) -> T:
        """Make a request that may be made twice, again if it has no answer and there is time."""
        while True:
            try:
                with self._calls.asking():
                    return request(deadline)
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                deadline.pause()

    def _attempt(self, deadline: Deadline, request: Callable[[], bool]) -> bool:
        try:
            return self._until(deadline, lambda _: request())
        except Lost:
            return False

    def _look(self, blob: BlobClient, deadline: Deadline) -> BlobProperties | None:
        try:
            return self._until(deadline, lambda deadline: blob.get_blob_properties(**deadline.request()))
        except Lost:
            return None

    def _look_at_container(self, deadline: Deadline) -> None:
        self._container.get_container_properties(**deadline.request())

    def _make(self, blob: BlobClient, deadline: Deadline) -> None:
        def make() -> bool:
            blob.upload_blob(b"", overwrite=False, metadata={_FENCE: "0"}, **deadline.request())
            return True

        self._attempt(deadline, make)

    def _write(self, blob: BlobClient, held: _Held, lease_id: str, etag: str | None, deadline: Deadline) -> bool:
        lease = held.lease
        metadata = {
            _FENCE: str(lease.fence),
            _ID: held.id,
            _SESSION: lease.session.id,
            _OWNER: to_header(lease.session.owner),
            _DURATION: "none" if lease.session.duration is None else repr(lease.session.duration),
            _KEY: to_header(lease.key[:_SHOWN]),
        }
        condition: dict[str, Any] = {}
        if etag is not None:
            condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}

        def write() -> bool:
            blob.set_blob_metadata(metadata, lease=lease_id, **condition, **deadline.request())
            return True

        return self._attempt(deadline, write)

    def _find(self, lease: Lease, deadline: Deadline) -> _Held | None:
        """The lease with its id: from what this process holds, else from the blob."""
        with self._lock:
            mine = self._mine.get((lease.scope, lease.key))
        if mine is not None and mine.lease == lease:
            return mine
        stands = self._look(self._blob(lease.scope, lease.key), deadline)
        held = _held(stands, lease.scope, lease.key) if stands else None
        return held if held and held.lease == lease else None

    def _note(self, held: _Held, kept: bool) -> None:
        at = held.lease.scope, held.lease.key
        with self._lock:
            if kept:
                self._mine[at] = held
            elif self._mine.get(at) == held:
                del self._mine[at]

    def _blob(self, scope: str, key: str) -> BlobClient:
        folder, name = (hashlib.sha256(part.encode()).hexdigest() for part in (scope, key))
        return self._container.get_blob_client(f"~leasehold/leases/{folder[:32]}/{name}")

    def create_schema(self) -> None:
        """Make the container, unless it is there."""
        self._calls.make(self._container.create_container)

    def close(self) -> None:
        """Close all connections and end the threads. Leases stay until they expire."""
        self._calls.close()
        self._container.close()


def _end(session: LeaseSession, since: float) -> float:
    return math.inf if session.duration is None else since + session.duration


def _leased(blob: BlobProperties) -> bool:
    return bool(blob.lease.state == "leased")


def _held(blob: BlobProperties, scope: str, key: str) -> _Held | None:
    """Who holds the blob, if anybody does and it is written there."""
    found = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    if not _leased(blob) or not found.get(_SESSION):
        return None
    stated = found.get(_DURATION) or "none"
    duration = None if stated == "none" else float(stated)
    session = LeaseSession(str(found[_SESSION]), from_header(found.get(_OWNER) or ""), duration)
    return _Held(Lease(scope, key, session, int(found.get(_FENCE) or 0)), str(found.get(_ID)))


def open_blob_leases(url: str, base: Path, timeout: float) -> BlobLeaseStore:
    """The leases in the container that an `azblob://` URL names; `base` has no meaning here."""
    return BlobLeaseStore(read_url(url, BLOB), timeout=timeout)
