"""The short run on every PySpark: two instances of `leasehold run`, one is killed, and the rest with AvailableNow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import PARTITIONS, Log
from tests.versions.conftest import Interpreter


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
