"""Processes that are killed and paused: each message in effect once."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from leasehold.emulators.service_bus import ServiceBusServer
from tests.queue_processor.accounts import LEASE
from tests.queue_processor.conftest import Accounts
from tests.queues.conftest import url
from tests.service_bus.servers import LEAVES_SOCKETS

pytestmark = LEAVES_SOCKETS
SESSIONS = "sessions"
"""In place of a policy: a queue that requires sessions, and no leases."""


def queue_of(policy: str) -> str:
    return "steady-sessions" if policy == SESSIONS else "steady"


@contextmanager
def started(
    server: ServiceBusServer, folder: Path, table: Accounts, policy: str, what: str
) -> Iterator[subprocess.Popen[bytes]]:
    sessions = policy == SESSIONS
    at = f"{url(server, queue_of(policy))}?sessions=true" if sessions else url(server, queue_of(policy))
    policy = "wait" if sessions else policy
    command = [sys.executable, "-m", "tests.queue_processor.accounts", at, str(folder), table.sink, what, policy, what]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def states(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What each thread of a process does; `T` is stopped."""
    for each in Path(f"/proc/{process.pid}/task").iterdir():
        yield (each / "stat").read_text().rpartition(")")[2].split()[0]


def pause(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Pause a process outside of SQLite's transactions, in which it would keep all others waiting until it goes on."""

    def outside() -> bool:
        process.send_signal(signal.SIGSTOP)
        until(lambda: set(states(process)) == {"T"})  # each thread stops when it is next looked at
        try:
            for name in ("table.db", "leases.db"):
                if not (folder / name).exists():
                    continue  # the table is in Postgres, whose server ends a transaction that stands still
                with closing(sqlite3.connect(folder / name, timeout=0.2)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            return False
        return True

    until(outside)


def one_is_killed_and_one_paused(
    server: ServiceBusServer, folder: Path, table: Accounts, policy: str, count: int, keys: int
) -> None:
    queue = queue_of(policy)
    for key in range(keys):
        account = f"a{key}"
        sent = [json.dumps({"account": account, "n": n}) for n in range(key, count, keys)]
        server.send(queue, *sent, session_id=account)
    with started(server, folder, table, policy, "die") as dies:
        assert dies.wait(60) == -signal.SIGKILL
    committed = sum(map(len, table.logs().values()))
    assert committed >= 1
    with started(server, folder, table, policy, "hang") as paused:
        until(lambda: (folder / "hanging").exists() and (folder / "hanging").read_text())
        held = int((folder / "hanging").read_text())
        assert held not in table.logs().get(f"a{held % keys}", [])
        pause(paused, folder)  # in the handler: before it, one was killed behind a commit
        with started(server, folder, table, policy, "works") as works:
            until(lambda: held in table.logs().get(f"a{held % keys}", []))  # so lock and lease have ended
            (folder / "go").touch()
            paused.send_signal(signal.SIGCONT)
            until(lambda: server.count(queue) == 0)
            for process, number in ((paused, signal.SIGTERM), (works, signal.SIGINT)):
                process.send_signal(number)
                assert process.wait(60) == 0
    applied = table.logs()
    assert sorted(n for log in applied.values() for n in log) == list(range(count))
    assert all(n % keys == int(key[1:]) for key, log in applied.items() for n in log)
    assert server.count(queue, dead=True) == 0
    if policy == SESSIONS:
        assert applied == {f"a{key}": list(range(key, count, keys)) for key in range(keys)}
        assert not (folder / "leases.db").exists()


@pytest.mark.parametrize("table", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
@pytest.mark.parametrize(
    "policy", ["wait", *(pytest.param(each, marks=pytest.mark.soak) for each in ("abandon", SESSIONS))]
)
def test_one_is_killed_behind_a_commit_and_one_paused_past_lock_and_lease(
    server: ServiceBusServer, tmp_path: Path, table: Accounts, policy: str
) -> None:
    assert LEASE > 2.0  # the queue's locks
    one_is_killed_and_one_paused(server, tmp_path, table, policy, count=30, keys=10)


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["wait", "abandon", SESSIONS])
def test_the_same_of_many_messages(server: ServiceBusServer, tmp_path: Path, table: Accounts, policy: str) -> None:
    one_is_killed_and_one_paused(server, tmp_path, table, policy, count=3_000, keys=300)
