"""Instances that are killed at a step of a batch, and another one that goes on: the table is right every time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.faults.fleet import Fleet
from tests.faults.instance import PATIENCE
from tests.faults.main_job import NewFleet
from tests.repository import ROOT


def killed_once(new_fleet: NewFleet, step: str) -> None:
    """One that is killed at the step in its second batch."""
    fleet = new_fleet(mode="upsert", limit=40)
    fleet.send(20)
    _die(fleet, step, 2)
    account = fleet.launch("green", "--available-now").account()
    fleet.check_table()
    assert account["refused"] == 0


def killed_twenty_times(new_fleet: NewFleet, step: str) -> None:
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


def _die(fleet: Fleet, step: str, times: int) -> None:
    """An instance that is killed when it comes to this step for this many times, and then counts as gone."""
    died = subprocess.run(
        [sys.executable, "-m", "tests.faults.dying_instance", step, str(times)],
        cwd=fleet.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "LEASEHOLD_OWNER": "blue"},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    fleet.expire("blue")
