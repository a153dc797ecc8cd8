"""The contract of hubs on a hub as a third party begins with: it does what every hub does, and overrides no default.

What Leasehold asks of a hub beside is asked of this hub too: nothing of it may take an ability that the hub has not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.waiting import until

from leasehold.errors import HubError, Verdict
from leasehold.handlers.publishing import HubPublisher
from leasehold.hubs import EVENT_COLUMNS, Hub
from leasehold.hubs.log.hub import LogHub
from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties
from leasehold.operations.lag_times import lag_times
from leasehold.operations.progress import group_progress
from leasehold.processors.events import EventBatch, EventProcessor, PartitionContext
from leasehold.sinks.beside.outbox.contract import WaitingEvent
from leasehold.stores.sqlite.store import SqliteStore
from leasehold_testkit.contracts.hubs import HubContract
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered, overrides


class PlainHub(Hub):
    """A log, of which no more is used than every hub must do."""

    def __init__(self, path: Path) -> None:
        self.log = LogHub.create(path, partitions=3)

    @property
    def url(self) -> str:
        return self.log.url

    @property
    def identity(self) -> str:
        return self.log.identity

    def consumer_group(self, name: str) -> ConsumerGroup:
        return self.log.consumer_group(name)

    def partition_ids(self) -> tuple[str, ...]:
        return self.log.partition_ids()

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        return self.log.partition_properties(partitions)

    def resolve(self, partition: str, position: EventPosition) -> int:
        return self.log.resolve(partition, position)

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        return self.log.read(partition, start, end, columns=columns, batch_rows=batch_rows)

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        return self.log.send(events, partition=partition)

    def close(self) -> None:
        self.log.close()


class TestContract(HubContract):
    @pytest.fixture
    def new_hub(self, tmp_path: Path) -> Callable[[], Hub]:
        return lambda: PlainHub(tmp_path / f"{secrets.token_hex(4)}.db")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[PlainHub]:
    hub = PlainHub(tmp_path / "hub.db")
    yield hub
    hub.close()


def test_this_hub_overrides_no_default(hub: PlainHub) -> None:
    beside = [name for name in vars(Hub) if name[0] != "_" and name not in Hub.__abstractmethods__]
    assert [name for name in beside if overrides(hub, name)] == []
    assert len(beside) == 16


def test_a_hub_that_keeps_no_reader_out_says_so(hub: PlainHub) -> None:
    assert not hub.one_reader_per_partition("readers")
    with pytest.raises(HubError, match=r"partition 2 was to be read as owner at level 7.*Use read") as raised:
        hub.read_as_owner("2", 0, 1, 7)
    assert raised.value.verdict is Verdict.RESTART
    assert hub.url in str(raised.value)


def test_a_processor_works_on_it(hub: PlainHub, tmp_path: Path) -> None:
    hub.send(numbered(30), partition="1")
    seen: list[bytes] = []

    def handle(batch: EventBatch, context: PartitionContext) -> None:
        seen.extend(event.body for event in batch)

    store = SqliteStore(tmp_path / "store.db")
    group = hub.consumer_group("readers")

    def place() -> int:
        return next((one.sequence_number for one in store.list_checkpoints(group) if one.partition == "1"), -1)

    with EventProcessor(hub, store, handle, consumer_group="readers"):
        until(lambda: place() == 29, "the checkpoint")
    assert seen == [b"%d" % number for number in range(30)]
    hub.send(numbered(5), partition="1")
    progress = group_progress(hub, group, store, store, 30.0)
    times = lag_times(hub, progress.partitions, 0.0)
    assert [(one.partition, one.unread) for one in times.partitions] == [("0", 0), ("1", 5), ("2", 0)]
    assert times.retention is None


def test_an_outbox_that_is_sent_again_is_there_again(hub: PlainHub) -> None:
    publisher = HubPublisher(hub, "an outbox")
    waiting = [WaitingEvent(1, "one", b"{}", "k"), WaitingEvent(2, "two", b"[]", "k")]
    publisher.publish(waiting)
    publisher.publish(waiting)
    bodies = [body for partition in hub.partition_ids() for body in bodies_of(hub, partition)]
    assert bodies == [b"{}", b"[]", b"{}", b"[]"]
