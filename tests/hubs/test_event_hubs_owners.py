"""Owner levels at an event hub: who may read, who has to stop, and what a mixed fleet says instead."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("azure.eventhub")

from azure.eventhub._pyamqp.receiver import ReceiverLink

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError, HubUnavailable, ReaderDisconnected
from leasehold.hubs import open_hub
from leasehold.hubs.event_hubs.hub import EventHub
from leasehold.hubs.event_hubs.url import VARIABLE, read_url
from leasehold.model import LATEST, Checkpoint, ConsumerGroup, EventPosition, Ownership, PositionKind
from leasehold.notices import LossReason, Notices, OwnershipLost
from leasehold.processors.events import EventProcessor, Handlers
from leasehold.runtime import Runtime
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import ReadFor, read_ranges, shared_hub
from leasehold.stores import open_store
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.contracts.hubs.fixtures import numbered
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.waiting import NEVER, PATIENCE

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS
MANY = 5_000
"""More events than the client holds ahead of a reader."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EventHubsServer]:
    with EventHubsServer({"Hub": MemoryHub(2)}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        yield server
    gc.collect()


def opened(server: EventHubsServer, options: str = "") -> EventHub:
    hub = open_hub(f"eventhubs://{server.namespace}/Hub{options}")
    assert isinstance(hub, EventHub)
    return hub


@pytest.fixture
def one(server: EventHubsServer) -> Iterator[EventHub]:
    hub = opened(server)
    yield hub
    hub.close()


@pytest.fixture
def two(server: EventHubsServer) -> Iterator[EventHub]:
    hub = opened(server)
    yield hub
    hub.close()


def numbers(hub: EventHub, level: int, start: int = 0, end: int = 10) -> list[int]:
    read = hub.read_as_owner("0", start, end, level, columns=["sequenceNumber"])
    return [number for batch in read for number in batch.column(0).to_pylist()]


def test_the_highest_level_reads_and_the_others_are_told(one: EventHub, two: EventHub) -> None:
    one.send(numbered(MANY), partition="0")
    reading = one.read_as_owner("0", 0, MANY, 1, columns=["sequenceNumber"], batch_rows=100)
    found = next(reading).column(0).to_pylist()
    assert numbers(two, 2) == list(range(10))
    with pytest.raises(ReaderDisconnected, match=r"partition 0.*owner level 1"):
        found.extend(number for batch in reading for number in batch.column(0).to_pylist())
    assert found == list(range(len(found))), "what was read is without a gap"
    assert len(found) < MANY
    with pytest.raises(ReaderDisconnected):
        numbers(one, 1)
    with pytest.raises(HubUnavailable, match="consumer group of its own"):
        list(one.read("0", 0, 10))
    assert numbers(one, 2) == list(range(10)), "the same level comes again, as a repeated task does"
    assert numbers(two, 2, 10, 20) == list(range(10, 20)), "and one that was kept and disconnected is opened anew"


def test_levels_say_nothing_in_another_consumer_group(one: EventHub) -> None:
    assert one.one_reader_per_partition("$default")
    assert not one.one_reader_per_partition("another")


def test_a_mixed_fleet_reads_at_level_0_and_goes_by_the_plain_names(server: EventHubsServer) -> None:
    first, second = (opened(server, "?fleet=mixed") for _ in range(2))
    first.send(numbered(20), partition="0")
    assert first.consumer_group("$Default") == ConsumerGroup(server.namespace, "Hub", "$Default")
    with pytest.raises(ConfigError, match="consumer_group=another"):
        first.consumer_group("another")
    assert first.identity == second.identity != str(first.consumer_group("$Default"))
    assert numbers(first, 7) == list(range(10))
    assert numbers(second, 3) == list(range(10)), "levels are ours alone: the last one to come reads"
    second.send(numbered(10, first=20), partition="0")  # which its link, that is gone, cannot have brought already
    with pytest.raises(ReaderDisconnected):
        numbers(first, 7, 10, 30)
    assert numbers(first, 8, 10, 20) == list(range(10, 20)), "who has been told may come back"
    for hub in (first, second):
        hub.close()


def test_only_a_known_offset_is_named(one: EventHub) -> None:
    assert one.offset_of("0", -1) is None
    one.send(numbered(7), partition="0")
    assert one.resolve("0", LATEST) == 7
    (batch,) = one.read("0", 6, 7, columns=["offset"])
    assert one.offset_of("0", 6) == batch.column(0)[0].as_py() != "6"
    one.send(numbered(1), partition="0")
    one.partition_properties()
    assert one.offset_of("0", 6) == batch.column(0)[0].as_py()
    assert one.offset_of("0", 5) is None
    assert one.offset_of("1", 6) is None


def test_in_a_mixed_fleet_the_offset_in_the_middle_is_found_out(server: EventHubsServer, one: EventHub) -> None:
    one.send(numbered(20), partition="0")
    one.send(numbered(5), partition="1")
    mixed = opened(server, "?fleet=mixed")
    mixed.learn_offsets({"0": 7, "1": -1})
    (batch,) = mixed.read("0", 7, 8, columns=["offset"])
    assert mixed.offset_of("0", 7) == batch.column(0)[0].as_py() != "7"
    assert mixed.offset_of("0", 6) is None
    assert mixed.offset_of("1", -1) is None
    one.learn_offsets({"0": 7})
    assert one.offset_of("0", 7) is None, "nobody goes by offsets where all owners are ours"
    mixed.close()


def test_one_event_is_looked_at_without_hundreds_that_follow(
    server: EventHubsServer, one: EventHub, links: list[ReceiverLink]
) -> None:
    one.send(numbered(MANY), partition="0")
    mixed = opened(server, "?fleet=mixed")
    mixed.learn_offsets({"0": 7})
    assert mixed.offset_of("0", 7) is not None
    assert mixed.resolve("0", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=1.0)) == 0
    assert sum(link.delivery_count for link in links) < 60, "these two, and answers to questions"
    mixed.close()


