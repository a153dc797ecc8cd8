"""SQLite as the embedded engine: how every database file of Leasehold is opened and written.

Owns connections, pragmas, and the waiting for another writer. Promises that what a `durable` transaction
wrote is on disk when it returns, and that a file which was deleted or replaced under an open connection is
noticed at the next use. A file is made for its owner alone (0600, or what `LEASEHOLD_FILE_MODE` says), and so are those
that SQLite keeps beside it; one that is there keeps its mode. Its temporary files have a place (`temporary_files`).
Refuses to create a file unless told to, and to change one that the caller's `check` does not recognise.

Concurrency: a `DatabaseFile` may be used by several threads of a process (a thread has a connection to itself for the
length of a block, and gives it back for the next one) and by many processes. SQLite allows one writer at a time. The
threads that write through one `DatabaseFile` take turns, none passed by for long (`turns.py`), so that hundreds of them
neither open a connection each nor keep each other from the file. A writer that is paused or killed inside a transaction
holds SQLite's lock until it goes on or its process ends (then the system frees the lock and SQLite rolls back); all
others wait up to `timeout` seconds and then raise `unavailable`. As long as the writers before it in its own process
get on, a thread waits longer. Waiting for other processes is a short randomised retry of our own, because SQLite's busy
handler starves some writers for seconds.

Forks: SQLite keeps its account of file locks in the process, and a child that inherits it believes in locks
that only its parent holds: what it commits is lost when the parent closes. So before a fork all connections
are closed, and parent and child open their own. One in use is waited for, for a moment.

The WAL: SQLite begins it anew only in a moment in which nobody reads from it, and readers that take turns without a
pause leave none. So a writer that finds it longer than `LONGEST_WAL` holds other writers up for a moment, until those
who read now are done, and empties it. A reader that does not end (it is stopped, or its program keeps a transaction
open) keeps what it may still read: then the WAL grows, and each writer tries again when it has grown by as much
again. Once the reader has ended, the next writes make it short.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from leasehold.backoff import Backoff, until_done
from leasehold.database.temporary_files import place, room
from leasehold.database.turns import Turns
from leasehold.environment import file_mode
from leasehold.errors import LeaseholdError, Verdict
from leasehold.open_files import files_used_up
from leasehold.printable import span

LONGEST_WAL = 64 << 20
"""Bytes of a WAL from which a writer waits for readers, to empty it. SQLite's own checkpoints begin at 4 to 16 MB."""

_PAUSES = Backoff(0.0005, 0.02, factor=1.5)
_FORK_PATIENCE = 1.0
_WAL_PATIENCE = 0.5
_MOST_IDLE = 16
"""How many connections a `DatabaseFile` keeps for its next uses."""


