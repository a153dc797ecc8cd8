"""Batches that say what was read whole: filtered rows, rows of another batch, and events that would be missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import EventsMissing, OwnerLevelWentBack, StaleBatch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import RefusedRange
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import SCHEMA, E, batch, look, look_rejected, sink
from tests.sinks.ranges import of, read
from tests.sinks.streams import campaign, fresh


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


def test_watermarks_move_to_the_end_of_what_was_read(path: Path) -> None:
    table = sink(path)
    some = of([read(0, 10), read(5, 9, 3, "1")], [E("a", number=2), E("b", number=4)], [E("?", number=7)])
    assert table.apply(some) == one_row_each(applied=2, rejected=1, filtered=11)
    assert table.watermarks("h") == {"0": Watermark(9, 1, True), "1": Watermark(8, 3, True)}
    assert table.apply(some) == one_row_each(replayed=3, filtered=11)


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_batch_of_which_nothing_is_left_moves_them_too(path: Path, seen_before: bool) -> None:
    table = sink(path)
    if seen_before:
        table.apply(of([read(0, 10)], [E("a")]))
    assert table.apply(of([read(0, 10), read(10, 20, 2)], [])) == one_row_each(filtered=20)
    assert sink(path).watermarks("h") == {"0": Watermark(19, 2, True)}


def test_a_former_owners_batch_is_refused_also_with_nothing_left_of_it(path: Path) -> None:
    table = sink(path)
    table.apply(of([read(0, 10, 3)], []))
    late = of([read(10, 20, 2), read(0, 1, 1, "1")], [])
    assert table.apply(late).refused_ranges == (RefusedRange("h", "0", 2, 3, 0),)
    assert table.watermarks("h") == {"0": Watermark(9, 3, True), "1": Watermark(0, 1, True)}
    with pytest.raises(OwnerLevelWentBack):
        table.apply(late, lambda hub, partition: 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (E("a", number=10), r"1 of partition 0, from event 10 to 10, read at owner level 1.*\[0, 10\) at level 1"),
        (E("a", number=25), "from event 25 to 25"),
        (E("a", number=3, level=2), "read at owner level 2"),
        (E("a", number=3, partition="1"), "partition 1.*the batch has read nothing"),
        (E("a", number=3, hub="g"), "partition 0.*the batch has read nothing"),
    ],
)
@pytest.mark.parametrize("parsed", [True, False])
def test_rows_of_another_batch_are_refused_with_nothing_written(path: Path, given: E, words: str, parsed: bool) -> None:
    table = sink(path)
    table.apply(of([read(0, 1)], []))
    good, bad = ([E("b", number=2), given], []) if parsed else ([E("b", number=2)], [given])
    with pytest.raises(StaleBatch, match=rf"{words}.*Nothing of it was applied.*batch\.events of this very batch"):
        table.apply(of([read(0, 10), read(20, 25)], good, bad))
    assert table.watermarks("h") == {"0": Watermark(0, 1, True)}
    assert look(path) == look_rejected(path) == []


def test_ranges_of_one_partition_may_follow_one_another_and_overlap(path: Path) -> None:
    table = sink(path, "append")
    events = [E(str(number), number=number) for number in range(12)]
    them = [read(8, 12), read(0, 4), read(4, 9)]
    assert table.apply(of(them, events)) == one_row_each(applied=12, filtered=1), "event 8 was read twice"
    assert [row[0] for row in look(path)] == [str(number) for number in range(12)]


def test_a_table_restored_from_an_older_copy_is_noticed_and_repaired(path: Path, tmp_path: Path) -> None:
    def events(begin: int, end: int, level: int = 1) -> list[E]:
        return [E(str(number), number=number, level=level) for number in range(begin, end) if number % 3]

    table = sink(path, "append")
    table.apply(of([read(0, 10), read(0, 5, 1, "1")], events(0, 10)))
    table.close()
    shutil.copy(path, tmp_path / "copy.db")
    sink(path, "append").apply(of([read(10, 20)], events(10, 20)))

    old = sink(tmp_path / "copy.db", "append")
    with pytest.raises(EventsMissing, match=r"\[10, 20\).*restored from an older copy") as error:
        old.apply(of([read(5, 9, 1, "1"), read(20, 30)], events(20, 30)))
    assert "--to sink" in str(error.value)
    assert old.watermarks("h") == {"0": Watermark(9, 1, True), "1": Watermark(4, 1, True)}
    assert old.row_count() == 6
    for begin in (10, 20):
        old.apply(of([read(begin, begin + 10, 2)], events(begin, begin + 10, 2)))
    assert [row[0] for row in look(tmp_path / "copy.db")] == [each.tail for each in events(0, 30)]


def test_what_is_left_out_on_purpose_and_a_new_partition_are_no_gap(path: Path) -> None:
    table = sink(path)
    table.apply(of([read(0, 10), read(500, 510, partition="1")], []))
    table.apply(of([read(70, 80, left_out_from=10)], [E("a", number=71)]))
    assert table.watermarks("h") == {"0": Watermark(79, 1, True), "1": Watermark(509, 1, True)}


def test_after_a_writer_that_gave_no_ranges_the_next_one_is_taken_as_it_comes(path: Path) -> None:
    table = sink(path)
    table.apply(of([read(0, 10)], []))
    table.apply(batch([E("a", number=12)]))  # events 13 to 19 were filtered
    assert table.watermarks("h") == {"0": Watermark(12, 1)}
    table.apply(of([read(20, 30)], [E("b", number=22)]))
    with pytest.raises(EventsMissing):
        table.apply(of([read(31, 40)], []))
    assert table.watermarks("h") == {"0": Watermark(29, 1, True)}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("left", [[], [E("x", partition="1")]])
def test_such_a_writer_may_have_filtered_all_events_of_a_partition(path: Path, left: list[E], checked: bool) -> None:
    """Then it leaves nothing of that partition, and maybe nothing at all: but no watermark is whole any more."""
    sink(path).apply(of([read(0, 10)], []))
    other = sink(path)
    if checked:
        other.check(SCHEMA)
    other.apply(batch(left))
    assert other.watermarks("h")["0"] == Watermark(9, 1)
    sink(path).apply(of([read(20, 30)], []))


@campaign(25, 1000)
@given(
    kept=st.sets(st.integers(0, 30)),
    delivered=st.lists(
        st.tuples(st.integers(0, 24), st.integers(0, 6), st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=8
    ),
)
def test_whatever_is_brought_the_table_holds_what_a_filter_has_left_of_all_events_up_to_the_watermark(
    kept: set[int], delivered: list[tuple[int, int, int, int]]
) -> None:
    """Most ranges begin near the watermark: replays, gaps and followers, of owners early and late."""
    with fresh("append") as (path, table):
        table.apply(of([read(0, 0)], []))
        mark, highest = -1, 1
        for begin, size, level, near in delivered:
            first = begin if near == 0 else max(0, mark + near - 1)
            it = read(first, first + size, level)
            some = of([it], [E(f"{n}", number=n, level=level) for n in range(it.begin, it.end) if n in kept])
            if level >= highest and first > mark + 1:
                with pytest.raises(EventsMissing):
                    table.apply(some)
            else:
                table.apply(some)
                if level >= highest:
                    mark, highest = max(mark, it.end - 1), level
            assert table.watermarks("h") == {"0": Watermark(mark, highest, True)}
            assert [int(row[0]) for row in look(path)] == sorted(n for n in kept if n <= mark)
