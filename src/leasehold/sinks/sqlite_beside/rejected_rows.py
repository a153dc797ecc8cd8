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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any, Protocol

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.sinks import bookkeeping, duplicates, rejected
from leasehold.sinks.batch import Batch, Kept, arrange
from leasehold.sinks.content import Content, content_of, kind_of_order
from leasehold.sinks.fence import Lane
from leasehold.sinks.ordering import Key, PastOrder
from leasehold.sinks.remembered_order import TableOrder, check_order, order_of
from leasehold.sinks.set_aside import DroppedRow, EventId, ReasonCount, RejectedRow, RetryResult, Selection, retrying
from leasehold.sinks.shape import Layout, exists, quoted
from leasehold.sinks.sqlite_beside import forgetting, identities
from leasehold.sinks.table import TableSpec
from leasehold.sinks.writing import Order, RowWriter, SqliteRows

_DROPPED = """CREATE TABLE IF NOT EXISTS leasehold_dropped (
    pipeline TEXT NOT NULL, entity_table TEXT COLLATE NOCASE NOT NULL, hub TEXT NOT NULL, partition TEXT NOT NULL,
    sequence_number INTEGER NOT NULL, place INTEGER NOT NULL, reason TEXT NOT NULL, rejected_at TEXT NOT NULL,
    dropped_for TEXT NOT NULL, dropped_at TEXT NOT NULL)"""
_COLUMNS = "hub, partition, sequence_number, place, body, reason, source, rejected_at"


class Transaction(Protocol):
    """What is needed of a transaction of the sink, which has the lock."""

    @property
    def connection(self) -> sqlite3.Connection: ...

    def layout(self, schema: pa.Schema) -> Layout: ...

    def recorded_order(self) -> TableOrder: ...


Begin = Callable[[], AbstractContextManager[Transaction]]


class SqliteRejectedRows:
    """The rejected rows of the table `spec`: see `set_aside.RejectedRows`.

    `begin` opens a transaction of the sink, `now` is the time as text.
    """

    def __init__(self, spec: TableSpec, begin: Begin, now: Callable[[], str]) -> None:
        self._spec, self._begin, self._now = spec, begin, now

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
        append = not self._spec.keys
        if append and (batch.sequence_by is not None or batch.delete is not None):
            raise ConfigError("mode", self._spec.mode, "appended events have no order and no deletes", "Use upsert")
        arrangement = arrange(batch)
        with self._begin() as transaction:
            connection, layout = transaction.connection, transaction.layout(batch.rows.schema)
            hubs = sorted({event.hub for event in events})
            marks = bookkeeping.watermarks(connection, self._spec, hubs)
            found = self._found(connection, events)
            choice = retrying.choose(arrangement, batch.rows.num_rows, events, found, marks, append=append)
            kind = kind_of_order(batch)
            table_order = order_of(self._spec, kind, deletes=batch.delete is not None)
            check_order(transaction.recorded_order(), self._spec, table_order)
            kept, dropped = self._without_duplicates(connection, batch, choice)
            content = content_of(batch, layout, kept)
            if not append and (cleared := forgetting.cleared_up_to(connection, self._spec)):
                keys = list(dict.fromkeys(content.rows.keys))
                known = bookkeeping.known_places(connection, self._spec, keys)
                content = retrying.without_doubtful(content, known, cleared)
            order = self._order(connection, content, by_value=kind is not None)
            table = SqliteRows(connection, self._spec, layout, content.rows)
            written = RowWriter(table, len(content.rows.values), order).write()
            broken = dict(written.broken)
            if isinstance(order, PastOrder):
                broken |= {index: _conflict(lane) for index, lane in order.conflicts.items()}
            failed = content.rejected(broken)
            bookkeeping.count_change(connection, self._spec)
            left = retrying.left_behind(choice, found, failed, append=append)
            self._remove(connection, [row for event in choice.tried for row in found[event]])
            rejected.insert(connection, self._spec, left, self._now())
            if remembered := list(content.remembered(order)):
                bookkeeping.remember_keys(connection, self._spec, remembered)
                bookkeeping.record_order(connection, self._spec, table_order)
        left_over = len(left) + choice.left
        others = choice.filtered, choice.unread, choice.gone, dropped
        return RetryResult(written.applied, written.superseded, left_over, *others)

    def _without_duplicates(
        self, connection: sqlite3.Connection, batch: Batch, choice: retrying.Choice
    ) -> tuple[Kept, int]:
        """Rule 6: what is left to write, and how many events are not; the others are remembered."""
        if batch.identities is None:
            return choice.kept, 0
        tried = {(event.hub, event.partition, event.sequence_number) for event in choice.tried}
        events = duplicates.among(batch.identities, tried)
        known = identities.known(connection, self._spec, {identity for identity, _ in events})
        verdict = duplicates.judge(events, known, batch.identities.window)
        identities.remember(connection, self._spec, verdict.remembered)
        return duplicates.without(choice.kept, verdict.dropped), len(verdict.dropped)

    def drop(self, rows: Sequence[RejectedRow], reason: str) -> int:
        """See `RejectedRows`."""
        if not reason.strip():
            raise ConfigError("reason", reason, "a text that is not empty", "Say why these events are not wanted")
        with self._begin() as transaction:
            connection = transaction.connection
            connection.execute(_DROPPED)
            there = self._remove(connection, rows)
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

    def _found(self, connection: sqlite3.Connection, events: Collection[EventId]) -> retrying.Found:
        query = (
            f"SELECT {_COLUMNS} FROM {quoted(self._spec.rejected)} "
            "WHERE hub = ? AND partition = ? AND sequence_number = ? ORDER BY place"
        )
        found: dict[EventId, list[RejectedRow]] = {}
        for event in set(events):
            its = (event.hub, event.partition, event.sequence_number)
            found[event] = [_row(row) for row in connection.execute(query, its)]
        return found

    def _order(self, connection: sqlite3.Connection, content: Content, *, by_value: bool) -> Order:
        """What decides which rows count, under rule 2."""
        if by_value or not self._spec.keys:

            def claims(keys: Sequence[Key]) -> Mapping[Key, tuple[Any, ...]]:
                return bookkeeping.known_claims(connection, self._spec, keys, by_value=by_value)

            return content.order(claims, keyed=bool(self._spec.keys))
        rows = content.rows
        known = bookkeeping.known_places(connection, self._spec, list(dict.fromkeys(rows.keys)))
        places = [(*lane, number) for lane, number in zip(rows.lanes, rows.numbers, strict=True)]
        return PastOrder(rows.keys, places, known)

    def _remove(self, connection: sqlite3.Connection, rows: Sequence[RejectedRow]) -> list[RejectedRow]:
        """Remove those of these rows that are there as they were listed; returns them."""
        query = (
            f"DELETE FROM {quoted(self._spec.rejected)} WHERE hub = ? AND partition = ? AND sequence_number = ? "
            "AND place = ? AND rejected_at = ?"
        )
        return [row for row in rows if connection.execute(query, (*_of(row), row.place, row.rejected_at)).rowcount]


def _of(row: RejectedRow) -> tuple[str, str, int]:
    return row.event.hub, row.event.partition, row.event.sequence_number


def _row(row: tuple[Any, ...]) -> RejectedRow:
    return RejectedRow(EventId(*row[:3]), *row[3:])


def _conflict(lane: Lane) -> str:
    return (
        f"the entity was last written from partition {lane[1]}, whose sequence numbers cannot be compared with this "
        "event's: nobody can say which is later"
    )


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
