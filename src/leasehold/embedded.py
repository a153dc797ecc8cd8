"""SQLite as the embedded engine: how every database file of Leasehold is opened and written.

Owns connections, pragmas, and the waiting for another writer. Promises that what a `durable` transaction
wrote is on disk when it returns, and that a file which was deleted or replaced under an open connection is
noticed at the next use. Refuses to create a file unless told to.

Concurrency: a `DatabaseFile` may be used by several threads of a process (each has a connection of its
own) and by many processes. SQLite allows one writer at a time. A writer that is paused or killed inside a
transaction holds the lock until it goes on or its process ends (then the system frees the lock and SQLite
rolls back); all others wait up to `timeout` seconds and then raise `unavailable`. Waiting is a short
randomised retry of our own, because SQLite's busy handler starves some writers for seconds.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from leasehold.errors import LeaseholdError

_LONGEST_PAUSE = 0.02
_INHERITED: list[object] = []


class DatabaseFile:
    """One SQLite file in WAL mode.

    `schema` is a list of statements that are run when the file is first opened here; they must be
    idempotent. `unavailable` is the error class to raise when the file cannot be opened or stays locked
    for `timeout` seconds. `create` says whether a missing file is made.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: Sequence[str],
        unavailable: type[LeaseholdError],
        create: bool,
        timeout: float = 3.0,
        setup: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self.path = path
        self._schema = schema
        self._unavailable = unavailable
        self._create = create
        self._timeout = timeout
        self._setup = setup
        self._local = threading.local()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view of the file for the length of the block."""
        with self._translated():
            connection = self._connection()
            self._patiently(lambda: connection.execute("BEGIN"))
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: committed when the block ends, rolled back when it raises.

        `durable=False` may lose the transaction on power loss (never on a crash of the process).
        """
        with self._translated():
            connection = self._connection()
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                yield connection
                self._patiently(lambda: connection.execute("COMMIT"))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close this thread's connection. The file may be used again afterwards."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection, opened anew after a fork or when the file was replaced."""
        identity = self._identity()
        mine = getattr(self._local, "identity", None)
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is not None and mine == identity and identity is not None:
            return connection
        if mine is not None and mine[0] != os.getpid():
            _INHERITED.append(connection)  # SQLite forbids to touch, or even close, a connection across a fork
            self._local.connection = None
        self.close()
        connection = self._open()
        self._local.connection, self._local.identity = connection, self._identity()
        return connection

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return os.getpid(), status.st_dev, status.st_ino

    def _open(self) -> sqlite3.Connection:
        if self._create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = "rwc" if self._create else "rw"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)
        try:
            self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))
            connection.execute("PRAGMA foreign_keys = ON")
            if self._schema:
                self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                for statement in self._schema:
                    connection.execute(statement)
                self._patiently(lambda: connection.execute("COMMIT"))
            if self._setup:
                self._setup(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _patiently(self, attempt: Callable[[], object]) -> None:
        """Run `attempt` until it is not refused for a lock, for at most `timeout` seconds."""
        deadline = time.monotonic() + self._timeout
        pause = 0.0005
        while True:
            try:
                attempt()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                if time.monotonic() >= deadline:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's operational errors into the caller's `unavailable`."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._unavailable(f"{self.path}: {error} ({_remedy(error, self.path, self._timeout)})") from error
        except (OSError, sqlite3.NotSupportedError) as error:
            raise self._unavailable(f"{self.path}: {error}") from error


def _remedy(error: sqlite3.OperationalError, path: Path, timeout: float) -> str:
    code = error.sqlite_errorcode & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process kept it locked for {timeout:g} s; it will be tried again"
    if code == sqlite3.SQLITE_CANTOPEN:
        reason = "is there and may be read and written" if path.exists() else "does not exist: check the path"
        return f"the file {reason}"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full: make room"
    return "check the file and its folder"
