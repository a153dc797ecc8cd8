"""Who is attached to a partition in a mixed fleet, where the service tells owners apart by nothing."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

pytest.importorskip("azure.eventhub")

from leasehold.config import OwnershipSettings
from leasehold.errors import PartitionTaken, ReaderDisconnected
from leasehold.hubs import open_hub
from leasehold.hubs.event_hubs.events import Message
from leasehold.hubs.event_hubs.hub import EventHub
from leasehold.hubs.event_hubs.receiver import Receiver
from leasehold.hubs.event_hubs.url import VARIABLE, read_url
from leasehold.model import Checkpoint, Ownership
from leasehold.notices import Notice, Notices, OwnershipLost
from leasehold.processors.events import EventBatch, EventProcessor, PartitionContext
from leasehold.runtime import Runtime
from leasehold.spark.loop.tasks import ReadSpec, _events
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import ReadFor
from leasehold.stores import open_store
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.contracts.hubs.fixtures import numbered
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.waiting import NEVER, PATIENCE, until

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS
THEIRS = "5c8e4a52-0d0c-4b0f-9d8e-27f3b1e2a001"
RARELY = OwnershipSettings(load_balancing_interval=20.0, partition_expiration=NEVER, settle_delay=0)
OFTEN = OwnershipSettings(
    load_balancing_interval=0.5, partition_expiration=NEVER, request_timeout=10.0, margin=0.2, settle_delay=0
)


class SharedWithOthers(MemoryStore):
    """A store that says other SDKs' processors read it. `attached` is how many receivers there were at each claim."""

    def __init__(self, server: EventHubsServer) -> None:
        super().__init__(features=StoreFeatures(shared=True, official_layout=True))
        self.server = server
        self.attached: list[int] = []

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        if any(start.owner_level for start in starts):
            self.attached.append(self.server.receivers)
        return super().raise_owner_level(starts)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EventHubsServer]:
    with EventHubsServer({"Hub": MemoryHub(1), "Two": MemoryHub(2)}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        yield server
    gc.collect()


@pytest.fixture
def url(server: EventHubsServer) -> str:
    return f"eventhubs://{server.namespace}/Hub?fleet=mixed"


@pytest.fixture
def hub(url: str) -> Iterator[EventHub]:
    hub = open_hub(url)
    assert isinstance(hub, EventHub)
    yield hub
    hub.close()


@pytest.fixture
def store(server: EventHubsServer) -> SharedWithOthers:
    return SharedWithOthers(server)


class Running:
    """A processor of ours in a mixed fleet, and what it was given and lost."""

    def __init__(self, hub: EventHub, store: MemoryStore, settings: OwnershipSettings) -> None:
        self.got: list[int] = []
        self.lost: list[Notice] = []
        notices = Notices()
        notices.subscribe(self.lost.append, OwnershipLost)
        self.processor = EventProcessor(hub, store, self.note, runtime=Runtime(notices=notices), ownership=settings)

    def note(self, batch: EventBatch, context: PartitionContext) -> None:
        self.got += [event.sequence_number for event in batch]


def taken(receiver: Receiver, end: int, count: int) -> list[Message]:
    """This many events below `end`: a take may return before all have come."""
    found: list[Message] = []
    while len(found) < count:
        found += receiver.take(end, count - len(found), PATIENCE)
    return found


def taken_by_others(hub: EventHub, store: MemoryStore) -> None:
    """What another SDK's processor does: it takes a live record, and knows no nonce."""
    group = hub.consumer_group("$Default")
    [record] = [record for record in store.list_ownership(group).records if record.partition == "0"]
    theirs = Ownership(group, "0", THEIRS, record.owner_level, record.etag)
    assert store.claim_ownership([theirs])


def test_a_former_owner_is_disconnected_by_the_claim_and_before_the_checkpoint_is_read(
    url: str, hub: EventHub, store: SharedWithOthers, server: EventHubsServer
) -> None:
    """Also of a partition in which nothing comes: it would give out the first events that do."""
    former = Receiver(read_url(url), "0", 0, 0)
    assert former.wait_attached(PATIENCE)
    running = Running(hub, store, RARELY)
    with running.processor:
        until(lambda: former.failed, "the former owner to be disconnected")
        assert former.disconnected
        until(lambda: running.processor.partitions, "the partition to be held")
        assert store.attached == [1], "there was one receiver when the checkpoint was read"
        hub.send(numbered(5), partition="0")
        until(lambda: running.got == [0, 1, 2, 3, 4], "the events to come through the receiver that was attached")
        assert server.receivers == 1
    until(lambda: server.receivers == 0, "the receiver to be closed with its work")
    former.close()


def test_who_was_disconnected_looks_at_the_record_before_it_attaches_again(url: str, store: SharedWithOthers) -> None:
    """Two partitions, so that one for each is a balance."""
    url = url.replace("/Hub", "/Two")
    hub = open_hub(url)
    assert isinstance(hub, EventHub)
    running = Running(hub, store, RARELY)
    with closing(hub), running.processor:
        hub.send(numbered(5), partition="0")
        until(lambda: len(running.got) == 5, "the first events")
        taken_by_others(hub, store)
        theirs = Receiver(read_url(url), "0", 5, 0)
        assert theirs.wait_attached(PATIENCE)
        hub.send(numbered(5), partition="0")
        assert len(taken(theirs, 10, 5)) == 5
        until(lambda: running.lost, "ours to see that it has lost the partition")
        hub.send(numbered(5), partition="0")
        assert len(taken(theirs, 15, 5)) == 5
        assert not theirs.failed, "nobody has attached again in its place"
        assert running.got == [0, 1, 2, 3, 4]
        theirs.close()


def test_who_was_disconnected_and_is_the_owner_comes_back(url: str, hub: EventHub, store: SharedWithOthers) -> None:
    """It goes on from its checkpoint: what that covers does not come again, and nothing is left out."""
    running = Running(hub, store, RARELY)
    group = hub.consumer_group("$Default")

    def recorded() -> list[int]:
        return [checkpoint.sequence_number for checkpoint in store.list_checkpoints(group)]

    with running.processor:
        hub.send(numbered(5), partition="0")
        until(lambda: recorded() == [4], "the first events, and their checkpoint, which follows the handler")
        stranger = Receiver(read_url(url), "0", 5, 0)
        assert stranger.wait_attached(PATIENCE)
        hub.send(numbered(5), partition="0")
        until(lambda: len(running.got) >= 10, "the others, long before the next cycle was due")
        assert running.got == list(range(10))
        until(lambda: stranger.disconnected, "the stranger to hear that it was disconnected")
        stranger.close()


def test_no_receiver_stays_for_a_partition_that_was_lost(
    hub: EventHub, store: SharedWithOthers, server: EventHubsServer
) -> None:
    running = Running(hub, store, OFTEN)
    with running.processor:
        hub.send(numbered(5), partition="0")
        until(lambda: len(running.got) == 5, "the first events")
        taken_by_others(hub, store)
        until(lambda: running.lost, "the loss to be seen")
        until(lambda: server.receivers == 0, "its receiver to be closed: a reader without a level is shut out by it")


def test_a_receiver_that_nobody_asked_to_keep_is_closed_after_a_while(
    hub: EventHub, server: EventHubsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an executor of Spark, which is not told that a partition was lost."""
    monkeypatch.setattr("leasehold.hubs.event_hubs.kept_receivers.LONGEST_REST", 0.3)
    hub.send(numbered(5), partition="0")

    def read(start: int, end: int) -> list[int]:
        batches = hub.read_as_owner("0", start, end, 1, columns=["sequenceNumber"])
        return [number for batch in batches for number in batch.column(0).to_pylist()]

    assert read(0, 2) == [0, 1]
    until(lambda: server.receivers == 0, "it to be closed")
    assert read(2, 4) == [2, 3], "and a new one is opened"
    hub.stay("0")
    assert read(4, 5) == [4]
    with closing(open_hub(hub.url.replace("/Hub", "/Two"))) as beside:
        beside.send(numbered(1), partition="0")
        assert list(beside.read("0", 0, 1))
        until(lambda: server.receivers == 1, "the other to be closed, which rests later")
    assert server.receivers == 1, "one that was asked for stays"
    hub.detach("0")
    until(lambda: server.receivers == 0, "until it is not")


def test_a_batch_gives_up_a_partition_that_another_sdks_processor_has_taken(
    url: str, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raises no level, so that the checkpoints do not tell: the task read on, and disconnected it in turn."""
    monkeypatch.setattr("leasehold.spark.loop.tasks.PAUSES", (0.01,))
    hub.send(numbered(20), partition="0")
    store, group = open_store("memory://taken-by-others"), hub.consumer_group("$Default")
    [ours] = store.claim_ownership([Ownership(group, "0", "a/1", 1, nonce="6b61")])
    spec = ReadSpec(url, ("sequenceNumber",), 10, ReadFor("$Default", None, "memory://taken-by-others"))

    def read(start: int, end: int) -> int:
        return sum(batch.num_rows for batch in _events(hub, spec, ReadRange("0", start, end, 1), 100.0, lambda _: None))

    def interrupt() -> Receiver:
        other = Receiver(read_url(url), "0", 0, 0)
        assert other.wait_attached(PATIENCE)
        until(lambda: hub._kept["0"].failed, "ours to hear of it")
        return other

    assert read(0, 5) == 5
    interrupt().close()
    assert read(5, 10) == 5, "as long as the record names one of ours, the task reads on"
    store.claim_ownership([Ownership(group, "0", THEIRS, 1, ours.etag)])
    other = interrupt()
    with pytest.raises(PartitionTaken):
        read(10, 20)
    assert not other.failed
    other.close()


def test_a_receiver_waits_for_the_next_event_of_an_empty_partition(url: str, hub: EventHub) -> None:
    waiting = Receiver(read_url(url), "0", 0, 0)
    assert waiting.wait_attached(PATIENCE)
    hub.send(numbered(3), partition="0")
    assert len(taken(waiting, 3, 3)) == 3
    waiting.close()
    behind = Receiver(read_url(url), "0", 3, 0)
    assert behind.wait_attached(PATIENCE)
    hub.send(numbered(1), partition="0")
    assert len(behind.take(4, 1, PATIENCE)) == 1
    behind.close()


def test_a_place_that_was_recorded_meanwhile_is_gone_on_from_without_another_receiver(url: str, hub: EventHub) -> None:
    hub.send(numbered(30), partition="0")
    receiver = Receiver(read_url(url), "0", 0, 0)
    assert len(taken(receiver, 30, 3)) == 3
    assert not receiver.goes_on_at(2), "not back"
    assert receiver.goes_on_at(20)
    assert len(taken(receiver, 30, 10)) == 10
    receiver.close()


def test_a_disconnection_is_told_once(hub: EventHub, url: str) -> None:
    hub.send(numbered(20), partition="0")
    assert list(hub.read_as_owner("0", 0, 10, 1))
    other = Receiver(read_url(url), "0", 0, 0)
    assert other.wait_attached(PATIENCE)
    until(lambda: hub._kept["0"].failed, "the first to hear of it")
    with pytest.raises(ReaderDisconnected):
        list(hub.read_as_owner("0", 10, 20, 1))
    assert list(hub.read_as_owner("0", 10, 20, 1))
    other.close()
