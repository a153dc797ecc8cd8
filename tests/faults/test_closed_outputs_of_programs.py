"""A program on `format("leasehold")` whose outputs nobody reads any more: `program | head`, a closed terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.stores.sqlite.store import SqliteStore
from tests.faults.instance import PATIENCE
from tests.repository import ROOT
from tests.waiting import until

pytestmark = pytest.mark.timeout(1200)
CLOSED = (
    pytest.param(("stdout",), id="stdout", marks=pytest.mark.soak),
    pytest.param(("stdout", "stderr"), id="stdout and stderr"),
)


@pytest.mark.more  # tests/cli/test_app.py closes those of commands
@pytest.mark.parametrize("closed", CLOSED)
def test_a_program_whose_outputs_are_closed_ends_and_gives_its_partitions_up(
    tmp_path: Path, closed: tuple[str, ...]
) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    hub.send([Event(b"%d" % number) for number in range(1000)], partition="0")
    with (tmp_path / "said").open("wb") as elsewhere:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.talking_program"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if "stderr" in closed else elsewhere,
            start_new_session=True,
        )
    assert program.stdout is not None
    assert program.stdout.readline() == b"batch 0\n"
    started = psutil.Process(program.pid).children(recursive=True)
    program.stdout.close()
    if program.stderr is not None:
        program.stderr.close()
    assert program.wait(timeout=PATIENCE) != 0, "it has not done its work"
    until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in started), "its end")
    (record,) = SqliteStore(tmp_path / "stores.db").list_ownership(hub.consumer_group("$Default")).records
    assert record.owner_id == "", "given up, and not left to expire"
