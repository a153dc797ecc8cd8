"""Real processes that apply the same batches to one file at once, and are killed in the middle of it."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

from tests.campaigns import first
from tests.sinks.events import E, Model, batch, last_of_keys, left, look, look_rejected, run, sink
from tests.sinks.processes import FORKED, exit_code, killed_in, started
from tests.sinks.sqlite_writer import NUMBERS, PARTITIONS, WIDTH, apply_all, apply_one, apply_until, event, killed


def expected(mode: str) -> Model:
    model = Model(append=mode == "append", deletes=mode == "upsert")
    for start in range(0, NUMBERS, WIDTH):
        model.apply([event(p, n) for p in range(PARTITIONS) for n in range(start, start + WIDTH)])
    return model


def check(path: Path, mode: str) -> None:
    model = expected(mode)
    assert sorted(look(path), key=repr) == sorted(model.rows.values(), key=repr)
    assert sorted(look_rejected(path)) == sorted(model.rejected)
    if mode == "append":
        assert [row for row in look(path) if row[0].startswith("0-")] == [
            row for row in model.rows.values() if row[0].startswith("0-")
        ]


@pytest.mark.more(but=1)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_processes_that_apply_the_same_batches_at_once(tmp_path: Path, mode: str) -> None:
    path, at_work = tmp_path / "t.db", FORKED.Barrier(2)
    sink(path, mode, made=True).close()
    both = [started(apply_all, path, mode, 1, at_work) for _ in range(2)]
    assert [exit_code(process) for process in both] == [0, 0]
    check(path, mode)


@pytest.mark.more
@pytest.mark.parametrize("seed", first(1, range(20)))
def test_processes_that_are_killed_in_mid_transaction(tmp_path: Path, seed: int) -> None:
    """Each new owner comes with a higher level and starts from the beginning; each but the last is killed."""
    chance = random.Random(seed)
    path = tmp_path / "t.db"
    sink(path, "append", made=True).close()
    for level in range(1, 6):
        told, tells = FORKED.Pipe(duplex=False)
        process = started(apply_all, path, "append", level, tells)
        for _ in range(chance.randint(1, 8)):
            told.recv()  # it is at work
        process.kill()
        exit_code(process)
        number = sink(path, "append").watermarks("h")["0"].sequence_number
        assert (number + 1) % WIDTH == 0, "half a batch"
    assert exit_code(started(apply_all, path, "append", 9)) == 0
    check(path, "append")


def test_a_process_that_is_stopped_inside_its_transaction_has_written_nothing(tmp_path: Path) -> None:
    """It is killed when the rows are written, before it can commit."""
    path = tmp_path / "t.db"
    sink(path).apply(batch([E("a", "before", partition="0", number=0)]))
    killed("memory of keys", apply_one, path)
    assert look(path) == [("a", "before", None)]
    assert sink(path).apply(batch([E("a", "again", number=1)])).applied == 1


PLAIN = "CREATE TABLE flights (tail TEXT NOT NULL PRIMARY KEY, status TEXT, slot INTEGER{})"
WAYS = [(rule, by_version) for rule in ("", " CHECK (true)") for by_version in (False, True)]
"""The rule refuses nothing, and could see each row: so each row is written, and without it the last of each key."""


@pytest.mark.more
@pytest.mark.parametrize("way", first(1, WAYS))
def test_a_process_killed_before_each_step_of_a_batch_has_done_all_or_nothing(
    tmp_path: Path, way: tuple[str, bool]
) -> None:
    rule, by_version = way
    before = batch([E("a", version=0), E("b", version=1, number=1)], by_version=by_version, deletes=True)
    for step in count():
        path = tmp_path / f"{step}.db"
        run(path, PLAIN.format(rule))
        table = sink(path, sequence_by="version" if by_version else None)
        assert table.apply(before).applied == 2
        there = left(path)
        if not killed_in(apply_until, path, step, by_version):
            break
        assert left(path) == there, step
        again = table.apply(last_of_keys(by_version=by_version))
        assert (again.applied, again.rejected) == (5, 2), step
        table.close()
        assert look(path) == [("a", "y", None), ("c", "z", None)], step
        done = left(path)
    assert step > 15
    assert left(path) == done
