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

TIMES = [pytest.param(2), *(pytest.param(times, marks=pytest.mark.soak) for times in (1, *range(3, 21)))]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(new_fleet: Callable[..., Fleet], step: str, times: int) -> None:
    fleet = new_fleet(mode="append" if times % 2 else "upsert", limit=40)
    fleet.send(10 * times)
    died = subprocess.run(
        [sys.executable, "-m", "tests.faults.dying_instance", step, str(times)],
        cwd=fleet.folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "LEASEHOLD_OWNER": "blue"},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    account = fleet.launch("green", "--available-now").account()
    fleet.check_table()
    assert account["refused"] == 0
