"""The contract of a sink that forgets, as tests: at least one for each rule of `sinks.beside.forgetting`.

Subclass it as `SinkContract`, with the fixtures `open_table`, `contents` and `set_aside`, for a sink with the feature
BOOKKEEPING.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.forgetting import Cleared, Forgotten, Retention
from leasehold.sinks.features import BOOKKEEPING, KeepsNotes
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import RetryResult, Selection
from leasehold_testkit.contracts.sinks.fixtures import (
    APPEND,
    HUB,
    ORDERED,
    UPSERT,
    Row,
    SinkFixtures,
    asked,
    batch,
    retried,
)
from leasehold_testkit.contracts.sinks.rejected import event

Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]
LATER = 10_000_000_000.0
"""A time at which all that the sink's own clock has marked is old, in seconds since 1970."""


def forgets(sink: Sink) -> KeepsNotes:
    """What the sink offers for forgetting."""
    return asked(sink, BOOKKEEPING)


def clear_all(sink: Sink, retention: Retention, now: float, at_most: int = 1000) -> tuple[int, int]:
    """Steps until there is no more; rejected rows and memories that were cleared."""
    rejected = memories = 0
    after = None
    while True:
        done = forgets(sink).clear(retention, now, after, at_most)
        rejected, memories, after = rejected + done.rejected, memories + done.memories, done.after
        if not done.more:
            return rejected, memories