class DatabaseFile:
    """One SQLite file in WAL mode.

    `schema` is a list of statements that are run when the file is first opened here; they must be
    idempotent. Or it is a function that lays the file out, which does so in a transaction of its own, and is
    called again when the file was locked. `unavailable` is the error class to raise when the file cannot be
    opened or stays locked for `timeout` seconds; `broken` (default: the same) when it is damaged or no SQLite
    file. `create` says whether a missing file is made when it is first opened here; one that goes missing later
    is `unavailable`. `pragmas` are set on each connection before the file is looked at (page size and vacuum
    mode count only while it is empty); `check` is run on each connection before anything is changed, and
    raises if the file is not what the caller takes it for.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: Sequence[str] | Callable[[sqlite3.Connection], object],
        unavailable: type[LeaseholdError],
        create: bool,
        timeout: float = 3.0,
        setup: Callable[[sqlite3.Connection], None] | None = None,
        broken: type[LeaseholdError] | None = None,
        pragmas: Sequence[str] = (),
        check: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self.path = path
        self._schema = schema
        self._unavailable = unavailable
        self._create = create
        self._timeout = timeout
        self._setup = setup
        self._broken = broken or unavailable
        self._pragmas = pragmas
        self._check = check
        self._was_open = False
        self._idle: list[_Connection] = []
        self._turns: dict[int, Turns] = {}

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view of the file for the length of the block."""
        with self._translated():
            connection = self._connection()
            try:
                self._patiently(partial(_begin_reading, connection))
                yield connection
            finally:
                self._give_back(connection)

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: committed when the block ends, rolled back when it raises.

        `durable=False` may lose the transaction on power loss (never on a crash of the process).
        """
        since = time.monotonic()
        with self._translated(), self._turn() as turns:
            connection = self._connection()
            try:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                deadline = turns.deadline(since, self._timeout)
                self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"), deadline)
                turns.went_on()
                yield connection
                self._patiently(lambda: connection.execute("COMMIT"))
                _keep_wal_short(connection)
            finally:
                self._give_back(connection)

    def checkpoint(self) -> None:
        """Move what the WAL holds into the file and empty it, if those who read now are done in a moment."""
        with self._translated():
            connection = self._connection()
            try:
                _empty_wal(connection)
            finally:
                self._give_back(connection)

    def close(self) -> None:
        """Close the connections that no thread uses now. The file may be used again afterwards."""
        with _gate:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _turn(self) -> Iterator[Turns]:
        """This thread's turn to write, of those of this process."""
        turns = self._turns.setdefault(os.getpid(), Turns())  # a child's copy of one may be taken for ever
        if not turns.acquire(self._timeout):
            kept = f"another thread of this process kept it locked for {span(self._timeout)}"
            raise self._unavailable(f"{self.path}: database is locked ({kept})")
        try:
            yield turns
        finally:
            turns.release()

    def _connection(self) -> _Connection:
        """A connection, marked as in use: a new one where none is free, after a fork, or if the file was replaced."""
        while True:
            identity = self._identity()
            with _gate:
                connection = self._idle.pop() if self._idle else None
                if connection is not None and identity is not None and connection.is_for(identity):
                    connection.take()
                    return connection
            if connection is None:
                return self._open()
            connection.close()

    def _give_back(self, connection: _Connection) -> None:
        """Keep it for the next use, or close it; what was not committed is rolled back."""
        clean = False
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            clean = True
        finally:
            connection.used = False  # not behind the gate: whoever forks holds it, and waits for this
            with _gate:
                inherited = connection in _inherited
                if kept := clean and not inherited and len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
            if not kept and not inherited:
                connection.close()

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return os.getpid(), status.st_dev, status.st_ino

    def _open(self) -> _Connection:
        if self._create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = "rwc" if self._create else "rw"
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        file_mode_stated = file_mode(os.environ) if self._create else None
        with _gate:
            if self._create:
                _make(self.path, file_mode_stated)
            if not self._was_open:
                place(self.path)
            connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=0, check_same_thread=False, factory=_Connection
            )
            connection.take()
        connection.wal = f"{os.path.realpath(self.path)}-wal"
        try:
            for pragma in self._pragmas:
                self._patiently(partial(connection.execute, f"PRAGMA {pragma}"))
            if self._check:
                self._patiently(partial(self._check, connection))
            self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA journal_size_limit = {LONGEST_WAL // 2}")  # when the WAL begins anew
            lay_out = self._schema if callable(self._schema) else partial(_lay_out, schema=self._schema)
            self._patiently(partial(lay_out, connection))
            if self._setup:
                self._setup(connection)
        except BaseException:
            connection.close()
            raise
        self._create = False  # a file that was there and is gone was moved or lost: an empty one is no substitute
        connection.identity = self._identity()
        self._was_open = True
        return connection

    def _patiently(self, attempt: Callable[[], object], deadline: float | None = None) -> None:
        """Run `attempt` until it is not refused for a lock, for at most `timeout` seconds, or until a time."""
        if deadline is None:
            deadline = time.monotonic() + self._timeout
        until_done(attempt, _is_locked, deadline=deadline, pauses=_PAUSES)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's operational errors into the caller's `unavailable`."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if not _is_locked(error) and (limit := files_used_up()):  # SQLite calls it what it calls a missing right
                raise self._unavailable(f"{self.path}: {error} ({limit})") from error
            remedy = _remedy(error, self.path, self._timeout, self._create)
            raise self._unavailable(f"{self.path}: {error} ({remedy})", verdict=self._verdict_on(error)) from error
        except (OSError, sqlite3.NotSupportedError) as error:
            if limit := files_used_up():
                raise self._unavailable(f"{self.path}: {error} ({limit})") from error
            comes_back = self._was_open and isinstance(error, OSError) and not isinstance(error, PermissionError)
            verdict = Verdict.PASSES if comes_back else Verdict.MEND
            raise self._unavailable(f"{self.path}: {error}", verdict=verdict) from error
        except sqlite3.DatabaseError as error:
            if primary_code(error) not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise
            raise self._broken(
                f"{self.path}: {error} (restore it, or name another file)", verdict=Verdict.MEND
            ) from error
        except UnicodeDecodeError as error:  # in place of an error whose message quotes the file
            said = error.object.decode(errors="replace")
            raise self._broken(
                f"{self.path}: {said} (restore it, or name another file)", verdict=Verdict.MEND
            ) from error

    def _verdict_on(self, error: sqlite3.OperationalError) -> Verdict:
        """A lock passes, and a file that could be used before comes back; the rest a person has to mend: a full disk,
        a right."""
        comes_back = self._was_open and primary_code(error) == sqlite3.SQLITE_CANTOPEN and _is_away(self.path)
        return Verdict.PASSES if _is_locked(error) or comes_back else Verdict.MEND


def _is_away(path: Path) -> bool:
    """Whether there is no file here now, or nobody can tell; one behind a right that is missing is there."""
    try:
        path.stat()
    except PermissionError:
        return False
    except OSError:  # also that of a network's file system, or a disk's
        return True
    return False


def _make(path: Path, mode: int | None) -> None:
    """Make the file, empty and closed to others, if it is not there. SQLite gives those beside it the same mode.

    Only under `_gate`, and only a file that nobody had: to close one takes away the locks that SQLite holds on it.
    """
    place = os.path.realpath(path)
    try:
        made = os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600 if mode is None else mode)
    except OSError:
        return  # it is there, or SQLite will say why it cannot be made
    try:
        if mode is not None:
            os.fchmod(made, mode)  # what was asked for, whatever the umask
    finally:
        os.close(made)


