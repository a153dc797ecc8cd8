"""`LogHub.send_once`: what a source brings again is appended once, also by two processes at a time."""

from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.hubs.log.once import FEWEST_FORGOTTEN, FORGET
from leasehold.model import Event
from leasehold_testkit.clock import ManualClock

DAY = 86_400.0


def bodies(hub: LogHub) -> list[str]:
    found = []
    for partition, place in hub.partition_properties().items():
        for batch in hub.read(partition, place.begin, place.end, columns=("body",)):
            found += [body.decode() for body in batch.column(0).to_pylist()]
    return sorted(found)


def named(*names: str) -> list[tuple[str, Event]]:
    return [(name, Event(f"body {name}".encode(), partition_key=name)) for name in names]


def test_a_name_is_appended_once_for_each_source(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "log.db", partitions=3)
    assert hub.send_once("q", named("1", "2", "2"), remember=DAY) == 2
    assert hub.send_once("q", named("2", "3"), remember=DAY) == 1
    assert hub.send_once("other", named("2"), remember=DAY) == 1
    assert hub.send_once("q", [], remember=DAY) == 0
    hub.close()
    with closing(LogHub(tmp_path / "log.db")) as again:
        assert again.send_once("q", named("1", "2", "3"), remember=DAY) == 0
        assert bodies(again) == ["body 1", "body 2", "body 2", "body 3"]


def test_a_name_is_forgotten_after_a_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(LogHub.create(tmp_path / "log.db", clock=clock)) as hub:
        hub.send_once("q", named("1"), remember=DAY)
        clock.advance(DAY - 1)
        assert hub.send_once("q", named("1", "2"), remember=DAY) == 1
        clock.advance(2)
        hub.send_once("q", named("3"), remember=DAY)
        assert hub.send_once("q", named("1"), remember=DAY) == 1


def test_a_clock_that_is_ahead_forgets_little_of_what_was_only_just_brought(tmp_path: Path) -> None:
    """It forgot all: what another process had sent, and not yet taken out of its outbox, came twice."""
    clock, ahead = ManualClock(), ManualClock()
    ahead.advance(100 * DAY)
    path = tmp_path / "log.db"
    with closing(LogHub.create(path, clock=clock)) as hub, closing(LogHub(path, clock=ahead)) as wrong:
        for number in range(10):
            hub.send_once("q", named(*(f"{number}-{at}" for at in range(10))), remember=DAY)
            clock.advance(1)
        wrong.send_once("q", named("new"), remember=DAY)
        again = [f"{number}-{at}" for number in range(FEWEST_FORGOTTEN // 10, 10) for at in range(10)]
        assert hub.send_once("q", named(*again), remember=DAY) == 0


def test_forgetting_looks_at_what_it_forgets_alone(tmp_path: Path) -> None:
    """It went through all names that there were, with the log locked: half a second for a million."""
    with closing(LogHub.create(tmp_path / "log.db")) as hub:
        hub.send_once("q", named("1"), remember=DAY)
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        plan = [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {FORGET}", ("q", 0, 1))]
    assert any("appended_once_at (source=? AND at<?)" in step for step in plan), plan
    assert not any(step.startswith("SCAN appended_once") for step in plan), plan


def test_events_without_a_key_keep_to_one_partition(tmp_path: Path) -> None:
    with closing(LogHub.create(tmp_path / "log.db", partitions=5)) as hub:
        hub.send_once("q", [(str(at), Event(b"x", partition_key="")) for at in range(10)], remember=DAY)
        assert sorted(place.end for place in hub.partition_properties().values()) == [0, 0, 0, 0, 10]


def test_nothing_is_appended_without_its_name_and_no_name_without_its_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LogHub.create(tmp_path / "log.db", partitions=3)) as hub:
        hub.send_once("q", named("0"), remember=DAY)
        append, count = type(hub._file).append_in, 0

        def failing(*arguments: object) -> object:
            nonlocal count
            count += 1
            if count == 2:
                raise KeyboardInterrupt
            return append(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(type(hub._file), "append_in", failing)
        with pytest.raises(KeyboardInterrupt):
            hub.send_once("q", named(*map(str, range(20))), remember=DAY)
        monkeypatch.undo()
        assert bodies(hub) == ["body 0"]
        assert hub.send_once("q", named(*map(str, range(20))), remember=DAY) == 19


def bring(path: Path, seed: int) -> None:
    with closing(LogHub(path, timeout=30.0)) as hub:
        for start in range(0, 200, 5):
            names = [str(number) for number in range(start, start + 10 + seed)]
            hub.send_once("q", named(*names), remember=DAY)


@pytest.mark.more
def test_two_processes_that_bring_the_same_append_it_once(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    LogHub.create(path, partitions=3).close()
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=bring, args=(path, seed)) for seed in (0, 0)]
    for each in both:
        each.start()
    for each in both:
        each.join(120)
        assert each.exitcode == 0
    with closing(LogHub(path)) as hub:
        assert bodies(hub) == sorted(f"body {number}" for number in range(205))


def test_an_earlier_release_reads_a_log_with_names_in_it(tmp_path: Path) -> None:
    """What an earlier release looks at is the same: its own tables, and the format that they state."""
    path = tmp_path / "log.db"
    with closing(LogHub.create(path)) as hub:
        hub.send([Event(b"x")])
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
        version = connection.execute("PRAGMA user_version").fetchone()
    with closing(LogHub(path)) as hub:
        hub.send_once("q", named("1"), remember=DAY)
    with closing(sqlite3.connect(path)) as connection:
        after = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE tbl_name <> 'appended_once' ORDER BY name"
        ).fetchall()
        assert (after, connection.execute("PRAGMA user_version").fetchone()) == (before, version)
