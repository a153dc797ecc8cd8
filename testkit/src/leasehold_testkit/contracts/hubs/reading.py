"""Of the contract of hubs what is about reading: `Hub.read`, and the chunks that the plain processor reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError
from leasehold.hubs.arrow import event_schema
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.model import Event
from leasehold_testkit.contracts.hubs.fixtures import HubFixtures, numbered, range_of, rows_of


class HubReading(HubFixtures):
    """What every `Hub` must do when it is read."""

    def test_every_column_has_its_exact_type_and_value(self, hub: Hub) -> None:
        sent = [
            Event(b"\x00\xff", partition_key="schl\u00fcssel \U0001f511", properties={"a": "1", "\u00e9": ""}),
            Event(b"", partition_key=None),
        ]
        hub.send(sent, partition="2")
        (batch,) = hub.read("2", *range_of(hub, "2"))
        assert batch.schema.equals(event_schema(), check_metadata=False)
        batch.validate(full=True)
        for event, row in zip(sent, batch.to_pylist(), strict=True):
            assert list(row) == list(EVENT_COLUMNS)
            assert (row["body"], row["partition"], row["hub"]) == (event.body, "2", hub.identity)
            assert (row["partitionKey"], dict(row["properties"])) == (event.partition_key, event.properties)
            assert isinstance(row["offset"], str)
            assert row["enqueuedTime"].tzinfo is not None
            assert row["systemProperties"] is not None

    @pytest.mark.parametrize(
        "columns", [("body",), ("hub", "sequenceNumber"), EVENT_COLUMNS[::-1], *((name,) for name in EVENT_COLUMNS)]
    )
    def test_columns_come_in_the_order_asked_for(self, hub: Hub, columns: Sequence[str]) -> None:
        hub.send(numbered(5, key="k"), partition="0")
        everything = pa.Table.from_batches(hub.read("0", *range_of(hub, "0")))
        batches = list(hub.read("0", *range_of(hub, "0"), columns=columns))
        assert pa.Table.from_batches(batches) == everything.select(list(columns))
        assert all(batch.schema == event_schema(columns) for batch in batches)

    def test_an_unknown_column_is_refused(self, hub: Hub) -> None:
        with pytest.raises(ConfigError, match=r"colour.*body, partition, offset"):
            list(hub.read("0", 0, 1, columns=["body", "colour"]))

    @pytest.mark.parametrize("batch_rows", [1, 3, 10, 1_000])
    def test_batches_have_at_most_batch_rows(self, hub: Hub, batch_rows: int) -> None:
        for first in (0, 10, 20):
            hub.send(numbered(10, first=first), partition="0")
        batches = list(hub.read("0", *range_of(hub, "0"), batch_rows=batch_rows))
        assert all(0 < batch.num_rows <= batch_rows for batch in batches)
        assert [row["body"] for batch in batches for row in batch.to_pylist()] == [b"%d" % n for n in range(30)]

    def test_an_offset_that_is_known_is_the_events_own(self, hub: Hub) -> None:
        assert hub.offset_of("1", -1) is None
        hub.send(numbered(4), partition="1")
        hub.partition_properties()
        for row in rows_of(hub, "1"):
            assert hub.offset_of("1", row["sequenceNumber"]) in (row["offset"], None)

    def test_removed_events_are_not_there(self, hub: Hub, remove_oldest: Callable[[Hub, str], None]) -> None:
        for first in range(0, 100, 10):
            hub.send(numbered(10, first=first), partition="0")
        before, rows = hub.partition_properties()["0"], rows_of(hub, "0")
        remove_oldest(hub, "0")
        after = hub.partition_properties()["0"]
        assert before.begin < after.begin < after.end == before.end
        assert rows_of(hub, "0", before.begin, before.end) == [r for r in rows if r["sequenceNumber"] >= after.begin]
        assert rows_of(hub, "0", before.begin, after.begin) == []

    @pytest.mark.parametrize("batch_rows", [7, 1_000])
    def test_no_batch_reaches_across_what_is_removed_meanwhile(
        self, hub: Hub, remove_oldest: Callable[[Hub, str], None], batch_rows: int
    ) -> None:
        for first in range(0, 100, 10):
            hub.send(numbered(10, first=first), partition="0")
        before, rows = hub.partition_properties()["0"], rows_of(hub, "0")
        batches = hub.read("0", before.begin, before.end, batch_rows=batch_rows, columns=["sequenceNumber"])
        read = [next(batches)]
        remove_oldest(hub, "0")
        read += batches
        order = [row["sequenceNumber"] for row in rows]
        found = [batch.column(0).to_pylist() for batch in read]
        for numbers in found:
            first = order.index(numbers[0])
            assert numbers == order[first : first + len(numbers)]
        begin = hub.partition_properties()["0"].begin
        left = [number for number in order if number >= begin]
        assert [number for numbers in found for number in numbers][-len(left) :] == left

    # read_chunks, whether the hub has one of its own or not

    @pytest.mark.parametrize("batch_rows", [1, 3, 1_000])
    def test_chunks_hold_what_a_read_gives(self, hub: Hub, batch_rows: int) -> None:
        hub.send(_kinds_of_events(), partition="1")
        place = range_of(hub, "1")
        rows = pa.Table.from_batches(hub.read("1", *place))
        chunks = list(hub.read_chunks("1", *place, batch_rows=batch_rows))
        assert all(0 < len(chunk) <= batch_rows for chunk in chunks)
        assert pa.Table.from_batches([chunk.arrow() for chunk in chunks]) == rows
        found = [event for chunk in chunks for event in chunk.events()]
        assert found == [event for batch in hub.read("1", *place) for event in events_of(batch)]
        numbers, offsets = rows["sequenceNumber"].to_pylist(), rows["offset"].to_pylist()
        for chunk in chunks:
            begin, numbers = numbers[: len(chunk)], numbers[len(chunk) :]
            known, offsets = offsets[: len(chunk)], offsets[len(chunk) :]
            assert (chunk.first, chunk.last, chunk.last_offset) == (begin[0], begin[-1], known[-1])

    def test_a_chunk_tells_about_how_large_it_is(self, hub: Hub) -> None:
        hub.send([Event(b"x" * 1_000)] * 5, partition="1")
        sizes = [chunk.nbytes for chunk in hub.read_chunks("1", *range_of(hub, "1"), batch_rows=4)]
        assert 5_000 <= sum(sizes) < 10_000
        assert sizes[0] > 2 * sizes[-1]

    def test_a_part_of_a_chunk_is_a_chunk(self, hub: Hub) -> None:
        hub.send(_kinds_of_events(), partition="1")
        (whole,) = hub.read_chunks("1", *range_of(hub, "1"))
        for start, stop in ((0, 1), (1, 4), (len(whole) - 1, len(whole)), (0, len(whole))):
            part = whole.part(start, stop)
            events = whole.events()[start:stop]
            assert (len(part), part.events()) == (stop - start, events)
            assert part.arrow().equals(whole.arrow().slice(start, stop - start))
            assert (part.first, part.last) == (events[0].sequence_number, events[-1].sequence_number)
            assert (part.last_offset, part.last_enqueued) == (events[-1].offset, events[-1].enqueued_time)
            assert part.part(0, 1).events() == events[:1]

    def test_chunks_of_a_range_without_events(self, hub: Hub) -> None:
        hub.send(numbered(3), partition="1")
        begin, end = range_of(hub, "1")
        assert list(hub.read_chunks("1", begin, begin)) == list(hub.read_chunks("1", end, end)) == []


def _kinds_of_events() -> list[Event]:
    """Events with and without a key and properties, in every order."""
    keys = (None, "", "k", "schl\u00fcssel")
    properties: tuple[dict[str, str], ...] = ({}, {"a": "1"}, {"a": "1", "\u00e9": ""})
    return [Event(b"%s %d" % (str(key).encode(), len(some)), key, some) for key in keys for some in properties]
