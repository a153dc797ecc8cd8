"""The rejected rows of a table in SQLite: listed, tried again, dropped.

Owns the SQL of it and the transactions; the rules are in `set_aside`. The table of the rows is made by
`rejected`. What was dropped is noted in `leasehold_dropped`, one table for all of a database.

Concurrency: beside any number of instances that apply batches. A retry and a batch follow one another, since both take
the database's one lock first: a retry reads watermarks, the memory of keys and its rejected rows under it, so it is
judged against all that was committed before, and a batch after it finds what it has written in the memory of keys. Two
retries of one event follow one another too; the second finds no rejected row. Whoever is killed, or stops for a minute,
before COMMIT has changed nothing (the others wait, for at most their time-out); after it all is done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import Any, Protocol

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.sinks.beside.kept_values import time_text
from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.beside.set_aside.contract import (
    DroppedRow,
    EventId,
    ParkedAgain,
    ReasonCount,
    RejectedRow,
    RetryResult,
    Selection,
)
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.set_aside.parking_again import ParksAgain, park_again
from leasehold.sinks.beside.set_aside.trying import Tried, try_again
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.content import Content, content_of
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.ordering import Key, PastOrder
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.row_by_row import Order
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import bookkeeping, forgetting, rejected
from leasehold.sinks.sqlite.shape import Layout, exists
from leasehold.sinks.sqlite.writing import SqliteRows, write_rows
from leasehold.sinks.transactions import RemembersIdentities

_COLUMNS = "hub, partition, sequence_number, place, body, reason, source, rejected_at"


class Transaction(RemembersIdentities, ParksAgain, Protocol):
    """What is needed of a transaction of the sink, which has the lock."""

    @property
    def connection(self) -> sqlite3.Connection: ...

    @property
    def added(self) -> tuple[str, ...]: ...

    def layout(self, schema: pa.Schema) -> Layout: ...

    def need(self, *tables: str) -> None: ...

    def recorded_order(self) -> TableOrder: ...


Begin = Callable[[], AbstractContextManager[Transaction]]


class SqliteRejectedRows:
    """The rejected rows of the table `spec`: see `set_aside.RejectedRows`.

    `begin` opens a transaction of the sink, `wall` is the time in seconds since 1970.
    """

    def __init__(self, spec: TableSpec, begin: Begin, wall: Callable[[], float]) -> None:
        self._spec, self._begin, self._wall = spec, begin, wall

    def _now(self) -> str:
        return time_text(self._wall())

    def reasons(self, selection: Selection, limit: int) -> list[ReasonCount]:
        """See `RejectedRows`."""
        where, values = _where(selection)
        return [
            ReasonCount(*row)
            for row in self._query(
                f"SELECT reason, count(*), min(rejected_at), max(rejected_at) FROM {quoted(self._spec.rejected)} "
                f"{where} GROUP BY reason ORDER BY 2 DESC, 1 LIMIT ?",
                (*values, limit),
            )
        ]

    def rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[RejectedRow]:
        """See `RejectedRows`."""
        where, values = _where(selection, after)
        return [
            _row(row)
            for row in self._query(
                f"SELECT {_COLUMNS} FROM {quoted(self._spec.rejected)} {where} "
                "ORDER BY hub, partition, sequence_number, place LIMIT ?",
                (*values, limit),
            )
        ]

    def retry(self, batch: Batch, events: Collection[EventId]) -> RetryResult:
        """See `RejectedRows`."""
        with self._begin() as transaction:
            tried = _Retry(transaction, self._spec, self._now())
            return try_again(tried, self._spec, batch, events, self._wall())

    def drop(self, rows: Sequence[RejectedRow], reason: str) -> int:
        """See `RejectedRows`."""
        if not reason.strip():
            raise ConfigError("reason", reason, "a text that is not empty", "Say why these events are not wanted")
        with self._begin() as transaction:
            connection = transaction.connection
            transaction.need(DROPPED)
            there = _remove(connection, self._spec, rows)
            connection.executemany(
                "INSERT INTO leasehold_dropped VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(self._spec.pipeline, self._spec.name, *_of(row), row.place),
                        *(row.reason, row.rejected_at, reason, self._now()),
                    )
                    for row in there
                ],
            )
        return len(there)

    def park(self, events: Sequence[tuple[RejectedRow, ParkedEvent]]) -> ParkedAgain:
        """See `ParksRejected`."""
        with self._begin() as transaction:
            remove = partial(_remove, transaction.connection, self._spec)
            return park_again(transaction, self._spec, remove, events, self._wall())

    def dropped(self, limit: int) -> list[DroppedRow]:
        """See `RejectedRows`."""
        rows = self._query(
            "SELECT hub, partition, sequence_number, place, reason, rejected_at, dropped_for, dropped_at "
            "FROM leasehold_dropped WHERE pipeline = ? AND entity_table = ? ORDER BY rowid DESC LIMIT ?",
            (self._spec.pipeline, self._spec.name, limit),
            table="leasehold_dropped",
        )
        return [DroppedRow(EventId(*row[:3]), *row[3:]) for row in rows]

    def _query(self, query: str, values: Sequence[object], table: str | None = None) -> list[tuple[Any, ...]]:
        """What a query gives, nothing where its table has not been made yet."""
        with self._begin() as transaction:
            if not exists(transaction.connection, table or self._spec.rejected):
                return []
            return transaction.connection.execute(query, values).fetchall()


class _Retry:
    """A retry in a transaction of the sink, which has locked the whole database. See `trying.Retry`."""

    def __init__(self, transaction: Transaction, spec: TableSpec, now: str) -> None:
        self._transaction, self._connection = transaction, transaction.connection
        self._spec, self._now = spec, now
        self._layout: Layout | None = None
        self.recorded_order = transaction.recorded_order
        self.known_identities = transaction.known_identities
        self.remember_identities = transaction.remember_identities
        self.forget_identities = transaction.forget_identities
        self.identities_reached = transaction.identities_reached
        self.identities_reach = transaction.identities_reach

    def fit(self, schema: pa.Schema) -> None:
        self._layout = self._transaction.layout(schema)

    def lock(self, lanes: Collection[Lane]) -> None:
        """The whole database is locked."""

    def watermarks(self, hubs: Iterable[str]) -> Mapping[Lane, Watermark]:
        return bookkeeping.watermarks(self._connection, self._spec, hubs)

    def found(self, events: Collection[EventId]) -> retrying.Found:
        query = (
            f"SELECT {_COLUMNS} FROM {quoted(self._spec.rejected)} "
            "WHERE hub = ? AND partition = ? AND sequence_number = ? ORDER BY place"
        )
        found: dict[EventId, list[RejectedRow]] = {}
        for event in set(events):
            its = (event.hub, event.partition, event.sequence_number)
            found[event] = [_row(row) for row in self._connection.execute(query, its)]
        return found

    def write(self, batch: Batch, kept: Kept, order: TableOrder) -> Tried:
        connection, spec, layout = self._connection, self._spec, self._layout
        assert layout is not None
        content = content_of(batch, layout, kept)
        if spec.keys and (cleared := forgetting.cleared_up_to(connection, spec)):
            keys = list(dict.fromkeys(content.rows.keys))
            content = retrying.without_doubtful(content, bookkeeping.known_places(connection, spec, keys), cleared)
        judge = self._order(content, by_value=order.kind is not None)
        written = write_rows(SqliteRows(connection, spec, layout, content.rows), judge)
        bookkeeping.count_change(connection, spec)
        broken = dict(written.broken)
        if isinstance(judge, PastOrder):
            broken |= {index: retrying.not_comparable(lane) for index, lane in judge.conflicts.items()}
        if remembered := list(content.remembered(judge)):
            bookkeeping.remember_keys(connection, spec, remembered)
            bookkeeping.record_order(connection, spec, order)
        return Tried(written.applied, written.superseded, content.rejected(broken))

    def replace(self, tried: Sequence[RejectedRow], left: Sequence[Rejected]) -> None:
        _remove(self._connection, self._spec, tried)
        rejected.insert(self._connection, self._spec, left, self._now)

    def _order(self, content: Content, *, by_value: bool) -> Order:
        """What decides which rows count, under rule 2."""
        if by_value or not self._spec.keys:

            def claims(keys: Sequence[Key]) -> Mapping[Key, tuple[Any, ...]]:
                return bookkeeping.known_claims(self._connection, self._spec, keys, by_value=by_value)

            return content.order(claims, keyed=bool(self._spec.keys))
        rows = content.rows
        known = bookkeeping.known_places(self._connection, self._spec, list(dict.fromkeys(rows.keys)))
        places = [(*lane, number) for lane, number in zip(rows.lanes, rows.numbers, strict=True)]
        return PastOrder(rows.keys, places, known)


def _remove(connection: sqlite3.Connection, spec: TableSpec, rows: Sequence[RejectedRow]) -> list[RejectedRow]:
    """Remove those of these rows that are there as they were listed; returns them."""
    query = (
        f"DELETE FROM {quoted(spec.rejected)} WHERE hub = ? AND partition = ? AND sequence_number = ? "
        "AND place = ? AND rejected_at = ?"
    )
    return [row for row in rows if connection.execute(query, (*_of(row), row.place, row.rejected_at)).rowcount]


def _of(row: RejectedRow) -> tuple[str, str, int]:
    return row.event.hub, row.event.partition, row.event.sequence_number


def _row(row: tuple[Any, ...]) -> RejectedRow:
    return RejectedRow(EventId(*row[:3]), *row[3:])


def _where(selection: Selection, after: EventId | None = None) -> tuple[str, tuple[object, ...]]:
    terms: list[str] = []
    values: list[object] = []
    if selection.events is not None:
        by_partition = groupby(sorted(selection.events), key=lambda one: one[0])
        some = [(partition, [number for _, number in numbers]) for partition, numbers in by_partition]
        each = [f"(partition = ? AND sequence_number IN ({', '.join('?' * len(numbers))}))" for _, numbers in some]
        terms.append(f"({' OR '.join(each) or 'FALSE'})")
        values += [value for partition, numbers in some for value in (partition, *numbers)]
    if selection.reason is not None:
        terms.append("instr(reason, ?) > 0")
        values.append(selection.reason)
    if selection.hub is not None:
        terms.append("hub = ?")
        values.append(selection.hub)
    if after is not None:
        terms.append("(hub, partition, sequence_number) > (?, ?, ?)")
        values += [after.hub, after.partition, after.sequence_number]
    return (f"WHERE {' AND '.join(terms)}" if terms else "", tuple(values))
