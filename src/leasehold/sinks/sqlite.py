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
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from leasehold.backends import local_file_of
from leasehold.clock import Clock
from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks import bookkeeping, rejected
from leasehold.sinks.base import Sink, TableContents
from leasehold.sinks.batch import Batch, Kept
from leasehold.sinks.content import content_of
from leasehold.sinks.contents import contents_of_file, set_aside_in_file
from leasehold.sinks.duplicates import Memory
from leasehold.sinks.fence import Lane, Plan, Watermark
from leasehold.sinks.forgetting import AT_A_TIME, Cleared, Forgotten, Retention
from leasehold.sinks.messages import KnownOfMessage, MessageChange, MessageName, MessageOutcome
from leasehold.sinks.messages.rows import fenced
from leasehold.sinks.ordering import Key
from leasehold.sinks.outbox import EmittedEvent, Outbox
from leasehold.sinks.parking import ParkedEvent, Parking
from leasehold.sinks.parking.listing import ParkedRow
from leasehold.sinks.remembered_order import TableOrder
from leasehold.sinks.set_aside import EventId, RejectedRows, Selection, SetAsideCounts
from leasehold.sinks.shape import Layout, exists, fit, quoted
from leasehold.sinks.sqlite_beside import (
    forgetting,
    identities,
    messages,
    outbox,
    parked,
    parked_rows,
    states,
    versions,
)
from leasehold.sinks.sqlite_beside.looking import compare
from leasehold.sinks.sqlite_beside.rejected_rows import SqliteRejectedRows
from leasehold.sinks.table import TableSpec
from leasehold.sinks.transactional import TransactionalSink
from leasehold.sinks.transactions import Outcome
from leasehold.sinks.versions import KnownEntity, OrderValue
from leasehold.sinks.writing import RowWriter, SqliteRows
from leasehold.sqlite_file import DatabaseFile


def open_sqlite_sink(url: str, spec: TableSpec, base: Path, timeout: float) -> Sink:
    """Open `sqlite:///PATH`, relative to `base` unless it is absolute."""
    return SqliteSink(local_file_of(url, base, "url"), spec, timeout=timeout)


