"""The pull style: partitions taken, received from, recorded and closed by the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import ConfigError, DataLoss, HubError, UsageError
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.processors.events import Cancellation, EventProcessor, PartitionClient, StopReason
from leasehold.processors.events.delivery import AHEAD_BYTES
from tests.processor import plain
from tests.processor.plain import DELIVERY, SETTINGS, LeadingClock, TellingStore, log, send
from tests.waiting import NEVER, PATIENCE, take, until


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
    given: dict[str, Any] = {"ownership": SETTINGS, "name": "puller"} | more
    return plain.processor(hub, store, **given)


def taken(processor: EventProcessor) -> PartitionClient:
    client = processor.next_partition_client(PATIENCE)
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
                batch = client.receive(PATIENCE)
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
    batch = client.receive(PATIENCE)
    assert batch
    client.update_checkpoint(batch[3])
    client.close()
    client.close()
    assert not client.trusted
    assert client.update_checkpoint(batch[5]) is False
    assert client.receive(PATIENCE) is None
    others = [taken(processor) for _ in range(2)]
    (again,) = [other for other in others if other.partition == client.partition]
    batch = again.receive(PATIENCE)
    assert batch
    assert (batch.first, again.start) == (4, 4)
    assert again.owner_level == client.owner_level + 1
    for other in others:
        other.close()


# Iteration, counts, cancelling


def test_partitions_and_batches_are_iterated_over(hub: LogHub, store: TellingStore) -> None:
    processor, seen = pulling(hub, store), dict[str, list[int]]()

    def work(client: PartitionClient) -> None:
        with client:
            for batch in client:
                assert batch
                seen.setdefault(client.partition, []).extend(event.sequence_number for event in batch)
                client.update_checkpoint(batch)
                if sum(map(len, seen.values())) == 50:
                    everything.set()

    everything, workers = threading.Event(), list[threading.Thread]()

    def take() -> None:
        for client in processor:
            workers.append(threading.Thread(target=work, args=[client]))
            workers[-1].start()

    taker = threading.Thread(target=take)
    with processor:
        taker.start()
        assert everything.wait(PATIENCE)
    for thread in (taker, *workers):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert seen == {partition: list(range(25)) for partition in "01"}
    assert store.checkpoints(hub) == {"0": 24, "1": 24}


def test_events_one_by_one_stop_with_the_partition(processor: EventProcessor, store: TellingStore, hub: LogHub) -> None:
    client = taken(processor)
    got: list[int] = []
    for event in client.events():
        got.append(event.sequence_number)
        client.update_checkpoint(event)
        if len(got) == 3:  # in the middle of a batch
            store.steal(hub, client.partition)
            until(lambda: not client.trusted, "the loss")
    assert got == [0, 1, 2]
    assert client.stop_reason is StopReason.OWNERSHIP_LOST
    client.close()


def test_a_call_says_how_many_and_how_long_they_may_take_to_gather(processor: EventProcessor, hub: LogHub) -> None:
    client = taken(processor)
    sizes = [len(client.receive(PATIENCE, count=count, max_wait=NEVER) or ()) for count in (1, 7, 3)]
    assert sizes == [1, 7, 3]
    batch = client.receive(PATIENCE, count=14, max_wait=NEVER)
    assert batch is not None
    assert (batch.first, len(batch)) == (11, 14)
    assert list(client.receive(0.01, count=5) or ()) == []
    waiters: Any = client._work._changed

    def send_more() -> None:
        until(lambda: waiters._waiters, "the call to wait")
        send(hub, 5)

    sender = threading.Thread(target=send_more)
    sender.start()
    batch = client.receive(PATIENCE, count=5, max_wait=NEVER)
    sender.join(PATIENCE)  # its events are there before it is done with its file
    assert batch is not None
    assert len(batch) == 5
    client.close()


@pytest.mark.parametrize("size", [10, AHEAD_BYTES // 50], ids=["small", "large"])
def test_a_call_may_ask_for_all_that_is_fetched_ahead(tmp_path: Path, store: TellingStore, size: int) -> None:
    hub = LogHub.create(tmp_path / "sized.db", partitions=1)
    hub.send([Event(bytes(size))] * 250)
    with pulling(hub, store, delivery=replace(DELIVERY, max_batch=7, prefetch=100)) as processor:
        client = taken(processor)
        batches = [client.receive(PATIENCE, count=100, max_wait=NEVER) for _ in range(2)]
        assert [(batch.first, len(batch)) for batch in batches if batch] == [(0, 100), (100, 100)]
        client.close()


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": DELIVERY.prefetch + 1}, {"max_wait": -1.0}])
def test_what_a_call_may_not_ask_for(processor: EventProcessor, wrong: dict[str, Any]) -> None:
    client = taken(processor)
    for ask in (lambda: client.receive(0.01, **wrong), lambda: client.batches(**wrong)):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ask()
    client.close()


def test_a_cancelled_call_returns_at_once_and_the_partition_stays(processor: EventProcessor, hub: LogHub) -> None:
    client = taken(processor)
    assert sum(1 for _ in client.batches(cancel=cancelled_after(client, 25))) > 0
    cancel, got = Cancellation(), list[Any]()
    waiting = threading.Thread(target=lambda: got.append(client.receive(cancel=cancel)))
    waiting.start()
    take(0.05)  # so that it waits, mostly; before that it must not matter
    cancel.cancel()
    waiting.join(PATIENCE)
    assert [list(batch) for batch in got] == [[]]
    send(hub, 1)
    assert list(client.receive(PATIENCE, cancel=cancel) or ()) == []  # it stays called off
    assert list(client.events(cancel=cancel)) == []
    assert client.trusted
    batch = client.receive(PATIENCE)
    assert batch is not None
    assert batch.first == 25
    client.close()


def cancelled_after(client: PartitionClient, count: int) -> Cancellation:
    """Called off once this many events have come, from another thread."""
    cancel = Cancellation()

    def watch() -> None:
        until(lambda: client._work._delivered >= count - 1, "the events")
        cancel.cancel()

    threading.Thread(target=watch).start()
    return cancel


def test_who_waits_for_a_partition_can_be_called_off(hub: LogHub, store: TellingStore) -> None:
    with pulling(hub, store, ownership=replace(SETTINGS, maximum_partitions=0)) as processor:
        cancel, got = Cancellation(), list[Any]()
        waiting = threading.Thread(target=lambda: got.append(processor.next_partition_client(cancel=cancel)))
        waiting.start()
        cancel.cancel()
        waiting.join(PATIENCE)
        assert got == [None]
        assert processor.next_partition_client(cancel=cancel) is None


# Beginning again


def test_a_client_begins_again_at_its_checkpoint_without_giving_up(
    processor: EventProcessor, store: TellingStore, hub: LogHub
) -> None:
    client = taken(processor)
    assert client.begin_again() == 0
    first = batch_of(client)
    assert first.first == 0
    client.update_checkpoint(first[3])
    batch_of(client)
    for _ in range(3):
        assert client.begin_again() == 4
        again = batch_of(client)
        assert again.first == 4
    client.update_checkpoint(again)
    assert batch_of(client).first == again.last + 1
    assert client.owner_level == store.records(hub)[client.partition].owner_level == 1
    assert client.trusted
    client.close()
    assert client.begin_again() == again.last + 1
    assert client.receive() is None


def test_a_client_begins_again_after_an_error_of_the_hub(tmp_path: Path, store: TellingStore) -> None:
    hub = UnreadableHub(log(tmp_path, partitions=1, each=25).url.removeprefix("log:///"))
    with pulling(hub, store) as processor:
        client = taken(processor)
        client.update_checkpoint(batch_of(client))
        with pytest.raises(HubError, match="damaged"):
            client.receive(PATIENCE)
        hub.damaged = False
        assert client.begin_again() == 10
        assert batch_of(client).first == 10
        assert client.owner_level == 1
        client.close()


class UnreadableHub(LogHub):
    """A log that cannot be read from event 10 on, until it is mended."""

    damaged = True

    def read(self, partition: str, start: int, end: int, **more: Any) -> Iterator[Any]:
        yield from super().read(partition, start, min(end, 10) if self.damaged else end, **more)
        if self.damaged:
            raise HubError("events are damaged")


# Endings


def test_a_client_that_was_forgotten_is_given_up_in_the_end(hub: LogHub, store: TellingStore) -> None:
    clock = LeadingClock()
    with pulling(hub, store, clock=clock) as processor:
        forgotten, kept = taken(processor), taken(processor)
        assert forgotten.receive(PATIENCE)
        for _ in range(7):
            clock.step(processor)
            assert kept.receive(0.01) is not None, kept.stop_reason
        until(lambda: not forgotten.trusted, "the partition to be given up")
        assert kept.trusted
        again = taken(processor)
        assert (again.partition, again.owner_level) == (forgotten.partition, 2)
        assert "TimeoutError" in store.records(hub)[again.partition].last_error
        assert forgotten.receive(PATIENCE) is None
        forgotten.close()
        kept.close()
        assert not processor.stop(0.0), "it waits for `again`, which nobody closes"
        clock.advance(NEVER + 1)
        assert processor.stop(PATIENCE), "and not for longer than that"


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
    while client.receive(PATIENCE):
        if client.update_checkpoint(batch_of(client)):
            break
    assert processor.stop(0.3) is False
    assert client.receive() is None
    assert client.stop_reason is StopReason.SHUTDOWN
    assert client.trusted
    assert store.records(hub)[client.partition].owner_id == str(processor.owner_id)
    assert processor.next_partition_client() is None
    client.close()
    assert processor.stop(PATIENCE)
    assert {record.owner_id for record in store.records(hub).values()} == {""}


def batch_of(client: PartitionClient) -> Any:
    batch = client.receive(PATIENCE)
    assert batch
    return batch


def test_who_waits_is_let_go_by_a_stop(hub: LogHub, store: TellingStore) -> None:
    processor = pulling(hub, store, ownership=replace(SETTINGS, maximum_partitions=0))
    processor.start()
    got: list[PartitionClient | None] = []
    waiting = threading.Thread(target=lambda: got.append(processor.next_partition_client()))
    waiting.start()
    assert processor.stop(PATIENCE)
    waiting.join(PATIENCE)
    assert got == [None]


def test_a_loss_ends_the_receiving(processor: EventProcessor, store: TellingStore, hub: LogHub) -> None:
    client = taken(processor)
    store.steal(hub, client.partition)
    while client.receive(PATIENCE) is not None:
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
            client.receive(PATIENCE)
        client.close()


def test_pulling_from_a_processor_with_handlers(hub: LogHub, store: TellingStore) -> None:
    with pytest.raises(UsageError, match="leave out on_events"):
        pulling(hub, store, on_events=print).next_partition_client()
