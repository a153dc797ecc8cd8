"""A processor that ends when all that the hub had at its start is consumed, by it or by another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError, DataLoss, StoreError, StoreUnavailable
from leasehold.hubs import FirstEvent
from leasehold.hubs.log.hub import LogHub
from leasehold.model import LATEST, Checkpoint, PartitionProperties
from leasehold.processors.events import (
    EACH_BATCH,
    ON_STOP,
    CheckpointPolicy,
    DeliverySettings,
    EventBatch,
    EventProcessor,
    FixedPartitions,
    PartitionContext,
    every,
)
from leasehold.stores.memory.store import MemoryStore
from tests.processor.plain import TellingStore, log, send
from tests.waiting import NEVER, PATIENCE

SETTINGS = OwnershipSettings(load_balancing_interval=0.2, partition_expiration=NEVER, settle_delay=0.0)
OnEvents = Callable[[EventBatch, PartitionContext], object]


def processor(hub: LogHub, store: Any, on_events: OnEvents, **delivery: Any) -> EventProcessor:
    settings = DeliverySettings(**{"available_now": True, "restart_backoff": 0.01, "longest_backoff": 0.02} | delivery)
    return EventProcessor(hub, store, on_events, delivery=settings, ownership=SETTINGS)


class Seen:
    """What was handled, by partition."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}

    def __call__(self, batch: EventBatch, context: PartitionContext) -> None:
        self.numbers.setdefault(batch.partition, []).extend(event.sequence_number for event in batch)


def test_it_ends_once_each_partition_is_at_its_end_and_everything_is_recorded(tmp_path: Path) -> None:
    hub, store, seen = log(tmp_path, partitions=3, each=500), TellingStore(), Seen()
    processor(hub, store, seen).run()
    assert seen.numbers == {p: list(range(500)) for p in "012"}
    assert store.checkpoints(hub) == dict.fromkeys("012", 499)
    processor(hub, store, seen).run()
    assert sum(map(len, seen.numbers.values())) == 1500


def test_what_comes_after_the_start_is_not_waited_for(tmp_path: Path) -> None:
    """A producer that never stops: each batch brings an event."""
    hub, store = log(tmp_path, partitions=1, each=10), MemoryStore()

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        send(hub, 1)

    processor(hub, store, on_events, max_batch=1, prefetch=1).run()
    assert hub.partition_properties()["0"].end > 10


def test_partitions_of_another_instance_are_waited_for(tmp_path: Path) -> None:
    hub, store, seen = log(tmp_path, partitions=2, each=20), MemoryStore(), Seen()
    goes_on, holds = threading.Event(), threading.Event()

    def slow(batch: EventBatch, context: PartitionContext) -> None:
        holds.set()
        goes_on.wait(PATIENCE)
        seen(batch, context)

    other = processor(hub, store, slow, available_now=False)
    with other:
        assert holds.wait(PATIENCE)
        mine = processor(hub, store, seen)
        with mine:
            assert not mine.wait(1.5)  # the other has a batch at hand, and nobody takes its partition from it
            goes_on.set()
            assert mine.wait(PATIENCE)
    assert {p: sorted(set(found)) for p, found in seen.numbers.items()} == {p: list(range(20)) for p in "01"}


def test_empty_partitions_and_a_group_that_begins_at_the_end(tmp_path: Path) -> None:
    hub, store, seen = log(tmp_path, partitions=2), MemoryStore(), Seen()
    send(hub, 5, "1")
    processor(hub, store, seen, start=LATEST).run()
    assert seen.numbers == {}


def test_a_fixed_share_ends_with_its_own_partitions(tmp_path: Path) -> None:
    hub, seen = log(tmp_path, partitions=2, each=5), Seen()
    EventProcessor(
        hub,
        (None, MemoryStore()),
        seen,
        delivery=DeliverySettings(available_now=True),
        ownership=FixedPartitions(["1"], SETTINGS),
    ).run()
    assert seen.numbers == {"1": list(range(5))}


