"""An instance that is killed at a step of a batch, and another one that goes on: the table is right every time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.dying_instance import STEPS
from tests.faults.fleet import Fleet

pytestmark = pytest.mark.timeout(1200)
ROOT = Path(__file__).parents[2]

QUICK = ("collected", "committed")
"""On both sides of the commit: these steps in `make test`."""


def _die(fleet: Fleet, step: str, times: int) -> None:
    """An instance that is killed when it comes to this step for so many times."""
    died = subprocess.run(
        [sys.executable, "-m", "tests.faults.dying_instance", step, str(times)],
        cwd=fleet.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "LEASEHOLD_OWNER": "blue"},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]


@pytest.mark.parametrize(
    "step", [step if step in QUICK else pytest.param(step, marks=pytest.mark.soak) for step in STEPS]
)
def test_killed_at_each_step(new_fleet: Callable[..., Fleet], step: str) -> None:
    fleet = new_fleet(mode="upsert", limit=40)
    fleet.send(20)
    _die(fleet, step, 2)
    account = fleet.launch("green", "--available-now").account()
    fleet.check_table()
    assert account["refused"] == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", STEPS)
def test_killed_twenty_times_in_a_row(new_fleet: Callable[..., Fleet], step: str) -> None:
    """Each one goes on where the one before it died: in its first batch, or up to three later."""
    fleet = new_fleet(mode="append", limit=40)
    for kill in range(20):
        fleet.send(10 * (1 + kill % 4))
        _die(fleet, step, 1 + kill % 4)
        found = fleet.query("SELECT partition, sequenceNumber FROM entities")
        assert len(found) == len(set(found)), f"twice in the table, after kill {kill}"
    account = fleet.launch("green", "--available-now").account()
    fleet.check_table()
    assert account["refused"] == 0
