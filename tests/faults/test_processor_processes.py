"""Plain processors as real processes over one SQLite store and one log: killed, joined, stopped and woken up.

Each process appends every event that its handler gets to a file of its own, on disk before the handler returns, and
then applies it to one entity table. So the files say what was read, and the table what took effect.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, Ownership
from leasehold.stores.sqlite.store import SqliteStore
from tests.faults.databases import InFile
from tests.faults.instance import paused
from tests.repository import ROOT
from tests.waiting import NEVER, PATIENCE, until


class Fleet:
    """A log, a store, and the processes that share them."""

    def __init__(self, folder: Path, partitions: int = 6) -> None:
        self.folder = folder
        self.hub = LogHub.create(folder / "hub.db", partitions=partitions)
        self.store = SqliteStore(folder / "store.db", timeout=PATIENCE)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def send(self, each: int) -> None:
        for partition in self.hub.partition_ids():
            self.hub.send([Event(b"event") for _ in range(each)], partition=partition)

    def launch(self, *names: str) -> None:
        for name in names:
            command = [sys.executable, "-m", "tests.faults.plain_worker", str(self.folder), name]
            with (self.folder / f"log-{name}").open("ab") as said:
                self.processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)

    def records(self) -> list[Ownership]:
        return list(self.store.list_ownership(self.hub.consumer_group("$Default")).records)

    def owned(self) -> dict[str, int]:
        """How many partitions each name owns on record."""
        return Counter(record.owner_id.partition("/")[0] for record in self.records() if record.owner_id)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait, and fail with what the processes have logged."""
        try:
            until(condition, what)
        except AssertionError as error:
            said = "\n".join(path.read_text(errors="replace") for path in self.folder.glob("log-*"))
            raise AssertionError(f"{error}; {self.owned()}\n{said}") from None

    def expire(self, name: str) -> None:
        """Let so much time pass for what a process has written that it counts as gone: it is dead, or sleeps."""
        InFile(self.folder, "store.db").age(f"{name}/%", 2 * NEVER)

    def wait_owned(self, **names: int) -> None:
        self.until(lambda: self.owned() == names, f"{names}")

    def wait_consumed(self) -> None:
        """Wait until every event is in the table."""
        ends = {partition: place.end for partition, place in self.hub.partition_properties().items()}
        self.until(lambda: Counter(partition for partition, _ in self.table()) == ends, f"{ends} in the table")

    def table(self) -> list[tuple[str, int]]:
        """What took effect."""
        with closing(sqlite3.connect(self.folder / "table.db", timeout=30.0)) as table:
            if not table.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seen'").fetchone():
                return []
            return table.execute("SELECT partition, sequenceNumber FROM seen").fetchall()

    def read(self) -> Counter[tuple[str, int]]:
        """What was read, by all together, and how often."""
        lines = [line.split() for path in self.folder.glob("read-*") for line in path.read_text().splitlines()]
        return Counter((partition, int(number)) for partition, number in lines)

    def all_events(self) -> set[tuple[str, int]]:
        places = self.hub.partition_properties().values()
        return {(place.partition, number) for place in places for number in range(place.end)}

    def check_effects(self) -> None:
        """Every event has had one effect."""
        table = self.table()
        assert len(table) == len(set(table))
        assert set(table) == self.all_events()
        assert set(self.read()) == self.all_events()

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for name, process in self.processes.items():
            assert process.wait(PATIENCE) == 0, (self.folder / f"log-{name}").read_text()
        assert {record.owner_id for record in self.records()} == {""}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    for process in fleet.processes.values():
        process.kill()
        process.wait()


@pytest.mark.more
def test_a_join_with_hand_over_reads_no_event_twice(fleet: Fleet) -> None:
    fleet.send(100)
    fleet.launch("a", "b")
    fleet.wait_owned(a=3, b=3)
    fleet.send(150)
    fleet.launch("c")
    fleet.wait_owned(a=2, b=2, c=2)
    fleet.send(20)
    fleet.wait_consumed()
    fleet.stop()  # a stop is planned too
    assert {event for event, count in fleet.read().items() if count > 1} == set()
    fleet.check_effects()
    assert not list(fleet.folder.glob("refused-*"))


def test_a_killed_process_is_replaced(fleet: Fleet) -> None:
    fleet.send(60)
    fleet.launch("a", "b", "c")
    fleet.wait_owned(a=2, b=2, c=2)
    fleet.send(100)
    victim = fleet.processes.pop("c")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    fleet.expire("c")
    fleet.wait_owned(a=3, b=3)
    fleet.send(20)
    fleet.wait_consumed()
    fleet.stop()
    fleet.check_effects()


def test_a_process_that_sleeps_too_long_changes_nothing_when_it_wakes_up(fleet: Fleet) -> None:
    fleet.send(20)
    fleet.launch("a", "b", "c")
    fleet.wait_owned(a=2, b=2, c=2)
    fleet.wait_consumed()
    (fleet.folder / "gate-b").touch()
    fleet.send(100)
    fleet.until((fleet.folder / "inside-b").exists, "b to be in the middle of a batch")
    with ExitStack() as asleep:
        with InFile(fleet.folder, "store.db").locked():  # it is not stopped while it has the lock
            asleep.enter_context(paused(psutil.Process(fleet.processes["b"].pid)))
        fleet.expire("b")
        fleet.wait_owned(a=3, c=3)
        fleet.wait_consumed()
    (fleet.folder / "gate-b").unlink()
    fleet.until((fleet.folder / "refused-b").exists, "its late effects to be refused")
    fleet.wait_owned(a=2, b=2, c=2)
    fleet.send(20)
    fleet.wait_consumed()
    fleet.stop()
    fleet.check_effects()
    assert max(fleet.read().values()) == 2  # delivered again, as it has to be; and without a second effect
