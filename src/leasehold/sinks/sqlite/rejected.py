"""The events that were set aside, with a reason: the table `<table>_rejected` beside an entity table.

Owns this table, and its SQL. A row has an identity: hub, partition, sequence number, and its place among the rows that
the transform has made of the event (those that could be read first). Promises that it is there once however often the
event is read, and that the rejected rows of an event are those of its latest reading: one that is read again after a
reset, and then fits, is there no more. So that an event can be tried again when it is gone from the hub, it keeps
what it was given with: `source` is all of that but the body, as JSON. Rows that could be read and do not fit the table
have no `source`; their `body` is the row, as JSON, unless it has a body of its own.

Every function here runs inside a transaction of the caller's, which locks the database from its first statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from leasehold.errors import SchemaMismatch
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.fence import Admission
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.table import TableSpec, folded

_BEFORE_FORMAT_3 = ("hub", "partition", "sequence_number", "body", "reason", "rejected_at")
_COLUMNS = (*_BEFORE_FORMAT_3, "place", "source")


def make(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Make the table if it is missing. Raises `SchemaMismatch` for another one of its name."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {quoted(spec.rejected)} (hub TEXT NOT NULL, partition TEXT NOT NULL, "
        "sequence_number INTEGER NOT NULL, body, reason TEXT NOT NULL, rejected_at TEXT NOT NULL, "
        "place INTEGER NOT NULL DEFAULT 0, source TEXT)"
    )
    if _there(connection, spec) != set(_COLUMNS):
        raise SchemaMismatch(
            f"{spec.rejected} is where rejected events go, and has other columns than {', '.join(_COLUMNS)}. "
            "Rename it, or the entity table"
        )
    _make_unique(connection, spec)


def replace(
    connection: sqlite3.Connection, spec: TableSpec, read: Iterable[Admission], rows: Sequence[Rejected], at: str
) -> None:
    """Set `rows` aside in the place of whatever an earlier reading of the events `read` has set aside."""
    connection.executemany(
        f"DELETE FROM {quoted(spec.rejected)} WHERE hub = ? AND partition = ? AND sequence_number BETWEEN ? AND ?",
        [(*each.range.lane, max(each.after + 1, each.range.first), each.range.last) for each in read],
    )
    insert(connection, spec, rows, at)


def insert(connection: sqlite3.Connection, spec: TableSpec, rows: Sequence[Rejected], at: str) -> None:
    """Set `rows` aside, of events that have none."""
    connection.executemany(
        f"INSERT INTO {quoted(spec.rejected)} (hub, partition, sequence_number, place, body, reason, source, "
        "rejected_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(*row, at) for row in rows],
    )


def identify(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Give the rows of a table of an earlier format an identity; of several readings of an event the latest is kept."""
    if _there(connection, spec) != set(_BEFORE_FORMAT_3):
        return
    table = quoted(spec.rejected)
    event = "hub, partition, sequence_number"
    connection.execute(f"ALTER TABLE {table} ADD COLUMN place INTEGER NOT NULL DEFAULT 0")
    connection.execute(f"ALTER TABLE {table} ADD COLUMN source TEXT")
    # All rows of an event were set aside by one batch, with one time: others are of another reading.
    connection.execute(
        f"DELETE FROM {table} WHERE rowid IN (SELECT id FROM (SELECT rowid AS id, rejected_at, "
        f"max(rejected_at) OVER (PARTITION BY {event}) AS latest FROM {table}) WHERE rejected_at < latest)"
    )
    connection.execute(
        f"UPDATE {table} SET place = counted.place FROM (SELECT rowid AS id, "
        f"row_number() OVER (PARTITION BY {event} ORDER BY rowid) - 1 AS place FROM {table}) AS counted "
        f"WHERE {table}.rowid = counted.id"
    )
    _make_unique(connection, spec)


def _make_unique(connection: sqlite3.Connection, spec: TableSpec) -> None:
    connection.execute(
        f"CREATE UNIQUE INDEX IF NOT EXISTS {quoted(f'leasehold_rejected_{spec.name}')} "
        f"ON {quoted(spec.rejected)} (hub, partition, sequence_number, place)"
    )


def _there(connection: sqlite3.Connection, spec: TableSpec) -> set[str]:
    """The columns that the table has, none if it is missing."""
    return {folded(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (spec.rejected,))}