def test_a_handler_that_keeps_failing_and_what_a_person_has_to_mend_end_it_with_the_error(tmp_path: Path) -> None:
    hub, store = log(tmp_path, partitions=1, each=5), MemoryStore()
    failure: list[Exception] = [ValueError("it never works")]
    called: list[int] = []

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        called.append(batch.first)
        if batch.first > 0:
            raise failure[0]

    with pytest.raises(ValueError, match="it never works"):
        processor(hub, store, on_events, max_batch=1, attempts=3).run()
    assert called[-3:] == [1, 1, 1]
    failure[0] = StoreError("the database is full: make room")
    called.clear()
    with pytest.raises(StoreError, match="make room"):
        processor(hub, store, on_events, max_batch=1).run()
    assert called == [1]


class Away(MemoryStore):
    """A store whose listing of checkpoints fails once there was one of each partition, as often as told."""

    def __init__(self, error: Exception, often: int) -> None:
        super().__init__()
        self.error, self.often = error, often

    def list_checkpoints(self, group: Any) -> list[Checkpoint]:
        found = super().list_checkpoints(group)
        if self.often and any(one.sequence_number >= 0 for one in found):
            self.often -= 1
            raise self.error
        return found


def test_checkpoints_that_cannot_be_read_for_a_while_are_asked_again_and_forbidden_ones_end_it(tmp_path: Path) -> None:
    hub, seen = log(tmp_path, partitions=1, each=5), Seen()
    processor(hub, Away(StoreUnavailable("away for a while"), 3), seen).run()
    assert seen.numbers == {"0": list(range(5))}
    with pytest.raises(StoreError, match="grant the right"):
        processor(hub, Away(StoreError("may not be read: grant the right"), 1), seen).run()


class Gapped(LogHub):
    """A log that says of each partition what a topic says behind a transaction: its last number has no event."""

    has_gaps = True

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        found = super().partition_properties(partitions)
        return {name: replace(one, end=one.end + 1) for name, one in found.items()}

    def read(self, partition: str, start: int, end: int, **more: Any) -> Any:
        return super().read(partition, start, min(end, super().partition_properties()[partition].end), **more)

    def first_events(self, starts: Mapping[str, int], timeout: float) -> dict[str, FirstEvent]:
        ends = super().partition_properties()
        return {p: FirstEvent(start if start < ends[p].end else ends[p].end + 1, None) for p, start in starts.items()}


def test_a_number_at_the_end_that_has_no_event_is_not_waited_for(tmp_path: Path) -> None:
    log(tmp_path, partitions=2, each=37).close()
    hub, seen = Gapped(tmp_path / "hub.db"), Seen()
    processor(hub, MemoryStore(), seen).run()
    assert seen.numbers == {p: list(range(37)) for p in "01"}


@pytest.mark.parametrize("policy", [ON_STOP, every(events=1_000), EACH_BATCH, None])
def test_the_end_is_recorded_whatever_the_policy_waits_for(tmp_path: Path, policy: CheckpointPolicy | None) -> None:
    hub, store, seen = log(tmp_path, partitions=1, each=37), TellingStore(), Seen()
    processor(hub, store, seen, checkpoint=policy).run()
    assert (seen.numbers, store.checkpoints(hub)) == ({"0": list(range(37))}, {"0": 36})


def test_events_that_are_gone_end_it_with_the_error(tmp_path: Path) -> None:
    hub, store, seen = log(tmp_path, partitions=1, each=10), MemoryStore(), Seen()
    processor(hub, store, seen).run()
    send(hub, 10)
    hub.retain(max_bytes=1)
    send(hub, 1)
    with pytest.raises(DataLoss, match="fail_on_data_loss=False"):
        processor(hub, store, seen).run()


def test_a_store_that_fails_in_an_unforeseen_way_ends_it(tmp_path: Path) -> None:
    hub = log(tmp_path, partitions=1, each=5)
    with pytest.raises(ZeroDivisionError):
        processor(hub, Away(ZeroDivisionError("a fault of the store"), 1), Seen()).run()


@pytest.mark.parametrize(
    ("stores", "settings", "why"),
    [
        ((MemoryStore(), None), SETTINGS, "told by the checkpoints, and there are none"),
        (MemoryStore(), OwnershipSettings(maximum_partitions=1), "does not pass on partitions that it has consumed"),
    ],
)
def test_where_an_end_could_not_be_told_or_never_came_it_is_refused(
    tmp_path: Path, stores: Any, settings: OwnershipSettings, why: str
) -> None:
    delivery = DeliverySettings(available_now=True)
    with pytest.raises(ConfigError, match=why):
        EventProcessor(log(tmp_path), stores, Seen(), delivery=delivery, ownership=settings)
