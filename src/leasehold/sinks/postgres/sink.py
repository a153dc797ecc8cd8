"""An entity table in a Postgres database, for any number of hosts: one transaction a batch.

`postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE`, as libpq reads it. Owns the transaction, and what its end
means. Outcomes are those of SQLite, for the same order of batches (`TransactionalSink`, `merging`).

The entity table and all that is kept beside it are in one schema: the one that the table's name states, or else the
first of the search path that has anything of Leasehold's, or else the first (`database.postgres.place`). So a table
has one set of watermarks, whichever way it is named. A table there that somebody else owns is refused.

Concurrency: any number of threads and processes apply batches to one table at once. Batches of the same partitions
follow one another by the lock on their watermarks; batches of different ones run side by side, and wait for each other
only where they are about the same keys. A process that stops in its transaction holds up those who want its partitions
or keys, and nobody else, until the server ends it after half of the time-out; when it goes on it finds its connection
closed and raises `SinkUnavailable`. One that is paused before its transaction finds out in it: its events are at or
below the watermark, or its level is. One that is killed at any line before COMMIT has done nothing. A server that dies
has committed the batch or not: the same batch comes again, and the watermark says.

What the server undoes for others' sake (a deadlock, a serialization failure) is done again, within the time-out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa

from leasehold.clock import Clock
from leasehold.database.postgres.connections import Connection, Connections, Errors, RolledBack
from leasehold.database.postgres.place import RELATIONS
from leasehold.database.statements import unsent
from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks.base import LevelOf, Sink
from leasehold.sinks.beside import record
from leasehold.sinks.beside.related import RelatedTable
from leasehold.sinks.beside.session import Access
from leasehold.sinks.beside.sink import BesideSink
from leasehold.sinks.features import ALL
from leasehold.sinks.postgres import making, names, related, states
from leasehold.sinks.postgres.advice import advice
from leasehold.sinks.postgres.bookkeeping import FORMAT, LOCK, Bookkeeping
from leasehold.sinks.postgres.catalog import check_tables
from leasehold.sinks.postgres.session import PostgresSession, check_same, gone, timeouts_of, until_it_stays
from leasehold.sinks.postgres.staging import StagedTables
from leasehold.sinks.postgres.transaction import CheckedLayout, PostgresTransaction
from leasehold.sinks.postgres.trial import write_a_row
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.transactional import TransactionalSink

T = TypeVar("T")

_LONGEST = 30
"""Time-outs that one transaction may take."""


class _Undone(SinkUnavailable):
    """The server has undone the transaction so that others could go on."""


def open_postgres_sink(url: str, spec: TableSpec, base: Path, timeout: float) -> Sink:
    """The table in the database that a `postgresql://` URL names; `base` has no meaning here."""
    return PostgresSink(url, spec, timeout=timeout)


class PostgresSink(TransactionalSink[PostgresTransaction], BesideSink):
    """The entity table of `spec` in the database at `url`; what is missing is made.

    `timeout` is the longest to wait for another writer, and for a connection, in seconds. Every method may raise
    `SinkUnavailable`, and `AlreadyInUse` when the table belongs to another pipeline or was made with another mode or
    keys.
    """

    features = ALL

    def __init__(self, url: str, spec: TableSpec, *, timeout: float = 10.0, clock: Clock | None = None) -> None:
        names.check_name(spec)
        milliseconds = max(1, round(timeout * 1000))
        self._connections = Connections(
            url,
            timeout,
            self._prepare,
            errors=Errors(SinkUnavailable, SinkError, gone),
            relations=(*RELATIONS, *names.SHARED),
            schema=spec.called.schema,
            settings=timeouts_of(milliseconds, milliseconds * _LONGEST),
        )
        super().__init__(spec, self._connections.shown, clock)
        self._timeout = timeout
        self._checked: CheckedLayout | None = None  # replaced whole, so threads may race for it
        self._staged: WeakKeyDictionary[Connection, StagedTables] = WeakKeyDictionary()
        self._backends: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._trusted: WeakSet[Connection] = WeakSet()  # those that have seen whose the shared tables are

    def _pass_door(self, works: Sequence[Any], level_of: LevelOf | None) -> BatchResult:
        return self._again(lambda: super(PostgresSink, self)._pass_door(works, level_of))

    def _again(self, act: Callable[[], T]) -> T:
        """Do what is one transaction, and again if the server undoes it for others' sake."""
        try:
            return until_it_stays(act, _Undone, self._timeout)
        except _Undone as undone:
            raise SinkUnavailable(
                f"{undone}. Others probably write the same rows, or the same values of a unique index"
            ) from undone

    def check_states(self, *, referred: bool = False) -> None:
        """Refuse a table that has constraints other than its keys. Raises `ConfigError`."""
        with self._using() as session:
            states.check(session, referred=referred)

    def check_related(self, tables: Collection[str]) -> None:
        """See `RelatesTables`."""
        with self._using() as session:
            related.check(session, tables, self._connections.shown)

    def related_table(self, name: str) -> RelatedTable:
        """See `RelatesTables`."""
        with self._using() as session, session.connection.transaction():
            session.run("SET CONSTRAINTS ALL IMMEDIATE")
            return related.shown(session, name, self._connections.shown)

    def advice(self) -> tuple[str, ...]:
        """See `Sink`."""
        with self._looking(self.spec.name) as session:
            return advice(session)

    def table_statements(self, schema: pa.Schema | None, *, duplicates: bool = False) -> tuple[str, ...]:
        """See `Sink`."""
        with self._looking() as session:
            return tuple(unsent(one) for one in making.statements(session, schema, duplicates=duplicates))

    def make_tables(self, schema: pa.Schema | None = None, *, duplicates: bool = False) -> bool:
        """See `Sink`."""
        with self._using() as session, session.connection.transaction():
            made = self._make_shared(session, names.SHARED)
            session.run("SELECT pg_advisory_xact_lock(%(lock)s)", lock=LOCK)
            missing = making.statements(session, schema, duplicates=duplicates)
            for statement in missing:
                session.run(statement)
        return made or bool(missing)

    @property
    def _access(self) -> Access:
        return Access(self._claimed, self._looking, self._viewing, states.read, self._again, self._clock.wall)

    def close(self) -> None:
        """Close the connections that no thread uses now. The sink may be used again afterwards."""
        self._checked = self._fitted = None
        self._connections.close()

    def _prepare(self, connection: Connection) -> None:
        """Note which session of the server this is."""
        [[self._backends[connection]]] = connection.execute("SELECT pg_backend_pid()").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[PostgresTransaction]:
        with self._using() as session, session.connection.transaction():
            check_same(session, self._backends[session.connection], self._connections.shown)
            session.run("SET CONSTRAINTS ALL IMMEDIATE")  # or a row that breaks one would fail the batch at its end
            staged = replace(self._staged.get(session.connection, StagedTables()))  # whose change a rollback undoes
            transaction = PostgresTransaction(session, self._checked, staged, self._connections.shown, self._timeout)
            self._make_shared(session)
            yield transaction
        self._staged[session.connection] = staged
        self._trusted.add(session.connection)

    def _joined(self, transaction: PostgresTransaction) -> PostgresTransaction:
        other = transaction.session
        session = PostgresSession(other.connection, other.names.schema, self.spec)
        # What is undone for others' sake is not tried again in it: the rows of the table before stay locked meanwhile.
        return PostgresTransaction(session, self._checked, transaction.staged, self._connections.shown, 0.0)

    def _make_shared(self, session: PostgresSession, needed: Sequence[str] = names.NEEDED) -> bool:
        """Make them, or see whose they are: somebody may have made them since the connection was."""
        trusted = session.connection in self._trusted
        if not trusted:
            check_tables(session, [record.TABLE], self._connections.shown)
            record.check_formats(session, FORMAT)
        made = Bookkeeping(session).make_shared(needed)
        if not trusted:
            check_tables(session, names.SHARED, self._connections.shown)
        return made

    def _try(self, transaction: PostgresTransaction, schema: pa.Schema) -> None:
        """With a row written on trial. Nobody who writes waits long."""
        there = transaction.is_there()
        transaction.fit(schema, only_look=True)
        if there and not transaction.added and transaction.checked is not None:
            write_a_row(transaction.session, transaction.checked.layout)

    def _committed(self, transaction: PostgresTransaction) -> None:
        self._checked = transaction.checked

    @contextmanager
    def _looking(self, *tables: str) -> Iterator[PostgresSession]:
        with self._using() as session:
            self._check_looked_at(session, tables)
            yield session

    @contextmanager
    def _viewing(self, *tables: str) -> Iterator[PostgresSession]:
        with self._using() as session, session.connection.transaction():
            session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._check_looked_at(session, tables)
            yield session

    def _check_looked_at(self, session: PostgresSession, tables: Sequence[str]) -> None:
        """Refuse tables that are somebody else's, and those of another format: their columns may mean other things."""
        if session.connection in self._trusted:
            check_tables(session, tables, self._connections.shown)
        else:
            check_tables(session, [record.TABLE, *tables], self._connections.shown)
            record.check_formats(session, FORMAT)

    @contextmanager
    def _using(self) -> Iterator[PostgresSession]:
        try:
            with self._connections.using() as connection:
                connection.deadline = time.monotonic() + self._timeout * _LONGEST
                yield PostgresSession(connection, connection.schema, self.spec)
        except RolledBack as undone:
            raise _Undone(f"{self._connections.shown}: {undone}") from undone
