"""One key's lease: a blob that is leased from the service, and says in its metadata who leases it.

    ~leasehold/leases/HASH OF SCOPE/HASH OF KEY     the fence, the session that holds it, and the id of its lease

Owns the order of requests for one key, and which of them decides. The id is random for each acquisition and stays
until the key is free again. The metadata names the holder of a key, who holds it as long as the service says that the
id written beside the name is that of its active lease: reading with an id asks for both at once. So each step takes
effect in one conditional request, and of many clients that act on a key at the same moment exactly one succeeds:

    take        1. lease the blob     2. read the fence under the lease     3. WRITE fence + 1 and the session under it,
                                                                               if nothing was written since
    keep        1. RENEW the lease, if nothing was written since; or lease it again by its id, if it has another length
    hand_over   1. WRITE fence + 1 and the heir, under the lease and if nothing was written since     2. its new length
    give_up     1. WRITE no holder, under the lease and if nothing was written since                     2. release it
    break_one   as give_up, by the id that is written there; an orphaned lease: BREAK it, if nothing was written

A client ends a lease by its id alone, save in the last case, where it may hit a lease that another client is taking:
that client's write is then refused, and its `take` begins anew. The fence is written under the lease, where no other
client can write, one above what was read there, and the blob outlives the lease: so the fence rises across expiry,
release, break and restart. A new blob begins with the time in microseconds, and a blob whose metadata somebody has
removed goes on with that: so the fence rises also for a key whose blob somebody has emptied or deleted. Each write
names the ETag that was read, so that a late copy of a write that was sent twice is refused.

A client that stops after 1 in `take`, or after 1 in `give_up`, leaves the blob leased and without a holder: orphaned.
That mostly is a matter of milliseconds; a client that finds the blob orphaned and unchanged for half of the time-out
breaks the lease, once, and retries. A client that stops after 1 in `hand_over` may leave an heir of a stated duration
with a lease that has no end: the next client that wants the key, or the heir's next renewal, gives it the length that
it should have.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.storage.blob import BlobClient, BlobLeaseClient, BlobProperties, ContainerClient

from leasehold.errors import StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.calls import Calls, ConditionFailed, Deadline
from leasehold.stores.azure.layout import WRITE, to_header
from leasehold.stores.azure.lease_texts import fence_of, names_of, session_of

_FENCE, _ID, _SESSION, _OWNER, _DURATION, _KEY, _SCOPE = (
    *("leaseholdfence", "leaseholdlease", "leaseholdsession"),
    *("leaseholdowner", "leaseholdduration", "leaseholdkey", "leaseholdscope"),
)
_FOLDER = "~leasehold/leases/"
_SHOWN = 200  # characters of a key that are kept in its blob, for people

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HeldBlob:
    """A lease, the id by which the service knows it, and the ETag of the write that named its holder.

    `endless`: the service's lease has no end, whatever its session has.
    """

    lease: Lease
    id: str
    etag: str
    endless: bool

    @property
    def has_its_length(self) -> bool:
        """Whether the service's lease has an end if its session has one."""
        return self.endless == (self.lease.session.duration is None)


