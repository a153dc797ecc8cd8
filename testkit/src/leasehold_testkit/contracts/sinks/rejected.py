"""The contract of a sink about its rejected events, as tests: at least one for each rule of `sinks.set_aside`.

Subclass it as `SinkContract`, with the fixtures `open_table` and `contents`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError
from leasehold.sinks.base import Sink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import EventId, RetryResult, Selection
from leasehold_testkit.contracts.sinks.fixtures import (
    APPEND,
    HUB,
    ORDERED,
    UPSERT,
    Row,
    SinkFixtures,
    batch,
    read,
    retried,
)

Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]
ALL = Selection()


def event(number: int, partition: str = "0") -> EventId:
    """An event of the contract's hub."""
    return EventId(HUB, partition, number)


def listed(sink: Sink) -> list[tuple[str, int, int, str]]:
    """Partition, sequence number, place and reason of what is rejected."""
    found = sink.rejected_rows.rows(ALL, 100)
    return [(row.event.partition, row.event.sequence_number, row.place, row.reason) for row in found]


def with_null_keys(batch: Batch, *places: int) -> Batch:
    """The batch with no key in these rows, which no table with keys can store."""
    column = batch.rows["entity"].to_pylist()
    keys = [None if place in places else value for place, value in enumerate(column)]
    return replace(batch, rows=batch.rows.set_column(0, "entity", pa.array(keys, pa.string())))


