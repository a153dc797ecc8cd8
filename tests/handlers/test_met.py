"""An entity that three instances meet in every batch: each of them advances, and none is left behind."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.handlers.met_program import table
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

INSTANCES = 3
EVERY = 0.1
"""Seconds between two rounds, at least: each partition has got a batch with the entity in it."""
BEHIND = 12
"""Batches: what waits is looked at every 2 s at the latest, then it is another one's turn."""


@pytest.mark.timing  # in this time each instance has its turn
@pytest.mark.parametrize("rounds", [60, pytest.param(3_000, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])])
def test_an_entity_in_every_batch_is_a_few_batches_behind_at_most(rounds: int, tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "log.db", partitions=INSTANCES)
    accounts = table(tmp_path)
    command = [sys.executable, "-m", "tests.handlers.met_program", str(tmp_path)]
    processes = [subprocess.Popen([*command, f"met-{number}"], cwd=ROOT) for number in range(INSTANCES)]
    behind = []
    try:
        with closing(sqlite3.connect(tmp_path / "table.db", timeout=PATIENCE)) as connection:
            until(lambda: _owners(tmp_path) == INSTANCES, "instances that own partitions")
            for number in range(rounds):
                began = time.monotonic()
                for partition in range(INSTANCES):
                    body = json.dumps({"account": "a", "version": INSTANCES * number + partition}).encode()
                    hub.send([Event(body)], partition=str(partition))
                until(lambda number=number: _taken(hub, accounts) > number, "a batch that is taken")  # type: ignore[misc]
                time.sleep(max(0.0, EVERY - (time.monotonic() - began)))  # the pace of the stream
                behind.append(_parked(connection))
            until(lambda: _parked(connection) == 0, "an end of all waiting")
            [(seen,)] = connection.execute("SELECT seen FROM accounts").fetchall()
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(PATIENCE)
        accounts.close()
    print(f"behind, in batches: {max(behind)} at most, {sum(behind) / len(behind):.1f} on average")
    applied = [one.split(":") for one in seen.split()]
    for name in map(str, range(INSTANCES)):
        its = [int(place) for of, place in applied if of == name]
        assert its == [*range(rounds)]
    assert max(behind) <= BEHIND


def _owners(folder: Path) -> int:
    """How many instances own partitions."""
    with closing(sqlite3.connect(folder / "store.db", timeout=PATIENCE)) as connection:
        try:
            return len(
                connection.execute("SELECT DISTINCT owner_id FROM leasehold_ownership WHERE owner_id <> ''").fetchall()
            )
        except sqlite3.OperationalError:  # not there yet
            return 0


def _taken(hub: LogHub, accounts: object) -> int:
    """How many batches all partitions have taken, applied or parked."""
    marks = accounts.sink.watermarks(hub.identity)  # type: ignore[attr-defined]
    return min((marks[str(n)].sequence_number + 1 if str(n) in marks else 0) for n in range(INSTANCES))


def _parked(connection: sqlite3.Connection) -> int:
    """Of the partition that is furthest behind: a batch has one event."""
    counts = connection.execute("SELECT count(*) FROM leasehold_parked GROUP BY partition").fetchall()
    return max((count for (count,) in counts), default=0)
