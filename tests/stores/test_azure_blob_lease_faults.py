"""What pauses, crashes, lost answers and late requests do to leases of Blob Storage's own, one step at a time."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.model import Lease
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob_leases import BlobLeaseStore
from leasehold.stores.azure.calls import Deadline
from leasehold.stores.azure.leased_blobs import HeldBlob
from tests.stores.azurite import Azurite
from tests.stores.opened import closing_all
from tests.stores.proxy import Proxy
from tests.waiting import NEVER, until

Open = Callable[..., BlobLeaseStore]


class Stopped(Exception):
    """The process ends here."""


class Hands:
    """A clock that is set by hand."""

    now = 0.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def container(azurite: Azurite) -> str:
    name = f"lease-faults-{secrets.token_hex(4)}"
    azurite.make_container(name)
    return name


@pytest.fixture
def proxy(azurite: Azurite) -> Iterator[Proxy]:
    made = Proxy(azurite.port("blob"))
    yield made
    made.close()


@pytest.fixture
def opener(azurite: Azurite, container: str) -> Iterator[Open]:
    def make(proxy: Proxy | None = None, **options: Any) -> BlobLeaseStore:
        url = azurite.url("azblob", container)
        if proxy:
            url = url.replace(str(azurite.port("blob")), str(proxy.port))
        return BlobLeaseStore(read_url(url, BLOB), **{"timeout": NEVER, **options})

    with closing_all(make) as reopen:
        yield reopen


@pytest.fixture
def scope() -> str:
    return secrets.token_hex(4)


def stop_at(store: BlobLeaseStore, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Let the store's process end before its next `step`."""

    def stops(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(store._blobs, step, stops)


@pytest.mark.more
def test_a_close_without_an_answer_can_be_made_again(
    opener: Open, proxy: Proxy, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opener(proxy), opener()
    session = store.open_session("me", None)
    assert store.acquire(session, scope, ["a"])
    proxy.hangs = True
    with monkeypatch.context() as impatient:
        impatient.setattr(store, "_timeout", 0.5)
        impatient.setattr(store._calls, "_timeout", 0.5)
        with pytest.raises(StoreUnavailable):
            store.close_session(session)
    proxy.hangs = False
    store.close_session(session)
    assert other.holders(scope, ["a"]) == []


def test_a_write_that_arrives_late_takes_no_fence_back(opener: Open, proxy: Proxy, scope: str) -> None:
    store, other = opener(proxy), opener()
    me, heir = store.open_session("me", 60.0), store.open_session("heir", 60.0)
    proxy.holding = b"comp=metadata"
    [lease] = store.acquire(me, scope, ["a"])
    assert proxy.held, "the write was sent twice, and the first is on its way still"
    [changed] = store.change([lease], heir)
    proxy.let_go()
    assert other.holders(scope, ["a"]) == [changed]
    assert store.renew([changed]) == [changed]


def test_a_heartbeat_beside_an_acquisition_covers_what_is_acquired(
    opener: Open, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Hands()
    store = opener(clock=clock)
    session = store.open_session("me", 15.0)
    looks, renewed = store._blobs._look, list[Lease]()

    def beats_meanwhile(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(store._blobs, "_look", looks)
        clock.now += 5.0  # since the lease was lent
        beat = threading.Thread(target=store.heartbeat, args=[session])
        beat.start()
        beat.join()
        return looks(*arguments, **named)

    keeps = store._blobs.keep

    def keep(held: HeldBlob, deadline: Deadline) -> HeldBlob | None:
        renewed.append(held.lease)
        return keeps(held, deadline)

    monkeypatch.setattr(store._blobs, "_look", beats_meanwhile)
    monkeypatch.setattr(store._blobs, "keep", keep)
    leases = store.acquire(session, scope, ["a"])
    assert store._alive(session)
    assert store._ends[session.id] == 20.0, "the session lives for 15 s from the heartbeat"
    assert renewed == leases, "and so does the lease, which was lent 5 s before"


def test_a_heartbeat_that_was_slow_does_not_shorten_a_later_one(opener: Open) -> None:
    clock = Hands()
    store = opener(clock=clock)
    session = store.open_session("me", 15.0)
    clock.now = 10.0
    assert store.heartbeat(session)
    assert store._extend(session, 1.0), "it began before, and ends after the other"
    clock.now = 24.0
    assert store.heartbeat(session), "14 s after the last one"


@pytest.mark.more
@pytest.mark.parametrize("duration", [None, 60.0])
def test_who_stops_while_acquiring_keeps_the_key_from_nobody(
    opener: Open, scope: str, monkeypatch: pytest.MonkeyPatch, duration: float | None
) -> None:
    store, other = opener(), opener(timeout=10.0)
    session, mine = store.open_session("me", duration), other.open_session("other", 60.0)
    [former] = store.release(store.acquire(session, scope, ["a"]))
    stop_at(store, monkeypatch, "_write")
    with pytest.raises(Stopped):
        store._blobs.take(session, scope, "a", Deadline(NEVER))
    assert other.holders(scope, ["a"]) == []
    [lease] = other.acquire(mine, scope, ["a"])
    assert lease.fence == former.fence + 1
    assert other.renew([lease]) == [lease]


@pytest.mark.more(but=1)
@pytest.mark.parametrize("what", ["metadata of a free key", "metadata of a held key", "blob"])
def test_a_fence_is_above_the_former_ones_also_when_somebody_has_removed_its_record(
    opener: Open, scope: str, what: str
) -> None:
    store = opener()
    session = store.open_session("me", 60.0)
    [lease] = store.acquire(session, scope, ["a"])
    [former] = store.change([lease], session)
    blob = store._blobs._blob(scope, "a")
    if what == "metadata of a held key":
        blob.set_blob_metadata({}, lease=store._mine[scope, "a"].id)
        assert store.renew([former]) == []
        store.break_leases(scope, ["a"])
    else:
        store.release([former])
        blob.delete_blob() if what == "blob" else blob.set_blob_metadata({})
    [after] = store.acquire(session, scope, ["a"])
    assert after.fence > former.fence
    assert store.renew([after]) == store.holders(scope, ["a"]) == [after]


@pytest.mark.more
def test_who_stops_while_handing_over_gives_the_heir_no_lease_without_an_end(
    opener: Open, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opener(), opener()
    endless = store.open_session("me", None)
    mine = other.open_session("other", 60.0)

    def left_to(duration: float) -> str:
        """A key that was handed to an heir as far as the write, and no further."""
        heir, key = other.open_session("heir", duration), secrets.token_hex(4)
        [lease] = store.acquire(endless, scope, [key])
        with monkeypatch.context() as stopping:
            stop_at(store, stopping, "_lend")
            with pytest.raises(Stopped):
                store._blobs.hand_over(store._mine[scope, key], heir, Deadline(NEVER))
        [stands] = other.holders(scope, [key])
        assert (stands.session, stands.fence) == (heir, lease.fence + 1)
        return key

    def has_an_end(key: str) -> bool:
        stands = other._blobs._look(other._blobs._blob(scope, key), Deadline(NEVER))
        return stands is not None and stands.lease.duration == "fixed"

    key = left_to(60.0)
    assert other.renew(other.holders(scope, [key]))
    assert has_an_end(key), "the heir's first renewal sees to it"
    key = left_to(15.0)
    assert other.acquire(mine, scope, [key]) == []
    assert has_an_end(key), "where the heir is gone, whoever wants the key does"
    until(lambda: other.acquire(mine, scope, [key]), "the heir's lease of 15 s to end", pause=1.0)
