"""The official client, `azure-eventhub`, against the local server: nothing here is a stand-in for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.azure_clients import LEAVES_SOCKETS, close_at_once
from tests.waiting import NEVER, PATIENCE, until

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold_testkit.emulators.amqp.messages import Message, StoredMessage, data_message, sections, value_message
from leasehold_testkit.emulators.amqp.types import Int, encode
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub, ServedHub, Work
from leasehold_testkit.emulators.event_hubs.hosting import HostedHub
from leasehold_testkit.emulators.event_hubs.log_store import BESIDE, LogBacked
from leasehold_testkit.emulators.event_hubs.management import answer

eventhub: Any = pytest.importorskip("azure.eventhub")
raised: Any = pytest.importorskip("azure.eventhub.exceptions")
EventData, Consumer, Producer = eventhub.EventData, eventhub.EventHubConsumerClient, eventhub.EventHubProducerClient

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS
FAST: dict[str, Any] = {"socket_timeout": 0.02}
"""The client looks at its socket that often, in seconds: its own choice of 0.2 makes tests slow."""
BEGAN = time.time() - 0.001
"""Before all hubs and events of these tests, whose times are in whole milliseconds."""


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second's wait for each link that is closed."""
    close_at_once(monkeypatch, "azure.eventhub")


@pytest.fixture(params=["memory", "log"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> ServedHub:
    return MemoryHub(9) if request.param == "memory" else LogBacked(LogHub.create(tmp_path / "hub.db", partitions=9))


@pytest.fixture
def memory() -> MemoryHub:
    return MemoryHub(3)


@pytest.fixture
def server(hub: ServedHub) -> Iterator[EventHubsServer]:
    with EventHubsServer({"orders": hub}) as server:
        yield server


@pytest.fixture
def quick(memory: MemoryHub) -> Iterator[EventHubsServer]:
    """A server over memory, where it makes no difference what is behind it."""
    with EventHubsServer({"orders": memory}) as server:
        yield server


def producer(server: EventHubsServer, hub: str = "orders", **options: Any) -> Any:
    return Producer.from_connection_string(server.connection_string(hub), **FAST, **options)


def store(hub: ServedHub, *bodies: str, partition: str = "0") -> None:
    """Put events in behind the server's back: the official producer takes a second to open."""
    hub.append(partition, [Message(data_message(body.encode(), {})) for body in bodies])


class Receiving:
    """The official consumer, receiving in a thread of its own until the block ends."""

    def __init__(
        self,
        server: EventHubsServer,
        *,
        group: str = "$Default",
        hub: str = "orders",
        partition: str | None = "0",
        **how: Any,
    ) -> None:
        self.events: list[Any] = []
        self.by_partition: defaultdict[str, list[str]] = defaultdict(list)
        self.error: BaseException | None = None
        self._news = threading.Condition()
        how = {"starting_position": "-1", "prefetch": 50, **how}
        retries = how.pop("retry_total", 3)
        self._client = Consumer.from_connection_string(
            server.connection_string(hub), group, retry_total=retries, retry_backoff_factor=0.05, **FAST
        )
        self._thread = threading.Thread(target=self._receive, args=(partition, how))

    def _receive(self, partition: str | None, how: dict[str, Any]) -> None:
        try:
            self._client.receive(self._on_event, partition_id=partition, on_error=self._on_error, **how)
        except Exception as error:  # noqa: BLE001  what the client raises is the result of the test
            self._on_error(None, error)

    def _on_event(self, context: Any, event: Any) -> None:
        with self._news:
            self.events.append(event)
            self.by_partition[context.partition_id].append(event.body_as_str())
            self._news.notify_all()

    def _on_error(self, context: Any, error: BaseException) -> None:
        with self._news:
            self.error = error
            self._news.notify_all()

    def __enter__(self) -> Receiving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def bodies(self, count: int) -> list[str]:
        with self._news:
            there = self._news.wait_for(lambda: len(self.events) >= count or self.error, PATIENCE)
            assert there, f"{len(self.events)} of {count} events came"
            assert len(self.events) >= count, f"{len(self.events)} of {count} events came: {self.error}"
            return [event.body_as_str() for event in self.events]

    def failure(self) -> BaseException:
        with self._news:
            assert self._news.wait_for(lambda: self.error, PATIENCE), "no error came"
            assert self.error is not None
            return self.error


def is_later(hub: ServedHub) -> bool:
    """Whether the next event's time is above that of all there are."""
    return time.time() * 1_000 > 1 + max(hub.state(partition).last_enqueued for partition in hub.partition_ids())


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


# properties


@pytest.mark.more(but=1)
def test_the_properties_of_a_hub_and_its_partitions(server: EventHubsServer, hub: ServedHub) -> None:
    store(hub, "a", "b", partition="1")
    with producer(server) as client:
        found = client.get_eventhub_properties()
        assert found["eventhub_name"] == "orders"
        assert found["partition_ids"] == numbers(9)
        assert found["created_at"].timestamp() * 1_000 == pytest.approx(hub.created_at)
        assert BEGAN <= found["created_at"].timestamp() <= time.time()
        empty, full = client.get_partition_properties("0"), client.get_partition_properties("1")
        assert (empty["is_empty"], empty["last_enqueued_sequence_number"]) == (True, -1)
        assert (full["is_empty"], full["beginning_sequence_number"], full["last_enqueued_sequence_number"]) == (
            *(False, 0, 1),
        )
        assert full["last_enqueued_offset"] == hub.state("1").last_offset
        assert full["last_enqueued_time_utc"].timestamp() >= BEGAN


@pytest.mark.more
def test_a_hub_or_partition_that_is_not_there(quick: EventHubsServer) -> None:
    elsewhere = quick.connection_string("orders").replace("EntityPath=orders", "EntityPath=nothing")
    with Producer.from_connection_string(elsewhere, retry_total=0, **FAST) as client:
        with pytest.raises(raised.EventHubError, match="no hub 'nothing'"):
            client.get_eventhub_properties()
        with pytest.raises(raised.EventHubError, match="no hub 'nothing'"):
            client.send_event(EventData("x"))
    with producer(quick, retry_total=0) as client, pytest.raises(raised.EventHubError, match="no partition '9'"):
        client.get_partition_properties("9")
    with Receiving(quick, partition="9", retry_total=0) as receiving:
        assert "Wrong partition id:9" in str(receiving.failure()), "the client looks for itself"


def test_go_is_told_of_a_replication_that_there_is_not(memory: MemoryHub) -> None:
    """Its client takes an answer without this number for a broken one, and does not start."""
    request = value_message("1", {"operation": "READ", "type": "com.microsoft:eventhub", "name": "orders"}, None)
    reply = asyncio.run(answer("$management", request, lambda name: HostedHub(name, memory)))
    found = sections(reply).value["georeplication_factor"]
    assert (found, type(found)) == (1, Int)


# sending


@pytest.mark.more
def test_a_single_event_with_all_that_belongs_to_it(server: EventHubsServer) -> None:
    event = EventData(b"\x00body\xff")
    event.properties = {"colour": "red", "ünï": "cöde"}
    with producer(server) as client, Receiving(server) as receiving:
        client.send_event(event, partition_id="0")
        receiving.bodies(0)
        until(lambda: receiving.events, "the event")
    (found,) = receiving.events
    assert b"".join(found.body) == b"\x00body\xff"
    assert {key.decode(): value.decode() for key, value in found.properties.items()} == {
        "colour": "red",
        "ünï": "cöde",
    }
    assert found.sequence_number == 0
    assert isinstance(found.offset, str)
    assert found.enqueued_time.timestamp() >= BEGAN
    assert found.partition_key is None


@pytest.mark.more(but=1)
def test_the_application_s_part_comes_as_it_was_sent(server: EventHubsServer) -> None:
    event = EventData("{}")
    event.properties = {"number": 5, "flag": True, "raw": b"\x00", "float": 1.5}
    event.content_type, event.message_id, event.correlation_id = "application/json", "m-1", "c-1"
    with producer(server) as client, Receiving(server) as receiving:
        client.send_event(event, partition_id="0")
        receiving.bodies(1)
    (found,) = receiving.events
    assert found.properties == {b"number": 5, b"flag": True, b"raw": b"\x00", b"float": 1.5}
    assert (found.content_type, found.message_id, found.correlation_id) == ("application/json", "m-1", "c-1")


@pytest.mark.more(but=1)
@pytest.mark.parametrize(
    "written",
    [
        "no base64",
        "",
        "/w==",
        b64encode(encode(7)).decode(),
        b64encode(encode([[], []])).decode(),
        b64encode(encode([[None] * 40, {"n": 6}])).decode()[:-4],
        b64encode(encode([[], {"n": 6}])).decode(),
    ],
)
def test_what_a_log_keeps_beside_counts_only_if_it_can_be_read_and_agrees(tmp_path: Path, written: str) -> None:
    with contextlib.closing(LogBacked(LogHub.create(tmp_path / "hub.db", partitions=1))) as hub:
        hub.log.send([Event(b"body", properties={"n": "5", BESIDE: written})])
        (stored,) = hub.read("0", 0, 10, 1 << 20)
        found = sections(stored.message.bare)
    assert (found.application, found.data) == ({"n": "5"}, (b"body",))


def test_a_log_that_needs_nothing_beside_has_nothing(tmp_path: Path) -> None:
    with contextlib.closing(LogBacked(LogHub.create(tmp_path / "hub.db", partitions=1))) as hub:
        hub.append("0", [Message(data_message(b"body", {"a": "1", BESIDE: "theirs"}))])
        hub.append("0", [Message(data_message(b"body", {"n": 5}))])
        plain, typed = (hub.log.read("0", n, n + 1, columns=["properties"]) for n in (0, 1))
        assert [dict(value.as_py()) for value in next(plain).column(0)] == [{"a": "1"}]
        assert [set(dict(value.as_py())) for value in next(typed).column(0)] == [{"n", BESIDE}]


@pytest.mark.more
def test_a_batch_keeps_its_order_and_goes_to_its_partition(server: EventHubsServer) -> None:
    with producer(server) as client:
        batch = client.create_batch(partition_id="2")
        for number in numbers(200):
            batch.add(EventData(number))
        client.send_batch(batch)
    with Receiving(server, partition="2") as receiving:
        assert receiving.bodies(200) == numbers(200)
    assert [event.sequence_number for event in receiving.events] == list(range(200))


@pytest.mark.more
def test_events_of_a_key_go_to_one_partition_and_carry_it(server: EventHubsServer, hub: ServedHub) -> None:
    with producer(server) as client:
        for key in ("a", "b", "ç", "d"):
            batch = client.create_batch(partition_key=key)
            batch.add(EventData(key))
            batch.add(EventData(key))
            client.send_batch(batch)
            client.send_event(EventData(key), partition_key=key)
    for partition in hub.partition_ids():
        stored = hub.read(partition, 0, 100, 1 << 20)
        assert all(hub.partition_for(str(one.message.partition_key)) == partition for one in stored)
    end = [hub.state(partition).end for partition in hub.partition_ids()]
    assert sum(end) == 12
    full = str(end.index(max(end)))
    with Receiving(server, partition=full) as receiving:
        receiving.bodies(max(end))
    assert all(event.partition_key.decode() == event.body_as_str() for event in receiving.events)


def test_events_without_a_key_follow_in_turn(quick: EventHubsServer, memory: MemoryHub) -> None:
    with producer(quick) as client:
        for _ in range(6):
            client.send_event(EventData("x"))
    assert [memory.state(partition).end for partition in memory.partition_ids()] == [2, 2, 2]


@pytest.mark.more
def test_an_event_in_many_frames(server: EventHubsServer) -> None:
    large = bytes(range(256)) * 3_000
    with producer(server) as client, Receiving(server) as receiving:
        client.send_event(EventData(large), partition_id="0")
        receiving.bodies(0)
        until(lambda: receiving.events, "the event")
    assert b"".join(receiving.events[0].body) == large


@pytest.mark.more
def test_an_event_that_is_too_large_is_refused_by_the_client(quick: EventHubsServer) -> None:
    with producer(quick) as client:
        batch = client.create_batch()
        assert batch.max_size_in_bytes == 1 << 20
        with pytest.raises(ValueError, match="size"):
            batch.add(EventData(b"x" * (1 << 20)))


# receiving


@pytest.mark.more
def test_every_start_position(server: EventHubsServer, hub: ServedHub) -> None:
    """One partition for each position, and the same ten events, of five times, in all of them."""
    for first in range(0, 10, 2):
        for partition in hub.partition_ids():
            store(hub, str(first), str(first + 1), partition=partition)
        until(partial(is_later, hub), "the time to go on")
    stored = {partition: hub.read(partition, 0, 10, 1 << 20) for partition in hub.partition_ids()}
    fourth, fifth = {p: s[3] for p, s in stored.items()}, {p: s[4] for p, s in stored.items()}

    def time_of(event: StoredMessage) -> datetime:
        return datetime.fromtimestamp(event.enqueued / 1_000, UTC)

    positions: list[tuple[Any, bool, int]] = [
        ("-1", False, 0),
        (fourth["1"].offset, False, 4),
        (fourth["2"].offset, True, 3),
        (fourth["3"].sequence_number, False, 4),
        (fourth["4"].sequence_number, True, 3),
        (-1, False, 0),
        (time_of(fifth["6"]), True, 4),
        (time_of(fifth["7"]), False, 6),
        (datetime(2020, 1, 1, tzinfo=UTC), False, 0),
    ]
    with Receiving(
        server,
        partition=None,
        starting_position={str(number): at for number, (at, _, _) in enumerate(positions)},
        starting_position_inclusive={str(number): inclusive for number, (_, inclusive, _) in enumerate(positions)},
    ) as receiving:
        receiving.bodies(sum(10 - first for _, _, first in positions))
    for number, (at, inclusive, first) in enumerate(positions):
        assert receiving.by_partition[str(number)] == numbers(10)[first:], (at, inclusive)


@pytest.mark.more
def test_a_position_that_is_none_is_refused(quick: EventHubsServer) -> None:
    with Receiving(quick, starting_position="@earliest", retry_total=0) as receiving:
        assert "is no offset" in str(receiving.failure())


@pytest.mark.more
def test_latest_gives_what_comes_from_now_on(server: EventHubsServer, hub: ServedHub) -> None:
    store(hub, "old")
    with Receiving(server, starting_position="@latest") as receiving:
        until(lambda: server.receivers, "the receiver to be attached")
        store(hub, "new")
        assert receiving.bodies(1) == ["new"]


@pytest.mark.more
def test_more_events_than_credit_arrive_in_their_order(server: EventHubsServer, hub: ServedHub) -> None:
    with Receiving(server, prefetch=10) as receiving:
        for first in range(0, 600, 100):
            store(hub, *[str(number) for number in range(first, first + 100)])
        assert receiving.bodies(600) == numbers(600)


@pytest.mark.more
def test_several_groups_and_hubs_do_not_mix() -> None:
    one, two = MemoryHub(1), MemoryHub(2)
    with EventHubsServer({"one": one, "Two": two}, consumer_groups=["$default", "audit"]) as server:
        store(one, "in one")
        store(two, "in two")
        with (
            Receiving(server, hub="one") as first,
            Receiving(server, hub="one", group="audit") as second,
            Receiving(server, hub="Two", group="AUDIT") as third,
            Receiving(server, hub="Two", group="nobody", retry_total=0) as fourth,
        ):
            assert [r.bodies(1) for r in (first, second, third)] == [["in one"], ["in one"], ["in two"]]
            assert "no consumer group 'nobody'" in str(fourth.failure())


@pytest.mark.more
def test_what_another_process_appends_to_a_log_arrives(tmp_path: Path) -> None:
    with contextlib.closing(LogHub.create(tmp_path / "hub.db", partitions=1)) as log:
        with EventHubsServer({"orders": LogBacked(LogHub(tmp_path / "hub.db"))}) as server:
            with Receiving(server) as receiving:
                until(lambda: server.receivers, "the receiver to be attached")
                log.send([Event(b"from the log", partition_key="k", properties={"a": "1"})])
                assert receiving.bodies(1) == ["from the log"]
            assert receiving.events[0].properties == {b"a": b"1"}
            with producer(server) as client:
                client.send_event(EventData("from the server"))
        assert log.partition_properties()["0"].end == 2


# owner levels


@pytest.mark.more
def test_a_higher_owner_level_disconnects_all_others(quick: EventHubsServer, memory: MemoryHub) -> None:
    with Receiving(quick) as plain, Receiving(quick) as other:
        until(lambda: quick.receivers == 2, "both to be attached")
        with Receiving(quick, owner_level=1) as first:
            for receiving in (plain, other):
                error = receiving.failure()
                assert isinstance(error, raised.ConnectionLostError)
                assert "owner level 1 has come" in str(error)
            until(lambda: quick.receivers == 1, "the others to be gone")
            with Receiving(quick, owner_level=1) as second:
                assert isinstance(first.failure(), raised.ConnectionLostError)
                store(memory, "x")
                assert second.bodies(1) == ["x"]


@pytest.mark.more
@pytest.mark.parametrize("level", [None, 4])
def test_a_lower_or_missing_owner_level_is_refused(
    quick: EventHubsServer, memory: MemoryHub, level: int | None
) -> None:
    store(memory, "x")
    with Receiving(quick, owner_level=5) as holder:
        holder.bodies(1)
        how: dict[str, Any] = {} if level is None else {"owner_level": level}
        with Receiving(quick, **how) as receiving:
            assert isinstance(receiving.failure(), raised.ConnectionLostError)
            assert "is refused" in str(receiving.failure())
        with Receiving(quick, group="another", **how) as elsewhere:
            assert elsewhere.bodies(1) == ["x"]
        store(memory, "y")
        assert holder.bodies(2) == ["x", "y"]
    until(lambda: quick.receivers == 0, "all to be gone")
    with Receiving(quick, **how) as receiving:
        assert receiving.bodies(2) == ["x", "y"]


@pytest.mark.more
def test_a_sixth_receiver_is_refused(quick: EventHubsServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(Receiving(quick))
        until(lambda: quick.receivers == 5, "five to be attached")
        with Receiving(quick, retry_total=0) as sixth:
            assert "at most 5 receivers" in str(sixth.failure())
        with Receiving(quick, group="another"), Receiving(quick, partition="1"):
            until(lambda: quick.receivers == 7, "those of others to be attached")
    until(lambda: quick.receivers == 0, "all to be gone")


def test_the_processor_balances_partitions_between_two_clients(quick: EventHubsServer, memory: MemoryHub) -> None:
    stores: Any = pytest.importorskip("azure.eventhub._eventprocessor.in_memory_checkpoint_store")

    checkpoints = stores.InMemoryCheckpointStore()
    held: list[set[str]] = [set(), set()]
    seen: list[list[str]] = [[], []]

    def client_of(number: int) -> tuple[Any, threading.Thread]:
        client = Consumer.from_connection_string(
            quick.connection_string("orders"),
            "$Default",
            checkpoint_store=checkpoints,
            load_balancing_interval=0.3,
            partition_ownership_expiration_interval=NEVER,
            **FAST,
        )

        def on_event(context: Any, event: Any) -> None:
            seen[number].append(event.body_as_str())
            context.update_checkpoint(event)

        def closed(context: Any, reason: object) -> None:
            held[number].discard(context.partition_id)

        def receive() -> None:
            client.receive(
                on_event,
                on_partition_initialize=lambda context: held[number].add(context.partition_id),
                on_partition_close=closed,
                on_error=lambda context, error: None,
                starting_position="-1",
            )

        thread = threading.Thread(target=receive)
        thread.start()
        return client, thread

    first, first_thread = client_of(0)
    try:
        until(lambda: len(held[0]) == 3, "the first client to have all")
        second, second_thread = client_of(1)
        try:
            until(lambda: held[1] and held[0] | held[1] == {"0", "1", "2"}, "both to have some")
            for partition in ("0", "1", "2"):
                store(memory, f"in {partition}", partition=partition)
            until(lambda: {*seen[0], *seen[1]} == {"in 0", "in 1", "in 2"}, "all events")
        finally:
            second.close()
            second_thread.join(PATIENCE)
    finally:
        first.close()
        first_thread.join(PATIENCE)


# faults


@pytest.mark.more
def test_a_throttled_attach_is_tried_again_by_the_client(quick: EventHubsServer) -> None:
    quick.faults.throttle(2)
    with producer(quick, retry_total=5, retry_backoff_factor=0.05) as client:
        client.send_event(EventData("sent"), partition_id="0")
    quick.faults.throttle(1)
    with Receiving(quick) as receiving:
        assert receiving.bodies(1) == ["sent"]
    quick.faults.throttle(9)
    client = producer(quick, retry_total=1, retry_backoff_factor=0.05)
    with client, pytest.raises(raised.ConnectError, match="server-busy"):
        client.send_event(EventData("never"))
    quick.faults.throttle(0)


def test_a_throttled_send_is_told_to_the_caller(quick: EventHubsServer, memory: MemoryHub) -> None:
    quick.faults.throttle(1, Work.SEND)
    with producer(quick) as client:
        with pytest.raises(raised.EventDataSendError, match="server-busy"):
            client.send_event(EventData("refused"), partition_id="0")
        client.send_event(EventData("accepted"), partition_id="0")
    assert memory.state("0").end == 1


@pytest.mark.more
def test_a_dropped_connection_is_made_anew(quick: EventHubsServer) -> None:
    with producer(quick, retry_backoff_factor=0.05) as client, Receiving(quick) as receiving:
        client.send_event(EventData("before"), partition_id="0")
        receiving.bodies(1)
        assert quick.faults.drop_connections() == 2
        client.send_event(EventData("after"), partition_id="0")
        assert receiving.bodies(2)[:2] == ["before", "after"]
    until(lambda: quick.connections == 0, "all connections to be closed")


@pytest.mark.more
def test_while_connections_are_refused_clients_wait(quick: EventHubsServer) -> None:
    client = producer(quick, retry_total=0)
    with quick.faults.refusing_connections(), client, pytest.raises(raised.EventHubError):
        client.send_event(EventData("x"))
    with producer(quick) as client:
        client.send_event(EventData("x"))


@pytest.mark.more
def test_detached_links_are_attached_again(quick: EventHubsServer, memory: MemoryHub) -> None:
    store(memory, "a")
    with Receiving(quick) as receiving:
        receiving.bodies(1)
        assert quick.faults.detach_links() == 1
        store(memory, "b")
        assert receiving.bodies(2) == ["a", "b"]
        assert quick.faults.detach_links(hub="nothing") == 0


@pytest.mark.more
def test_a_slow_server_is_slow(quick: EventHubsServer) -> None:
    with producer(quick) as client:
        client.send_event(EventData("fast"))
        with quick.faults.slowed_down(0.4):
            began = time.monotonic()
            client.send_event(EventData("slow"))
            assert time.monotonic() - began >= 0.4


# the asynchronous client


@pytest.mark.more
def test_the_asynchronous_client(quick: EventHubsServer) -> None:
    import asyncio

    aio: Any = pytest.importorskip("azure.eventhub.aio")

    async def both() -> list[str]:
        got: list[str] = []
        all_came = asyncio.Event()
        address = quick.connection_string("orders")
        async with aio.EventHubProducerClient.from_connection_string(address) as producing:
            await producing.send_batch([EventData(number) for number in numbers(10)], partition_id="1")
        consuming = aio.EventHubConsumerClient.from_connection_string(address, "$Default")

        async def on_event(context: Any, event: Any) -> None:
            got.append(event.body_as_str())
            if len(got) == 10:
                all_came.set()

        async with consuming:
            task = asyncio.create_task(consuming.receive(on_event, partition_id="1", starting_position="-1"))
            async with asyncio.timeout(PATIENCE):
                await all_came.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return got

    assert asyncio.run(both()) == numbers(10)
