"""A start of the plain processor asks the table: a group that it knows is not new."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import OwnerLevelWentBack
from leasehold.hubs.log.hub import LogHub
from leasehold.model import LATEST, Event
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, PartitionContext
from leasehold.sinks import TableSpec
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.stores.sqlite.store import SqliteStore
from tests.waiting import NEVER, PATIENCE, until

SPEC = TableSpec(name="seen", pipeline="p", mode="append", keep=("sequenceNumber",))


class Place:
    """A hub of one partition, a table, and processors that append what they read to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = LogHub.create(folder / "hub.db", partitions=1)
        self.table = SqliteSink(folder / "table.db", SPEC)

    def processor(self, reached: int, *, asks: bool = True) -> tuple[EventProcessor, threading.Event]:
        """A new instance, as after a restart; the event is set when it has applied up to `reached`."""
        done = threading.Event()

        def on_events(batch: EventBatch, context: PartitionContext) -> None:
            rows = [{"n": event.sequence_number, **context.fence_columns(event)} for event in batch]
            self.table.apply(Batch(pa.Table.from_pylist(rows)), made.recorded_owner_level)
            if batch[-1].sequence_number >= reached:
                done.set()

        made = EventProcessor(
            self.hub,
            SqliteStore(self.folder / "stores.db"),
            on_events,
            delivery=DeliverySettings(start=LATEST),
            table=self.table if asks else None,
            ownership=OwnershipSettings(load_balancing_interval=0.2, partition_expiration=NEVER, settle_delay=0.0),
        )
        return made, done

    def run(self, count: int, *, asks: bool = True) -> None:
        """Start an instance, send as many events once it holds the partition, and stop it when they are applied."""
        end = self.hub.partition_properties()["0"].end
        processor, done = self.processor(end + count - 1, asks=asks)
        with processor:
            until(lambda: processor.partitions, "the partition to be held")
            self.hub.send([Event(b"x")] * count, partition="0")
            assert done.wait(PATIENCE)

    def wipe(self) -> None:
        for path in self.folder.glob("stores.db*"):
            path.unlink()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_wiped_store_is_refused_at_every_start_with_nothing_claimed(place: Place) -> None:
    place.run(10)
    place.hub.send([Event(b"x")] * 5, partition="0")  # nobody runs; with latest they would be skipped
    place.wipe()
    for _ in range(3):
        with pytest.raises(OwnerLevelWentBack, match=r"level 1 of partition 0.*--to sink"):
            place.processor(0)[0].run()
    store = SqliteStore(place.folder / "stores.db")
    group = place.hub.consumer_group("$Default")
    assert (store.list_ownership(group).records, store.list_checkpoints(group)) == ((), [])
    assert place.table.row_count() == 10


def test_a_processor_that_was_not_told_of_the_table_takes_the_group_for_a_new_one(place: Place) -> None:
    """Why the other has to be told: this is what it would do."""
    place.run(10)
    place.hub.send([Event(b"x")] * 5, partition="0")
    place.wipe()
    place.run(10, asks=False)
    assert place.table.row_count() == 20


def test_a_start_that_is_in_order(place: Place) -> None:
    place.run(10)
    place.hub.send([Event(b"x")] * 5, partition="0")
    place.run(10)
    assert place.table.row_count() == 25
