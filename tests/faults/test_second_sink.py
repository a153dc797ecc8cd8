"""Another sink beside the table: killed between the two writes, taken over with other cuts, and both are exact."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.faults.instance import PATIENCE
from tests.repository import ROOT

pytestmark = pytest.mark.timeout(1200)
EVENTS = 400


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.second_sink_program", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.soak  # `tests/spark/test_unseen.py` has it without processes
@pytest.mark.parametrize(("first", "second"), [("loop", "query"), ("query", "loop")])
def test_killed_between_the_two_writes_and_taken_over_with_other_cuts(tmp_path: Path, first: str, second: str) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in range(2):
        numbers = range(partition * EVENTS, (partition + 1) * EVENTS)
        hub.send([Event(b"%d" % number) for number in numbers], partition=str(partition))
    (tmp_path / "files").mkdir()
    died = run(tmp_path, first, "blue", 100, 3)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    left = {file.name for file in (tmp_path / "files").glob("*.parquet")}
    done = run(tmp_path, second, "green", 60, 0)
    assert done.returncode == 0, done.stderr.decode()[-2000:]

    wanted = [n for n in range(2 * EVENTS) if n % 7]
    connection = sqlite3.connect(tmp_path / "table.db")
    assert [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")] == wanted
    connection.close()
    newest = {file.name.split(".")[0]: file for file in sorted((tmp_path / "files").glob("*.parquet"))}
    found = [n for file in newest.values() for n in pq.read_table(file)["n"].to_pylist()]
    assert sorted(found) == wanted
    # The kills have left something to get wrong: pieces that were written, not applied, and cut anew.
    everything = Counter(
        n for file in (tmp_path / "files").glob("*.parquet") for n in pq.read_table(file)["n"].to_pylist()
    )
    assert left - {file.name for file in newest.values()}, "what the first one left is superseded"
    assert max(everything.values()) > 1
