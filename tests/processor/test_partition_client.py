"""The pull style: partitions taken, received from, recorded and closed by the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import DataLoss, UsageError
from leasehold.hubs.log import LogHub
from leasehold.processor import EventProcessor, PartitionClient, StopReason
from tests.processor.plain import DELIVERY, SETTINGS, TellingStore, log, send, until


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return log(tmp_path, partitions=2, each=25)


@pytest.fixture
def store() -> TellingStore:
    return TellingStore()


@pytest.fixture
def processor(hub: LogHub, store: TellingStore) -> Iterator[EventProcessor]:
    processor = pulling(hub, store)
    with processor:
        yield processor


def pulling(hub: LogHub, store: TellingStore, **more: Any) -> EventProcessor:
    given: dict[str, Any] = {"ownership": SETTINGS, "delivery": DELIVERY, "name": "puller"} | more
    return EventProcessor(hub, store, **given)


def taken(processor: EventProcessor) -> PartitionClient:
    client = processor.next_partition_client(30)
    assert client is not None
    return client


def test_receive_and_record(processor: EventProcessor, store: TellingStore, hub: LogHub) -> None:
    clients = [taken(processor) for _ in range(2)]
    assert sorted(client.partition for client in clients) == ["0", "1"]
    assert processor.next_partition_client(0.05) is None
    for client in clients:
        with client:
            numbers: list[int] = []
            batch = None
            while len(numbers) < 25:
                batch = client.receive(30)
                assert batch is not None
                assert (batch.partition, batch.owner_level) == (client.partition, client.owner_level)
                numbers += [event.sequence_number for event in batch]
            assert numbers == list(range(25))
            assert not client.receive(0.01)  # empty, and not None: there may be more later
            assert client.receive(0.01) is not None
            assert client.trusted
            assert batch
            assert client.update_checkpoint(batch[-2])
    assert store.checkpoints(hub) == {"0": 23, "1": 23}


def test_a_closed_partition_comes_again_from_its_checkpoint(
    processor: EventProcessor, store: TellingStore, hub: LogHub
) -> None:
    client = taken(processor)
    batch = client.receive(30)
    assert batch
    client.update_checkpoint(batch[3])
    client.close()
    client.close()
    assert not client.trusted
    assert client.update_checkpoint(batch[5]) is False
    assert client.receive(30) is None
    others = [taken(processor) for _ in range(2)]
    (again,) = [other for other in others if other.partition == client.partition]
    batch = again.receive(30)
    assert batch
    assert (batch.first, again.start) == (4, 4)
    assert again.owner_level == client.owner_level + 1
    for other in others:
        other.close()


def test_a_client_that_was_forgotten_is_given_up_in_the_end(hub: LogHub, store: TellingStore) -> None:
    short = replace(SETTINGS, partition_expiration=2.5, request_timeout=0.5, stall_timeout=2.5)
    with pulling(hub, store, ownership=short) as processor:
        forgotten, kept = taken(processor), taken(processor)
        assert forgotten.receive(30)
        until(lambda: kept.receive(0.05) is None or not forgotten.trusted, "the partition to be given up")
        assert kept.trusted
        again = taken(processor)
        assert (again.partition, again.owner_level) == (forgotten.partition, 2)
        assert "TimeoutError" in store.records(hub)[again.partition].last_error
        assert forgotten.receive(30) is None
        forgotten.close()
        kept.close()
    # and the end does not wait for `again`, which nobody closes, for longer than that


def test_a_block_that_raises_gives_the_partition_up_with_the_error(
    processor: EventProcessor, store: TellingStore, hub: LogHub
) -> None:
    client = taken(processor)
    with pytest.raises(ValueError, match="bad"), client:
        raise ValueError("bad\nluck")
    until(lambda: "ValueError: bad luck" in store.records(hub)[client.partition].last_error, "the error on record")


def test_a_stop_is_heard_and_waits_for_who_has_not_closed(hub: LogHub, store: TellingStore) -> None:
    processor = pulling(hub, store)
    processor.start()
    client = taken(processor)
    while client.receive(30):
        if client.update_checkpoint(batch_of(client)):
            break
    assert processor.stop(0.3) is False
    assert client.receive() is None
    assert client.stop_reason is StopReason.SHUTDOWN
    assert client.trusted
    assert store.records(hub)[client.partition].owner_id == str(processor.owner_id)
    assert processor.next_partition_client() is None
    client.close()
    assert processor.stop(30)
    assert {record.owner_id for record in store.records(hub).values()} == {""}


def batch_of(client: PartitionClient) -> Any:
    batch = client.receive(30)
    assert batch
    return batch


def test_who_waits_is_let_go_by_a_stop(hub: LogHub, store: TellingStore) -> None:
    processor = pulling(hub, store, ownership=replace(SETTINGS, maximum_partitions=0))
    processor.start()
    got: list[PartitionClient | None] = []
    waiting = threading.Thread(target=lambda: got.append(processor.next_partition_client()))
    waiting.start()
    assert processor.stop(30)
    waiting.join(30)
    assert got == [None]


def test_a_loss_ends_the_receiving(processor: EventProcessor, store: TellingStore, hub: LogHub) -> None:
    client = taken(processor)
    store.steal(hub, client.partition)
    while client.receive(30) is not None:
        pass
    assert client.stop_reason is StopReason.OWNERSHIP_LOST
    assert not client.trusted
    client.close()


def test_a_hand_over_is_asked_for_and_given(hub: LogHub, store: TellingStore) -> None:
    with pulling(hub, store) as one:
        clients = [taken(one) for _ in range(2)]
        seen = {client.partition: batch_of(client) for client in clients}
        for client in clients:
            client.update_checkpoint(seen[client.partition])
        with pulling(hub, store, name="other") as two:
            until(lambda: any(client.stop_reason for client in clients), "one to be asked for")
            (asked,) = [client for client in clients if client.stop_reason]
            assert asked.stop_reason is StopReason.HANDED_OVER
            assert asked.receive() is None
            asked.close()
            other = taken(two)
            assert (other.partition, other.start) == (asked.partition, seen[asked.partition].last + 1)
            for client in (*clients, other):
                client.close()


def test_what_made_fetching_impossible_is_raised(hub: LogHub, store: TellingStore) -> None:
    with pulling(hub, store) as processor:
        for client in [taken(processor), taken(processor)]:
            batch = batch_of(client)
            client.update_checkpoint(batch)
            client.close()
    hub.retain(max_age=0)
    send(hub, 1)
    with pulling(hub, store) as processor:
        client = taken(processor)
        with pytest.raises(DataLoss):
            client.receive(30)
        client.close()


def test_pulling_from_a_processor_with_handlers(hub: LogHub, store: TellingStore) -> None:
    with pytest.raises(UsageError, match="leave out on_events"):
        pulling(hub, store, on_events=print).next_partition_client()