class ForgettingContract(SinkFixtures):
    """What every sink must do that has the feature BOOKKEEPING."""

    of = (BOOKKEEPING,)

    # an entity

    def test_an_entity_leaves_neither_memory_nor_rejected_rows(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(ORDERED)
        sink.apply(batch(Row("a", 1, 0, version=9), Row("b", 1, 1, version=9), by_version=True))
        bodies = [b'{"entity": "a", "x": 1}', b'{"ENTITY": "b"}', b'["entity", "a"]', b"\xff", b'{"entity": ']
        some = batch(rejected=[Row("?", 0, number) for number in range(2, 7)], by_version=True)
        assert some.rejected is not None
        place = some.rejected.schema.get_field_index("body")
        sink.apply(replace(some, rejected=some.rejected.set_column(place, "body", pa.array(bodies, pa.binary()))))
        assert forgets(sink).forget_entity({"entity": "a"}) == Forgotten(memories=1, rejected=1)
        assert forgets(sink).forget_entity({"entity": "a"}) == Forgotten()
        left = [row.event.sequence_number for row in sink.rejected_rows.rows(Selection(), 9)]
        assert left == [3, 4, 5, 6]
        assert contents() == [("a", 1), ("b", 1)]  # the row is not the sink's to delete
        older = batch(Row("a", 2, 7, version=1), Row("b", 2, 8, version=1), by_version=True)
        assert sink.apply(older).superseded == 1
        assert contents() == [("a", 2), ("b", 1)]

    def test_a_table_without_keys_and_one_that_is_not_there_know_no_entity(self, open_table: Open) -> None:
        assert forgets(open_table(UPSERT)).forget_entity({"entity": "a"}) == Forgotten()
        sink = open_table(replace(APPEND, name="others"))
        sink.apply(batch(Row("a", 1, 0)))
        assert forgets(sink).forget_entity({}).memories == 0

    def test_a_key_of_more_digits_than_a_number_may_have(self, open_table: Open) -> None:
        sink, key = open_table(UPSERT), "12345678901234567890"
        sink.apply(batch(Row(key, 1, 0)))
        assert forgets(sink).forget_entity({"entity": key}) == Forgotten(memories=1)

    def test_the_row_of_a_key_that_is_forgotten_counts_by_its_own_value(
        self, open_table: Open, contents: Contents
    ) -> None:
        """Where `sequence_by` names a column: rule 6 of `remembered_order`."""
        sink = open_table(replace(UPSERT, sequence_by="value"))
        sink.apply(batch(*(Row(key, 5, number, version=5) for number, key in enumerate("abc")), by_version=True))
        for key in "abc":
            assert forgets(sink).forget_entity({"entity": key}).memories == 1
        late = [Row(key, value, 3 + value, version=value) for key, value in (("a", 4), ("b", 5), ("c", 6))]
        result = sink.apply(batch(*late, Row("d", 1, 10, version=1), by_version=True))
        assert (result.applied, result.superseded) == (3, 1)
        assert contents() == [("a", 5), ("b", 5), ("c", 6), ("d", 1)]

    # what is old

    def test_a_retention_from_before_there_were_years(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(rejected=[Row("?", 0, 1)]))
        assert forgets(sink).clear(Retention(rejected=1e12), 1_800_000_000.0) == Cleared()

    def test_without_a_retention_nothing_is_cleared(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0), rejected=[Row("?", 0, 1)]))
        assert forgets(sink).clear(Retention(), LATER) == Cleared()
        assert len(sink.rejected_rows.rows(Selection(), 9)) == 1

    def test_rejected_rows_are_cleared_in_steps_by_their_age(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, number) for number in range(5)]))
        sink.rejected_rows.drop(sink.rejected_rows.rows(Selection(), 1), "a test")
        assert forgets(sink).clear(Retention(rejected=1.0), 1.0) == Cleared()  # long before they were set aside
        assert forgets(sink).clear(Retention(rejected=1.0), LATER, None, 3) == Cleared(rejected=3, more=True)
        assert forgets(sink).clear(Retention(rejected=1.0), LATER, None, 3) == Cleared(rejected=1)
        assert sink.rejected_rows.rows(Selection(), 9) == []
        assert sink.rejected_rows.dropped(9) == []

    def test_what_was_dropped_of_another_table_is_not_cleared_with_it(self, open_table: Open) -> None:
        one, other = open_table(UPSERT), open_table(replace(UPSERT, name="other"))
        for sink in (one, other):
            sink.apply(batch(rejected=[Row("?", 0, 0)]))
            sink.rejected_rows.drop(sink.rejected_rows.rows(Selection(), 1), "a test")
        forgets(one).clear(Retention(rejected=1.0), LATER)
        assert [len(sink.rejected_rows.dropped(9)) for sink in (one, other)] == [0, 1]

    def test_memories_of_keys_are_cleared_by_when_their_last_event_was_applied(
        self, open_table: Open, contents: Contents
    ) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=100.0)
        sink.apply(batch(Row("a", 1, 0), Row("b", 1, 1)))
        assert clear_all(sink, retention, 0.0) == (0, 0)
        sink.apply(batch(Row("b", 2, 2), Row("c", 1, 3)))
        assert clear_all(sink, retention, 99.0) == (0, 0)
        assert clear_all(sink, retention, 101.0) == (0, 1)  # a: b and c were written since
        assert sink.apply(batch(Row("a", 5, 0, "1"))).applied == 1
        with pytest.raises(KeyFromTwoPartitions):
            sink.apply(batch(Row("b", 5, 1, "1")))
        assert contents() == [("a", 5), ("b", 2), ("c", 1)]
        assert clear_all(sink, retention, 250.0) == (0, 2)
        assert sink.apply(batch(Row("b", 5, 1, "1"))).applied == 1

    def test_tombstones_have_a_retention_of_their_own(self, open_table: Open, contents: Contents) -> None:
        sink, retention = open_table(ORDERED), Retention(tombstones=10.0)
        rows = (Row("a", 1, 0, version=5), Row("b", 1, 1, version=5), Row("b", 1, 2, version=6, gone=True))
        sink.apply(batch(*rows, by_version=True, deletes=True))
        clear_all(sink, retention, 0.0)
        assert clear_all(sink, retention, 20.0) == (0, 1)
        older = batch(Row("a", 9, 3, version=1), Row("b", 9, 4, version=1), by_version=True, deletes=True)
        assert sink.apply(older).superseded == 1
        assert contents() == [("a", 1), ("b", 9)]

    def test_without_a_time_the_clock_of_the_database_counts(self, open_table: Open) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=10_000.0)
        sink.apply(batch(Row("a", 1, 0)))
        assert forgets(sink).clear(retention) == Cleared()
        assert clear_all(sink, retention, time.time() + 5_000) == (0, 0)
        assert clear_all(sink, retention, time.time() + 15_000) == (0, 1)

    def test_a_clock_that_was_ahead_keeps_nothing_from_being_noted(self, open_table: Open) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=10.0)
        sink.apply(batch(Row("a", 1, 0)))
        for now in (LATER, 0.0):
            assert clear_all(sink, retention, now) == (0, 0)
        assert clear_all(sink, retention, 20.0) == (0, 1)

    def test_many_keys_are_looked_at_a_few_at_a_time(self, open_table: Open) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=10.0)
        sink.apply(batch(*(Row(f"{number:02}", 1, number) for number in range(20))))
        forgets(sink).clear(retention, 0.0)
        first = forgets(sink).clear(retention, 20.0, None, 8)
        assert (first.memories, first.more) == (8, True)
        assert first.after is not None
        assert clear_all(sink, retention, 20.0, 8) == (0, 12)

    def test_a_reset_makes_what_was_noted_void(self, open_table: Open) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=10.0)
        sink.apply(batch(Row("a", 1, 0), Row("b", 1, 5)))
        clear_all(sink, retention, 0.0)
        sink.set_watermarks(HUB, {"0": Watermark(-1, 2)})
        sink.apply(batch(Row("a", 1, 0, level=2), Row("b", 1, 5, level=2)))
        assert clear_all(sink, retention, 20.0) == (0, 0)
        assert clear_all(sink, retention, 40.0) == (0, 2)

    def test_what_is_tried_again_is_not_let_in_where_its_key_may_have_been_cleared(
        self, open_table: Open, contents: Contents
    ) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=10.0)
        sink.apply(batch(Row("a", 1, 3), Row("b", 1, 4), rejected=[Row("?", 0, 1), Row("?", 0, 2), Row("?", 0, 5)]))
        clear_all(sink, retention, 0.0)
        sink.apply(batch(Row("b", 2, 6)))
        assert clear_all(sink, retention, 20.0) == (0, 1)
        again = batch(Row("a", 9, 1), Row("b", 9, 2), Row("c", 9, 5))
        # a may have a later event, b has one; 5 is behind all that was cleared.
        assert retried(sink, again, [event(1), event(2), event(5)]) == RetryResult(1, 1, 1)
        assert contents() == [("a", 1), ("b", 2), ("c", 9)]
        (left,) = sink.rejected_rows.rows(Selection(), 9)
        assert (left.event, left.body) == (event(1), b"?")
        assert "may have been cleared" in left.reason

    def test_what_is_not_let_in_leaves_nothing_known_of_its_key(self, open_table: Open, contents: Contents) -> None:
        sink, retention = open_table(UPSERT), Retention(memories=10.0)
        sink.apply(batch(Row("a", 1, 3), rejected=[Row("?", 0, 1)]))
        clear_all(sink, retention, 0.0)
        sink.apply(batch(Row("b", 2, 6)))
        assert clear_all(sink, retention, 20.0) == (0, 1)
        assert retried(sink, batch(Row("a", 9, 1)), [event(1)]).applied == 0
        assert sink.apply(batch(Row("a", 8, 0, "1"))).applied == 1  # of another partition: nobody knows of a
        assert contents() == [("a", 8), ("b", 2)]
