"""Waves: many producers send about the same new entities at once, without a key, while processes die and stop."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from leasehold import Event
from leasehold.hubs.log import LogHub
from leasehold.hubs.log.partitioning import Keyless
from tests.entities.test_handled_table import ROOT, Processes, rows, until
from tests.entities.test_related import Bench
from tests.sinks.conftest import place, postgres_server
from tests.sinks.postgres import Place

__all__ = ["place", "postgres_server"]

JOURNAL = (
    "CREATE TABLE journal (part VARCHAR(9) NOT NULL, number BIGINT NOT NULL, order_id VARCHAR(50) NOT NULL, "
    "place BIGINT NOT NULL, PRIMARY KEY (part, number), UNIQUE (order_id, place))"
)
PARTITIONS, PRODUCERS, ORDERS, EACH = 8, 8, 30, 10


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    def run(*statements: str) -> None:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            for statement in statements:
                connection.execute(statement)

    if request.param == "sqlite":
        made = Bench(f"sqlite:////{tmp_path}/table.db", lambda query: rows(tmp_path, query), run)
    else:
        there: Place = request.getfixturevalue("place")
        made = Bench(there.url, there.look, there.run)
    made.run(JOURNAL)
    return made


def produce(folder: Path, producer: int) -> None:
    """Send bursts about the same orders, an event of each, into all partitions in turn."""
    with closing(LogHub(folder / "log.db")) as hub:
        for burst in range(EACH):
            bodies: list[dict[str, Any]] = [
                {"order_id": f"o{number}", "amount": number + burst, "version": burst} for number in range(ORDERS)
            ]
            hub.send([Event(json.dumps(one).encode()) for one in bodies], keyless=Keyless.IN_TURN)


@pytest.mark.soak  # the partitions of a process that is paused expire first
@pytest.mark.timeout(600)
def test_waves(bench: Bench, tmp_path: Path) -> None:
    LogHub.create(tmp_path / "log.db", partitions=PARTITIONS).close()

    def start(stack: ExitStack, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.entities.waves_program", str(tmp_path), name, bench.url]
        said = stack.enter_context((tmp_path / f"{name}.txt").open("ab"))
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=said)
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    def applied() -> int:
        return int(bench.look("SELECT count(*) FROM journal")[0][0])

    def owners() -> list[str]:
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            try:
                return [owner for (owner,) in connection.execute("SELECT owner_id FROM leasehold_ownership")]
            except sqlite3.OperationalError:
                return []  # nothing has been made yet

    with ExitStack() as stack:
        running = [start(stack, f"p{number}") for number in range(3)]
        until(lambda: len(owners()) == PARTITIONS and {one[:2] for one in owners()} == {"p0", "p1", "p2"})
        producers = [threading.Thread(target=produce, args=(tmp_path, number)) for number in range(PRODUCERS)]
        for one in producers:
            one.start()
        until(lambda: applied() > 100)
        for one in producers:
            one.join()
        running[0].kill()
        Processes(stack, tmp_path).pause(running[1])
        assert applied() < PRODUCERS * ORDERS * EACH, "there is something left to be taken over"
        start(stack, "p0")
        until(lambda: applied() == PRODUCERS * ORDERS * EACH)
        os.kill(running[1].pid, signal.SIGCONT)
        until(lambda: not bench.look("SELECT 1 FROM leasehold_parked"))
    every = PRODUCERS * EACH
    total = PRODUCERS * sum(range(EACH))
    expected = sorted((f"o{number}", every, every * number + total) for number in range(ORDERS))
    assert bench.look("SELECT order_id, events, total FROM orders ORDER BY 1") == expected
    journal = bench.look("SELECT order_id, part, number FROM journal ORDER BY order_id, place")
    assert len({(part, number) for _, part, number in journal}) == len(journal) == every * ORDERS
    for order in range(ORDERS):
        for part in range(PARTITIONS):
            its = [number for name, where, number in journal if (name, where) == (f"o{order}", str(part))]
            assert its == sorted(its), "in the order of its partition"
    assert bench.look("SELECT reason FROM orders_rejected") == []
    said = "".join(file.read_text() for file in tmp_path.glob("p*.txt"))
    assert "RowsRefused" not in said, "no two computed one place of an order, and both took effect"
