"""A table that goes back while it is written: a copy moved over its file, a database restored. No event is left out."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import EventsMissing
from leasehold.sinks.rules.fence import Range, SeenMarks, Watermark, plan
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch, look
from tests.sinks.postgres import FLIGHTS, Place


def events(begin: int, end: int, level: int = 1) -> list[E]:
    return [E(str(number), number=number, level=level) for number in range(begin, end)]


def moved_over(path: Path, copy: Path) -> None:
    """As somebody does who restores a backup: the file and what SQLite keeps beside it."""
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    copy.rename(path)


@pytest.mark.parametrize("way", ["moved over", "restored in place"])
def test_a_copy_in_place_of_the_open_file_is_noticed_where_batches_have_no_ranges(tmp_path: Path, way: str) -> None:
    path, copy = tmp_path / "t.db", tmp_path / "copy.db"
    table = SqliteSink(path, FLIGHTS)
    table.apply(batch(events(0, 100)))
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(copy)) as other:
        connection.backup(other)
    table.apply(batch(events(100, 600)))
    if way == "moved over":
        moved_over(path, copy)
    else:
        with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(copy)) as other:
            other.backup(connection)
    for _ in range(2):
        with pytest.raises(EventsMissing, match=r"begins at event 600.*no event behind 99: \[100, 600\).*folder"):
            table.apply(batch(events(600, 700)))
    assert table.row_count() == 100
    assert table.apply(batch(events(100, 700))) == one_row_each(applied=600), "whoever reads them again"
    assert table.apply(batch(events(700, 800))).applied == 100
    assert look(path, "SELECT count(*) FROM flights") == [(800,)]
    table.close()


def test_who_has_only_read_where_the_table_is_notices_too(tmp_path: Path) -> None:
    path, copy = tmp_path / "t.db", tmp_path / "copy.db"
    writer, table = SqliteSink(path, FLIGHTS), SqliteSink(path, FLIGHTS)
    writer.apply(batch(events(0, 10)))
    writer.close()
    shutil.copy(path, copy)
    writer.apply(batch(events(10, 20)))
    writer.close()
    assert table.watermarks("h")["0"].sequence_number == 19
    moved_over(path, copy)
    with pytest.raises(EventsMissing, match=r"\[10, 20\)"):
        table.apply(batch(events(20, 30)))
    table.close()


def test_a_file_that_is_moved_away_and_back_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    table = SqliteSink(path, FLIGHTS)
    table.apply(batch(events(0, 10)))
    table.close()
    shutil.copy(path, tmp_path / "copy.db")
    moved_over(path, tmp_path / "copy.db")
    assert table.apply(batch(events(15, 20))).applied == 5, "events 10 to 14 were filtered"
    table.close()


def test_a_database_that_was_restored_is_noticed_where_batches_have_no_ranges(place: Place) -> None:
    """As after a fail-over to a standby that had fallen behind."""
    table = place.sink(FLIGHTS)
    table.apply(batch(events(0, 600)))
    place.run("DELETE FROM flights WHERE tail::int > 99", "UPDATE leasehold_watermark SET sequence_number = 99")
    with pytest.raises(EventsMissing, match=r"\[100, 600\)"):
        table.apply(batch(events(600, 700)))
    place.run("DELETE FROM leasehold_watermark")
    with pytest.raises(EventsMissing, match=r"\[0, 600\)"):
        table.apply(batch(events(600, 700)))
    table.close()


def test_a_reset_is_no_way_back(place: Place) -> None:
    """It raises the level, whoever runs it; and one by the table itself is known to it."""
    table, other = place.sink(FLIGHTS), place.sink(FLIGHTS)
    table.apply(batch(events(0, 100)))
    other.set_watermarks("h", {"0": Watermark(49, 3)})
    assert table.apply(batch(events(55, 60, 3))).applied == 5
    table.set_watermarks("h", {"0": Watermark(19, 3)})
    assert table.apply(batch(events(25, 30, 3))).applied == 5
    for one in (table, other):
        one.close()


def test_what_is_seen_never_goes_back_by_itself() -> None:
    """Of two threads the later one may note first."""
    lane, seen = ("h", "0"), SeenMarks()
    seen.note({lane: Watermark(20, 2)})
    for earlier in (Watermark(10, 2), Watermark(15, 1)):
        seen.note({lane: earlier})
    assert seen.lost({lane: Watermark(19, 2)}) == {lane}
    assert seen.lost({lane: Watermark(20, 2)}) == seen.lost({lane: Watermark(0, 3)}) == set()
    assert seen.lost({}) == {lane}
    made = plan({}, [Range("h", "0", 2, 0, 9), Range("h", "0", 2, 10, 19)], {lane})
    assert (made.gaps, made.watermarks[lane].sequence_number) == ((), 19)
    seen.forget([lane])
    assert seen.lost({}) == set()
