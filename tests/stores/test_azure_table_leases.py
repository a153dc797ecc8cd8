"""Leases in an Azure table: the contract on Azurite, what a network does to transactions, and who buries whom.

What time does to them: `test_azure_times`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.stores.azure.calls import Deadline
from leasehold.stores.azure.lease_entities import LARGEST_TRANSACTION, EntityWrite, KeyEntity, packed
from leasehold.stores.azure.table_leases import TableLeaseStore
from leasehold_testkit.contracts.stores import LeaseHoldsContract
from tests.stores.azure_leases import AzureLeaseHistories, LeasePlace, OnAzurite, place_for_leases
from tests.stores.azurite import Azurite
from tests.stores.opened import closing_all
from tests.stores.proxy import Proxy
from tests.waiting import NEVER

Open = Callable[[], TableLeaseStore]


@pytest.fixture(scope="module")
def where(azurite: Azurite) -> LeasePlace:
    return place_for_leases(azurite, "aztable")


@pytest.fixture
def opener(where: LeasePlace) -> Iterator[Open]:
    with closing_all(where.open) as opens:
        yield opens


@pytest.fixture
def proxy(where: LeasePlace) -> Iterator[Proxy]:
    made = Proxy(where.port)
    yield made
    made.close()


@pytest.mark.more_of(
    "test_a_lease_is_handed_over",
    "test_as_many_keys_as_one_call_may_name",
    "test_closing_a_session_frees_all_its_leases",
    "test_fences_of_many_who_take_turns_only_rise",
    "test_keys_that_differ_never_meet",
    "test_of_many_who_acquire_at_once_exactly_one_wins_each_key",
    "test_of_many_who_change_a_lease_at_once_exactly_one_does",
    "test_of_many_who_end_a_lease_at_once_exactly_one_does",
    "test_scopes_that_differ_never_meet",
)
class TestLeases(OnAzurite, LeaseHoldsContract):
    pass


@pytest.mark.more
class TestHistories(AzureLeaseHistories):
    pass


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestHistoriesForLong(TestHistories):
    rounds, steps = 4, 100


@pytest.mark.more
@pytest.mark.parametrize("losing", [b"POST ", b"lease ", b"beat"])
def test_an_answer_that_is_lost_costs_no_lease(where: LeasePlace, proxy: Proxy, losing: bytes) -> None:
    store = where.open(proxy, timeout=30.0)
    proxy.losing = losing

    def lose() -> None:
        proxy.answers_to_lose = 1

    lose()
    me, heir, scope = store.open_session("me", NEVER), store.open_session("heir", NEVER), secrets.token_hex(4)
    lose()
    leases = store.acquire(me, scope, ["a", "b"])
    assert [lease.key for lease in leases] == ["a", "b"]
    lose()
    assert store.heartbeat(me)
    lose()
    changed = store.change(leases, heir)
    assert store.renew(changed) == store.holders(scope, ["a", "b"]) == changed
    lose()
    assert store.acquire(me, scope, ["a"]) == []
    lose()
    assert store.release(changed[:1]) == changed[:1]
    lose()
    assert store.break_leases(scope, ["a", "b"]) == changed[1:]
    lose()
    store.close_session(me)
    assert not store.heartbeat(me)
    assert proxy.lost >= 3
    store.close()


@pytest.mark.parametrize("after", ["another acquires", "another acquires and releases"])
def test_of_an_acquisition_without_an_answer_the_fence_tells_whether_it_was_made(
    opener: Open, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    store, other, scope = opener(), opener(), secrets.token_hex(4)
    me, them = store.open_session("me", NEVER), other.open_session("them", NEVER)
    submit = store._entities._submit

    def never_arrives(*_: object) -> list[Any]:
        monkeypatch.setattr(store._entities, "_submit", submit)
        theirs = other.acquire(them, scope, ["a"])
        assert theirs
        if after == "another acquires and releases":
            other.release(theirs)
        raise StoreUnavailable("the connection was closed")

    monkeypatch.setattr(store._entities, "_submit", never_arrives)
    if after == "another acquires":
        assert store.acquire(me, scope, ["a"]) == []
    else:  # it may have been this session that held it between, and whose lease was broken
        with pytest.raises(StoreUnavailable, match="was written to since"):
            store.acquire(me, scope, ["a"])


def test_a_heartbeat_and_who_finds_it_too_old_cannot_both_be_right(opener: Open) -> None:
    store, other, deadline = opener(), opener(), Deadline(NEVER)
    session = store.open_session("me", NEVER)
    seen = other._entities.beat(session.id, deadline)
    assert seen is not None
    assert store.heartbeat(session)
    assert not other._entities.bury(session.id, seen, deadline), "there was a heartbeat since it was looked at"
    seen = other._entities.beat(session.id, deadline)
    assert other._entities.bury(session.id, seen, deadline)
    assert not store.heartbeat(session)
    assert store.acquire(session, "scope", ["a"]) == []


@pytest.mark.parametrize("duration", [None, NEVER])
def test_an_opening_that_arrives_late_brings_no_session_back(
    opener: Open, where: LeasePlace, proxy: Proxy, duration: float | None
) -> None:
    store, other, scope = where.open(proxy, timeout=NEVER), opener(), secrets.token_hex(4)
    proxy.holding = b"POST "
    session = store.open_session("me", duration)
    assert proxy.held, "it was sent twice, and the first is on its way still"
    assert store.acquire(session, scope, ["a"])
    store.close_session(session)
    proxy.let_go()
    assert other.holders(scope, ["a"]) == []
    assert not store.heartbeat(session)
    store.close()


def test_a_transaction_has_room_for_the_sessions_that_it_is_about() -> None:
    def step(n: int, *alive: str) -> EntityWrite:
        return EntityWrite(("scope", str(n)), KeyEntity(), KeyEntity(1), frozenset(alive))

    assert packed([]) == []
    of_one = [step(n, "me") for n in range(250)]
    assert [len(group) for group in packed(of_one)] == [99, 99, 52]
    of_many = [step(n, str(n), "heir") for n in range(120)]
    groups = packed(of_many)
    assert [one for group in groups for one in group] == of_many
    sizes = [len(group) + len({session for one in group for session in one.alive}) for group in groups]
    assert max(sizes) <= LARGEST_TRANSACTION
    assert [len(group) for group in groups] == [49, 49, 22]
