"""Sending events of many keys to an event hub: a batch for each key, several on their way at once."""

from __future__ import annotations

import gc
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

pytest.importorskip("azure.eventhub")

from azure.eventhub._pyamqp.sender import SenderLink

from leasehold.errors import SchemaMismatch
from leasehold.hubs import Hub, open_hub
from leasehold.hubs.event_hubs import events, together
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.model import Event
from leasehold_testkit.contracts.hubs.fixtures import rows_of
from leasehold_testkit.emulators.amqp.connection import Connection
from leasehold_testkit.emulators.amqp.links import Delivered, Request
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub, Work
from tests.azure_clients import LEAVES_SOCKETS, close_at_once

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS

LARGE = 300_000
"""Bytes of a body of which three fit into a batch."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EventHubsServer]:
    close_at_once(monkeypatch, "azure.eventhub")
    with EventHubsServer({"hub": MemoryHub(3)}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        yield server


@pytest.fixture
def hub(server: EventHubsServer) -> Iterator[Hub]:
    hub = open_hub(f"eventhubs://{server.namespace}/hub")
    yield hub
    hub.close()
    gc.collect()  # the client leaves its socket to that when it reconnects: while the filter above is in force


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages the server has found at each look at a socket."""
    counts: list[int] = []
    receive = Connection.receive

    def counted(self: Connection, data: bytes) -> list[Request]:
        requests = receive(self, data)
        counts.append(sum(isinstance(one, Delivered) for one in requests))
        return requests

    monkeypatch.setattr(Connection, "receive", counted)
    return counts


def dealt(keys: int, each: int, size: int = 0) -> list[Event]:
    """Events of this many keys in turn, whose bodies begin with their numbers."""
    return [
        Event(b"%05d" % number + b"x" * size, partition_key=f"k{number % keys}", properties={"n": str(number)})
        for number in range(keys * each)
    ]


def stored(hub: Hub) -> dict[str, list[int]]:
    """The numbers of the events by key, in the order of their partition. No key is in two."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    places: dict[str, str] = {}
    for partition in hub.partition_ids():
        for row in rows_of(hub, partition):
            assert places.setdefault(row["partitionKey"], partition) == partition
            found[row["partitionKey"]].append(int(row["body"][:5]))
    return found


def once(keys: int, each: int) -> dict[str, list[int]]:
    return {f"k{key}": list(range(key, keys * each, keys)) for key in range(keys)}


@pytest.mark.more
def test_batches_of_several_keys_are_on_their_way_at_once(
    server: EventHubsServer, hub: Hub, arrived: list[int]
) -> None:
    with server.faults.slowed_down(0.01):
        assert hub.send(dealt(50, 1)) == 50
    assert 1 < max(arrived) <= together.MOST
    assert stored(hub) == once(50, 1)


def test_of_one_key_one_batch_is_on_its_way(server: EventHubsServer, hub: Hub, arrived: list[int]) -> None:
    with server.faults.slowed_down(0.01):
        hub.send([Event(b"%05d" % n + b"x" * LARGE, partition_key="k") for n in range(10)])
    assert max(arrived) == 1
    assert stored(hub) == {"k": list(range(10))}


def test_no_more_bytes_are_on_their_way_than_a_batch_has(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    room = together._has_room

    def noted(link: SenderLink, flying: list[together.Flight]) -> bool:
        sizes.append(sum(flight.batch.size_in_bytes for flight in flying))
        return room(link, flying)

    monkeypatch.setattr(together, "_has_room", noted)
    hub.send(dealt(6, 3, LARGE))
    assert max(sizes) < 2 << 20
    assert stored(hub) == once(6, 3)


def test_events_of_a_key_keep_their_order_over_throttled_batches(server: EventHubsServer, hub: Hub) -> None:
    server.faults.throttle(7, Work.SEND)
    assert hub.send(dealt(4, 8, LARGE)) == 32
    assert stored(hub) == once(4, 8)


def test_what_is_refused_is_told_and_all_else_is_sent_once_or_not_at_all(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LONGEST_KEY", 1_000)
    sent = dealt(100, 2)
    sent.insert(20, Event(b"99999", partition_key="k" * 129))
    with pytest.raises(SchemaMismatch, match=r"refuses an event: .*more than 128 characters"):
        hub.send(sent)
    found = stored(hub)
    assert set(found) >= {f"k{key}" for key in range(20)}, "what came before it is stored"
    assert len(found) < 20 + together.MOST, "what comes behind it is not sent, but for what was on its way"
    assert all(numbers == once(100, 2)[key] for key, numbers in found.items())
    assert hub.send([Event(b"00000", partition_key="after")]) == 1
    assert stored(hub) == {**found, "after": [0]}


def test_what_comes_before_an_event_that_is_too_large_is_stored_when_that_is_told(hub: Hub) -> None:
    sent = dealt(10, 1)
    sent.insert(5, Event(b"x" * (1 << 20), partition_key="large"))
    with pytest.raises(SchemaMismatch, match="1,048,576"):
        hub.send(sent)
    assert stored(hub) == {f"k{key}": [key] for key in range(5)}


def test_what_a_broken_connection_leaves_open_is_sent_again_in_order(
    server: EventHubsServer, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, left = Connection.receive, [10]

    def cut(self: Connection, data: bytes) -> list[Request]:
        requests = receive(self, data)
        left[0] -= sum(isinstance(one, Delivered) for one in requests)
        if left[0] < 0:
            left[0] = 1_000
            threading.Thread(target=server.faults.drop_connections).start()  # it waits for the thread that we are in
        return requests

    monkeypatch.setattr(Connection, "receive", cut)
    with server.faults.slowed_down(0.01):
        assert hub.send(dealt(40, 2)) == 80
    assert left[0] > 100, "a connection was cut"
    for key, numbers in stored(hub).items():
        assert list(dict.fromkeys(numbers)) == once(40, 2)[key]
        assert numbers in (once(40, 2)[key], 2 * once(40, 2)[key]), "the batch is repeated as a whole"
