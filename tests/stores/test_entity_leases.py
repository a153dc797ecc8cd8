"""`EntityLeases` in real processes that are killed and paused: never two at once, and each gets its turn."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leasehold.leases import EntityLeases
from leasehold.stores import open_lease_store
from tests.repository import ROOT
from tests.stores.azurite import Azurite
from tests.stores.azurite_places import azurite_url
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import PATIENCE, until

Section = dict[str, Any]


class Holders:
    """Processes that compete for one lease."""

    def __init__(self, stack: ExitStack, folder: Path, url: str, duration: float) -> None:
        self._stack, self._folder, self._url, self._duration = stack, folder, url, duration
        self.scope = f"tests {uuid.uuid4()}"
        self._store: Any = open_lease_store(url, timeout=PATIENCE)
        stack.callback(getattr(self._store, "close", lambda: None))
        self.running: list[subprocess.Popen[str]] = []
        with closing(sqlite3.connect(folder / "resource.db", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE resource (fence INTEGER, value INTEGER)")
            database.execute("INSERT INTO resource VALUES (0, 0)")

    def start(self, count: int) -> None:
        for _ in range(count):
            name = f"holder {len(self.running)}"
            arguments = [self._url, self.scope, name, str(self._folder / "resource.db")]
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.stores.lease_program", *arguments, self._log(name), str(self._duration)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._stack.callback(_end, process)
            self.running.append(process)
        for process in self.running[-count:]:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def _log(self, name: str) -> str:
        return str(self._folder / f"{name}.log")

    def sections(self) -> list[Section]:
        """What was done under the lease, in the order of fences. The last line of who was killed may be cut off."""
        lines = [line for log in self._folder.glob("*.log") for line in log.read_text().splitlines(keepends=True)]
        return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda one: one["fence"])

    def fence(self) -> int:
        """The highest that the resource has seen."""
        with closing(sqlite3.connect(self._folder / "resource.db")) as database:
            [[fence]] = database.execute("SELECT fence FROM resource").fetchall()
            return int(fence)

    def pause(self, process: subprocess.Popen[str]) -> None:
        """Stop the process while it holds the lease, and not in a transaction of SQLite, which would stop everybody."""
        name = f"holder {self.running.index(process)}"

        def stopped() -> bool:
            os.kill(process.pid, signal.SIGSTOP)
            held = self._store.holders(self.scope, ["the key"]) if self._writable() else []
            if [lease.session.owner for lease in held] == [name]:
                return True
            os.kill(process.pid, signal.SIGCONT)
            return False

        until(stopped, f"{name} to be stopped while it holds the lease")

    def _writable(self) -> bool:
        for file in self._folder.glob("*.db"):
            with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as database:
                try:
                    database.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    return False
        return True

    def last(self) -> str:
        """Who gave the lease up last."""
        return str(self.sections()[-1]["by"])


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def judge(sections: list[Section]) -> None:
    """No fence twice, and nobody trusted the lease while another did."""
    fences = [one["fence"] for one in sections]
    assert len(set(fences)) == len(fences)
    by_time = sorted((one for one in sections if one["since"] is not None), key=lambda one: one["since"])
    for one, other in pairwise(by_time):
        assert one["until"] <= other["since"], (one, other)
        assert one["fence"] < other["fence"], (one, other)


def killed_and_paused(folder: Path, url: str, duration: float) -> None:
    with ExitStack() as stack:
        holders = Holders(stack, folder, url, duration)
        holders.start(3)
        until(lambda: len({one["by"] for one in holders.sections()}) == 3, "each to have had the lease")
        killed, paused, _ = holders.running
        killed.kill()
        holders.pause(paused)
        before = holders.fence()
        until(lambda: holders.last() == "holder 2" and holders.fence() > before, "the third to have the lease")
        before = holders.fence()
        os.kill(paused.pid, signal.SIGCONT)
        until(
            lambda: any(s["by"] == "holder 1" and s["fence"] > before for s in holders.sections()),
            "the one that was paused to have the lease again",
        )
        for process in holders.running:
            _end(process)
        judge(holders.sections())


@pytest.mark.more
def test_sqlite(tmp_path: Path) -> None:
    killed_and_paused(tmp_path, f"sqlite:////{tmp_path}/leases.db", 1.0)


@pytest.mark.soak
def test_postgres(tmp_path: Path, postgres_server: PostgresServer) -> None:
    killed_and_paused(tmp_path, postgres_server.url, 1.0)


@pytest.mark.soak
def test_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    killed_and_paused(tmp_path, redis_server.url, 1.0)


@pytest.mark.soak
def test_azure_table(tmp_path: Path, azurite: Azurite) -> None:
    killed_and_paused(tmp_path, azurite_url(azurite, "aztable"), 4.0)


@pytest.mark.soak  # the shortest lease of the service is 15 s
def test_azure_blob(tmp_path: Path, azurite: Azurite) -> None:
    killed_and_paused(tmp_path, azurite_url(azurite, "azblob"), 15.0)


FORKED = """
import os, sys
from leasehold.leases import EntityLeases
from leasehold.stores import open_lease_store

leases = EntityLeases(sys.argv[1], scope="forks", holder="me")
lease = leases.acquire("a")
child = os.fork()
if child == 0:
    assert lease.lost.is_set() and "forked" in lease.lost.reason
    lease.release()                                     # is the parent's, and stays held
    assert leases.try_acquire("a") is None
    with leases.hold("b") as mine:
        assert mine.fence > lease.fence
    os._exit(0)
_, status = os.waitpid(child, 0)
lease.check()
assert status == 0, status
"""


def test_a_forked_process_holds_nothing_and_takes_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, f"sqlite:////{tmp_path}/leases.db"]
    subprocess.run(command, check=True, timeout=PATIENCE)


def test_what_a_dead_process_held_is_free_after_the_duration(tmp_path: Path) -> None:
    url = f"sqlite:////{tmp_path}/leases.db"
    program = (
        "import os, sys; from leasehold.leases import EntityLeases; "
        "EntityLeases(sys.argv[1], scope='s', duration=1).acquire('a'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, url], check=True, timeout=PATIENCE)
    with EntityLeases(url, scope="s").hold("a", wait=PATIENCE) as lease:
        lease.check()
