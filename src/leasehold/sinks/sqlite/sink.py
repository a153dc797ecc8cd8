"""An entity table in a SQLite file: one transaction a batch, together with the watermarks that fence it.

Owns the transaction and the order of what happens in it. Promises that a batch is applied whole or not at
all, that no event is applied twice or left out, whichever owner brings the batch and however often, and that what
`apply` returned for is on disk. Works on Arrow tables and knows nothing of Spark.

Concurrency: any number of threads and processes may apply batches to one table at once, also the same
batch. BEGIN IMMEDIATE makes them follow one another, so the second writer finds the first writer's
watermarks. A process that is paused inside a transaction keeps the others waiting, for at most `timeout`
seconds, after which they raise `SinkUnavailable`; when it goes on, it commits what no other writer could have
overtaken. One that is paused before its transaction finds out in it: its events are at or below the
watermark, or its level is. One that is killed at any line before COMMIT has done nothing, and the next
owner's batch starts where the watermark says; killed after COMMIT, its batch comes again and is dropped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from leasehold.backends import local_file_of
from leasehold.clock import Clock
from leasehold.database.sqlite import DatabaseFile, primary_code
from leasehold.errors import SinkError, SinkUnavailable, Verdict
from leasehold.sinks.base import Compared, Sink
from leasehold.sinks.beside import record
from leasehold.sinks.beside.related import RelatedTable
from leasehold.sinks.beside.session import Access
from leasehold.sinks.beside.sink import BesideSink
from leasehold.sinks.features import ALL
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite import (
    making,
    related,
    states,
)
from leasehold.sinks.sqlite.look import check_made, looking
from leasehold.sinks.sqlite.session import SqliteSession, prepare
from leasehold.sinks.sqlite.tables import SCHEMA, check_formats
from leasehold.sinks.sqlite.transaction import CheckedShape, SqliteTransaction
from leasehold.sinks.transactional import TransactionalSink


def open_sqlite_sink(url: str, spec: TableSpec, base: Path, timeout: float) -> Sink:
    """Open `sqlite:///PATH`, relative to `base` unless it is absolute."""
    return SqliteSink(local_file_of(url, base, "url"), spec, timeout=timeout)


class SqliteSink(TransactionalSink["SqliteTransaction"], BesideSink):
    """The entity table of `spec` in the SQLite file at `path`; file and table are made when they are missing.

    `timeout` is the longest to wait for another writer, in seconds. Every method may raise `SinkUnavailable`,
    and `AlreadyInUse` when the table belongs to another pipeline or was made with another mode or keys.
    """

    features = ALL

    def __init__(self, path: Path, spec: TableSpec, *, timeout: float = 10.0, clock: Clock | None = None) -> None:
        spec.called.without_schema("SQLite")
        super().__init__(spec, str(path), clock)
        self._path = path
        self._timeout = timeout
        self._file = DatabaseFile(
            path,
            schema=SCHEMA,
            unavailable=SinkUnavailable,
            broken=SinkError,
            create=True,
            timeout=timeout,
            setup=prepare,
            check=partial(check_formats, spec=spec),
        )
        self._checked: WeakKeyDictionary[sqlite3.Connection, CheckedShape] = (
            WeakKeyDictionary()
        )  # each thread has its own

    def compare(self, schema: pa.Schema | None) -> Compared:
        """See `Sink`. Where there is no file, none is made."""
        if self._path.exists():
            return super().compare(schema)
        check_made(self._path, self.spec, schema)
        return Compared(there=False)

    def advice(self) -> tuple[str, ...]:
        """See `Sink`. None: SQLite counts nothing that would tell."""
        return ()

    def table_statements(self, schema: pa.Schema | None, *, duplicates: bool = False) -> tuple[str, ...]:
        """See `Sink`."""
        with self._looking() as session:
            if session.there(record.TABLE):
                record.check_still_there(session)
        return making.statements(self.spec, schema, duplicates=duplicates)

    def make_tables(self, schema: pa.Schema | None = None, *, duplicates: bool = False) -> bool:
        """See `Sink`."""
        with self._explained(), self._file.writing() as connection, self._inner():
            record.check_still_there(SqliteSession(connection, self.spec))
            before = list(connection.execute("PRAGMA schema_version"))
            for statement in making.statements(self.spec, schema, duplicates=duplicates):
                connection.execute(statement)
            return list(connection.execute("PRAGMA schema_version")) != before

    def check_states(self, *, referred: bool = False) -> None:
        """Refuse a table that has constraints other than its keys. Raises `ConfigError`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            states.check(connection, self.spec)

    def check_related(self, tables: Collection[str]) -> None:
        """See `RelatesTables`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            related.check(connection, self.spec, tables)

    def related_table(self, name: str) -> RelatedTable:
        """See `RelatesTables`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            return related.shown(connection, self.spec, name)

    @property
    def _access(self) -> Access:
        return Access(self._claimed, self._looking, self._view, _read, lambda act: act(), self._clock.wall)

    def close(self) -> None:
        """Close this thread's connection. The sink may be used again afterwards."""
        self._checked.clear()
        self._fitted = None
        self._file.close()

    @contextmanager
    def _looking(self, *tables: str) -> Iterator[SqliteSession]:
        """See `Access`. Until this object has changed something, the file may be missing, or without our tables."""
        if self._memory.identity is not None:
            with self._view() as session:
                yield session
        else:
            with self._explained(), self._inner(), looking(self._path, self.spec, self._timeout) as session:
                yield session

    @contextmanager
    def _view(self, *tables: str) -> Iterator[SqliteSession]:
        with self._explained(), self._file.reading() as connection, self._inner():
            yield SqliteSession(connection, self.spec)

    @contextmanager
    def _transaction(self) -> Iterator[SqliteTransaction]:
        with self._explained(), self._file.writing() as connection, self._inner():
            yield SqliteTransaction(connection, self.spec, self._checked.get(connection))

    def _joined(self, transaction: SqliteTransaction) -> SqliteTransaction:
        connection = transaction.connection
        return SqliteTransaction(connection, self.spec, self._checked.get(connection))

    def _committed(self, transaction: SqliteTransaction) -> None:
        if transaction.checked is not None:
            self._checked[transaction.connection] = transaction.checked

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What SQLite says of the file or at COMMIT, in the sink's words; a locked file is the file's to tell."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise SinkError(
                f"the table {self.spec.name} refused the batch when it was committed: {error}. Nothing of it was "
                "applied. Make its foreign keys immediate: those that are DEFERRABLE INITIALLY DEFERRED cannot tell "
                "which event is wrong",
                verdict=Verdict.ROWS,
            ) from error
        except sqlite3.DatabaseError as error:
            raise SinkError(f"{self._path}: {error}", verdict=Verdict.ROWS) from error

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """An error in the SQL itself, such as a trigger on a table that is gone: trying again will not help."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_ERROR:
                raise
            raise SinkError(f"{self._path}: the table {self.spec.name} cannot be written: {error}") from error


def _read(session: SqliteSession, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
    return states.read(session.connection, session.spec, schema, keys)
