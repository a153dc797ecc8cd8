"""Leases of Azure Blob Storage's own: the contract on Azurite. What time does to them: `test_azure_times`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.azure.blob_leases import BlobLeaseStore
from leasehold_testkit.contracts.stores import LeaseHoldsContract, LeaseTimesAtOnce
from leasehold_testkit.contracts.stores.groups import ending_by_itself
from tests.stores.azure_leases import AzureLeaseHistories, LeasePlace, OnAzurite, place_for_leases
from tests.stores.azurite import Azurite
from tests.stores.proxy import Proxy


@pytest.fixture(scope="module")
def where(azurite: Azurite) -> LeasePlace:
    return place_for_leases(azurite, "azblob")


@pytest.mark.more_of(
    "test_as_many_keys_as_one_call_may_name",
    "test_keys_that_differ_never_meet",
    "test_of_many_who_acquire_at_once_exactly_one_wins_each_key",
    "test_scopes_that_differ_never_meet",
)
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
                with ending_by_itself(), pytest.raises(StoreUnavailable):
                    use(store)


@pytest.mark.soak
class TestTimesAsTheyPass(OnAzurite, LeaseTimesAtOnce):
    """In real seconds: a wait is 18 s here, so that there is one for all."""


@pytest.mark.more
class TestHistories(AzureLeaseHistories):
    rounds, steps = 2, 12


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestHistoriesForLong(TestHistories):
    """Long enough for sessions to be closed too."""

    rounds, steps = 4, 100


@pytest.mark.parametrize("losing", [b"x-ms-lease-action: acquire", b"comp=metadata", b"x-ms-lease-action: re"])
def test_an_answer_that_is_lost_costs_no_lease(where: LeasePlace, losing: bytes) -> None:
    proxy = Proxy(where.port)
    store = where.open(proxy, timeout=30.0)
    me, heir, scope = store.open_session("me", 60.0), store.open_session("heir", 60.0), secrets.token_hex(4)
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
