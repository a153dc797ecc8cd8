"""The short run on every PySpark: two instances of `leasehold run`, one is killed, and the rest with AvailableNow.

And a program with its own `MicroBatches`, killed between the table's commit and the checkpoint.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.fleet import BAD, Fleet
from tests.faults.hub_kinds import PARTITIONS, Log
from tests.spark.places import let_expire
from tests.versions.conftest import Interpreter
from tests.waiting import until


@pytest.fixture
def fleet(interpreter: Interpreter, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(
        tmp_path, "upsert", Log(tmp_path), python=str(interpreter.path), environment=interpreter.environment()
    )
    yield fleet
    fleet.close()


def test_two_instances_a_kill_and_available_now(fleet: Fleet) -> None:
    fleet.send(500)
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=PARTITIONS // 2, green=PARTITIONS // 2)
    fleet.wait_consumed()
    fleet.close_gate("blue")
    fleet.send(500)
    fleet.wait_in_batch("blue")
    blue.kill()
    fleet.expire("blue")
    fleet.wait_owned(green=PARTITIONS)
    fleet.wait_consumed()
    fleet.send(100)
    fleet.wait_consumed()
    fleet.check_table()
    green.stop()

    fleet.open_gate("blue")
    fleet.send(300)
    last = fleet.launch("last", "--available-now")
    assert last.account()["applied"] == 300 * PARTITIONS
    fleet.wait_consumed()
    fleet.check_table()


def test_micro_batches_killed_between_commit_and_checkpoint(interpreter: Interpreter, tmp_path: Path) -> None:
    hub = Log(tmp_path)
    partitions = list(map(str, range(PARTITIONS)))
    for partition in partitions:
        bodies = [json.dumps({"id": partition, "n": n}).encode() for n in range(50)]
        hub.send(partition, [*bodies[:30], BAD[0], *bodies[30:]])
    hub.close()
    program = [interpreter.path, Path(__file__).with_name("loop_program.py"), tmp_path]
    (tmp_path / "slow").touch()
    with (tmp_path / "killed.log").open("wb") as log:
        killed = subprocess.Popen(program, env=interpreter.environment(), stdout=log, stderr=log)

    def committed() -> bool:
        assert killed.poll() is None, (tmp_path / "killed.log").read_text()
        return bool((tmp_path / "table.db").exists() and _ask(tmp_path, "SELECT 1 FROM leasehold_watermark"))

    try:
        until(committed, "the first batch to be in the table")
    finally:
        killed.kill()
        killed.wait()
    let_expire(tmp_path / "stores.db")
    before = len(_ask(tmp_path, "SELECT 1 FROM entities"))
    assert 0 < before < 45 * PARTITIONS
    (tmp_path / "slow").unlink()
    done = interpreter.run(*map(str, program[1:]))
    assert done.returncode == 0, done.stderr[-3000:]
    applied, replayed = map(int, done.stdout.split())
    assert applied == 45 * PARTITIONS - before
    assert replayed == before
    expected = [(p, n, n + (n >= 30)) for p in partitions for n in range(50) if n % 10 != 9]
    assert sorted(_ask(tmp_path, "SELECT id, n, sequenceNumber FROM entities")) == expected
    assert sorted(_ask(tmp_path, "SELECT partition, sequence_number FROM entities_rejected")) == [
        (partition, 30) for partition in partitions
    ]
    assert len(_ask(tmp_path, "SELECT DISTINCT at FROM entities")) > 1


def _ask(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "table.db")) as connection:
        try:
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:  # not made yet
            return []
