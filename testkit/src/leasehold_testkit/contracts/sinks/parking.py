"""The contract of sinks that keep parked events (the feature STATES), as tests: at least one for each of its rules.

Subclass it as `SinkContract`, with the fixtures `open_table` and `contents`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from leasehold.sinks.base import Sink
from leasehold.sinks.features import STATES
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.parking import ParkedEvent, Parking
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import EventId, ParkedAgain, Selection
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, SinkFixtures, asked, batch, read

Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]

SOON = 1e9
"""When parked events are tried again here, in seconds since 1970."""


def waiting(number: int, entity: str = "a", **more: Any) -> ParkedEvent:
    """An event that waits, of which everything is told apart."""
    said = {"deliveries": number + 1, "next_at": SOON + number, "error": f"E: {number}", **more}
    return ParkedEvent((entity,), b"\0\xff%d" % number, number, 7.25 + number, **said)


def parks(batch: Batch, put: Sequence[ParkedEvent] = (), removed: Sequence[int] = (), **more: Any) -> Batch:
    """The batch with what it changes among the parked events of partition 0."""
    return replace(batch, parking=Parking(HUB, "0", put, removed, **more))


class ParkingContract(SinkFixtures):
    """What every sink must do that has the feature STATES."""

    of = (STATES,)

    @pytest.fixture
    def parking(self, open_table: Open) -> Any:
        sink = open_table(UPSERT)
        sink.check(batch(Row("a", 1, 1)).rows.schema)
        asked(sink, STATES).check_parked()
        return sink

    def test_what_is_parked_is_there_for_others_with_all_that_was_given(self, parking: Any, open_table: Open) -> None:
        held = [waiting(0), waiting(2, next_at=0.0, deliveries=0, error=""), waiting(1, "b")]
        parking.apply(parks(batch(Row("c", 1, 3), ranges=[read(0, 4)]), held))
        assert parking.watermarks(HUB)["0"].sequence_number == 3
        other = asked(open_table(UPSERT), STATES)
        other.check_parked()
        assert other.parked_entities(HUB, "0") == {("a",): SOON, ("b",): SOON + 1}
        assert other.parked_events(HUB, "0", [("a",)], 10) == [held[0], held[1]]
        assert [one.sequence_number for one in other.parked_events(HUB, "0", [("a",), ("b",)], 2)] == [0, 1]
        assert other.parked_events(HUB, "0", [("nobody",)], 10) == []

    def test_partitions_and_hubs_have_their_own(self, parking: Any) -> None:
        parking.apply(parks(batch(ranges=[read(0, 1)]), [waiting(0)]))
        assert parking.parked_entities(HUB, "1") == {}
        assert parking.parked_entities("another-hub", "0") == {}
        assert parking.parked_events(HUB, "1", [("a",)], 10) == []

    def test_a_range_that_is_refused_parks_nothing(self, parking: Any) -> None:
        parking.apply(batch(Row("c", 1, 0, level=2), ranges=[read(0, 1, level=2)]))
        late = parks(batch(ranges=[read(1, 2)]), [waiting(1)])
        parking.apply(late)
        assert parking.parked_entities(HUB, "0") == {}
        assert parking.watermarks(HUB)["0"].sequence_number == 0

    def test_what_was_computed_under_another_watermark_changes_nothing(self, parking: Any) -> None:
        parking.apply(parks(batch(ranges=[read(0, 1)]), [waiting(0)]))
        before = parking.watermarks(HUB)["0"]
        parking.apply(batch(ranges=[read(1, 2)]))
        late = parks(batch(Row("a", 1, 0), ranges=[read(1, 1)]), removed=[0], retried=True)
        assert parking.apply(replace(late, read_under={(HUB, "0"): before})).outdated
        assert parking.parked_entities(HUB, "0") == {("a",): SOON}

    def test_an_event_that_is_tried_again_takes_effect_with_its_removal_and_once(
        self, parking: Any, contents: Contents
    ) -> None:
        parking.apply(parks(batch(Row("b", 1, 1), ranges=[read(0, 3)]), [waiting(0), waiting(2)]))
        before = parking.watermarks(HUB)["0"]
        tried = parks(batch(Row("a", 9, 0), ranges=[read(3, 3)]), [waiting(2, error="E: anew")], [0], retried=True)
        tried = replace(tried, read_under={(HUB, "0"): before})
        assert not parking.apply(tried).outdated
        assert sorted(contents()) == [("a", 9), ("b", 1)]
        assert parking.parked_events(HUB, "0", [("a",)], 10) == [waiting(2, error="E: anew")]
        after = parking.watermarks(HUB)["0"]
        assert (after.sequence_number, after.changes > before.changes) == (2, True)
        assert parking.apply(tried).outdated, "whoever has read it before comes too late"

    def test_what_was_tried_again_and_is_parked_no_more_takes_no_effect(self, parking: Any, contents: Contents) -> None:
        parking.apply(parks(batch(ranges=[read(0, 2)]), [waiting(0)]))
        for late in ({"removed": [1]}, {"put": [waiting(1)]}, {"removed": [0], "put": [waiting(1)]}):
            tried = parks(batch(Row("a", 9, 1), ranges=[read(2, 2)]), retried=True, **late)
            assert parking.apply(tried).outdated
        assert contents() == []
        assert parking.parked_events(HUB, "0", [("a",)], 10) == [waiting(0)]

    def test_a_guest_leaves_what_the_owner_has_computed_as_it_is(self, parking: Any, contents: Contents) -> None:
        parking.apply(parks(batch(ranges=[read(0, 2)]), [waiting(0), waiting(1, "b")]))
        before = parking.watermarks(HUB)["0"]
        its = parks(batch(Row("a", 9, 0), ranges=[read(2, 2)]), removed=[0], retried=True, by_guest=True)
        its = replace(its, read_under={(HUB, "0"): before})
        assert not parking.apply(its).outdated
        assert (contents(), parking.parked_entities(HUB, "0")) == ([("a", 9)], {("b",): SOON + 1})
        assert parking.watermarks(HUB)["0"] == before
        assert parking.apply(its).outdated, "another guest comes too late"

    def test_a_reset_removes_what_will_be_read_again_and_no_more(self, parking: Any, open_table: Open) -> None:
        parking.apply(parks(batch(ranges=[read(0, 4)]), [waiting(0), waiting(1, "b"), waiting(3)]))
        open_table(UPSERT).set_watermarks(HUB, {"0": Watermark(1, 1, whole=True)})
        assert parking.parked_entities(HUB, "0") == {("a",): SOON, ("b",): SOON + 1}
        assert parking.parked_events(HUB, "0", [("a",), ("b",)], 10) == [waiting(0), waiting(1, "b")]

    def test_many_at_once(self, parking: Any) -> None:
        held = [waiting(number, f"k{number % 700}") for number in range(2_100)]
        parking.apply(parks(batch(ranges=[read(0, 2_100)]), held))
        keys = [(f"k{number}",) for number in range(700)]
        assert len(parking.parked_entities(HUB, "0")) == 700
        assert parking.parked_events(HUB, "0", keys, 10_000) == held
        assert parking.parked_events(HUB, "0", keys, 100) == held[:100]

    def test_a_rejected_event_is_parked_again_in_place_of_its_row_and_once(self, parking: Any) -> None:
        rows = parking.rejected_rows
        parking.apply(batch(Row("b", 1, 1), rejected=[Row("?", 0, 0), Row("?", 0, 2)], ranges=[read(0, 3)]))
        before = parking.watermarks(HUB)["0"]
        found = {row.event.sequence_number: row for row in rows.rows(Selection(), 9)}
        assert rows.park([(found[0], waiting(0))]) == ParkedAgain(parked=1)
        assert parking.parked_events(HUB, "0", [("a",)], 9) == [waiting(0)]
        assert [row.event.sequence_number for row in rows.rows(Selection(), 9)] == [2]
        after = parking.watermarks(HUB)["0"]
        assert (after.sequence_number, after.changes > before.changes) == (2, True)
        assert rows.park([(found[0], waiting(0))]) == ParkedAgain(gone=1)
        parking.set_watermarks(HUB, {"0": Watermark(1, 1, whole=True)})
        assert rows.park([(found[2], waiting(2))]) == ParkedAgain(unread=1), "it is going to be read again"
        assert parking.parked_events(HUB, "0", [("a",)], 9) == [waiting(0)]

    def test_an_operator_lists_hurries_and_drops_and_the_owner_notices(self, parking: Any) -> None:
        held = [waiting(0), waiting(1, "b"), waiting(2)]
        parking.apply(parks(batch(ranges=[read(0, 3)]), held))
        mark = parking.watermarks(HUB)["0"]
        rows = parking.parked_rows(Selection(), 10)
        assert [(row.id, row.event, row.first) for row in rows] == [
            (EventId(HUB, "0", one.sequence_number), one, one.sequence_number != 2) for one in held
        ]
        assert [row.event for row in parking.parked_rows(Selection(), 1, rows[0].id)] == [held[1]]
        assert [row.event for row in parking.parked_rows(Selection(reason="E: 2"), 10)] == [held[2]]
        assert parking.hurry_parked([rows[1].id, EventId(HUB, "0", 9)]) == 1
        assert parking.parked_entities(HUB, "0")["b",] == 0.0
        hurried = parking.watermarks(HUB)["0"]
        assert hurried.changes > mark.changes
        assert parking.drop_parked([rows[0].id], "a test") == 1
        assert parking.watermarks(HUB)["0"].changes > hurried.changes
        assert parking.parked_entities(HUB, "0") == {("a",): SOON + 2, ("b",): 0.0}
