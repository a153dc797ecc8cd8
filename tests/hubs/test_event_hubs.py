"""An event hub, through the official client and the local server: the contract, and what is its own."""

from __future__ import annotations

import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("azure.eventhub")

from azure.eventhub._pyamqp.receiver import ReceiverLink

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError, HubUnavailable, SchemaMismatch
from leasehold.hubs import Hub, open_hub
from leasehold.hubs.event_hubs import events
from leasehold.hubs.event_hubs.hub import EventHub
from leasehold.hubs.event_hubs.read_ahead import ReadAhead
from leasehold.hubs.event_hubs.receiver import Receiver
from leasehold.hubs.event_hubs.url import VARIABLE, EventHubAddress, read_url, without_secrets
from leasehold.installation import command_for
from leasehold.model import EARLIEST, Checkpoint, Event
from leasehold.processors.events import DeliverySettings, EventProcessor, Handlers
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.contracts.hubs.contracts import HubContract
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered, rows_of
from leasehold_testkit.emulators.amqp.messages import Message, data_message
from leasehold_testkit.emulators.amqp.types import Described, ULong, encode
from leasehold_testkit.emulators.event_hubs import EventHubsServer, Limits, MemoryHub, Work
from tests.azure_clients import LEAVES_SOCKETS, close_at_once
from tests.stores.proxy import Proxy
from tests.waiting import NEVER, PATIENCE, until

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second's wait for each link that is closed."""
    close_at_once(monkeypatch, "azure.eventhub")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks as often as ever for what is away, without its pauses, which take 6 s."""
    client = EventHubAddress.client
    monkeypatch.setattr(
        EventHubAddress,
        "client",
        lambda self, kind, **options: client(self, kind, retry_backoff_factor=0.01, **options),
    )


NAMES = ("hub-0", "hub-1", "hub-2")


@pytest.fixture
def memories() -> dict[str, MemoryHub]:
    return {name: MemoryHub(3) for name in NAMES}


@pytest.fixture
def server(memories: dict[str, MemoryHub], monkeypatch: pytest.MonkeyPatch) -> Iterator[EventHubsServer]:
    with EventHubsServer(memories) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        yield server


@pytest.fixture
def hub(server: EventHubsServer) -> Iterator[Hub]:
    hub = open_hub(f"eventhubs://{server.namespace}/hub-0")
    yield hub
    hub.close()


def fill(memory: MemoryHub, partition: str, count: int) -> None:
    """Keyed events, without a client."""
    memory.append(partition, [Message(data_message(b"x", {}), "k")] * count)


@pytest.mark.more(but=1)
@pytest.mark.parametrize("seconds", [0.02, 0.1])
def test_a_service_that_is_far_away_is_read(
    server: EventHubsServer, memories: dict[str, MemoryHub], seconds: float
) -> None:
    """A link is attached after some ten answers. The client says after each 50 ms that it is not ready yet."""
    fill(memories["hub-0"], "0", 10)
    proxy = Proxy(server.port)
    proxy.away = seconds
    with closing(open_hub(f"eventhubs://{server.namespace}/hub-0?endpoint=127.0.0.1:{proxy.port}")) as hub:
        assert sum(batch.num_rows for batch in hub.read("0", 0, 10)) == 10
        assert hub.send(numbered(3), partition="1") == 3
        assert [each.end for each in hub.partition_properties(["0", "1"]).values()] == [10, 3]
    proxy.close()


@pytest.mark.usefixtures("at_once")
class TestContract(HubContract):
    @pytest.fixture
    def new_hub(self, server: EventHubsServer) -> Callable[[], Hub]:
        names = iter(NAMES)
        return lambda: open_hub(f"eventhubs://{server.namespace}/{next(names)}")

    @pytest.fixture
    def add_partition(self, memories: dict[str, MemoryHub]) -> Callable[[Hub], None]:
        def add(hub: Hub) -> None:
            memory = memories[hub.url.rpartition("/")[2]]
            memory.grow(len(memory.partition_ids()) + 1)

        return add

    @pytest.fixture
    def remove_oldest(self, memories: dict[str, MemoryHub]) -> Callable[[Hub, str], None]:
        return lambda hub, partition: memories[hub.url.rpartition("/")[2]].remove_before(partition, 33)

    @pytest.fixture
    def take_away(self, server: EventHubsServer) -> Callable[[Hub], None]:
        return lambda hub: server.stop()


# reading


def test_the_time_of_the_last_event_comes_with_the_end(hub: Hub) -> None:
    hub.send(numbered(3), partition="0")
    places = hub.partition_properties()
    [read] = hub.read("0", 2, 3, columns=["enqueuedTime"])
    assert places["0"].last_enqueued == pytest.approx(read.column("enqueuedTime")[0].as_py().timestamp(), abs=0.002)
    assert places["1"].last_enqueued is None


def test_a_receiver_is_kept_for_ranges_that_follow_each_other(server: EventHubsServer, hub: Hub) -> None:
    hub.send(numbered(900), partition="0")
    bodies = []
    for start in range(0, 900, 100):
        bodies += [int(row["body"]) for row in rows_of(hub, "0", start, start + 100)]
        assert server.receivers == 1
    assert bodies == list(range(900))
    assert isinstance(hub, EventHub)
    kept = hub._kept["0"]
    hub.send(numbered(100, first=900), partition="0")
    assert len(rows_of(hub, "0", 900, 1_000)) == 100
    assert hub._kept["0"] is kept
    assert len(rows_of(hub, "0", 5, 10)) == 5
    assert hub._kept["0"] is not kept
    assert server.receivers == 1


def test_reads_of_one_partition_at_once_do_not_disturb_each_other(server: EventHubsServer, hub: Hub) -> None:
    hub.send(numbered(20), partition="0")
    first, second = (hub.read("0", 0, 20, batch_rows=5) for _ in range(2))
    found = [(a.column("body").to_pylist(), b.column("body").to_pylist()) for a, b in zip(first, second, strict=True)]
    assert all(a == b for a, b in found)
    left = hub.read("0", 0, 20, batch_rows=5)
    next(left)
    assert len(rows_of(hub, "0")) == 20, "one that is not read to its end is in nobody's way"
    del left


def test_partitions_without_news_do_not_slow_down_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the official client's do: it reads all in one thread and waits at each (`docs/event-hubs.md`)."""
    uneven = MemoryHub(8)
    for partition in range(8):
        fill(uneven, str(partition), 600 if partition == 3 else 1)
    with EventHubsServer({"uneven": uneven}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        hub = open_hub(f"eventhubs://{server.namespace}/uneven")
        came: queue.Queue[Event] = queue.Queue()
        with EventProcessor(hub, MemoryStore(), Handlers(on_event=lambda event, context: came.put(event))):
            for _ in range(607):
                came.get(timeout=PATIENCE)
        hub.close()


def test_a_read_goes_on_over_faults(server: EventHubsServer, hub: Hub) -> None:
    hub.send(numbered(2_000), partition="0")
    found = []
    for number, batch in enumerate(hub.read("0", 0, 2_000, batch_rows=100)):
        found += [int(body) for body in batch.column("body").to_pylist()]
        if number == 2:
            server.faults.drop_connections()
        if number == 9:
            server.faults.detach_links()
    assert found == list(range(2_000))


def test_one_thread_reads_from_a_receivers_connection(memories: dict[str, MemoryHub], hub: Hub) -> None:
    """The official client's thread that keeps a connection alive reads too: events could overtake each other."""
    fill(memories["hub-0"], "0", 10)
    before = set(threading.enumerate())
    assert len(bodies_of(hub, "0")) == 10
    own = {thread.name for thread in set(threading.enumerate()) - before if "event-hubs-server" not in thread.name}
    assert own == {"receive-0"}


def test_a_range_that_goes_on_asks_for_no_properties(
    memories: dict[str, MemoryHub], hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = hub._asking.get_partition_properties

    def noted(partition: str) -> Any:
        asked.append(partition)
        return ask(partition)

    monkeypatch.setattr(hub._asking, "get_partition_properties", noted)

    def read(start: int, end: int) -> list[int]:
        batches = hub.read("0", start, end, columns=["sequenceNumber"])
        return [number for batch in batches for number in batch.column(0).to_pylist()]

    fill(memories["hub-0"], "0", 900)
    assert [*read(0, 300), *read(300, 600), *read(600, 900)] == list(range(900))
    assert asked == ["0"]
    fill(memories["hub-0"], "0", 100)
    assert read(900, 1_100) == list(range(900, 1_000)), "up to the end, which has to be asked for"
    assert asked == ["0", "0"]
    assert read(0, 10) == list(range(10))
    assert asked == ["0", "0", "0"]


def test_a_receiver_remembers_no_delivery(memories: dict[str, MemoryHub], hub: Hub, links: list[ReceiverLink]) -> None:
    """The client's link notes the tag of each that it never settles: for as long as the receiver is kept."""
    fill(memories["hub-0"], "0", 5_000)
    assert len(rows_of(hub, "0")) == 5_000
    assert sum(link.delivery_count >= 5_000 for link in links) == 1
    assert sum(len(link._received_delivery_tags) for link in links) <= 600


def test_a_receiver_takes_many_events_from_its_socket_at_once(
    memories: dict[str, MemoryHub], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself asks twice for each."""
    taken: list[int] = []
    take = ReadAhead.recv_into

    def counted(ahead: ReadAhead, buffer: memoryview) -> int:
        if ahead._begin == ahead._end:
            taken.append(len(buffer))
        return take(ahead, buffer)

    monkeypatch.setattr(ReadAhead, "recv_into", counted)
    fill(memories["hub-0"], "0", 5_000)
    assert len(rows_of(hub, "0")) == 5_000
    assert 0 < len(taken) < 2_500


@pytest.mark.timing
def test_a_slow_reader_keeps_its_receiver(memories: dict[str, MemoryHub], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counted(address: EventHubAddress, partition: str, *where: Any) -> Receiver:
        opened.append(partition)
        return Receiver(address, partition, *where)

    monkeypatch.setattr("leasehold.hubs.event_hubs.kept_receivers.Receiver", counted)
    with EventHubsServer(memories, limits=Limits(idle_timeout=2.0)) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        fill(memories["hub-0"], "0", 5_000)
        hub = open_hub(f"eventhubs://{server.namespace}/hub-0")
        reading = hub.read("0", 0, 5_000, columns=["sequenceNumber"], batch_rows=100)
        found = next(reading).column(0).to_pylist()
        time.sleep(4.0)  # twice as long as the server waits for a sign of life
        for batch in reading:
            found += batch.column(0).to_pylist()
        assert found == list(range(5_000))
        assert opened == ["0"]
        hub.close()


@pytest.mark.timing
def test_a_processor_stops_at_once_while_events_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client listens on as long as one event follows another: 5 s of waiting for each receiver, in turn."""
    memory = MemoryHub(8)
    seen, ended = set[str](), threading.Event()

    def trickle() -> None:
        while not ended.wait(0.05):
            for partition in memory.partition_ids():
                fill(memory, partition, 1)

    with EventHubsServer({"hub": memory}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        hub = open_hub(f"eventhubs://{server.namespace}/hub")
        processor = EventProcessor(hub, MemoryStore(), lambda batch, context: seen.add(batch.partition))
        producer = threading.Thread(target=trickle)
        producer.start()
        try:
            processor.start()
            until(lambda: len(seen) >= 8, "events of all partitions")
            assert processor.stop(20.0), "the handlers end"
            with ThreadPoolExecutor(1) as pool:
                pool.submit(hub.close).result(20.0)  # in turn it would take 40 s
        finally:
            ended.set()
            producer.join()
            processor.stop()
            hub.close()


def test_a_read_that_gets_nothing_ends_in_time(server: EventHubsServer, hub: Hub) -> None:
    hub.send(numbered(10), partition="0")
    assert isinstance(hub, EventHub)
    hub._patience = 1.0
    batches = hub.read("0", 0, 10)
    with server.faults.slowed_down(NEVER), pytest.raises(HubUnavailable, match=r"no event of partition 0 for 1 s"):
        next(batches)
    hub._patience = 60.0
    assert len(rows_of(hub, "0")) == 10


def test_a_process_that_is_forked_goes_on_with_connections_of_its_own(hub: Hub) -> None:
    hub.send(numbered(30), partition="0")
    assert len(rows_of(hub, "0", 0, 10)) == 10
    under_way = hub.read("0", 0, 30, batch_rows=5)
    assert next(under_way).num_rows == 5
    child = os.fork()
    if child == 0:
        good = False
        try:
            del under_way
            hub.send(numbered(5, first=30), partition="0")
            good = len(rows_of(hub, "0", 10, 35)) == 25
            hub.close()
        finally:
            os._exit(0 if good else 1)
    codes: list[int] = []

    def has_ended() -> bool:
        process, code = os.waitpid(child, os.WNOHANG)
        codes.append(code)
        return process == child

    until(has_ended, "the child to end")
    assert codes[-1] == 0
    assert sum(batch.num_rows for batch in under_way) == 25
    hub.send(numbered(5, first=35), partition="0")
    assert [int(row["body"]) for row in rows_of(hub, "0", 10, 40)] == list(range(10, 40))


def test_a_connection_that_is_refused_is_told_and_not_tried_again_for_ever(
    server: EventHubsServer, hub: EventHub
) -> None:
    server.stop()
    receiver = Receiver(hub._address, "0", 0)
    with pytest.raises(HubUnavailable, match="refused"):
        receiver.take(1, 1, PATIENCE)
    assert receiver.may_try_again
    assert receiver.failed
    until(lambda: receiver.closed, "its thread to end, so that none is busy with a service that is away")
    receiver.close()


_DATA, _SEQUENCE, _VALUE = 0x75, 0x76, 0x77


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ([(_DATA, b"\xff\x00")], b"\xff\x00"),
        ([(_DATA, b"one "), (_DATA, b""), (_DATA, b"two")], b"one two"),
        ([(_DATA, b"")], b""),
        ([(_VALUE, b"\xff\x00")], b"\xff\x00"),
        ([(_VALUE, "größer")], "größer".encode()),
        ([(_VALUE, 0)], b"0"),
        ([(_VALUE, None)], None),
        ([(_VALUE, {"a": [b"\xff", "b", True, None]})], b'{"a":["/w==","b",true,null]}'),
        ([(_SEQUENCE, [1, b"\xff"]), (_SEQUENCE, ["b"])], b'[1,"/w==","b"]'),
        ([], None),
    ],
)
def test_bodies_of_other_senders_are_read_whatever_they_are(
    memories: dict[str, MemoryHub], hub: Hub, body: list[tuple[int, object]], found: bytes | None
) -> None:
    """Bytes and text are as they are, all else is JSON; and no body keeps a partition from being read."""
    bare = b"".join(encode(Described(ULong(section), value)) for section, value in body)
    memories["hub-0"].append("0", [Message(bare)])
    assert bodies_of(hub, "0") == [found]


def test_another_consumer_group_and_what_it_may_not(
    memories: dict[str, MemoryHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    with EventHubsServer(memories, consumer_groups=["audit"]) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        hub = open_hub(f"eventhubs://{server.namespace}/hub-0?consumer_group=audit")
        hub.send(numbered(3), partition="0")
        assert bodies_of(hub, "0") == [b"0", b"1", b"2"]
        other = open_hub(f"eventhubs://{server.namespace}/hub-0")
        with pytest.raises(HubUnavailable, match="no consumer group"):
            bodies_of(other, "0")
        hub.close()
        other.close()


# sending


def test_a_throttled_send_is_tried_again(server: EventHubsServer, hub: Hub) -> None:
    server.faults.throttle(3, Work.SEND)
    assert hub.send(numbered(5), partition="0") == 5
    assert bodies_of(hub, "0") == [b"0", b"1", b"2", b"3", b"4"]


def test_events_go_out_in_as_few_batches_as_fit(hub: Hub) -> None:
    body = b"x" * 300_000
    assert hub.send([Event(body) for _ in range(7)], partition="0") == 7
    assert bodies_of(hub, "0") == [body] * 7


def test_an_event_that_is_too_large_is_refused(hub: Hub) -> None:
    with pytest.raises(SchemaMismatch, match="1,048,576"):
        hub.send([Event(b"x" * (1 << 20))], partition="0")


@pytest.mark.parametrize("character", ["k", "\u00df", "\u3042"])
def test_a_partition_key_of_more_than_128_characters_is_refused_before_anything_is_sent(
    hub: Hub, character: str
) -> None:
    longest = character * 128
    assert hub.send([Event(b"fits", partition_key=longest)]) == 1
    with pytest.raises(SchemaMismatch, match="129 characters, and Event Hubs takes 128"):
        hub.send([Event(b"before", partition_key="a"), Event(b"", partition_key=longest + "k")])
    assert hub.send([Event(b"to a partition", partition_key=longest + "k")], partition="0") == 1
    found = [row for partition in hub.partition_ids() for row in rows_of(hub, partition)]
    assert {(row["body"], row["partitionKey"]) for row in found} == {
        (b"fits", longest),
        (b"to a partition", longest + "k"),
    }


def test_a_character_of_32_bits_counts_twice_in_a_partition_key(hub: Hub) -> None:
    assert hub.send([Event(b"", partition_key="\U0001f600" * 64)]) == 1
    with pytest.raises(SchemaMismatch, match="130 characters"):
        hub.send([Event(b"", partition_key="\U0001f600" * 65)])


def test_what_the_service_refuses_because_of_its_content_is_the_event_s_fault(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LONGEST_KEY", 1_000)
    with pytest.raises(SchemaMismatch, match=r"refuses an event: .*more than 128 characters"):
        hub.send([Event(b"", partition_key="k" * 129)])
    assert hub.send([Event(b"", partition_key="k")]) == 1


def test_a_key_that_is_no_text_is_refused(hub: Hub) -> None:
    with pytest.raises(SchemaMismatch, match="partition key is text or None, and this is int"):
        hub.send([Event(b"", partition_key=5)])  # type: ignore[arg-type]


def test_a_publisher_is_refused(hub: Hub) -> None:
    with pytest.raises(SchemaMismatch, match="publisher"):
        hub.send([Event(b"", publisher="me")])


def test_the_empty_key_is_a_key(hub: Hub) -> None:
    hub.send([Event(str(number).encode(), partition_key="") for number in range(10)])
    (full,) = [found for partition in hub.partition_ids() if (found := rows_of(hub, partition))]
    assert [int(row["body"]) for row in full] == list(range(10))
    assert {row["partitionKey"] for row in full} == {""}
    assert all(row["properties"] == [] for row in full)


# URLs and secrets

SECRET = "c2VjcmV0LWtleS1vZi1vdXJz"  # noqa: S105  what must not be seen
STRING = f"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey={SECRET}"


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("eventhubs://", "eventhubs://NAMESPACE"),
        ("eventhubs://ns", "eventhubs://NAMESPACE"),
        ("eventhubs://ns/a/b", "eventhubs://NAMESPACE"),
        ("eventhubs://user:pass@ns/hub", "eventhubs://NAMESPACE"),
        ("eventhubs://user:pass/hub", "eventhubs://NAMESPACE"),
        ("eventhubs://ns/hub?colour=red", "not colour"),
        ("eventhubs://ns/hub?transport=pigeon", "amqp, websockets"),
        ("eventhubs://ns/hub?connection_string=nonsense", "no connection string"),
        ("eventhubs://ns/hub?connection_string_env=NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE"),
        (f"eventhubs://ns/hub?connection_string_env={quote(STRING)}", "what is there is not shown"),
        (f"eventhubs://ns/hub?connection_string_env={SECRET}", "no environment variable of this name"),
        (f"eventhubs://ns/hub?connection_string_env={STRING}", "what is there is not shown"),
        (
            f"eventhubs://ns/hub?connection_string=Endpoint=sb://ns&{SECRET}=1",
            "what follows the & behind a password or key",
        ),
        (
            f"eventhubs://ns/hub?connection_string=Endpoint=sb://ns&{SECRET}",
            "what follows the & behind a password or key",
        ),
        (f"eventhubs://ns/hub?connection_string_env=x;key=y&{SECRET}", "what follows the & behind a password or key"),
        (f"eventhubs://other/hub?connection_string={quote(STRING)}", "for the namespace ns.servicebus"),
        (
            f"eventhubs://ns.servicebus.windows.net/hub?connection_string={quote(STRING + ';EntityPath=another')}",
            "for the hub another",
        ),
    ],
)
def test_a_url_that_cannot_be_read_says_why_and_keeps_the_secret(url: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        open_hub(url)
    assert SECRET not in str(caught.value)
    assert "user:" not in str(caught.value)
    assert ":pass" not in str(caught.value)


class Given:
    """A client that keeps what it is made of."""

    def __init__(self, string: str, **options: object) -> None:
        self.string = string

    @classmethod
    def from_connection_string(cls, string: str, **options: object) -> Given:
        return cls(string)


def test_a_connection_string_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "string").write_text(f"{STRING}\n")
    monkeypatch.delenv(VARIABLE, raising=False)
    for name, option in ((f"{VARIABLE}_FILE", ""), ("OF_OURS_FILE", "?connection_string_env=OF_OURS")):
        monkeypatch.setenv(name, str(tmp_path / "string"))
        assert read_url(f"eventhubs://ns.servicebus.windows.net/hub{option}").client(Given).string == STRING
        monkeypatch.delenv(name)


def test_an_address_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    host = "ns.servicebus.windows.net"
    monkeypatch.setenv("OF_OURS", STRING)
    monkeypatch.setenv(VARIABLE, STRING)
    for option in (f"?connection_string={quote(STRING)}", "?connection_string_env=OF_OURS", ""):
        address = read_url(f"eventhubs://{host}/hub{option}")
        assert SECRET not in repr(address)
        assert address.client(Given).string == STRING
        assert address.url == f"eventhubs://{host}/hub"
    monkeypatch.setenv(VARIABLE, STRING.replace("ns.", "other."))
    assert "holds no connection string of this namespace" in read_url(f"eventhubs://{host}/hub").hint


def test_secrets_in_the_texts_of_others_are_hidden() -> None:
    token = f"SharedAccessSignature sr=x&sig={SECRET}&se=1"
    for text in (STRING, token, f"failed: {STRING};EntityPath=x"):
        assert SECRET not in without_secrets(text)
    assert without_secrets("SharedAccessKeyName=root") == "SharedAccessKeyName=root"


def test_the_repr_of_a_hub_is_its_url(hub: Hub) -> None:
    assert repr(hub) == f"EventHub({hub.url!r})"
    assert hub.identity.startswith(f"{hub.url.removeprefix('eventhubs://').rpartition('/')[0]}/hub-0@")


@pytest.mark.usefixtures("at_once")
def test_nothing_at_the_url_is_unavailable(server: EventHubsServer) -> None:
    with pytest.raises(HubUnavailable, match="no hub 'nothing'"):
        open_hub(f"eventhubs://{server.namespace}/nothing")


@pytest.mark.usefixtures("at_once")
def test_nobody_at_the_address_and_no_connection_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        with pytest.raises(HubUnavailable, match=f"{VARIABLE} holds no connection string of this namespace"):
            open_hub(f"eventhubs://127.0.0.1:{port}/nothing")


WITHOUT = """
import sys
sys.modules["azure"] = None  # as if it were not installed
from leasehold.errors import MissingDependency
from leasehold.hubs import open_hub
try:
    open_hub("eventhubs://ns/hub")
except MissingDependency as error:
    print(error)
"""


def test_without_the_package_the_extra_is_named() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert command_for("azure") in said.stdout


def test_a_start_before_anything_is_the_begin(hub: Hub) -> None:
    assert hub.resolve("0", EARLIEST) == 0


# with a processor


def test_a_gap_with_nothing_behind_it_is_passed_by_the_checkpoint_with_its_offset(
    memories: dict[str, MemoryHub], hub: Hub
) -> None:
    fill(memories["hub-0"], "0", 20)
    memories["hub-0"].remove_before("0", 20)
    store, group = MemoryStore(), hub.consumer_group("$Default")
    store.update_checkpoints([Checkpoint(group, "0", 4, 0)])
    seen: list[int] = []
    with EventProcessor(
        hub,
        store,
        lambda batch, context: seen.extend(event.sequence_number for event in batch),
        ownership=OwnershipSettings(load_balancing_interval=0.1, partition_expiration=NEVER),
        delivery=DeliverySettings(fail_on_data_loss=False),
    ):

        def checkpoint() -> Checkpoint:
            return next(one for one in store.list_checkpoints(group) if one.partition == "0")

        until(lambda: checkpoint().next_sequence_number == 20, "the checkpoint")
        last = hub.offset_of("0", 19)
        assert last is not None
        assert checkpoint().offset == last, "other SDKs go on by it"
        fill(memories["hub-0"], "0", 3)
        until(lambda: len(seen) >= 3, "what follows")
    assert seen == [20, 21, 22]