class SqliteSink(TransactionalSink["_SqliteTransaction"]):
    """The entity table of `spec` in the SQLite file at `path`; file and table are made when they are missing.

    `timeout` is the longest to wait for another writer, in seconds. Every method may raise `SinkUnavailable`,
    and `AlreadyInUse` when the table belongs to another pipeline or was made with another mode or keys.
    """

    def __init__(self, path: Path, spec: TableSpec, *, timeout: float = 10.0, clock: Clock | None = None) -> None:
        super().__init__(spec, str(path), clock)
        self._path = path
        self._timeout = timeout
        self._file = DatabaseFile(
            path,
            schema=bookkeeping.SCHEMA,
            unavailable=SinkUnavailable,
            broken=SinkError,
            create=True,
            timeout=timeout,
        )
        self._checked: _Checked | None = None  # replaced whole, so threads may race for it

    def compare(self, schema: pa.Schema | None) -> bool:
        """As `check`, with nothing made or changed. Whether the table is there."""
        return compare(self._path, self.spec, self._claimed, schema)[0]

    def columns_to_add(self, schema: pa.Schema) -> tuple[str, ...]:
        """See `AddsColumns`."""
        return compare(self._path, self.spec, self._claimed, schema)[1]

    def row_count(self) -> int:
        """How many rows the table has; 0 if it has not been made yet."""
        with self._explained(), self._file.reading() as connection, self._inner():
            if not exists(connection, self.spec.name):
                return 0
            (count,) = connection.execute(f"SELECT count(*) FROM {quoted(self.spec.name)}").fetchone()
        return int(count)

    def contents(self) -> TableContents:
        """How much the table holds. Makes nothing, not even the file."""
        with self._explained(), self._inner():
            return contents_of_file(self._path, self.spec, self._timeout)

    def set_aside_counts(self) -> SetAsideCounts:
        """See `TellsSetAside`."""
        with self._explained(), self._inner():
            return set_aside_in_file(self._path, self.spec, self._timeout)

    def forget_entity(self, key: Mapping[str, str]) -> Forgotten:
        """See `Forgets`."""
        with self._claimed() as transaction:
            bookkeeping.count_change(transaction.connection, self.spec)
            return forgetting.forget(transaction.connection, self.spec, key)

    def clear(
        self, retention: Retention, now: float, after: tuple[object, ...] | None = None, at_most: int = AT_A_TIME
    ) -> Cleared:
        """See `Forgets`."""
        with self._claimed() as transaction:
            return forgetting.clear(transaction.connection, self.spec, retention, now, after, at_most)

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """The rows of these keys that are there, by key: the columns of `schema`, as they were written."""
        with self._explained(), self._file.reading() as connection, self._inner():
            return states.read(connection, self.spec, schema, keys)

    def check_states(self) -> None:
        """Refuse a table that has constraints other than its keys. Raises `ConfigError`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            states.check(connection, self.spec)

    def check_parked(self) -> None:
        """See `KeepsParked`."""
        with self._claimed() as transaction:
            parked.check(transaction.connection)

    def parked_entities(self, hub: str, partition: str) -> dict[Key, float]:
        """See `KeepsParked`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            return parked.entities(connection, self.spec, (hub, partition))

    def parked_events(self, hub: str, partition: str, keys: Collection[Key], at_most: int) -> list[ParkedEvent]:
        """See `KeepsParked`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            return parked.events(connection, self.spec, (hub, partition), keys, at_most)

    def parked_rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[ParkedRow]:
        """See `ListsParked`."""
        with self._claimed() as transaction:
            return parked_rows.rows(transaction.connection, self.spec, selection, limit, after)

    def hurry_parked(self, events: Collection[EventId]) -> int:
        """See `ListsParked`."""
        with self._claimed() as transaction:
            return parked_rows.hurry(transaction.connection, self.spec, events)

    def drop_parked(self, events: Sequence[EventId], reason: str) -> int:
        """See `ListsParked`."""
        with self._claimed() as transaction:
            now = rejected.time_text(self._clock.wall())
            return parked_rows.drop(transaction.connection, self.spec, events, reason, now)

    def check_entities(self) -> None:
        """See `KeepsVersions`."""
        with self._claimed() as transaction:
            versions.check(transaction.connection)

    def read_entities(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
        """See `KeepsVersions`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            return versions.known(connection, self.spec, schema, keys)

    def check_messages(self, schema: pa.Schema) -> None:
        """See `KeepsMessages`."""
        self.check(fenced(schema))
        with self._claimed() as transaction:
            messages.check(transaction.connection, self.spec)

    def read_message(self, schema: pa.Schema, key: Key, message: MessageName) -> KnownOfMessage:
        """See `KeepsMessages`."""
        with self._explained(), self._file.reading() as connection, self._inner():
            return messages.read(connection, self.spec, schema, key, message, self._clock.wall())

    def apply_message(self, schema: pa.Schema, change: MessageChange, remember: float) -> MessageOutcome:
        """See `KeepsMessages`."""
        with self._claimed() as transaction:
            layout, now = transaction.layout(fenced(schema)), self._clock.wall()
            return messages.apply(transaction.connection, self.spec, schema, layout, change, now, remember)

    @property
    def rejected_rows(self) -> RejectedRows:
        """The rejected rows of the table, to be listed, tried again or dropped."""
        return SqliteRejectedRows(self.spec, self._claimed, lambda: rejected.time_text(self._clock.wall()))

    @property
    def outbox(self) -> Outbox:
        """See `KeepsOutbox`."""
        return outbox.SqliteOutbox(self.spec, self._changing, self._looking)

    def close(self) -> None:
        """Close this thread's connection. The sink may be used again afterwards."""
        self._checked = self._fitted = None
        self._file.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._claimed() as transaction:
            yield transaction.connection

    @contextmanager
    def _looking(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._file.reading() as connection, self._inner():
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[_SqliteTransaction]:
        with self._explained(), self._file.writing() as connection, self._inner():
            yield _SqliteTransaction(connection, self.spec, self._checked)

    def _committed(self, transaction: _SqliteTransaction) -> None:
        self._log_added(transaction.added)
        self._checked = transaction.checked

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What SQLite says of the file or at COMMIT, in the sink's words; a locked file is the file's to tell."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise SinkError(
                f"the table {self.spec.name} refused the batch when it was committed: {error}. Nothing of it was "
                "applied. Make its foreign keys immediate: those that are DEFERRABLE INITIALLY DEFERRED cannot tell "
                "which event is wrong"
            ) from error
        except sqlite3.DatabaseError as error:
            raise SinkError(f"{self._path}: {error}") from error

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """An error in the SQL itself, such as a trigger on a table that is gone: trying again will not help."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
                raise
            raise SinkError(f"{self._path}: the table {self.spec.name} cannot be written: {error}") from error


@dataclass(frozen=True, slots=True)
class _Checked:
    """The layout last checked, with what it was checked against."""

    connection: sqlite3.Connection
    version: int
    schema: pa.Schema
    layout: Layout


class _SqliteTransaction:
    """One transaction, which has locked the whole database. See `TableTransaction`."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec, checked: _Checked | None) -> None:
        self._connection = connection
        self._spec = spec
        self.checked = checked
        self.added: tuple[str, ...] = ()  # columns, in this transaction

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    def layout(self, schema: pa.Schema) -> Layout:
        """How rows of this schema are written, after `fit`."""
        self.fit(schema)
        assert self.checked is not None
        return self.checked.layout

    def claim(self) -> str:
        return bookkeeping.claim(self._connection, self._spec)

    def recorded_order(self) -> TableOrder:
        return bookkeeping.recorded_order(self._connection, self._spec)

    def reader_beside(self, hub: str) -> str | None:
        return bookkeeping.reader_beside(self._connection, self._spec, hub)

    def lock_watermarks(self, lanes: Collection[Lane], *, others: bool = False) -> None:
        """The whole database is locked."""

    def watermarks(self, hubs: Iterable[str]) -> dict[Lane, Watermark]:
        return bookkeeping.watermarks(self._connection, self._spec, hubs)

    def set_watermarks(self, marks: Mapping[Lane, Watermark]) -> None:
        bookkeeping.set_watermarks(self._connection, self._spec, marks)

    def leave_none_whole(self) -> None:
        bookkeeping.leave_none_whole(self._connection, self._spec)

    def forget_dropped(self) -> None:
        bookkeeping.forget_dropped(self._connection, self._spec)
        bookkeeping.count_change(self._connection, self._spec)
        forgetting.void_places(self._connection, self._spec)  # a reset: events are applied anew
        if not exists(self._connection, self._spec.name):
            parked.remove_all(self._connection, self._spec)
            versions.forget_all(self._connection, self._spec)

    def park(self, parking: Parking, now: float) -> None:
        parked.change(self._connection, self._spec, parking, now)
        if parking.retried:
            bookkeeping.count_change(self._connection, self._spec)

    def emit(self, events: Sequence[EmittedEvent], now: float) -> None:
        outbox.put(self._connection, self._spec, events, now)

    def unpark_above(self, marks: Mapping[Lane, int]) -> None:
        parked.remove_above(self._connection, self._spec, marks)

    def lock_entities(self, keys: Collection[Key]) -> dict[Key, int]:
        return versions.versions(self._connection, self._spec, keys)

    def known_entities(self, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
        return versions.known(self._connection, self._spec, schema, keys)

    def raise_versions(self, keys: Collection[Key], latest: Mapping[Key, OrderValue]) -> None:
        versions.raised(self._connection, self._spec, keys, latest)

    def forget_keys(self) -> None:
        bookkeeping.forget_keys(self._connection, self._spec)
        versions.forget_all(self._connection, self._spec)
        forgetting.void_cleared(self._connection, self._spec)

    def known_identities(self, digests: Collection[str]) -> Memory:
        return identities.known(self._connection, self._spec, digests)

    def remember_identities(self, memory: Memory) -> None:
        identities.remember(self._connection, self._spec, memory)

    def forget_identities(self, before: int, at_most: int) -> None:
        identities.forget(self._connection, self._spec, before, at_most)

    def has_rows(self) -> bool:
        name = self._spec.name
        first = f"SELECT 1 FROM {quoted(name)} LIMIT 1"
        return exists(self._connection, name) and self._connection.execute(first).fetchone() is not None

    def fit(self, schema: pa.Schema) -> None:
        checked = self.checked
        version = self._schema_version()
        if (
            checked
            and checked.connection is self._connection
            and checked.version == version
            and checked.schema.equals(schema)
        ):
            return
        bookkeeping.check_still_there(self._connection, self._spec)
        layout = fit(self._connection, self._spec, schema)
        self.added += layout.added
        bookkeeping.make_companions(self._connection, self._spec)
        self.checked = _Checked(self._connection, self._schema_version(), schema, layout)

    def _schema_version(self) -> int:
        (version,) = self._connection.execute("PRAGMA schema_version").fetchone()
        return int(version)

    def write(self, batch: Batch, kept: Kept, plan: Plan, order: TableOrder, now: float) -> Outcome:
        connection, spec, checked = self._connection, self._spec, self.checked
        assert checked is not None
        began = time.monotonic()
        content = content_of(batch, checked.layout, kept)
        staged = time.monotonic()
        row_order = content.order(
            lambda keys: (
                {}  # of a spread table, where a key was before says nothing
                if spec.spread
                else bookkeeping.known_claims(connection, spec, keys, by_value=order.kind is not None)
            ),
            keyed=bool(spec.keys),
        )
        written = RowWriter(
            SqliteRows(connection, spec, checked.layout, content.rows), len(content.rows.values), row_order
        ).write()
        set_aside = content.rejected(written.broken)
        rejected.replace(connection, spec, plan.admitted, set_aside, rejected.time_text(now))
        if remembered := list(content.remembered(row_order)):
            bookkeeping.remember_keys(connection, spec, remembered)
            bookkeeping.record_order(connection, spec, order)
        seconds = {"stage": staged - began, "merge": time.monotonic() - staged}
        return Outcome(written.applied, written.superseded, len(set_aside), seconds)
