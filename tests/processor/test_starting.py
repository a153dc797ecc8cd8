"""A start of the plain processor asks the table, since a group that it knows is not new, and ties the group to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import AlreadyInUse, ConfigError, OwnerLevelWentBack, UsageError
from leasehold.handlers import EntityEvent, HandledTable, entity
from leasehold.hubs.log.hub import LogHub
from leasehold.model import LATEST, Checkpoint, ConsumerGroup, Event
from leasehold.ownership.starting import check_start
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, PartitionContext
from leasehold.sinks import TableSpec
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.stores.base import PipelineBinding, UnendedReset
from leasehold.stores.sqlite.store import SqliteStore
from tests.waiting import NEVER, PATIENCE, until


@entity(keys=["key"])
def count(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    return {"n": (state["n"] if state else 0) + 1}


SPEC = TableSpec(name="seen", pipeline="p", mode="append", keep=("sequenceNumber",))


class Place:
    """A hub of one partition, a table, and processors that append what they read to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = LogHub.create(folder / "hub.db", partitions=1)
        self.table = SqliteSink(folder / "table.db", SPEC)

    def fill(self, name: str, pipeline: str) -> None:
        """From here on another table is filled, in a database of its own."""
        self.table = SqliteSink(self.folder / f"{name}.db", replace(SPEC, pipeline=pipeline))

    def processor(
        self, reached: int, *, asks: bool = True, store: SqliteStore | None = None
    ) -> tuple[EventProcessor, threading.Event]:
        """A new instance, as after a restart; the event is set when it has applied up to `reached`."""
        done = threading.Event()

        def on_events(batch: EventBatch, context: PartitionContext) -> None:
            rows = [{"n": event.sequence_number, **context.fence_columns(event)} for event in batch]
            self.table.apply(Batch(pa.Table.from_pylist(rows)), made.recorded_owner_level)
            if batch[-1].sequence_number >= reached:
                done.set()

        made = EventProcessor(
            self.hub,
            store or SqliteStore(self.folder / "stores.db"),
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


@pytest.mark.parametrize(
    ("name", "pipeline", "refused"),
    [
        ("other", "q", "belongs to pipeline 'p', and this is 'q'.*consumer_group of its own"),
        ("other", "p", "the table of pipeline 'p' is not the one that consumer group '.*' has filled so far"),
    ],
)
def test_a_second_pipeline_or_table_of_the_group_is_refused_with_nothing_claimed(
    place: Place, name: str, pipeline: str, refused: str
) -> None:
    place.run(10)
    place.hub.send([Event(b"x")] * 5, partition="0")
    first = place.table
    place.fill(name, pipeline)
    with pytest.raises(AlreadyInUse, match=refused):
        place.processor(0)[0].run()
    assert place.table.row_count() == 0
    place.table = first
    place.run(10)
    assert first.row_count() == 25  # the refused start has taken nothing from it


def test_a_second_pipeline_is_refused_while_the_first_one_works(place: Place) -> None:
    working, done = place.processor(4)
    with working:
        until(lambda: working.partitions, "the partition to be held")
        table = place.table
        place.fill("other", "q")
        with pytest.raises(AlreadyInUse, match="belongs to pipeline 'p'"):
            place.processor(0)[0].run()
        place.table = table
        place.hub.send([Event(b"x")] * 5, partition="0")
        assert done.wait(PATIENCE)


def test_a_table_that_begins_on_a_group_which_was_read_without_one_is_refused(place: Place) -> None:
    store = SqliteStore(place.folder / "stores.db")
    store.raise_owner_level([Checkpoint(place.hub.consumer_group("$Default"), "0", 4, 1, enqueued_time=1.0)])
    with pytest.raises(AlreadyInUse, match=r"by a program that fills no table, or another one, and.*--to earliest"):
        place.processor(0)[0].run()
    assert place.table.row_count() == 0


class BeforeAnother(SqliteStore):
    """A store in which something happens before one kind of call, as if its caller had stopped there for a while."""

    def __init__(self, path: Path, before: str, happens: Callable[[], object]) -> None:
        super().__init__(path)
        self._before, self._happens = before, happens

    def _meanwhile(self, call: str) -> None:
        if call == self._before:
            self._before = ""
            self._happens()

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        self._meanwhile("raise_owner_level")
        return super().raise_owner_level(starts)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        self._meanwhile("rebind_pipeline")
        super().rebind_pipeline(group, binding)


def test_of_two_tables_that_start_at_once_the_one_that_is_tied_last_is_filled(place: Place) -> None:
    """The first one is about to claim when the second one starts."""
    path, first = place.folder / "stores.db", place.table

    def another_starts() -> None:
        place.fill("other", "p")
        binding = PipelineBinding("p", place.table.identity())
        check_start(place.hub.consumer_group("$Default"), SqliteStore(path), binding, dict)

    working, _ = place.processor(0, store=BeforeAnother(path, "raise_owner_level", another_starts))
    place.hub.send([Event(b"x")] * 5, partition="0")
    with pytest.raises(AlreadyInUse, match="was tied to another table of pipeline 'p' while this instance started"):
        working.run()
    assert (first.row_count(), first.watermarks(place.hub.identity)) == (0, {})


def test_a_reset_that_begins_while_an_instance_starts_ends_it(place: Place) -> None:
    path, group = place.folder / "stores.db", place.hub.consumer_group("$Default")
    bound = PipelineBinding("p", place.table.identity()).resetting(UnendedReset("earliest"))
    begins = partial(SqliteStore(path).rebind_pipeline, group, bound)
    working, _ = place.processor(0, store=BeforeAnother(path, "raise_owner_level", begins))
    place.hub.send([Event(b"x")] * 5, partition="0")
    with pytest.raises(UsageError, match="a reset --to earliest has begun and not ended"):
        working.run()
    assert place.table.row_count() == 0


def test_a_table_that_is_tied_after_a_claim_for_another_is_refused(place: Place) -> None:
    """The second one is about to tie the group when the first one claims."""
    path, group = place.folder / "stores.db", place.hub.consumer_group("$Default")
    bound = SqliteStore(path).bind_pipeline(group, PipelineBinding("p", place.table.identity()))
    place.fill("other", "p")
    claimed = partial(SqliteStore(path).raise_owner_level, [Checkpoint(group, "0", -1, 1)])
    working, _ = place.processor(0, store=BeforeAnother(path, "rebind_pipeline", claimed))
    with pytest.raises(AlreadyInUse, match="was tied to another table"):
        working.run()
    assert SqliteStore(path).pipeline_binding(group) == bound


def test_a_handled_table_brings_its_table(place: Place) -> None:
    counts = HandledTable(
        count,
        f"sqlite:///{place.folder}/counts.db",
        table="counts",
        pipeline="p",
        schema="key STRING",
        state="key STRING, n BIGINT",
    )
    store = SqliteStore(place.folder / "stores.db")
    with closing(counts), EventProcessor(place.hub, store, counts) as processor:
        until(lambda: processor.partitions, "the partition to be held")
        bound = store.pipeline_binding(place.hub.consumer_group("$Default"))
        assert bound == PipelineBinding("p", counts.sink.identity())


def test_a_table_of_another_pipeline_or_consumer_group_than_the_processor_is_refused(place: Place) -> None:
    def made(**named: Any) -> EventProcessor:
        return EventProcessor(place.hub, SqliteStore(place.folder / "stores.db"), table=place.table, **named)

    with pytest.raises(ConfigError, match="the table seen belongs to this pipeline, and the events are read for 'q'"):
        made(pipeline="q")
    with pytest.raises(ConfigError, match=r"the table seen keeps watermarks of this consumer group.*read as 'others'"):
        made(consumer_group="others")
    made(pipeline="p").stop()
