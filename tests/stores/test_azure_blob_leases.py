"""Leases of Azure Blob Storage's own: the contract on Azurite, in which a short lease is 15 s."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.blob_leases import BlobLeaseStore
from leasehold.testing.stores import LeaseHoldsContract, LeaseTimesAtOnce, LeaseTimesContract, LinearizableLeases
from leasehold.testing.stores.lease_fixtures import LeaseFixtures, Names
from tests.stores.azurite import Azurite
from tests.stores.opened import PATIENT, closing_all
from tests.stores.proxy import Proxy

Open = Callable[[], BlobLeaseStore]


@pytest.fixture(scope="module")
def container(azurite: Azurite) -> str:
    name = f"leases-{secrets.token_hex(4)}"
    azurite.make_container(name)
    return name


@pytest.fixture
def opener(azurite: Azurite, container: str) -> Iterator[Open]:
    with closing_all(
        lambda: BlobLeaseStore(read_url(azurite.url("azblob", container), BLOB), timeout=PATIENT)
    ) as reopen:
        yield reopen


class OnAzurite(LeaseFixtures):
    @pytest.fixture
    def reopen(self, opener: Open) -> Open:
        return opener

    @pytest.fixture
    def store(self, reopen: Open) -> BlobLeaseStore:
        return reopen()

    @pytest.fixture
    def hung(self, azurite: Azurite, container: str) -> Iterator[AbstractContextManager[BlobLeaseStore]]:
        proxy = Proxy(azurite.port("blob"))
        url = azurite.url("azblob", container).replace(str(azurite.port("blob")), str(proxy.port))
        store = BlobLeaseStore(read_url(url, BLOB), timeout=0.5)

        @contextmanager
        def hanging() -> Iterator[BlobLeaseStore]:
            proxy.hangs = True
            yield store
            proxy.hangs = False

        yield hanging()
        store.close()
        proxy.close()

    @pytest.fixture
    def names(self) -> Names:
        """Fewer keys than the contract's: each is some five requests here, and no session lives longer than 60 s."""
        return lambda many: [f"key {n}" for n in range(max(2, many // 250))]


class TestLeases(OnAzurite, LeaseHoldsContract):
    def test_no_method_waits_longer_than_the_time_out(  # type: ignore[override]
        self, hung: AbstractContextManager[BlobLeaseStore], session: LeaseSession, scope: str
    ) -> None:
        """As in the contract, but for a heartbeat and a close: without leases there is nothing that they ask."""
        lease = Lease(scope, "a", session, 1)
        uses: list[Callable[[BlobLeaseStore], object]] = [
            lambda store: store.open_session("me", 60.0),
            lambda store: store.acquire(session, scope, ["a"]),
            lambda store: store.renew([lease]),
            lambda store: store.release([lease]),
            lambda store: store.change([lease], session),
            lambda store: store.break_leases(scope, ["a"]),
            lambda store: store.holders(scope, ["a"]),
        ]
        with hung as store:
            for use in uses:
                started = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    use(store)
                assert time.monotonic() - started < 10.0


class TestTimes(OnAzurite, LeaseTimesAtOnce):
    """A wait is 18 s here, so that there is one for all."""


@pytest.mark.soak
class TestTimesOneByOne(OnAzurite, LeaseTimesContract):
    """The same without other leases beside."""


class TestHistories(LinearizableLeases):
    rounds, steps = 2, 12

    @pytest.fixture
    def reopen(self, opener: Open) -> Open:
        return opener

    @pytest.fixture
    def url(self, azurite: Azurite, container: str) -> str:
        return azurite.url("azblob", container)


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestHistoriesForLong(TestHistories):
    """Long enough for sessions to be closed too."""

    rounds, steps = 4, 100


@pytest.mark.parametrize("losing", [b"x-ms-lease-action: acquire", b"comp=metadata", b"x-ms-lease-action: re"])
def test_an_answer_that_is_lost_costs_no_lease(azurite: Azurite, container: str, losing: bytes) -> None:
    proxy = Proxy(azurite.port("blob"))
    url = azurite.url("azblob", container).replace(str(azurite.port("blob")), str(proxy.port))
    store = BlobLeaseStore(read_url(url, BLOB), timeout=20.0)
    me, heir, scope = store.open_session("me", 60.0), store.open_session("heir", 30.0), secrets.token_hex(4)
    proxy.losing, proxy.answers_to_lose = losing, 1
    [lease] = store.acquire(me, scope, ["a"])
    assert store.renew([lease]) == store.holders(scope, ["a"]) == [lease]
    proxy.answers_to_lose = 1
    [changed] = store.change([lease], heir)
    assert store.renew([changed]) == store.holders(scope, ["a"]) == [changed]
    proxy.answers_to_lose = 1
    assert store.renew([lease]) == []
    assert store.release([changed]) == [changed]
    assert store.holders(scope, ["a"]) == []
    assert proxy.lost >= 2
    store.close()
    proxy.close()
