"""Many writers of one table in Postgres as processes: hot keys, one that is stopped, one that is killed anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.staged.table import AGE
from leasehold.sinks.table import BatchResult
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place
from tests.sinks.postgres_writer import AT_ONCE, POINTS, SPEC, STAGED, killed, plain, written_by
from tests.sinks.staged.staging import StagedSink

ROOT = Path(__file__).parents[2]
MADE = """CREATE TABLE flights (tail text PRIMARY KEY, status text CHECK (status <> 'bad'), slot integer UNIQUE)"""
LOOSE = "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer)"
COMMITTED = ("committed", "merge committed", "left cleared")
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@contextmanager
def writer(place: Place, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A process of `postgres_writer`."""
    command = [sys.executable, "-m", "tests.sinks.postgres_writer", place.url, *map(str, words)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def hot_keys(place: Place, made: str, names: Sequence[str], batches: int, keys: int, slots: int) -> int:
    """Have writers with a partition each write the same keys at once. Returns how many deadlocks the server broke."""
    place.run(made)
    sink = place.sink(SPEC)
    sink.check(batch([]).rows.schema)
    [(before,)] = place.look(DEADLOCKS)
    running = [writer(place, "write", name, batches, keys, slots) for name in names]
    processes = [one.__enter__() for one in running]
    said = [process.communicate()[0].strip() for process in processes]
    for one in running:
        one.__exit__(None, None, None)
    assert said == ["done, 0 again"] * len(names)
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


def test_writers_of_hot_keys_lose_nothing_and_never_deadlock(place: Place) -> None:
    names = [f"p{number}" for number in range(4)]
    assert hot_keys(place, LOOSE, names, 6, 50, 0) == 0
    no_update_is_lost(place, names, 6, 50)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_sixteen_writers_of_hot_keys_for_long(place: Place) -> None:
    names = [f"p{number:02}" for number in range(16)]
    assert hot_keys(place, LOOSE, names, 150, 2000, 0) == 0
    no_update_is_lost(place, names, 150, 2000)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_deadlocks_over_a_second_unique_index_fail_no_batch(place: Place) -> None:
    names = [f"p{number:02}" for number in range(16)]
    hot_keys(place, MADE, names, 40, 200, 1)
    [(rows, slots)] = place.look("SELECT count(*), count(DISTINCT slot) FROM flights")
    assert rows == slots > 0


def test_a_stopped_writer_holds_up_its_keys_alone_and_not_for_long(place: Place) -> None:
    place.run(MADE)
    sink = place.sink(SPEC, timeout=20.0)
    sink.check(batch([], by_version=True, deletes=True).rows.schema)
    with writer(place, "stop", "keys locked") as process:
        stopped = psutil.Process(process.pid)
        while stopped.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        others = batch([E("z", partition="1", version=1)], by_version=True, deletes=True)
        assert sink.apply(others).applied == 1
        late = batch([E("a", slot=7, partition="1", number=1, version=99)], by_version=True, deletes=True)
        assert sink.apply(late).applied == 1  # once the server has ended the stopped one's transaction
        process.send_signal(signal.SIGCONT)
        assert process.communicate()[0].strip() == "unavailable"
    # `a` is written by the later version; the keys b, c, g and the delete of e come now.
    assert sink.apply(killed()) == BatchResult(applied=5, rejected=2, superseded=1)
    assert place.look("SELECT slot FROM flights WHERE tail = 'a'") == [(7,)]
    sink.close()


def killed_at_each(place: Place, points: Sequence[str], command: str = "die") -> None:
    """A writer is killed at each point, and its batch comes again: all of it is there once, or was there."""
    kind = StagedSink if command == "die-staged" else PostgresSink
    first = batch([E("old", slot=9)], by_version=True, deletes=True)
    kept: list[tuple[list[Any], ...]] = []
    place.run(MADE)
    fresh = kind(place.url, SPEC, timeout=20.0)
    with writer(place, command, *points) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for point in points:
            if kept:
                tables = ("flights", "leasehold_key_flights", "flights_rejected", "leasehold_watermark")
                place.run(*(f"DELETE FROM {name}" for name in tables))
            fresh.apply(first)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "killed", point
            rows = place.look("SELECT tail, status, slot FROM flights ORDER BY 1")
            mark = fresh.watermarks("h")["0"].sequence_number
            assert (rows, mark) == ([("old", "ok", 9)], 0) if point not in COMMITTED else mark == 9, point
            again = fresh.apply(killed())
            assert again.applied + again.replayed + again.rejected == 8, point
            kept.append(
                (
                    place.look("SELECT tail, status, slot FROM flights ORDER BY 1"),
                    place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1"),
                    place.look("SELECT key_1, number, gone FROM leasehold_key_flights ORDER BY 1"),
                )
            )
    fresh.close()
    assert all(one == kept[0] for one in kept)
    assert kept[0][1] == [(3,), (4,), (9,)]


def test_a_writer_killed_at_any_point_has_done_all_or_nothing(place: Place) -> None:
    killed_at_each(place, list(POINTS))


def test_a_writer_killed_at_any_point_of_the_short_way_has_done_nothing(place: Place) -> None:
    place.run(MADE)
    sink = place.sink(SPEC, timeout=20.0)
    sink.apply(batch([E("old", slot=9)], by_version=True, deletes=True))
    sink.apply(killed())
    rows = "SELECT tail, status, slot FROM flights ORDER BY 1"
    known = "SELECT key_1, number, gone FROM leasehold_key_flights ORDER BY 1"
    before = place.look(rows), place.look(known)
    with writer(place, "die-at-once", *AT_ONCE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for point in AT_ONCE:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "killed", point
            assert (place.look(rows), place.look(known)) == before, point
            assert sink.watermarks("h")["0"].sequence_number == 9
    assert sink.apply(plain()) == BatchResult(applied=4, superseded=1)
    assert place.look(rows) == [("a", "x", 1), ("b", "ok", 7), ("h", "ok", 8), ("old", "ok", 9)]
    sink.close()


def test_an_instance_killed_at_any_point_of_a_staged_batch_leaves_nothing_that_counts(place: Place) -> None:
    killed_at_each(place, [point for point in STAGED if point not in POINTS], "die-staged")
    left = "SELECT count(*) FROM leasehold_staged"
    assert place.look(left) != [(0,)]
    place.run(f"UPDATE leasehold_staged SET staged_at = now() - interval '{AGE + 1} s'")
    later = StagedSink(place.url, SPEC)
    later.apply(batch([E("later", number=10, version=10)], by_version=True, deletes=True))
    assert place.look(left) == [(0,)]
    later.close()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("time", range(19))
@pytest.mark.parametrize(("command", "points"), [("die", POINTS), ("die-staged", STAGED)])
def test_twenty_times(place: Place, command: str, points: Mapping[str, object], time: int) -> None:
    killed_at_each(place, list(points), command)
