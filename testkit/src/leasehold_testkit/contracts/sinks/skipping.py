"""The contract of sinks that skip events (the feature BOOKKEEPING), as tests: at least one for each of its rules.

Subclass it as `SinkContract`, with the fixtures `open_table`, `contents` and `set_aside`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.skipping.contract import Noted
from leasehold.sinks.features import BOOKKEEPING
from leasehold.sinks.rules.batch import Batch, Identities
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import EventId, Selection
from leasehold_testkit.contracts.sinks.fixtures import (
    APPEND,
    HUB,
    UPSERT,
    Row,
    SinkFixtures,
    asked,
    batch,
    read,
    retried,
)

Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]

WHY = "skipped by ada@tower: it has the wrong partition key"


def note(number: int, partition: str = "0", **more: Any) -> SkipNote:
    """The note of an event."""
    said = {"body": b'{"entity": "a"}', "source": '{"publisher": "p"}', **more}
    return SkipNote(HUB, partition, number, because="it has the wrong partition key", noted_by="ada@tower", **said)


def whole(*rows: Row, begin: int, end: int, level: int = 1, partition: str = "0") -> Batch:
    """The rows of a range that was read whole."""
    rows = tuple(row._replace(level=level) for row in rows)
    return batch(*rows, ranges=[read(begin, end, level=level, partition=partition)])


class SkippingContract(SinkFixtures):
    """What every sink must do that has the feature BOOKKEEPING."""

    of = (BOOKKEEPING,)

    @pytest.fixture
    def table(self, open_table: Open) -> Sink:
        sink = open_table(UPSERT)
        sink.check(batch(Row("a", 1, 1)).rows.schema)
        return sink

    @pytest.fixture
    def skips(self, table: Sink) -> Any:
        return asked(table, BOOKKEEPING)

    def test_a_noted_event_is_left_out_and_set_aside_as_the_watermark_passes_it(
        self, table: Sink, skips: Any, contents: Contents, set_aside: Contents
    ) -> None:
        table.apply(whole(Row("a", 1, 0), begin=0, end=1))
        assert skips.note_skip(note(2)) == Noted()
        assert skips.noted(HUB) == {"0": frozenset({2})}
        assert table.apply(whole(Row("a", 2, 1), begin=1, end=2)).skipped_events == ()
        assert set_aside() == [], "it has not been come to yet"
        result = table.apply(whole(Row("b", 3, 2), Row("c", 4, 3), begin=2, end=4))
        assert (result.applied, result.rejected, result.skipped, result.read) == (1, 0, 1, 2)
        assert result.skipped_events == (f"event 2 of partition 0 was left out and set aside: {WHY}",)
        assert contents() == [("a", 2), ("c", 4)]
        assert set_aside() == [("0", 2)]
        assert table.watermarks(HUB)["0"].sequence_number == 3
        assert (skips.skip_notes(), skips.noted(HUB)) == ([], {})

    def test_it_gets_over_a_key_from_two_partitions(self, table: Sink, skips: Any, contents: Contents) -> None:
        """Also in a sink that has looked before, in a transaction that was undone, and has found no note."""
        table.apply(whole(Row("a", 1, 0), begin=0, end=1))
        strange = whole(Row("a", 9, 0, "1"), Row("b", 2, 1, "1"), begin=0, end=2, partition="1")
        for _ in range(2):
            with pytest.raises(KeyFromTwoPartitions):
                table.apply(strange)
        skips.note_skip(note(0, "1"))
        assert table.apply(strange).applied == 1
        assert contents() == [("a", 1), ("b", 2)]

    def test_the_very_first_event_of_a_partition_that_has_no_watermark(
        self, open_table: Open, skips: Any, contents: Contents
    ) -> None:
        other = open_table(UPSERT)
        skips.note_skip(note(0))
        other.apply(whole(Row("a", 1, 0), Row("b", 2, 1), begin=0, end=2))
        assert contents() == [("b", 2)]

    def test_a_note_that_another_process_writes_is_found(
        self, table: Sink, open_table: Open, set_aside: Contents
    ) -> None:
        table.apply(whole(Row("a", 1, 0), begin=0, end=1))
        asked(open_table(UPSERT), BOOKKEEPING).note_skip(note(1))
        table.apply(whole(Row("a", 2, 1), begin=1, end=2))
        assert set_aside() == [("0", 1)]

    def test_an_event_that_was_passed_gets_no_note(self, table: Sink, skips: Any, set_aside: Contents) -> None:
        table.apply(whole(Row("a", 1, 0), begin=0, end=5))
        assert [skips.note_skip(note(number)).passed for number in (0, 4, 5)] == [4, 4, None]
        assert [one.sequence_number for one in skips.skip_notes()] == [5]
        assert set_aside() == []

    def test_a_second_note_of_an_event_changes_nothing(self, table: Sink, skips: Any) -> None:
        skips.note_skip(note(3))
        again = skips.note_skip(replace(note(3), noted_by="eve"))
        (kept,) = skips.skip_notes()
        assert again == Noted(before=kept)
        assert (kept.noted_by, kept.body, kept.source) == ("ada@tower", b'{"entity": "a"}', '{"publisher": "p"}')
        assert kept.noted_at > 0

    def test_all_rows_of_the_event_go_and_those_that_could_not_be_read(
        self, open_table: Open, contents: Contents, set_aside: Contents
    ) -> None:
        sink = open_table(APPEND)
        sink.check(batch(Row("a", 1, 1)).rows.schema)
        skips = asked(sink, BOOKKEEPING)
        for number in (1, 2):
            skips.note_skip(note(number))
        rows = [Row("a", 1, 0), Row("b", 2, 1), Row("b", 3, 1), Row("c", 4, 3)]
        result = sink.apply(batch(*rows, rejected=[Row("", 0, 2)], ranges=[read(0, 4)]))
        assert (result.applied, result.rejected, result.skipped, result.read) == (2, 0, 2, 4)
        assert contents() == [("a", 1), ("c", 4)]
        assert set_aside() == [("0", 1), ("0", 2)]

    def test_one_that_its_reader_has_left_out_already(self, table: Sink, skips: Any, set_aside: Contents) -> None:
        skips.note_skip(note(1))
        table.apply(whole(Row("a", 1, 0), begin=0, end=2))
        assert set_aside() == [("0", 1)]

    def test_one_that_no_batch_reads_goes_with_the_watermark(
        self, table: Sink, skips: Any, set_aside: Contents
    ) -> None:
        """Of rows that say their events themselves a filter may leave none, and retention may remove an event."""
        skips.note_skip(note(1))
        table.apply(batch(Row("a", 1, 0), Row("a", 2, 3)))
        assert set_aside() == [("0", 1)]
        skips.note_skip(note(5))
        table.apply(whole(Row("a", 3, 7), begin=7, end=8))
        assert set_aside() == [("0", 1), ("0", 5)]

    def test_a_batch_that_comes_again_passes_nothing_twice(
        self, table: Sink, skips: Any, contents: Contents, set_aside: Contents
    ) -> None:
        skips.note_skip(note(0))
        its = whole(Row("a", 1, 0), Row("b", 2, 1), begin=0, end=2)
        table.apply(its)
        again = table.apply(its)
        assert (again.applied, again.rejected, again.skipped) == (0, 0, 0)
        assert (contents(), set_aside()) == ([("b", 2)], [("0", 0)])

    def test_a_batch_of_a_former_owner_leaves_the_note(self, table: Sink, skips: Any, set_aside: Contents) -> None:
        table.apply(whole(Row("a", 1, 0), begin=0, end=1, level=2))
        skips.note_skip(note(1))
        table.apply(whole(Row("a", 2, 1), begin=1, end=2, level=1))
        assert set_aside() == []
        assert skips.noted(HUB) == {"0": frozenset({1})}

    def test_what_was_computed_before_the_note_is_outdated(self, table: Sink, skips: Any) -> None:
        table.raise_owner_levels(HUB, {"0": 1})
        mark = table.watermarks(HUB)["0"]
        skips.note_skip(note(0))
        computed = replace(whole(Row("a", 1, 0), begin=0, end=1), read_under={(HUB, "0"): mark})
        assert table.apply(computed).outdated
        anew = replace(whole(begin=0, end=1), read_under={(HUB, "0"): table.watermarks(HUB)["0"]})
        assert table.apply(anew).skipped

    def test_partitions_hubs_and_tables_have_their_own(self, table: Sink, open_table: Open, skips: Any) -> None:
        skips.note_skip(note(0, "1"))
        skips.note_skip(replace(note(0), hub="another-hub"))
        beside = open_table(replace(UPSERT, name="others"))
        assert asked(beside, BOOKKEEPING).skip_notes() == []
        assert table.apply(whole(Row("a", 1, 0), begin=0, end=1)).skipped_events == ()
        assert skips.noted(HUB) == {"1": frozenset({0})}
        assert [one.hub for one in skips.skip_notes()] == ["another-hub", HUB]

    def test_a_reset_behind_the_event_removes_the_note_and_one_before_it_does_not(
        self, table: Sink, skips: Any
    ) -> None:
        for number in (3, 4):
            skips.note_skip(note(number))
        table.set_watermarks(HUB, {"0": Watermark(3, 5, whole=True)})
        assert skips.noted(HUB) == {"0": frozenset({4})}
        table.set_watermarks(HUB, {"0": Watermark(-1, 6, whole=True)}, anew=True)
        assert skips.noted(HUB) == {"0": frozenset({4})}

    def test_an_event_that_was_skipped_is_read_again_after_a_reset(
        self, table: Sink, skips: Any, contents: Contents, set_aside: Contents
    ) -> None:
        skips.note_skip(note(0))
        table.apply(whole(Row("a", 1, 0), begin=0, end=1))
        table.set_watermarks(HUB, {"0": Watermark(-1, 2, whole=True)}, anew=True)
        skips.note_skip(note(0))
        table.apply(whole(Row("a", 1, 0), begin=0, end=1, level=2))
        assert (contents(), set_aside()) == ([], [("0", 0)])
        table.set_watermarks(HUB, {"0": Watermark(-1, 3, whole=True)}, anew=True)
        table.apply(whole(Row("a", 1, 0), begin=0, end=1, level=3))
        assert (contents(), set_aside()) == ([("a", 1)], [])

    def test_a_skipped_event_is_a_rejected_one_and_can_be_tried_again(
        self, table: Sink, skips: Any, contents: Contents
    ) -> None:
        skips.note_skip(note(0))
        assert table.set_aside_counts().to_skip == 1
        table.apply(whole(Row("a", 1, 0), begin=0, end=1))
        (row,) = table.rejected_rows.rows(Selection(), 10)
        assert (row.event, row.place, row.reason) == (EventId(HUB, "0", 0), 0, WHY)
        assert (row.body, row.source) == (b'{"entity": "a"}', '{"publisher": "p"}')
        counts = table.set_aside_counts()
        assert (counts.rejected, counts.to_skip) == (1, 0)
        retried(table, batch(Row("a", 1, 0)), [row.event])
        assert contents() == [("a", 1)]
        assert table.rejected_rows.rows(Selection(), 10) == []

    def test_an_entity_that_is_forgotten_leaves_an_empty_note(
        self, table: Sink, skips: Any, set_aside: Contents
    ) -> None:
        skips.note_skip(note(0))
        skips.note_skip(note(1, body=b'{"entity": "b"}'))
        assert skips.forget_entity({"entity": "a"}).rejected == 1
        assert [one.body for one in skips.skip_notes()] == [None, b'{"entity": "b"}']
        table.apply(whole(Row("a", 1, 0), begin=0, end=1))
        assert set_aside() == [("0", 0)], "it is skipped all the same"

    def test_a_skipped_event_is_not_remembered_as_the_first_of_two(self, table: Sink, skips: Any) -> None:
        fence = {"hub": [HUB] * 2, "partition": ["0"] * 2, "sequenceNumber": pa.array([0, 1], pa.int64())}
        times = pa.array([1_000_000_000_000_000] * 2, pa.timestamp("us", "UTC"))
        identities = Identities(pa.table({**fence, "identity": ["x", "x"], "enqueuedTime": times}), "id", 60.0)
        skips.note_skip(note(0))
        both = whole(Row("a", 1, 0), Row("a", 2, 1), begin=0, end=2)
        result = table.apply(replace(both, identities=identities))
        assert (result.applied, result.duplicates, result.skipped) == (1, 0, 1)

    def test_a_note_and_a_batch_at_the_same_time_come_one_after_the_other(
        self, table: Sink, open_table: Open, contents: Contents, set_aside: Contents
    ) -> None:
        """Each event is applied, and its note refused, or it is skipped: never both, never neither."""
        outcomes: dict[int, bool] = {}

        def write_notes() -> None:
            other = open_table(UPSERT)
            for number in range(0, 40, 2):
                outcomes[number] = asked(other, BOOKKEEPING).note_skip(note(number)).passed is None
            other.close()

        writer = threading.Thread(target=write_notes)
        writer.start()
        for number in range(40):
            table.apply(whole(Row(f"e{number:02}", number, number), begin=number, end=number + 1))
        writer.join()
        end = 40
        table.apply(whole(begin=end, end=end + 1))
        skipped = {number for number, noted in outcomes.items() if noted}
        assert {number for _, number in set_aside()} == skipped
        assert [value for _, value in contents()] == [number for number in range(40) if number not in skipped]
