"""The last day in a file that does not grow, which is read by later releases or refused by name."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.clock import SystemClock
from leasehold.dashboard.ring import DAY, KEPT_MOVES, LAPS, Ring, Sample
from leasehold.dashboard.view import PipelineLook
from leasehold.dashboard.watching import PipelineWatch
from leasehold.errors import UsageError
from leasehold.operations.moves import Move, MoveKind
from leasehold_testkit.clock import ManualClock
from tests.dashboard.looks import group, row
from tests.waiting import PATIENCE

FORMAT_1 = """
CREATE TABLE samples (pipeline TEXT NOT NULL, step INTEGER NOT NULL, slot INTEGER NOT NULL, number INTEGER NOT NULL,
sample TEXT NOT NULL, PRIMARY KEY (pipeline, step, slot)) WITHOUT ROWID;
CREATE TABLE moves (id INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL,
partition TEXT NOT NULL, owner TEXT NOT NULL, before TEXT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX moves_of ON moves (pipeline, id);
INSERT INTO samples VALUES ('p', 60, 40, 40, '{"o": ["", "a/1"], "p": {"0": [1, 7], "1": [0, 9]}}');
INSERT INTO moves VALUES (1, 'p', 2400.5, 'taken over', '0', 'b/1', 'a/1', 'a/1 had not renewed for 7 s');
INSERT INTO moves VALUES (2, 'p', 2401.5, 'what a later release knows', '0', '', '', '');
PRAGMA user_version = 1;
"""


def made(path: Path, sql: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql)
    return path


def test_a_file_of_format_1_is_read(tmp_path: Path) -> None:
    ring = Ring(made(tmp_path / "old.db", FORMAT_1))
    assert ring.samples("p", DAY, now=2_500.0) == [Sample(2_400, {"0": ("a/1", 7), "1": ("", 9)})]
    assert ring.moves("p", 10) == [Move(2400.5, MoveKind.TAKEN_OVER, "0", "b/1", "a/1", "a/1 had not renewed for 7 s")]
    ring.close()


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    odd = ["", "no JSON", "[]", "null", "7", '{"o": [], "p": {"0": [1, 7]}}', '{"o": ["a"], "p": {"0": 7}}']
    odd += [
        '{"o": ["a"], "p": [1]}',
        '{"o": [7], "p": {"0": [0, 7]}}',
        '{"o": ["a"], "p": {"0": [0, "7"]}}',
        "[" * 9_999,
    ]
    rows = ", ".join(f"('p', 60, {41 + slot}, {41 + slot}, '{text}')" for slot, text in enumerate(odd))
    moves = (
        "INSERT INTO moves VALUES (3, 'p', 'never', 'claimed', '0', '', '', ''), (4, 'p', 1, 'left', x'ff', 1, '', '')"
    )
    sql = f"{FORMAT_1} INSERT INTO samples VALUES {rows}, ('p', 60, 60, 60, x'ff'); {moves};"
    ring = Ring(made(tmp_path / "odd.db", sql))
    assert [one.at for one in ring.samples("p", DAY, now=3_700.0)] == [2_400]
    assert [one.at for one in ring.moves("p", 10)] == [2400.5]
    looked = threading.Event()
    seen = PipelineLook(3_700.0, group(row()))
    watch = PipelineWatch("p", lambda: seen, ring, every=0.01, clock=SystemClock(), changed=looked.set)
    watch.start()  # in a thread that reads the past first
    assert looked.wait(PATIENCE)
    watch.stop()
    watch.join(PATIENCE)
    ring.close()


def test_a_history_that_cannot_be_kept_is_told_once_and_the_present_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = Ring(tmp_path / "h.db")
    at = 3_700.0
    watch = PipelineWatch(
        "p", lambda: PipelineLook(at, group(row())), ring, every=0.01, clock=SystemClock(), changed=lambda: None
    )
    watch.look_once()
    assert watch.latest[1]["at"] == 3_700.0
    ring.close()
    for file in tmp_path.iterdir():
        file.unlink()
    (tmp_path / "h.db").write_bytes(b"no database " * 999)
    for _ in range(3):
        at += 60.0
        watch.look_once()
    assert watch.latest[1]["at"] == 3_880.0, "what is there now is shown"
    assert [one["partition"] for one in watch.latest[1]["partitions"]] == ["0"]
    [told] = [one.getMessage() for one in caplog.records if "is not kept" in one.getMessage()]
    assert "the history of p is not kept" in told
    assert "h.db" in told


def test_a_look_that_fails_in_an_unforeseen_way_is_logged_and_the_next_one_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring, looked = Ring(tmp_path / "h.db"), threading.Event()
    looks = iter([ZeroDivisionError("nobody thought of it")])

    def look() -> PipelineLook:
        for error in looks:
            raise error
        return PipelineLook(3_700.0, group(row()))

    watch = PipelineWatch("p", look, ring, every=0.01, clock=SystemClock(), changed=looked.set)
    watch.start()
    assert looked.wait(PATIENCE)
    watch.stop()
    watch.join(PATIENCE)
    assert "a look at p failed in an unexpected way" in caplog.text
    assert "nobody thought of it" in caplog.text, "with its traceback"
    assert watch.latest[1]["at"] == 3_700.0


@pytest.mark.parametrize("sql", ["PRAGMA user_version = 2;", "CREATE TABLE orders (id INTEGER);"])
def test_another_file_is_refused_by_name_and_left_alone(sql: str, tmp_path: Path) -> None:
    path = made(tmp_path / "other.db", sql)
    with pytest.raises(UsageError, match=r"other\.db is no history .* --history"):
        Ring(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'samples'").fetchone() == (0,)


def test_it_keeps_a_lap_and_is_the_same_after_a_restart(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "h.db")
    steps = LAPS[0].slots + 50
    for number in range(steps):
        ring.add("p", Sample(2 * number, {"0": ("a/1", number)}))
        ring.add("p", Sample(2 * number + 1, {"0": ("a/1", -1)}))  # its place is taken
    ring.add("q", Sample(10, {"0": ("", 0)}))
    ring.close()
    again = Ring(tmp_path / "h.db")
    kept = again.samples("p", 1_800, most=10_000, now=2.0 * steps)
    assert [one.partitions["0"][1] for one in kept] == list(range(50, steps))
    assert len(again.samples("p", 1_800, most=100, now=2.0 * steps)) <= 100
    assert len(again.samples("p", DAY, now=2.0 * steps)) == -(-2 * steps // 60)
    with closing(sqlite3.connect(tmp_path / "h.db")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM samples WHERE pipeline = 'p' AND step = 2").fetchone()
    assert count == LAPS[0].slots
    again.close()


@pytest.mark.more
def test_names_that_change_at_each_look_and_have_a_megabyte_do_not_make_the_file_grow(tmp_path: Path) -> None:
    clock, ring, looks = ManualClock(), Ring(tmp_path / "h.db"), 0
    large = 1_000_000

    def look() -> PipelineLook:
        """Another owner, asker, instance and error each time, as somebody may write them into a store."""
        nonlocal looks
        looks += 1
        owner, other = f"{looks}{'x' * large}/1", f"{looks}{chr(27) * large}/1"
        rows = row(owner=owner, asked_by=other), row("1", owner=owner, failures=3 * (looks % 2), last_error=other)
        return PipelineLook(clock.wall(), group(*rows, instances=(owner, other)))

    watch = PipelineWatch("p", look, ring, every=2.0, clock=clock, changed=lambda: None)
    for _ in range(40):
        watch.look_once()
        clock.advance(2.0)
    kept = sum(one.stat().st_size for one in tmp_path.iterdir())
    assert kept < 10 * large
    assert len(json.dumps(watch.latest)) < large
    past = watch.history(1_800)
    assert len(past["at"]) == len(past["owners"]) == 40
    assert set(past["owners"]) <= set(watch.latest[1]["colours"]), "an owner of the past has its colour on the page"
    reasons = {move["kind"]: move["reason"] for move in watch.latest[1]["moves"]}
    assert reasons["handed over"].endswith("… asked for it"), "a name is cut, and not what is said of it"
    assert reasons["suspected"].endswith("…")


def test_a_clock_that_is_set_back_changes_no_rate_and_no_reason_and_leaves_no_future(tmp_path: Path) -> None:
    clock, ring, done = ManualClock(), Ring(tmp_path / "h.db"), 0
    owners = ["a/1"]

    def look() -> PipelineLook:
        nonlocal done
        done += 10
        alive = group(row(owner=owners[-1], checkpoint=done, end=done + 20, age=5.5))
        return PipelineLook(clock.wall(), alive, expiration=6.0)

    def rates(looks: int) -> list[tuple[float, float, float]]:
        found = []
        for _ in range(looks):
            watch.look_once()
            shown = watch.latest[1]
            found.append((shown["done"], shown["sent"], shown["partitions"][0]["done"]))
            clock.advance(2.0)
        return found

    watch = PipelineWatch("p", look, ring, every=2.0, clock=clock, changed=lambda: None)
    assert rates(100)[1:] == [(5.0, 5.0, 5.0)] * 99
    noon = clock.wall()
    clock.set_wall(noon - 3_600)
    owners.append("b/1")
    assert rates(20) == [(5.0, 5.0, 5.0)] * 20
    [taken] = [move for move in watch.latest[1]["moves"] if move["partition"]]
    assert (taken["kind"], taken["reason"]) == ("taken over", "a/1 had not renewed for 8 s")
    assert watch.history(1_800)["at"] == [noon - 3_600 + 2 * number for number in range(20)]
    clock.set_wall(noon)
    assert rates(1) == [(5.0, 5.0, 5.0)]
    assert watch.history(1_800)["at"] == [noon], "the past from before is of another time"
    ring.close()


def test_what_a_page_shows_is_told_anew_where_only_the_time_of_day_has_changed(tmp_path: Path) -> None:
    clock, ring = ManualClock(), Ring(tmp_path / "h.db")
    told: list[float] = []

    def look() -> PipelineLook:
        return PipelineLook(clock.wall(), group(row()))

    watch = PipelineWatch("p", look, ring, every=2.0, clock=clock, changed=lambda: told.append(clock.wall()))
    for _ in range(3):
        watch.look_once()
    clock.set_wall(clock.wall() - 3_600)
    watch.look_once()
    assert watch.latest[1]["at"] == clock.wall()
    assert len(told) == 2
    ring.close()


def test_moves_are_kept_for_a_day_the_latest_first(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "h.db")
    for number in range(KEPT_MOVES // 100 + 2):
        happened = [Move(float(number), MoveKind.CLAIMED, str(each)) for each in range(100)]
        ring.add("p", Sample(number, {}), happened)
    assert len(ring.moves("p", 5_000)) == KEPT_MOVES
    assert [(one.at, one.partition) for one in ring.moves("p", 2)] == [(11.0, "99"), (11.0, "98")]
    ring.add("p", Sample(2 * DAY, {}), [Move(2.0 * DAY, MoveKind.JOINED)])
    assert [one.kind for one in ring.moves("p", 5_000)] == [MoveKind.JOINED]
    ring.close()