def test_an_offset_that_cannot_be_found_out_stays_unknown(
    server: EventHubsServer, caplog: pytest.LogCaptureFixture
) -> None:
    mixed = opened(server, "?fleet=mixed")
    mixed.send(numbered(20), partition="0")
    server.faults.throttle(1)
    mixed.learn_offsets({"0": 7})
    assert mixed.offset_of("0", 7) is None
    assert "the offset of event 7 stays unknown" in caplog.text
    mixed.close()


@pytest.mark.more
def test_a_range_ends_early_only_if_its_checkpoint_would_be_refused(
    server: EventHubsServer, two: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.spark.plan.reading.PAUSES", (0.01,))
    two.send(numbered(MANY), partition="0")
    assert numbers(two, 2) == list(range(10))

    def read(level: int) -> int:
        ranges = [ReadRange("0", 0, MANY, level)]
        batches = read_ranges(
            two.url,
            ranges,
            ["sequenceNumber", "ownerLevel"],
            batch_rows=1_000,
            fail_on_data_loss=True,
            identity=two.identity,
            read_for=ReadFor("$Default", "memory://levels"),
        )
        return sum(batch.num_rows for batch in batches)

    try:
        with pytest.raises(ReaderDisconnected):
            read(1)
        store, group = open_store("memory://levels"), two.consumer_group("$Default")
        store.raise_owner_level([Checkpoint(group, "0", -1, 1)])
        with pytest.raises(ReaderDisconnected):
            read(1)
        store.raise_owner_level([Checkpoint(group, "0", -1, 2)])
        assert read(1) == 0
        assert read(2) == MANY
    finally:
        shared_hub(two.url, two.identity).close()
        shared_hub.cache_clear()


def test_without_checkpoints_the_ownership_record_says_who_has_come_after(
    server: EventHubsServer, two: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.spark.plan.reading.PAUSES", (0.01,))
    two.send(numbered(MANY), partition="0")
    assert numbers(two, 2) == list(range(10))
    store, group = open_store("memory://owners"), two.consumer_group("$Default")

    def read() -> int:
        read_for = ReadFor("$Default", None, "memory://owners")
        found = read_ranges(
            two.url,
            [ReadRange("0", 0, MANY, 1)],
            ["body"],
            batch_rows=99,
            fail_on_data_loss=True,
            identity=two.identity,
            read_for=read_for,
        )
        return sum(batch.num_rows for batch in found)

    try:
        [record] = store.claim_ownership([Ownership(group, "0", "a/1", 1)])
        with pytest.raises(ReaderDisconnected):
            read()
        store.claim_ownership([replace(record, owner_id="b/1", owner_level=2)])
        assert read() == 0
    finally:
        shared_hub(two.url, two.identity).close()
        shared_hub.cache_clear()


def test_a_range_that_is_interrupted_is_read_on_without_a_gap(server: EventHubsServer, two: EventHub) -> None:
    two.send(numbered(MANY), partition="0")
    reading = read_ranges(
        two.url,
        [ReadRange("0", 0, MANY, 1)],
        ["sequenceNumber"],
        batch_rows=100,
        fail_on_data_loss=True,
        identity=two.identity,
        read_for=ReadFor("$Default", "memory://interrupted"),
    )
    try:
        found = next(reading).column(0).to_pylist()
        assert numbers(two, 1) == list(range(10)), "another scan of the same batch"
        found.extend(number for batch in reading for number in batch.column(0).to_pylist())
        assert found == list(range(MANY))
    finally:
        shared_hub(two.url, two.identity).close()
        shared_hub.cache_clear()


def test_a_processor_that_is_disconnected_gives_the_partition_up_and_comes_back(one: EventHub, two: EventHub) -> None:
    notices, lost, errors, got = Notices(), threading.Event(), list[BaseException](), list[int]()
    reasons: list[LossReason] = []
    here = threading.Condition()

    def note_loss(notice: object) -> None:
        assert isinstance(notice, OwnershipLost)
        reasons.append(notice.reason)
        lost.set()

    def note_event(event: object, context: object) -> None:
        with here:
            got.append(1)
            here.notify_all()

    notices.subscribe(note_loss, OwnershipLost)
    processor = EventProcessor(
        one,
        MemoryStore(),
        Handlers(on_event=note_event, on_error=lambda error, partition: errors.append(error)),
        runtime=Runtime(notices=notices),
        ownership=OwnershipSettings(
            load_balancing_interval=1.0, partition_expiration=NEVER, request_timeout=10.0, margin=0.2, settle_delay=0
        ),
    )
    with processor:
        two.send(numbered(5), partition="0")
        with here:
            assert here.wait_for(lambda: len(got) >= 5, PATIENCE)
        assert numbers(two, 99, 0, 5) == [0, 1, 2, 3, 4]
        two.send(numbered(5), partition="0")
        assert lost.wait(PATIENCE)
        two.close()
        with here:
            assert here.wait_for(lambda: len(got) >= 10, PATIENCE)
        assert processor.partitions["0"] > 1, "it has come back at a higher owner level"
    assert set(reasons) == {LossReason.SUPERSEDED}
    assert errors == [], "losing a partition is no error"


def test_what_a_url_says_of_the_fleet() -> None:
    place = "eventhubs://ns.servicebus.windows.net/hub"
    assert not read_url(f"{place}?fleet=leasehold").mixed
    address = read_url(f"{place}?fleet=mixed&consumer_group=a%20b&endpoint=10.0.0.1:5671")
    assert address.mixed
    assert read_url(address.url) == address
    with pytest.raises(ConfigError, match="leasehold, mixed"):
        read_url(f"{place}?fleet=some")


# looking at times while the fleet reads


@pytest.mark.more
def test_status_looks_through_a_group_of_its_own_and_disturbs_nobody(server: EventHubsServer, one: EventHub) -> None:
    one.send(numbered(MANY), partition="0")
    reading = one.read_as_owner("0", 0, MANY, 1, columns=["sequenceNumber"], batch_rows=100)
    found = next(reading).column(0).to_pylist()
    beside = opened(server)
    assert beside.enqueued_times({"0": 17}, 3.0) == {}, "refused in a group that is read with levels"
    assert set(beside.enqueued_times({"0": MANY - 1}, PATIENCE)) == {"0"}, "the last one's time is a property"
    apart = opened(server, "?status_group=status")
    assert apart.url.endswith("?status_group=status")
    assert set(apart.enqueued_times({"0": 17}, PATIENCE)) == {"0"}
    for batch in reading:
        found += batch.column(0).to_pylist()
    assert found == list(range(MANY)), "the owner's receiver was never disconnected"
    beside.close()
    apart.close()


def test_a_service_that_is_slow_is_not_waited_for(server: EventHubsServer, one: EventHub) -> None:
    one.send(numbered(10), partition="0")
    with server.faults.slowed_down(NEVER):  # it answers none of those that are asked now
        assert one.enqueued_times({"0": 2, "1": 0}, 1.0) == {}
    assert one.retention(1.0) is None
