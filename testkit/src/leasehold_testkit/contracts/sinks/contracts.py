"""The contract of sinks, as tests: at least one for each sentence of `leasehold.sinks.base`.

A sink is done when it passes. Subclass the class in a test module and give it three fixtures: `open_table` opens a
table in a database that is empty when the test begins, `contents` reads the table `entities`, and `set_aside` its
rejected events:

    class TestMySink(SinkContract):
        @pytest.fixture
        def open_table(self, database): return lambda spec: MySink(database, spec)

        @pytest.fixture
        def contents(self, database):
            return lambda: database.query("SELECT entity, value FROM entities ORDER BY entity, value")

        @pytest.fixture
        def set_aside(self, database):
            return lambda: database.query("SELECT partition, sequence_number FROM entities_rejected ORDER BY 1, 2")

A sink says in `features` what it does beside (`leasehold.sinks.features`), and has all methods of what it says. Each
of the other suites is about some features, and is skipped for a sink that does not say them, as is a test here.

The rules of the fence and of the order have tests of their own, without a database; here each is asked once, to see
that the sink acts on it. What a database does with its types and constraints is the sink's own to test.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pyarrow as pa
import pytest

from leasehold.errors import (
    AlreadyInUse,
    ConfigError,
    EventsMissing,
    KeyFromTwoPartitions,
    OwnerLevelWentBack,
    SchemaMismatch,
    StaleBatch,
    UsageError,
)
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.base import Sink, TableContents
from leasehold.sinks.features import ALL, EVOLUTION
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, RefusedRange, TableSpec
from leasehold_testkit.contracts.sinks.fixtures import (
    APPEND,
    HUB,
    ORDERED,
    UPSERT,
    Row,
    SinkFixtures,
    asked,
    batch,
    compared,
    one_row_each,
    read,
    table_of,
)
from leasehold_testkit.contracts.sinks.methods import wrong_with

Open = Callable[[TableSpec], Sink]
Contents = Callable[[], list[tuple[str, int]]]


class SinkContract(SinkFixtures):
    """What every `Sink` must do."""

    # what it says

    def test_it_has_all_methods_of_the_features_that_it_says(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        assert sink.features <= ALL
        protocols = {Sink, *(feature.protocol for feature in sink.features)}
        found = [what for protocol in protocols for what in wrong_with(sink, protocol)]
        assert found == [], "; ".join(found)

    # apply

    def test_rows_and_watermarks_change_together(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        result = sink.apply(batch(Row("a", 1, 3), Row("b", 2, 4), Row("c", 3, 0, "1", 2)))
        assert result == one_row_each(applied=3)
        assert contents() == [("a", 1), ("b", 2), ("c", 3)]
        assert sink.watermarks(HUB) == {"0": Watermark(4, 1), "1": Watermark(0, 2)}
        assert sink.watermarks("another") == {}
        assert sink.row_count() == 3

    def test_how_much_it_holds_is_told_and_nothing_is_made_for_it(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        assert sink.contents() == TableContents(0, 0)
        sink.apply(batch(Row("a", 1, 3), Row("b", 2, 4)))
        assert sink.contents() == TableContents(2, 0)

    def test_what_was_applied_is_there_for_others(self, open_table: Open, contents: Contents) -> None:
        first = open_table(UPSERT)
        first.apply(batch(Row("a", 1, 0)))
        first.close()
        second = open_table(UPSERT)
        assert (contents(), second.watermarks(HUB)) == ([("a", 1)], {"0": Watermark(0, 1)})

    @pytest.mark.parametrize("level", [1, 7])
    def test_a_batch_that_comes_again_changes_nothing(self, open_table: Open, contents: Contents, level: int) -> None:
        open_table(APPEND).apply(batch(Row("a", 1, 0), Row("a", 2, 1)))
        again = batch(Row("a", 1, 0, level=level), Row("a", 2, 1, level=level))
        assert open_table(APPEND).apply(again) == one_row_each(replayed=2)
        assert contents() == [("a", 1), ("a", 2)]

    def test_of_a_batch_cut_otherwise_the_new_events_count(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 0, 0), Row("a", 1, 1)))
        assert sink.apply(batch(*(Row("a", n, n, level=2) for n in range(4)))) == one_row_each(applied=2, replayed=2)
        assert contents() == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]

    def test_a_former_owners_range_is_dropped(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 0, 0, level=3)))
        late = batch(Row("z", 9, 1, level=2), Row("b", 1, 0, "1"))
        result = sink.apply(late, lambda hub, partition: 3)
        assert result == one_row_each(applied=1, refused_ranges=(RefusedRange(HUB, "0", 2, 3, 1),))
        assert contents() == [("a", 0), ("b", 1)]

    def test_levels_that_went_back_are_refused_until_a_reset(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 0, 0, level=3)))
        with pytest.raises(OwnerLevelWentBack):
            sink.apply(batch(Row("z", 9, 1, level=2), Row("b", 1, 0, "1")), lambda hub, partition: 2)
        assert contents() == [("a", 0)]
        assert open_table(APPEND).watermarks(HUB) == {"0": Watermark(0, 3, disputed=True)}
        with pytest.raises(OwnerLevelWentBack):
            open_table(APPEND).apply(batch(Row("z", 9, 1, level=8)), lambda hub, partition: 8)
        with pytest.raises(OwnerLevelWentBack):
            open_table(APPEND).apply(batch(Row("z", 9, 1, level=8)))
        sink.set_watermarks(HUB, {"0": Watermark(0, 9)})
        assert sink.apply(batch(Row("b", 1, 1, level=9))).applied == 1

    def test_without_anybody_to_ask_it_is_dropped(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 0, 0, level=3)))
        assert sink.apply(batch(Row("z", 9, 1, level=2))).refused == 1
        assert contents() == [("a", 0)]

    def test_the_last_event_of_a_key_counts(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 2, 1), Row("b", 5, 2), Row("a", 1, 0)))
        assert contents() == [("a", 2), ("b", 5)]
        sink.apply(batch(Row("a", 3, 3)))
        assert contents() == [("a", 3), ("b", 5)]

    def test_a_key_from_two_partitions_is_refused(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0)))
        with pytest.raises(KeyFromTwoPartitions):
            sink.apply(batch(Row("b", 1, 1), Row("a", 2, 0, "1")))
        assert (contents(), sink.watermarks(HUB)) == ([("a", 1)], {"0": Watermark(0, 1)})

    def test_the_higher_sequence_by_wins_whatever_comes_first(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(ORDERED)
        sink.apply(batch(Row("a", 2, 0, version=7), by_version=True))
        late = batch(Row("a", 1, 0, "1", version=6), Row("b", 1, 1, "1", version=1), by_version=True)
        assert sink.apply(late) == one_row_each(applied=1, superseded=1)
        assert contents() == [("a", 2), ("b", 1)]

    def test_a_deleted_entity_is_gone_and_remembered(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(ORDERED)
        sink.apply(batch(Row("a", 1, 0, version=1), by_version=True, deletes=True))
        sink.apply(batch(Row("a", 2, 1, version=5, gone=True), by_version=True, deletes=True))
        assert contents() == []
        older = batch(Row("a", 3, 0, "1", version=4), by_version=True, deletes=True)
        assert open_table(ORDERED).apply(older) == one_row_each(superseded=1)
        assert contents() == []

    def test_rejected_events_are_under_the_same_watermark(self, open_table: Open, set_aside: Contents) -> None:
        sink = open_table(UPSERT)
        some = batch(Row("a", 1, 0), rejected=[Row("?", 0, 1)])
        assert sink.apply(some) == one_row_each(applied=1, rejected=1)
        assert sink.watermarks(HUB) == {"0": Watermark(1, 1)}
        assert sink.apply(some) == one_row_each(replayed=2)
        assert set_aside() == [("0", 1)]

    # ranges that were read whole

    def test_a_watermark_moves_to_the_end_of_what_was_read(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 2), ranges=[read(0, 10), read(5, 9, level=3, partition="1")]))
        assert sink.watermarks(HUB) == {"0": Watermark(9, 1, whole=True), "1": Watermark(8, 3, whole=True)}
        assert sink.apply(batch(ranges=[read(10, 20)])) == one_row_each(filtered=10)
        assert sink.watermarks(HUB)["0"] == Watermark(19, 1, whole=True)

    def test_a_watermark_has_the_time_of_its_own_event_or_none(self, open_table: Open) -> None:
        """A sink that keeps no times may go on; one that keeps them tells no other event's."""
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 2), ranges=[replace(read(0, 10), enqueued_time=100.5)]))
        assert sink.watermarks(HUB)["0"].enqueued_time in (100.5, None)
        sink.apply(batch(Row("a", 1, 12), ranges=[read(10, 20)]))
        assert sink.watermarks(HUB)["0"].enqueued_time is None
        sink.apply(batch(ranges=[replace(read(0, 20), enqueued_time=90.5)]))
        assert sink.watermarks(HUB)["0"].enqueued_time is None

    def test_rows_of_another_batch_are_refused(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        with pytest.raises(StaleBatch):
            sink.apply(batch(Row("a", 1, 2), Row("b", 1, 10), ranges=[read(0, 10)]))
        assert (sink.row_count(), sink.watermarks(HUB)) == (0, {})

    def test_a_gap_behind_the_watermark_is_refused(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 2), ranges=[read(0, 10)]))
        with pytest.raises(EventsMissing):
            sink.apply(batch(Row("b", 1, 12), ranges=[read(11, 20), read(0, 5, partition="1")]))
        assert (contents(), sink.watermarks(HUB)) == ([("a", 1)], {"0": Watermark(9, 1, whole=True)})

    # the table

    def test_a_batch_that_does_not_say_its_events_is_refused(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        with pytest.raises(SchemaMismatch):
            sink.apply(Batch(table_of([Row("a", 1, 0)]).drop_columns(["ownerLevel"])))
        assert sink.watermarks(HUB) == {}

    def test_check_makes_the_table_and_refuses_what_does_not_fit(self, open_table: Open, contents: Contents) -> None:
        schema = table_of([]).schema
        assert open_table(UPSERT).row_count() == 0
        open_table(UPSERT).check(schema)
        assert contents() == []
        open_table(UPSERT).check(schema)
        with pytest.raises(SchemaMismatch):
            open_table(UPSERT).check(schema.append(pa.field("another", pa.int64())))

    def test_compare_makes_and_changes_nothing(self, open_table: Open, contents: Contents) -> None:
        sink, schema = open_table(UPSERT), table_of([]).schema
        assert not compared(sink, None).there
        assert not compared(sink, schema).there
        assert sink.recorded_identity() is None
        with pytest.raises(SchemaMismatch):
            sink.compare(schema.remove(schema.get_field_index("entity")))
        assert sink.row_count() == 0
        sink.apply(batch(Row("a", 1, 0)))
        assert compared(sink, None).there
        assert compared(sink, schema).there
        assert sink.recorded_identity() == sink.identity()
        for call in (sink.compare, sink.check):
            with pytest.raises(SchemaMismatch):
                call(schema.append(pa.field("another", pa.int64())))
        with pytest.raises(ConfigError):
            open_table(ORDERED).compare(None)
        assert (contents(), sink.watermarks(HUB)) == ([("a", 1)], {"0": Watermark(0, 1)})

    def test_new_columns_are_added_beside_writers_that_do_not_know_them(
        self, open_table: Open, contents: Contents, caplog: pytest.LogCaptureFixture
    ) -> None:
        """For a sink with the feature EVOLUTION."""
        old, new = open_table(UPSERT), open_table(replace(UPSERT, schema_evolution="add"))
        asked(new, EVOLUTION)
        old.apply(batch(Row("a", 1, 0), Row("b", 1, 1)))
        wider = batch(Row("b", 2, 2), Row("c", 2, 3))
        wider = replace(wider, rows=wider.rows.append_column("note", pa.array(["x", "y"])))
        assert compared(new, wider.rows.schema).there
        (column,) = compared(new, wider.rows.schema).added
        assert "note" in column
        for call in (old.compare, old.check):  # nothing has been changed so far
            with pytest.raises(SchemaMismatch, match='schema_evolution = "add"'):
                call(wider.rows.schema)
        with pytest.raises(SchemaMismatch):  # nothing tells its type
            new.check(wider.rows.schema.append(pa.field("nothing", pa.null())))
        with caplog.at_level("INFO", "leasehold.sinks"):
            assert new.apply(wider) == one_row_each(applied=2)
        assert [column in record.getMessage() for record in caplog.records] == [True]
        assert compared(new, wider.rows.schema).added == ()
        assert new.advice() == ()  # of a table with a row
        assert old.apply(batch(Row("a", 3, 4), Row("b", 3, 5), Row("d", 3, 6))) == one_row_each(applied=3)
        assert contents() == [("a", 3), ("b", 3), ("c", 2), ("d", 3)]
        assert open_table(UPSERT).apply(replace(wider, rows=wider.rows.slice(1))) == one_row_each(replayed=1)

    def test_of_many_that_add_the_same_columns_all_go_on(self, open_table: Open, contents: Contents) -> None:
        """For a sink with the feature EVOLUTION."""
        spec = replace(APPEND, schema_evolution="add")
        asked(open_table(spec), EVOLUTION)
        open_table(APPEND).apply(batch(Row("a", 0, 0)))
        start = Barrier(4)

        def write(number: int) -> BatchResult:
            sink, mine = open_table(spec), batch(Row("a", number, 0, str(number)))
            rows = mine.rows.append_column("note", pa.array(["x"])).append_column("other", pa.array([1.5]))
            start.wait(120)
            return sink.apply(replace(mine, rows=rows))

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(write, range(1, 5))) == [one_row_each(applied=1)] * 4
        assert contents() == [("a", number) for number in range(5)]

    def test_another_sequence_by_is_refused(self, open_table: Open) -> None:
        open_table(ORDERED).apply(batch(Row("a", 1, 0), by_version=True))
        with pytest.raises(ConfigError):
            open_table(replace(ORDERED, sequence_by="value")).check(table_of([]).schema)
        with pytest.raises(ConfigError):
            open_table(ORDERED).apply(batch(Row("b", 1, 1), by_version=True, deletes=True))
        assert open_table(ORDERED).watermarks(HUB) == {"0": Watermark(0, 1)}

    def test_the_table_keeps_its_identity_and_its_pipeline(self, open_table: Open) -> None:
        identity = open_table(UPSERT).identity()
        assert identity
        assert open_table(UPSERT).identity() == identity
        assert open_table(replace(UPSERT, name="others")).identity() != identity
        open_table(UPSERT).apply(batch(Row("a", 1, 0)))
        with pytest.raises(AlreadyInUse):
            open_table(replace(UPSERT, pipeline="another")).apply(batch(Row("b", 1, 1)))

    def test_it_may_be_used_after_close(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0)))
        sink.close()
        sink.close()
        assert sink.apply(batch(Row("b", 1, 1))).applied == 1
        assert replace(sink.spec, schema="") == UPSERT

    # watermarks by themselves

    def test_announced_levels_fence_and_never_go_back(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 0, 0)))
        raised = sink.raise_owner_levels(HUB, {"0": 4, "1": 2})
        assert raised == {"0": Watermark(0, 4), "1": Watermark(BEFORE_FIRST, 2)}
        assert sink.apply(batch(Row("z", 9, 1))).refused == 1
        with pytest.raises(UsageError):
            sink.raise_owner_levels(HUB, {"1": 9, "0": 3})
        assert open_table(APPEND).watermarks(HUB) == raised
        assert contents() == [("a", 0)]

    def test_a_lowered_watermark_lets_events_in_again(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0), Row("b", 1, 1)))
        lower = {"0": Watermark(0, 2, whole=True)}
        sink.check_watermarks(HUB, lower)
        assert sink.watermarks(HUB) == {"0": Watermark(1, 1)}
        sink.set_watermarks(HUB, lower)
        assert (contents(), sink.watermarks(HUB)) == ([("a", 1), ("b", 1)], lower)
        assert sink.apply(batch(Row("b", 2, 1, level=2))).applied == 1
        assert contents() == [("a", 1), ("b", 2)]

    def test_a_watermark_that_is_not_named_stays(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0), Row("b", 1, 0, "1")))
        back = {"1": Watermark(BEFORE_FIRST, 2, whole=True)}
        sink.check_watermarks(HUB, back, is_part=True)
        sink.set_watermarks(HUB, back)
        assert sink.watermarks(HUB) == {"0": Watermark(0, 1), **back}
        assert sink.apply(batch(Row("a", 2, 0), Row("b", 2, 0, "1", 2))).applied == 1
        assert contents() == [("a", 1), ("b", 2)]

    def test_no_watermark_is_set_below_a_level_that_has_been(self, open_table: Open) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 5, level=3), Row("b", 1, 5, "1")))
        marks = {"1": Watermark(0, 9), "0": Watermark(0, 2)}
        for call in (sink.check_watermarks, sink.set_watermarks):
            with pytest.raises(UsageError):
                call(HUB, marks)
        assert sink.watermarks(HUB) == {"0": Watermark(5, 3), "1": Watermark(5, 1)}

    def test_an_appended_table_never_holds_an_event_twice(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(APPEND)
        sink.apply(batch(Row("a", 0, 0), Row("a", 1, 1)))
        for call in (sink.check_watermarks, sink.set_watermarks):
            with pytest.raises(UsageError):
                call(HUB, {"0": Watermark(0, 2)})
        assert sink.watermarks(HUB) == {"0": Watermark(1, 1)}

    def test_read_anew_forgets_what_was_known_of_keys(self, open_table: Open, contents: Contents) -> None:
        sink = open_table(UPSERT)
        sink.apply(batch(Row("a", 1, 0)))
        sink.set_watermarks(HUB, {"0": Watermark(BEFORE_FIRST, 2), "1": Watermark(BEFORE_FIRST, 2)}, anew=True)
        assert contents() == [("a", 1)]
        assert sink.apply(batch(Row("a", 2, 0, "1", 2))).applied == 1
        assert contents() == [("a", 2)]

    # many at once

    def test_many_apply_the_same_batches_and_each_event_counts_once(self, open_table: Open, contents: Contents) -> None:
        open_table(APPEND).check(table_of([]).schema)
        rows = [Row(partition, number, number, partition) for partition in ("0", "1") for number in range(40)]

        def apply_in_pieces(size: int) -> int:
            sink = open_table(APPEND)
            ends = range(size, 40 + size, size)
            pieces = [[row for row in rows if end - size <= row.number < end] for end in ends]
            applied = sum(sink.apply(batch(*piece)).applied for piece in pieces)
            sink.close()
            return applied

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(apply_in_pieces, (3, 7, 10, 40))) == len(rows)
        assert contents() == sorted((row.entity, row.value) for row in rows)