class _Connection(sqlite3.Connection):
    """Knows whether it is in use, by which thread, and of which file and process it is."""

    closed = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.closed = self.used = False
        self.thread = 0
        self.identity: tuple[int, int, int] | None = None
        self.wal = ""
        self.wal_limit = LONGEST_WAL
        _connections.add(self)

    def take(self) -> None:
        """Be in use by this thread."""
        self.used, self.thread = True, threading.get_ident()

    def is_for(self, identity: tuple[int, int, int]) -> bool:
        """Whether it can be used in this process for the file that is there now."""
        return not self.closed and self.identity == identity

    def close(self) -> None:
        self.closed = True
        super().close()

    def __del__(self) -> None:
        if not self.closed:
            self.close()


_gate = threading.RLock()
"""Held while a connection is made or taken into use, and across a fork."""
_connections: weakref.WeakSet[_Connection] = weakref.WeakSet()
_crossing: list[_Connection] = []
_inherited: list[_Connection] = []


def _before_fork() -> None:
    _gate.acquire()
    deadline = time.monotonic() + _FORK_PATIENCE
    for connection in list(_connections):
        while connection.used and connection.thread != threading.get_ident() and time.monotonic() < deadline:
            time.sleep(0.001)
        if connection.used:
            _crossing.append(connection)
        else:
            connection.close()


def _after_fork_in_parent() -> None:
    _crossing.clear()
    _gate.release()


def _after_fork_in_child() -> None:
    _inherited.extend(_crossing)  # closing one that was in use could undo what the parent is about to commit
    _crossing.clear()
    _connections.clear()
    _gate.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _lay_out(connection: sqlite3.Connection, schema: Sequence[str]) -> None:
    """Run the schema. What is there already takes no write lock, so that a reader may come beside a writer."""
    connection.execute("BEGIN")
    try:
        for statement in schema:
            connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _keep_wal_short(connection: _Connection) -> None:
    """Empty a WAL that has grown long. What was committed is committed: nothing is raised."""
    try:
        size = os.stat(connection.wal).st_size  # noqa: PTH116  in each transaction: a Path would cost more than the call
    except OSError:
        return
    emptied = size < LONGEST_WAL
    if size >= connection.wal_limit:
        with suppress(sqlite3.Error):
            emptied = _empty_wal(connection)
        connection.wal_limit = size + LONGEST_WAL
    if emptied:
        connection.wal_limit = LONGEST_WAL


def _empty_wal(connection: sqlite3.Connection) -> bool:
    """Whether the WAL could be emptied. New readers need nothing of it meanwhile; other writers wait."""
    connection.execute(f"PRAGMA busy_timeout = {round(_WAL_PATIENCE * 1000)}")
    try:
        (busy, *_), *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute("PRAGMA busy_timeout = 0")
    return not busy


def _begin_reading(connection: sqlite3.Connection) -> None:
    """Begin, and take the view at once: the first statement after a BEGIN may be refused for a lock too."""
    if not connection.in_transaction:
        connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code of an error; Python's own errors, such as of text that is no UTF-8, have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_locked(error: Exception) -> bool:
    locked = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return isinstance(error, sqlite3.OperationalError) and primary_code(error) in locked


def _remedy(error: sqlite3.OperationalError, path: Path, timeout: float, create: bool) -> str:
    code = primary_code(error)
    if _is_locked(error):
        return f"another process kept it locked for {span(timeout)}"
    if code == sqlite3.SQLITE_CANTOPEN:
        try:
            path.stat()
        except PermissionError:
            return "this user may not look into its folder"
        except OSError:
            made = "it cannot be made: check that this user may write its folder"
            return made if create else "the file does not exist: check the path"
        if path.is_dir():
            return "it is a folder"
        with _gate:  # SQLite says the same of a temporary file
            return place(path) or "check that this user may read and write it and its folder"
    if code == sqlite3.SQLITE_READONLY:
        return "SQLite writes beside a file to read it: check that this user may write it and its folder"
    if "no such table" in str(error):
        return "a table was removed. What made the file makes it again, empty, when it is started anew"
    if code == sqlite3.SQLITE_FULL:
        return room(path, os.environ)
    if code == sqlite3.SQLITE_IOERR:
        return "the system refused to read or write: check the disk, its quota, and the limit of a file's size"
    return "check the file and its folder"
