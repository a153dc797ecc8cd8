"""The driver of a handled table on Spark, killed at each of its steps: each event is in its entity's trail once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.handlers.dying_handlers import MODES, STEPS
from tests.handlers.processes import expire_leases
from tests.repository import ROOT
from tests.sinks.postgres import Place
from tests.waiting import PATIENCE

KEYS, PARTITIONS = 5, 3


class Killed:
    """A hub, and what is sent to it between kills."""

    def __init__(self, folder: Path, url: str, mode: str) -> None:
        self._folder, self._url, self._mode = folder, url, mode
        self._level = self.sent = 0
        LogHub.create(folder / "hub.db", partitions=PARTITIONS).close()

    def send(self, count: int) -> None:
        """Events of a few entities; of one entity in one partition, unless it is spread."""
        with closing(LogHub(self._folder / "hub.db")) as hub:
            for n in range(self.sent, self.sent + count):
                entity = n % KEYS
                place = n // KEYS if self._mode != "keyed" else entity
                hub.send([Event(b'{"order_id":"k%d","n":%d}' % (entity, n))], partition=str(place % PARTITIONS))
        self.sent += count

    def run(self, step: str, times: int) -> int:
        """The next owner, which is killed behind the step. Returns what its process ended with."""
        self._level += 1
        words = [str(self._folder), self._url, self._mode, str(self._level), step, str(times)]
        ended = subprocess.run(
            [sys.executable, "-m", "tests.handlers.dying_handlers", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()[-3000:]
        if (self._folder / "leases.db").exists():
            expire_leases(self._folder / "leases.db")
        return ended.returncode

    def judge(self, trails: dict[str, str]) -> None:
        """Each event once, and those of one entity that were never parked in order."""
        assert sorted(int(n) for trail in trails.values() for n in trail.split()) == [*range(self.sent)]
        if self._mode == "keyed":
            for trail in trails.values():
                numbers = [int(n) for n in trail.split()]
                assert numbers == sorted(numbers)


def killed_at(killed: Killed, step: str, kills: int) -> None:
    """Killed, one owner behind the other, each a little later in its work; then one that ends."""
    died = 0
    while died < kills:
        killed.send(12 + died % 7)
        died += killed.run(step, 1 + died % 3) != 0
    assert killed.run(step, 1_000_000) == 0


@pytest.mark.more  # tests/queue_processor/test_processes.py kills one behind its commit
@pytest.mark.parametrize(
    ("mode", "step", "kills"),
    [
        ("keyed", "computed", 4),
        ("exclusive", "committed", 4),
        *(pytest.param(mode, step, 20, marks=pytest.mark.soak) for mode, step in product(MODES, STEPS)),
    ],
)
def test_killed_at_each_step(tmp_path: Path, mode: str, step: str, kills: int) -> None:
    killed = Killed(tmp_path, f"sqlite:////{tmp_path}/t.db", mode)
    killed_at(killed, step, kills)
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        killed.judge(dict(connection.execute("SELECT order_id, trail FROM orders")))


@pytest.mark.soak
@pytest.mark.parametrize(("mode", "step"), [*product(MODES, STEPS)])
def test_killed_at_each_step_with_a_table_in_postgres(tmp_path: Path, place: Place, mode: str, step: str) -> None:
    killed = Killed(tmp_path, place.url, mode)
    killed_at(killed, step, 20)
    killed.judge(dict(place.look("SELECT order_id, trail FROM orders")))
