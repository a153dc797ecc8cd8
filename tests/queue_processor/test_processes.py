"""Processes that are killed and paused: each message in effect once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.conftest import Accounts
from tests.queue_processor.pauses import LEASE, SESSIONS, pause
from tests.queues.conftest import url
from tests.waiting import PATIENCE, until

pytestmark = [LEAVES_SOCKETS, pytest.mark.usefixtures("short_leases")]


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes' leases end soon after they are paused."""
    monkeypatch.setenv("LEASE", str(LEASE))


def queue_of(policy: str) -> str:
    """Whose locks last for two seconds."""
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


def one_is_killed_and_one_paused(
    server: ServiceBusServer, folder: Path, table: Accounts, policy: str, count: int, keys: int
) -> None:
    queue = queue_of(policy)
    for key in range(keys):
        account = f"a{key}"
        sent = [json.dumps({"account": account, "n": n}) for n in range(key, count, keys)]
        server.send(queue, *sent, session_id=account)
    with started(server, folder, table, policy, "die") as dies:
        assert dies.wait(PATIENCE) == -signal.SIGKILL
    committed = sum(map(len, table.logs().values()))
    assert committed >= 1
    with started(server, folder, table, policy, "hang") as paused:
        until(lambda: (folder / "hanging").exists() and (folder / "hanging").read_text(), "a handler that hangs")
        held = int((folder / "hanging").read_text())
        assert held not in table.logs().get(f"a{held % keys}", [])
        pause(paused, folder)  # in the handler: before it, one was killed behind a commit
        with started(server, folder, table, policy, "works") as works:
            # So lock and lease have ended.
            until(lambda: held in table.logs().get(f"a{held % keys}", []), "what was held, done by another")
            (folder / "go").touch()
            paused.send_signal(signal.SIGCONT)
            until(lambda: server.count(queue) == 0, "an empty queue")
            for process, number in ((paused, signal.SIGTERM), (works, signal.SIGINT)):
                process.send_signal(number)
                assert process.wait(PATIENCE) == 0
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
    one_is_killed_and_one_paused(server, tmp_path, table, policy, count=30, keys=10)


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["wait", "abandon", SESSIONS])
def test_the_same_of_many_messages(server: ServiceBusServer, tmp_path: Path, table: Accounts, policy: str) -> None:
    one_is_killed_and_one_paused(server, tmp_path, table, policy, count=3_000, keys=300)
