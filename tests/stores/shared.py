"""Servers that belong to no process of the tests, and one server of a kind for all workers of a run.

The first worker that asks starts the server, the others attach to it, and the last one that leaves ends it. Who uses
it stands in a file that is read and written under a lock of the system's, so a worker may die at any line: its lock
goes with it, and a process that is gone no longer counts.

A test does not kill, stop or empty such a server: for that it starts one of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

import psutil

_STARTER = """
import json, subprocess, sys
settings = json.loads(sys.argv[1])
with open(settings.pop("log"), "ab") as log:
    print(subprocess.Popen(**settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True).pid)
"""


def detached(command: Sequence[str], log: Path, **settings: Any) -> psutil.Process:
    """Start a program that no process here is the parent of, so that whoever started it may end first."""
    wanted = json.dumps({"args": list(command), "log": str(log), **settings})
    started = subprocess.run([sys.executable, "-c", _STARTER, wanted], check=True, capture_output=True, text=True)
    return psutil.Process(int(started.stdout))


def runs(process: psutil.Process) -> bool:
    """Whether a process runs; one that has ended and that its parent has not asked for yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Server(Protocol):
    """What can be shared."""

    def facts(self) -> dict[str, Any]:
        """What another process needs to attach, as JSON."""

    def end(self) -> None:
        """End it, also where another process has started it."""


S = TypeVar("S", bound=Server)


@contextmanager
def one_for_all(kind: str, start: Callable[[Path], S], attach: Callable[[Path, dict[str, Any]], S]) -> Iterator[S]:
    """The server of this kind, for the length of the block. `start` may raise: then the next who asks tries again."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
    folder = Path(tempfile.gettempdir(), f"leasehold-{kind}-{run[:12]}")
    with _users(folder) as users:
        server = attach(folder, users["server"]) if users["pids"] else start(_emptied(folder))
        users["server"] = server.facts()
        users["pids"].append(os.getpid())
    try:
        yield server
    finally:
        with _users(folder) as users:
            users["pids"].remove(os.getpid())
            if not users["pids"]:
                server.end()
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _users(folder: Path) -> Iterator[dict[str, Any]]:
    """Who uses the server, to be read and changed while nobody else does."""
    path = folder.with_name(f"{folder.name}.users")
    with _locked(path) as file:
        users = json.loads(file.read() or '{"pids": []}')
        users["pids"] = [pid for pid in users["pids"] if psutil.pid_exists(pid)]
        yield users
        file.seek(0)
        file.truncate()
        json.dump(users, file)
        file.flush()
        if not users["pids"]:
            path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    """The file, which nobody else has meanwhile; made anew where its last user has just removed it."""
    while True:
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and path.samefile(f"/dev/fd/{file.fileno()}"):
                file.seek(0)
                yield file
                return


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)  # Postgres, as a user of its own, must get in
    return folder
