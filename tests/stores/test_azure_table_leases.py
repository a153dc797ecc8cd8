"""Leases in an Azure table: the contract on Azurite, what a network does to transactions, and who buries whom."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from azure.data.tables import TableClient

from leasehold.stores.azure.access import TABLE, read_url
from leasehold.stores.azure.calls import Deadline
from leasehold.stores.azure.lease_entities import LARGEST_TRANSACTION, PARTITION, EntityWrite, Row, packed
from leasehold.stores.azure.table_leases import TableLeaseStore
from leasehold.testing.stores import LeaseHoldsContract, LeaseTimesAtOnce, LeaseTimesContract, LinearizableLeases
from leasehold.testing.stores.lease_fixtures import LeaseFixtures, Names
from tests.stores.azurite import Azurite
from tests.stores.opened import PATIENT, closing_all
from tests.stores.proxy import Proxy

Open = Callable[[], TableLeaseStore]


@pytest.fixture(scope="module")
def table(azurite: Azurite) -> str:
    name = f"leases{secrets.token_hex(4)}"
    azurite.make_table(name)
    return name


@pytest.fixture
def opener(azurite: Azurite, table: str) -> Iterator[Open]:
    with closing_all(
        lambda: TableLeaseStore(read_url(azurite.url("aztable", table), TABLE), timeout=PATIENT)
    ) as reopen:
        yield reopen


@pytest.fixture
def proxy(azurite: Azurite) -> Iterator[Proxy]:
    made = Proxy(azurite.port("table"))
    yield made
    made.close()


def behind(proxy: Proxy, azurite: Azurite, table: str, timeout: float) -> TableLeaseStore:
    url = azurite.url("aztable", table).replace(str(azurite.port("table")), str(proxy.port))
    return TableLeaseStore(read_url(url, TABLE), timeout=timeout)


class OnAzurite(LeaseFixtures):
    @pytest.fixture
    def reopen(self, opener: Open) -> Open:
        return opener

    @pytest.fixture
    def store(self, reopen: Open) -> TableLeaseStore:
        return reopen()

    @pytest.fixture
    def short(self) -> float:
        """A session dies up to a second late."""
        return 6.0

    @pytest.fixture
    def names(self) -> Names:
        """Fewer keys than the contract's: each is a request to whoever has not written it last."""
        return lambda many: [f"key {n}" for n in range(max(2, many // 40))]

    @pytest.fixture
    def hung(self, azurite: Azurite, table: str, proxy: Proxy) -> Iterator[AbstractContextManager[TableLeaseStore]]:
        store = behind(proxy, azurite, table, 0.5)

        @contextmanager
        def hanging() -> Iterator[TableLeaseStore]:
            proxy.hangs = True
            yield store
            proxy.hangs = False

        yield hanging()
        store.close()


class TestLeases(OnAzurite, LeaseHoldsContract):
    pass


class TestTimes(OnAzurite, LeaseTimesAtOnce):
    pass


@pytest.mark.soak
class TestTimesOneByOne(OnAzurite, LeaseTimesContract):
    """The same without other leases beside."""


class TestHistories(LinearizableLeases):
    rounds, steps = 2, 15

    @pytest.fixture
    def reopen(self, opener: Open) -> Open:
        return opener

    @pytest.fixture
    def url(self, azurite: Azurite, table: str) -> str:
        return azurite.url("aztable", table)


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestHistoriesForLong(TestHistories):
    rounds, steps = 4, 100


@pytest.mark.parametrize("losing", [b"POST ", b"lease ", b"beat"])
def test_an_answer_that_is_lost_costs_no_lease(azurite: Azurite, table: str, proxy: Proxy, losing: bytes) -> None:
    store = behind(proxy, azurite, table, 20.0)
    proxy.losing = losing

    def lose() -> None:
        proxy.answers_to_lose = 1

    lose()
    me, heir, scope = store.open_session("me", 60.0), store.open_session("heir", 30.0), secrets.token_hex(4)
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


def test_a_heartbeat_and_who_finds_it_too_old_cannot_both_be_right(opener: Open) -> None:
    store, other, deadline = opener(), opener(), Deadline(PATIENT)
    session = store.open_session("me", 60.0)
    seen = other._entities.beat(session.id, deadline)
    assert seen is not None
    assert store.heartbeat(session)
    assert not other._entities.bury(session.id, seen, deadline), "there was a heartbeat since it was looked at"
    seen = other._entities.beat(session.id, deadline)
    assert other._entities.bury(session.id, seen, deadline)
    assert not store.heartbeat(session)
    assert store.acquire(session, "scope", ["a"]) == []


def test_a_heartbeat_that_comes_too_late_ends_the_session(opener: Open) -> None:
    store = opener()
    session = store.open_session("me", 1.0)
    scope = secrets.token_hex(4)
    store.acquire(session, scope, ["a"])
    time.sleep(1.1)
    assert not store.heartbeat(session)
    other = opener()
    assert other.holders(scope, ["a"]) == []
    assert other._entities.beat(session.id, Deadline(PATIENT)) is None


@pytest.mark.parametrize("duration", [None, 60.0])
def test_an_opening_that_arrives_late_brings_no_session_back(
    opener: Open, azurite: Azurite, table: str, proxy: Proxy, duration: float | None
) -> None:
    store, other, scope = behind(proxy, azurite, table, 4.0), opener(), secrets.token_hex(4)
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
        return EntityWrite(("scope", str(n)), Row(), Row(1), frozenset(alive))

    assert packed([]) == []
    of_one = [step(n, "me") for n in range(250)]
    assert [len(group) for group in packed(of_one)] == [99, 99, 52]
    of_many = [step(n, str(n), "heir") for n in range(120)]
    groups = packed(of_many)
    assert [one for group in groups for one in group] == of_many
    sizes = [len(group) + len({session for one in group for session in one.alive}) for group in groups]
    assert max(sizes) <= LARGEST_TRANSACTION
    assert [len(group) for group in groups] == [49, 49, 22]


def test_sessions_that_ended_leave_nothing_behind(opener: Open, azurite: Azurite, table: str) -> None:
    store = opener()
    closed, expired, left = (store.open_session("me", duration) for duration in (60.0, 1.0, None))
    store.close_session(closed)
    time.sleep(2.1)
    assert not store.heartbeat(expired)
    with TableClient.from_connection_string(azurite.connection_string, table) as entities:
        keys = {entity["RowKey"] for entity in entities.query_entities(f"PartitionKey eq '{PARTITION}'")}
    assert {f"session {left.id} {what}" for what in ("beat", "life")} <= keys
    assert not any(gone.id in key for key in keys for gone in (closed, expired))