class RejectedContract(SinkFixtures):
    """What every sink must do with rejected rows."""

    # listed

    def test_rows_are_listed_with_all_that_is_known(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        assert sink.rejected_rows.rows(ALL, 10) == []
        assert sink.rejected_rows.reasons(ALL, 10) == []
        assert sink.rejected_rows.dropped(10) == []
        sink.apply(with_null_keys(batch(Row("a", 1, 0), Row("b", 2, 4), rejected=[Row("?", 0, 2)]), 1))
        first, second = sink.rejected_rows.rows(ALL, 10)
        assert (first.event, first.place, first.body, first.source) == (event(2), 0, b"?", "{}")
        assert (second.event, second.source) == (event(4), None)
        assert isinstance(second.body, str)
        assert '"value":2' in second.body
        assert first.rejected_at == second.rejected_at
        assert first.rejected_at.endswith("Z")

    def test_a_selection_takes_what_meets_all_of_it(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        rejected = [Row("?", 0, 1), Row("?", 0, 2), Row("?", 0, 2, "1")]
        sink.apply(with_null_keys(batch(Row("a", 1, 5), rejected=rejected), 0))

        def numbers(selection: Selection, limit: int = 9, after: EventId | None = None) -> list[tuple[str, int]]:
            found = sink.rejected_rows.rows(selection, limit, after)
            return [(row.event.partition, row.event.sequence_number) for row in found]

        assert numbers(ALL) == [("0", 1), ("0", 2), ("0", 5), ("1", 2)]
        assert numbers(ALL, 2) == [("0", 1), ("0", 2)]
        assert numbers(ALL, 2, event(2)) == [("0", 5), ("1", 2)]
        assert numbers(Selection(reason="JSON")) == [("0", 1), ("0", 2), ("1", 2)]
        assert numbers(Selection(reason="json")) == []
        chosen = frozenset({("0", 2), ("1", 2), ("1", 9), ("0", 5)})
        assert numbers(Selection(chosen, "JSON")) == [("0", 2), ("1", 2)]
        assert numbers(Selection(frozenset())) == numbers(Selection(hub="another")) == []
        counts = sink.rejected_rows.reasons(ALL, 9)
        assert (counts[0].reason, counts[0].rows) == ("not JSON", 3)
        assert [one.rows for one in counts] == [3, 1]
        assert [one.rows for one in sink.rejected_rows.reasons(Selection(hub=HUB), 1)] == [3]

    # tried again

    def test_a_mended_event_is_in_the_table_and_no_longer_rejected(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0), rejected=[Row("?", 0, 1), Row("?", 0, 2)], ranges=[read(0, 9)]))
        result = retried(sink, batch(Row("b", 2, 1)), [event(1)])
        assert result == RetryResult(applied=1)
        assert contents() == [("a", 1), ("b", 2)]
        assert listed(open_table(UPSERT)) == [("0", 2, 0, "not JSON")]
        assert sink.watermarks(HUB) == {"0": Watermark(8, 1, whole=True)}
        sink.apply(batch(Row("b", 3, 9), ranges=[read(9, 10)]))
        assert contents() == [("a", 1), ("b", 3)]

    def test_it_never_replaces_what_a_later_event_wrote(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 5, 5), Row("b", 1, 1), rejected=[Row("?", 0, 2), Row("?", 0, 3)]))
        again = batch(Row("a", 2, 2), Row("b", 2, 2), Row("b", 3, 3))
        assert retried(sink, again, [event(2), event(3)]) == RetryResult(applied=2, superseded=1)
        assert contents() == [("a", 5), ("b", 3)]
        assert listed(sink) == []

    def test_its_key_is_remembered_as_its_own(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("z", 9, 9), rejected=[Row("?", 0, 2), Row("?", 0, 3)]))
        assert retried(sink, batch(Row("a", 3, 3)), [event(3)]).applied == 1
        assert retried(sink, batch(Row("a", 2, 2)), [event(2)]) == RetryResult(superseded=1)
        assert contents() == [("a", 3), ("z", 9)]

    def test_sequence_by_decides_where_there_is_one(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(ORDERED)
        sink.apply(batch(Row("a", 1, 5, "1", version=5), rejected=[Row("?", 0, 1), Row("?", 0, 2)], by_version=True))
        again = batch(Row("a", 2, 1, version=4), Row("a", 3, 2, version=6), by_version=True)
        # In the order of events: the first has lost already, the second wins.
        assert retried(sink, again, [event(1), event(2)]) == RetryResult(applied=1, superseded=1)
        assert contents() == [("a", 3)]

    def test_a_later_delete_stays_a_delete(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0), rejected=[Row("?", 0, 1), Row("?", 0, 3)], deletes=True))
        sink.apply(batch(Row("a", 1, 4, gone=True), Row("b", 1, 5), deletes=True))
        again = batch(Row("a", 2, 1), Row("b", 0, 3, gone=True), deletes=True)
        assert retried(sink, again, [event(1), event(3)]) == RetryResult(superseded=2)
        assert contents() == [("b", 1)]

    def test_a_key_of_another_partition_stays_rejected(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0, "1"), rejected=[Row("?", 0, 7)]))
        assert retried(sink, batch(Row("a", 2, 7), Row("b", 2, 7)), [event(7)]) == RetryResult(1, rejected=1)
        assert contents() == [("a", 1), ("b", 2)]
        ((_, _, _, reason),) = listed(sink)
        assert "partition 1" in reason

    def test_an_appended_table_gets_it_added(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 9, 9), rejected=[Row("?", 0, 1)]))
        assert retried(sink, batch(Row("a", 1, 1), Row("b", 1, 1)), [event(1)]) == RetryResult(applied=2)
        assert contents() == [("a", 1), ("a", 9), ("b", 1)]
        assert retried(sink, batch(Row("a", 1, 1), Row("b", 1, 1)), [event(1)]) == RetryResult(gone=1)
        assert contents() == [("a", 1), ("a", 9), ("b", 1)]

    def test_an_appended_table_gets_only_the_rows_that_it_lacks(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        rows = (Row("a", 1, 1), Row("b", 2, 1), Row("c", 3, 1), Row("d", 4, 1))
        sink.apply(not_text(batch(*rows), 1, 3))
        assert [row[:3] for row in listed(sink)] == [("0", 1, 1), ("0", 1, 3)]
        # The last is as bad as before, and is where it was.
        again = retried(sink, not_text(batch(*rows), 3), [event(1)])
        assert again == RetryResult(applied=1, rejected=1)
        assert contents() == [("a", 1), ("b", 2), ("c", 3)]
        assert [row[:3] for row in listed(sink)] == [("0", 1, 3)]
        # Of fewer rows nobody can tell which is missing.
        assert retried(sink, batch(*rows[:3]), [event(1)]) == RetryResult(rejected=1)
        assert retried(sink, batch(rejected=[Row("?", 0, 1)]), [event(1)]) == RetryResult(rejected=1)
        assert retried(sink, batch(*rows), [event(1)]) == RetryResult(applied=1)
        assert contents() == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]

    def test_what_fails_again_stays_with_its_body_and_the_new_reason(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, 1), Row("?", 0, 2)]))
        again = with_null_keys(batch(Row("b", 1, 1), Row("c", 1, 1), rejected=[Row("?", 0, 2)]), 1)
        assert again.rejected is not None
        worse = pa.array(["worse"], pa.string())
        place = again.rejected.schema.get_field_index("reason")
        again = replace(again, rejected=again.rejected.set_column(place, "reason", worse))
        assert retried(sink, again, [event(1), event(2)]) == RetryResult(applied=1, rejected=2)
        first, second = sink.rejected_rows.rows(ALL, 9)
        assert (first.body, first.source, first.place) == (b"?", "{}", 0)
        assert first.reason != "not JSON"
        assert (second.body, second.reason) == (b"?", "worse")
        assert retried(sink, batch(Row("b", 1, 1), Row("c", 2, 1)), [event(1)]) == RetryResult(applied=2)

    def test_what_is_filtered_now_is_no_longer_rejected(self, open_table: Open, contents: Contents) -> None:
        for spec in (UPSERT, replace(APPEND, name="others")):
            sink = open_table(spec)
            sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, 1)]))
            assert retried(sink, batch(), [event(1)]) == RetryResult(filtered=1)
            assert listed(sink) == []
        assert contents() == [("a", 1)]

    def test_events_that_are_going_to_be_read_again_are_left_alone(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 3), rejected=[Row("?", 0, 4)], ranges=[read(0, 10)]))
        sink.set_watermarks(HUB, {"0": Watermark(3, 2, whole=True)})
        assert retried(sink, batch(Row("b", 1, 4)), [event(4)]) == RetryResult(unread=1)
        assert (contents(), len(listed(sink))) == ([("a", 1)], 1)
        sink.apply(batch(Row("b", 1, 4, level=2), ranges=[read(4, 5, level=2)]))
        assert retried(sink, batch(Row("b", 2, 4)), [event(4)]) == RetryResult(gone=1)
        assert contents() == [("a", 1), ("b", 1)]

    def test_events_that_are_not_rejected_are_left_alone(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 3)))
        assert retried(sink, batch(Row("a", 2, 3)), [event(3)]) == RetryResult(gone=1)
        assert contents() == [("a", 1)]

    def test_another_order_is_refused_with_nothing_changed(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(ORDERED)
        sink.apply(batch(Row("a", 1, 3), rejected=[Row("?", 0, 1)], by_version=True))
        with pytest.raises(ConfigError):
            retried(open_table(replace(ORDERED, sequence_by=None)), batch(Row("b", 2, 1)), [event(1)])
        assert (contents(), len(listed(sink))) == ([("a", 1)], 1)

    # dropped

    def test_what_is_dropped_is_noted_with_the_reason(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, number) for number in (1, 2, 3)]))
        rows = sink.rejected_rows.rows(ALL, 2)
        with pytest.raises(ConfigError):
            sink.rejected_rows.drop(rows, " ")
        assert sink.rejected_rows.drop(rows, "test data") == 2
        assert sink.rejected_rows.drop(rows, "again") == 0
        assert listed(sink) == [("0", 3, 0, "not JSON")]
        noted = open_table(UPSERT).rejected_rows.dropped(9)
        assert [(one.event, one.place, one.reason, one.dropped_for) for one in noted] == [
            (event(2), 0, "not JSON", "test data"),
            (event(1), 0, "not JSON", "test data"),
        ]
        assert {one.rejected_at for one in noted} == {rows[0].rejected_at}
        assert len(sink.rejected_rows.dropped(1)) == 1
        assert open_table(replace(UPSERT, name="others")).rejected_rows.dropped(9) == []

    def test_what_was_rejected_anew_since_it_was_listed_is_not_dropped(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, 1)]))
        rows = sink.rejected_rows.rows(ALL, 9)
        while sink.rejected_rows.rows(ALL, 9) == rows:  # the sink's clock may not have gone on
            assert retried(sink, batch(rejected=[Row("?", 0, 1)]), [event(1)]).rejected == 1
        assert sink.rejected_rows.drop(rows, "seen") == 0
        assert len(listed(sink)) == 1

    # many at once

    def test_many_try_the_same_events_beside_batches_and_each_counts_once(
        self, open_table: Open, contents: Contents
    ) -> None:
        sink = open_table(APPEND)
        numbers = range(20)
        sink.apply(batch(rejected=[Row("?", 0, number) for number in numbers], ranges=[read(0, 20)]))

        def try_all(_: int) -> int:
            mine = open_table(APPEND)
            results = [retried(mine, batch(Row("r", number, number)), [event(number)]) for number in numbers]
            mine.close()
            return sum(one.applied for one in results)

        def apply_more(_: int) -> int:
            mine = open_table(APPEND)
            results = [mine.apply(batch(Row("b", n, n), ranges=[read(n, n + 1)])) for n in range(20, 40)]
            mine.close()
            return sum(one.applied for one in results)

        jobs: Sequence[Callable[[int], int]] = (try_all, try_all, try_all, apply_more)
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(lambda job: job(0), jobs)) == 40
        assert contents() == sorted([*(("r", n) for n in numbers), *(("b", n) for n in range(20, 40))])


def not_text(batch: Batch, *places: int) -> Batch:
    """The batch with values of `entity` that are not UTF-8 in these rows, which no table can store as text."""
    values = [value.encode() for value in batch.rows["entity"].to_pylist()]
    for place in places:
        values[place] = b"\xff"
    column = pa.array(values, pa.binary())
    text = pa.StringArray.from_buffers(len(column), *column.buffers()[1:])
    return replace(batch, rows=batch.rows.set_column(0, "entity", text))
