"""What time does to what is in Azure: on an Azurite whose clock these tests move, as they do the client's."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.data.tables import TableClient

from leasehold.model import Ask, ConsumerGroup, Presence
from leasehold.stores import open_store
from leasehold.stores.azure.calls import Deadline
from leasehold.stores.azure.lease_entities import PARTITION
from leasehold_testkit.contracts.stores import LeaseTimesContract
from leasehold_testkit.contracts.stores.lease_fixtures import LONG
from tests.stores.azure_leases import LeasePlace, OnAzurite, place_for_leases
from tests.stores.azurite_by_hand import AzuriteByHand, by_hand
from tests.stores.opened import closing_all
from tests.waiting import NEVER

__all__ = ["by_hand"]

GROUP = ConsumerGroup("fleet.servicebus.windows.net", "flights")
Open = Callable[[], Any]


@pytest.fixture(scope="module")
def blobs(by_hand: AzuriteByHand) -> LeasePlace:
    return place_for_leases(by_hand, "azblob")


@pytest.fixture(scope="module")
def table(by_hand: AzuriteByHand) -> LeasePlace:
    return place_for_leases(by_hand, "aztable")


class Times(OnAzurite, LeaseTimesContract):
    @pytest.fixture
    def reopen(self, by_hand: AzuriteByHand, where: LeasePlace) -> Iterator[Open]:
        with closing_all(lambda: where.open(clock=by_hand.clock)) as opener:
            yield opener

    @pytest.fixture
    def wait(self, by_hand: AzuriteByHand) -> Callable[[float], None]:
        return by_hand.advance

    @pytest.fixture
    def short(self) -> float:
        return 36.0


@pytest.mark.more_of(
    "test_a_session_lives_as_long_as_it_has_a_heartbeat",
    "test_one_heartbeat_renews_all_leases_of_a_session",
)
class TestTimesOfBlobs(Times):
    @pytest.fixture
    def where(self, blobs: LeasePlace) -> LeasePlace:
        return blobs


@pytest.mark.more_of(
    "test_leases_of_a_dead_session_are_free_without_a_sweep",
    "test_one_heartbeat_renews_all_leases_of_a_session",
)
class TestTimesOfATable(Times):
    @pytest.fixture
    def where(self, table: LeasePlace) -> LeasePlace:
        return table


@pytest.fixture
def entities(by_hand: AzuriteByHand, table: LeasePlace) -> Iterator[Open]:
    with closing_all(lambda: table.open(clock=by_hand.clock)) as opener:
        yield opener


def test_a_heartbeat_that_comes_too_late_ends_the_session(by_hand: AzuriteByHand, entities: Open) -> None:
    store, scope = entities(), secrets.token_hex(4)
    session = store.open_session("me", LONG)
    store.acquire(session, scope, ["a"])
    by_hand.advance(LONG + 0.1)
    assert not store.heartbeat(session)
    other = entities()
    assert other.holders(scope, ["a"]) == []
    assert other._entities.beat(session.id, Deadline(NEVER)) is None


def test_sessions_that_ended_leave_nothing_behind(by_hand: AzuriteByHand, entities: Open, table: LeasePlace) -> None:
    store = entities()
    closed, expired, left = (store.open_session("me", duration) for duration in (LONG, LONG, None))
    store.close_session(closed)
    by_hand.advance(LONG + 1.1)
    assert not store.heartbeat(expired)
    with TableClient.from_connection_string(by_hand.connection_string, table.name) as client:
        keys = {entity["RowKey"] for entity in client.query_entities(f"PartitionKey eq '{PARTITION}'")}
    assert {f"session {left.id} {what}" for what in ("beat", "life")} <= keys
    assert not any(gone.id in key for key in keys for gone in (closed, expired))


@pytest.mark.more(but=1)
@pytest.mark.parametrize("scheme", ["azblob", "aztable"])
def test_presence_and_asks(by_hand: AzuriteByHand, scheme: str) -> None:
    name = f"times{secrets.token_hex(8)}"
    (by_hand.make_container if scheme == "azblob" else by_hand.make_table)(name)
    store = open_store(by_hand.url(scheme, name), timeout=NEVER)
    store.renew_ownership([], Presence(GROUP, "a/1", "flights", "planned", 2.5, 7))
    [first] = store.list_ownership(GROUP).presences
    assert (first.owner_id, first.pipeline, first.strategy, first.capacity, first.maximum) == (
        *("a/1", "flights", "planned", 2.5, 7),
    )
    assert first.created == first.last_modified
    by_hand.advance(1.1)
    open_store(by_hand.url(scheme, name), timeout=NEVER).renew_ownership([], Presence(GROUP, "a/1"))
    listing = store.list_ownership(GROUP)
    [second] = listing.presences
    assert (second.created, second.maximum) == (first.created, None)
    assert first.last_modified < second.last_modified <= listing.as_of
    assert second.etag != first.etag
    mine, theirs = Ask(GROUP, "0", 3, "a/1"), Ask(GROUP, "0", 4, "é")
    store.ask([mine])
    assert store.list_ownership(GROUP).asks == (mine,)
    store.ask([theirs, Ask(GROUP, "1", 1, "x")])
    store.withdraw_asks([mine])
    assert set(store.list_ownership(GROUP).asks) == {theirs, Ask(GROUP, "1", 1, "x")}
    store.withdraw_asks([theirs, Ask(GROUP, "1", 1, "x")])
    store.withdraw_presence(GROUP, ["a/1", "nobody"])
    listing = store.list_ownership(GROUP)
    assert (listing.asks, listing.presences, listing.records) == ((), (), ())