class LeasedBlobs:
    """The leased blobs of a container. Any number of threads and processes may do anything to them at once."""

    def __init__(self, container: ContainerClient, calls: Calls) -> None:
        self._container = container
        self._calls = calls

    def take(self, session: LeaseSession, scope: str, key: str, deadline: Deadline) -> HeldBlob | None:
        """Take the key for the session. None if another session holds it."""
        blob, patience = self._blob(scope, key), deadline.left() / 2
        nameless, since, broken = "", 0.0, False  # the ETag of an orphaned blob, and how much time was left
        while True:
            lease_id = str(uuid.uuid4())
            try:
                self._lend(blob, lease_id, session, None, deadline)
            except ConditionFailed as refused:
                if str(refused) == "BlobNotFound":
                    self._make(blob, deadline)
                    continue
                held, stands = self._holder(scope, key, deadline)
                if held is not None:
                    self._give_its_length(held, deadline)
                    return None
                if not deadline.allows_another:
                    return None
                etag = str(stands.etag) if stands else ""
                if etag != nameless:
                    nameless, since = etag, deadline.left()
                elif stands and not broken and since - deadline.left() >= patience:
                    broken = True
                    self._end(blob, stands, deadline)
                    continue
                deadline.pause()
                continue
            stands = self._look(blob, deadline)
            if stands is not None:
                fence = 1 + fence_of(_metadata(stands).get(_FENCE))
                won = HeldBlob(Lease(scope, key, session, fence), lease_id, str(stands.etag), session.duration is None)
                if written := self._write(blob, won, _named(won), deadline):
                    return replace(won, etag=written)
            if not deadline.allows_another:
                return None  # each time it was broken, or took so long that it has expired

    def holder(self, scope: str, key: str, deadline: Deadline) -> HeldBlob | None:
        """Who holds the key."""
        return self._holder(scope, key, deadline)[0]

    def _holder(self, scope: str, key: str, deadline: Deadline) -> tuple[HeldBlob | None, BlobProperties | None]:
        """Who holds the key, and how its blob was last seen."""
        blob, tried = self._blob(scope, key), ""
        stands = self._look(blob, deadline)
        while (named := _held(stands, scope, key)) is not None and named.id != tried:
            confirmed = self._look(blob, deadline, lease=named.id)
            if confirmed is not None:
                return _held(confirmed, scope, key), confirmed
            # It is not that lease: the metadata is of one that has expired, or has been written anew meanwhile.
            tried = named.id
            stands = self._look(blob, deadline)
        return None, stands

    def listed(self, scope: str | None, deadline: Deadline) -> list[Lease]:
        """What is held, of all scopes or one, by one listing: the metadata and the state of each lease."""
        folder = _FOLDER if scope is None else f"{_FOLDER}{_hash(scope)[:32]}/"

        def found() -> list[Lease]:
            blobs = self._container.list_blobs(name_starts_with=folder, include=["metadata"], **deadline.request())
            return [lease for blob in blobs if (lease := _listed(blob, scope))]

        return self.until(deadline, found)

    def keep(self, held: HeldBlob, deadline: Deadline) -> HeldBlob | None:
        """Renew the lease, if it is held as it says; return it as it stands."""

        def renew(held: HeldBlob) -> str | None:
            blob = self._blob(held.lease.scope, held.lease.key)
            lent = BlobLeaseClient(blob, held.id)
            if not held.has_its_length:
                return held.etag if self._give_its_length(held, deadline) else None

            def request() -> str:
                lent.renew(**_unwritten_since(held.etag), **deadline.request())
                return held.etag

            return self._attempt(deadline, request)

        kept = self._as_it_stands(held, renew, deadline)
        return kept and replace(kept, endless=kept.lease.session.duration is None)

    def give_up(self, held: HeldBlob, deadline: Deadline) -> bool:
        """Free the key, if it is held as it says."""
        blob = self._blob(held.lease.scope, held.lease.key)
        cleared = {_FENCE: str(held.lease.fence), _KEY: to_header(held.lease.key[:_SHOWN])}
        freed = self._as_it_stands(held, lambda held: self._write(blob, held, cleared, deadline), deadline)
        if freed is None:
            return False

        def release() -> str:
            BlobLeaseClient(blob, freed.id).release(**deadline.request())
            return freed.etag

        self._attempt(deadline, release)  # refused, it has expired, or was broken by a client that saw it orphaned
        return True

    def hand_over(self, held: HeldBlob, to: LeaseSession, deadline: Deadline) -> HeldBlob | None:
        """Let the session `to` hold the key, if it is held as it says."""
        blob = self._blob(held.lease.scope, held.lease.key)
        lease = replace(held.lease, session=to, fence=held.lease.fence + 1)
        new = replace(held, lease=lease, endless=to.duration is None)
        handed = self._as_it_stands(held, lambda held: self._write(blob, held, _named(new), deadline), deadline)
        if handed is None:
            return None
        with suppress(ConditionFailed):  # it has been freed since: the heir's next renewal tells
            # Leased again by its own id it gets another length.
            self._lend(blob, handed.id, to, handed.etag, deadline)
        return replace(new, etag=handed.etag)

    def break_one(self, scope: str, key: str, deadline: Deadline) -> Lease | None:
        """Free the key, whichever session holds it, and return what was held."""
        while True:
            held, stands = self._holder(scope, key, deadline)
            if held is None:
                break
            if self.give_up(held, deadline):
                return held.lease
            if not deadline.allows_another:
                raise StoreUnavailable(f"{self._calls.where}: a lease changes hands too fast to be broken")
        if stands is not None and stands.lease.state in ("leased", "breaking"):
            self._end(self._blob(scope, key), stands, deadline)
        return None

    def _end(self, blob: BlobClient, stands: BlobProperties, deadline: Deadline) -> None:
        """Break the lease of an orphaned blob, if nothing was written since."""
        etag = str(stands.etag)

        def end() -> str:
            BlobLeaseClient(blob).break_lease(lease_break_period=0, **_unwritten_since(etag), **deadline.request())
            return etag

        self._attempt(deadline, end)

    def _give_its_length(self, held: HeldBlob, deadline: Deadline) -> bool:
        """Let a lease that was handed over last as long as its session says. False if it is not that lease any more."""
        if held.has_its_length:
            return True
        try:
            self._lend(self._blob(held.lease.scope, held.lease.key), held.id, held.lease.session, held.etag, deadline)
        except ConditionFailed:
            return False
        return True

    def _as_it_stands(
        self, held: HeldBlob, change: Callable[[HeldBlob], str | None], deadline: Deadline
    ) -> HeldBlob | None:
        """Make a change that compares the ETag, if the lease is held as it says; return it with the ETag after.

        The ETag may have moved though the lease is the same: a client has touched the blob. Then look, and ask again.
        """
        while True:
            if etag := change(held):
                return replace(held, etag=etag)
            stands = self.holder(held.lease.scope, held.lease.key, deadline)
            if stands is None or stands.lease != held.lease or stands == held:
                return None
            held = stands

    # Requests

    def until(self, deadline: Deadline, request: Callable[[], T]) -> T:
        """Make a request that may be made twice, again if it has no answer and there is time."""
        while True:
            try:
                with self._calls.asking():
                    return request()
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                deadline.pause()

    def _attempt(self, deadline: Deadline, request: Callable[[], T]) -> T | None:
        try:
            return self.until(deadline, request)
        except ConditionFailed:
            return None

    def _lend(
        self, blob: BlobClient, lease_id: str, session: LeaseSession, etag: str | None, deadline: Deadline
    ) -> None:
        length = -1 if session.duration is None else math.ceil(session.duration)
        condition = {} if etag is None else _unwritten_since(etag)

        def lend() -> None:
            BlobLeaseClient(blob, lease_id).acquire(lease_duration=length, **condition, **deadline.request())

        self.until(deadline, lend)

    def _look(self, blob: BlobClient, deadline: Deadline, lease: str | None = None) -> BlobProperties | None:
        """The blob as it stands; with the id of a lease, only if that is the active one."""
        condition: dict[str, Any] = {} if lease is None else {"lease": lease}
        return self._attempt(deadline, lambda: blob.get_blob_properties(**condition, **deadline.request()))

    def _make(self, blob: BlobClient, deadline: Deadline) -> None:
        def make() -> None:
            blob.upload_blob(b"", overwrite=False, metadata={_FENCE: str(fence_of(None))}, **deadline.request())

        self._attempt(deadline, make)

    def _write(self, blob: BlobClient, held: HeldBlob, metadata: Mapping[str, str], deadline: Deadline) -> str | None:
        """Write under the lease, if nothing was written since. Returns the new ETag.

        None if the lease is lost, or something was written. Where an answer is lost, the blob tells whose write it was.
        """
        marked = {**metadata, WRITE: secrets.token_hex(6)}
        condition = _unwritten_since(held.etag)
        unanswered = False
        while True:
            try:
                with self._calls.asking():
                    written: Any = blob.set_blob_metadata(marked, lease=held.id, **condition, **deadline.request())
                    return str(written["etag"])
            except ConditionFailed:
                if not unanswered:
                    return None
                stands = self._look(blob, deadline)
                if stands is not None and _metadata(stands).get(WRITE) == marked[WRITE]:
                    return str(stands.etag)
                raise StoreUnavailable(f"{self._calls.where}: no answer came, and it was written to since") from None
            except StoreUnavailable:
                if not deadline.allows_another:
                    raise
                unanswered = True
                deadline.pause()

    def _blob(self, scope: str, key: str) -> BlobClient:
        return self._container.get_blob_client(f"{_FOLDER}{_hash(scope)[:32]}/{_hash(key)}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _unwritten_since(etag: str) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _named(held: HeldBlob) -> dict[str, str]:
    """The metadata of a blob that is held."""
    lease = held.lease
    return {
        _FENCE: str(lease.fence),
        _ID: held.id,
        _SESSION: lease.session.id,
        _OWNER: to_header(lease.session.owner),
        _DURATION: "none" if lease.session.duration is None else repr(lease.session.duration),
        _KEY: to_header(lease.key[:_SHOWN]),
        _SCOPE: to_header(lease.scope),
    }


def _metadata(blob: BlobProperties | None) -> dict[str, str]:
    return {name.lower(): value or "" for name, value in (blob.metadata or {}).items()} if blob else {}


def _held(blob: BlobProperties | None, scope: str, key: str) -> HeldBlob | None:
    """The holder of the blob, if it is leased and its metadata names one."""
    found = _metadata(blob)
    if blob is None or blob.lease.state != "leased" or not found.get(_SESSION):
        return None
    session = session_of(found[_SESSION], found.get(_OWNER), found.get(_DURATION) or "none")
    if session is None:
        return None
    lease = Lease(scope, key, session, fence_of(found.get(_FENCE)))
    return HeldBlob(lease, found.get(_ID) or "", str(blob.etag), blob.lease.duration == "infinite")


def _listed(blob: BlobProperties, scope: str | None) -> Lease | None:
    """The lease of a blob in a listing, with as much of its key as is kept; None if it is free or cannot be read."""
    found = _metadata(blob)
    names = names_of(scope, found.get(_SCOPE), found.get(_KEY))
    held = None if names is None else _held(blob, *names)
    return None if held is None else held.lease
