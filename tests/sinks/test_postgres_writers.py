"""Many writers of one table in Postgres as processes: hot keys, one that is stopped, one that is killed anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psutil
import pytest

from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch, last_of_keys
from tests.sinks.postgres import FLIGHTS, Place
from tests.sinks.postgres_writer import (
    AT_ONCE,
    LAST,
    MADE,
    POINTS,
    SPEC,
    apply_killed,
    apply_plain,
    die_at,
    die_in_last,
    killed,
    plain,
    stop_at,
    write,
    written_by,
)
from tests.sinks.processes import FORKED, exit_code, killed_in, started
from tests.waiting import PATIENCE, until

LOOSE = "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer)"
ROWS = "SELECT tail, status, slot FROM flights ORDER BY 1"
KEYS = "SELECT key_1, number, gone FROM leasehold_key_flights ORDER BY 1"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def hot_keys(place: Place, made: str, names: Sequence[str], batches: int, keys: int, *, slots: bool) -> int:
    """Have writers with a partition each write the same keys at once. Returns how many deadlocks the server broke."""
    place.run(made)
    sink = place.sink(SPEC)
    sink.check(batch([]).rows.schema)
    [(before,)] = place.look(DEADLOCKS)
    told, tells = FORKED.Pipe(duplex=False)
    processes = [started(write, place.url, name, batches, keys, slots, tells) for name in names]
    assert [exit_code(process) for process in processes] == [0] * len(names)
    assert [told.recv() for _ in names] == [0] * len(names), "batches that were given up and tried again"
    marks = sink.watermarks("h")
    assert {name: mark.sequence_number for name, mark in marks.items()} == dict.fromkeys(names, batches * 40 - 1)
    sink.close()
    place.run("SELECT pg_stat_force_next_flush()")
    [(after,)] = place.look(DEADLOCKS)
    return int(after - before)


def no_update_is_lost(place: Place, names: Sequence[str], batches: int, keys: int) -> None:
    last: dict[str, tuple[int, str, int]] = {}
    for name in names:
        for rows in written_by(name, batches, keys, slots=False):
            for row in rows:
                last[row.tail or ""] = max(last.get(row.tail or "", (-1, "", 0)), (row.version or 0, name, row.number))
    remembered = place.look(
        "SELECT key_1, by_number::bigint, partition, number FROM leasehold_key_flights AS m "
        "JOIN leasehold_watermark AS w ON w.id = m.lane"
    )
    assert {key: (version, name, number) for key, version, name, number in remembered} == last
    assert place.look("SELECT count(*) FROM flights") == [(len(last),)]


@pytest.mark.more
def test_writers_of_hot_keys_lose_nothing_and_never_deadlock(place: Place) -> None:
    names = [f"p{number}" for number in range(4)]
    assert hot_keys(place, LOOSE, names, 6, 50, slots=False) == 0
    no_update_is_lost(place, names, 6, 50)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_sixteen_writers_of_hot_keys_for_long(place: Place) -> None:
    names = [f"p{number:02}" for number in range(16)]
    assert hot_keys(place, LOOSE, names, 150, 2000, slots=False) == 0
    no_update_is_lost(place, names, 150, 2000)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_deadlocks_over_a_second_unique_index_fail_no_batch(place: Place) -> None:
    names = [f"p{number:02}" for number in range(16)]
    hot_keys(place, MADE, names, 40, 200, slots=True)
    [(rows, slots)] = place.look("SELECT count(*), count(DISTINCT slot) FROM flights")
    assert rows == slots > 0


def test_a_stopped_writer_holds_up_its_keys_alone_and_not_for_long(place: Place) -> None:
    place.run(MADE)
    sink = place.sink(SPEC)
    sink.check(batch([], by_version=True, deletes=True).rows.schema)
    told, tells = FORKED.Pipe(duplex=False)
    process = started(stop_at, place.url, "keys locked", tells)
    stopped = psutil.Process(process.pid)
    until(lambda: stopped.status() == psutil.STATUS_STOPPED, "the writer to stop")
    others = batch([E("z", partition="1", version=1)], by_version=True, deletes=True)
    assert sink.apply(others).applied == 1
    late = batch([E("a", slot=7, partition="1", number=1, version=99)], by_version=True, deletes=True)
    assert sink.apply(late).applied == 1  # once the server has ended the stopped one's transaction
    stopped.resume()
    assert exit_code(process) == 0
    assert told.recv() == "unavailable"
    # `a` is written by the later version; the keys b, c, g and the delete of e come now.
    assert sink.apply(killed()) == one_row_each(applied=5, rejected=2, superseded=1)
    assert place.look("SELECT slot FROM flights WHERE tail = 'a'") == [(7,)]
    sink.close()


def killed_at_each(place: Place, points: Iterable[str]) -> None:
    """A writer is killed at each point, and its batch comes again: all of it is there once, or was there."""
    first = batch([E("old", slot=9)], by_version=True, deletes=True)
    kept: list[tuple[list[Any], ...]] = []
    place.run(MADE)
    fresh = place.sink(SPEC, timeout=PATIENCE)
    for point in points:
        if kept:
            tables = ("flights", "leasehold_key_flights", "flights_rejected", "leasehold_watermark")
            place.run(*(f"DELETE FROM {name}" for name in tables))
        fresh.apply(first)
        assert killed_in(die_at, place.url, point, apply_killed), point
        rows = place.look(ROWS)
        mark = fresh.watermarks("h")["0"].sequence_number
        assert (rows, mark) == ([("old", "ok", 9)], 0) if point != "committed" else mark == 9, point
        again = fresh.apply(killed())
        assert again.applied + again.replayed + again.rejected == 8, point
        aside = place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1")
        kept.append((place.look(ROWS), aside, place.look(KEYS)))
    fresh.close()
    assert all(one == kept[0] for one in kept)
    assert kept[0][1] == [(3,), (4,), (9,)]


def killed_on_the_short_way(place: Place, points: Iterable[str]) -> None:
    place.run(MADE)
    sink = place.sink(SPEC)
    sink.apply(batch([E("old", slot=9)], by_version=True, deletes=True))
    sink.apply(killed())
    before = place.look(ROWS), place.look(KEYS)
    for point in points:
        assert killed_in(die_at, place.url, point, apply_plain), point
        assert (place.look(ROWS), place.look(KEYS)) == before, point
        assert sink.watermarks("h")["0"].sequence_number == 9
    assert sink.apply(plain()) == one_row_each(applied=4, superseded=1)
    assert place.look(ROWS) == [("a", "x", 1), ("b", "ok", 7), ("h", "ok", 8), ("old", "ok", 9)]
    sink.close()


def killed_while_last_rows_are_merged(place: Place, points: Iterable[str], *, by_version: bool) -> None:
    """A writer is killed at each point of a batch that is merged by the last row of each key, which comes again."""
    tables = ("flights", "leasehold_key_flights", "flights_rejected", "leasehold_watermark")
    place.run("CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)")
    sink = place.sink(SPEC if by_version else FLIGHTS)
    first = batch([E("a", version=0), E("b", version=1, number=1)], by_version=by_version, deletes=True)
    for turn, point in enumerate(points):
        if turn:
            place.run(*(f"DELETE FROM {name}" for name in tables))
        assert sink.apply(first).applied == 2
        before = place.look(ROWS), place.look(KEYS)
        assert killed_in(die_in_last, place.url, point, by_version), point
        committed = point == "committed"
        assert committed or (place.look(ROWS), place.look(KEYS)) == before, point
        again = sink.apply(last_of_keys(by_version=by_version))
        assert (again.applied, again.rejected, again.replayed) == ((0, 0, 7) if committed else (5, 2, 0)), point
        assert place.look(ROWS) == [("a", "y", None), ("c", "z", None)], point
        assert place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1") == [(6,), (8,)], point
    sink.close()


# In `make test`, some points: what is committed too early is there at the last one before COMMIT.


@pytest.mark.more
def test_a_writer_killed_at_some_points_has_done_all_or_nothing(place: Place) -> None:
    killed_at_each(place, ["levels raised", "half copied", "keys remembered", "none whole", "committed"])


@pytest.mark.more
def test_a_writer_killed_on_the_short_way_has_done_nothing(place: Place) -> None:
    killed_on_the_short_way(place, ["rows that stay written", "all written at once"])


@pytest.mark.more
def test_a_writer_killed_while_last_rows_are_merged_has_done_all_or_nothing(place: Place) -> None:
    points = ["last rows noted", "last rows merged", "none whole", "committed"]
    killed_while_last_rows_are_merged(place, points, by_version=False)


@pytest.mark.more
def test_so_has_one_whose_rows_versions_put_in_order(place: Place) -> None:
    points = ["what is known loaded", "last rows noted", "last rows merged", "committed"]
    killed_while_last_rows_are_merged(place, points, by_version=True)


@pytest.mark.soak
def test_a_writer_killed_at_any_point_of_the_short_way_has_done_nothing(place: Place) -> None:
    killed_on_the_short_way(place, AT_ONCE)


@pytest.mark.soak
@pytest.mark.parametrize("by_version", [False, True])
def test_a_writer_killed_at_any_point_while_last_rows_are_merged_has_done_all_or_nothing(
    place: Place, by_version: bool
) -> None:
    others = ("claimed", "fitted", "watermarks locked", "levels raised", "rejected", "order recorded", "written")
    points = [point for point in LAST if by_version or point != "what is known loaded"]
    points = [*others[:4], *points, *others[4:], "none whole", "committed"]
    killed_while_last_rows_are_merged(place, points, by_version=by_version)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("time", range(20))
def test_twenty_times(place: Place, time: int) -> None:
    killed_at_each(place, POINTS)
