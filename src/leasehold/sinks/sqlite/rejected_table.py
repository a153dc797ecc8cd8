"""The events that were set aside, with a reason: the table `<table>_rejected` beside an entity table in SQLite.

Owns its columns, also those of earlier formats; what is done with its rows is in `sinks.beside.set_aside.rejected`.
Every function here runs inside a transaction of the caller's, which locks the database from its first statement.
"""

from __future__ import annotations

import sqlite3

from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.rejected import other_columns
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
        raise other_columns(spec, _COLUMNS)
    _make_unique(connection, spec)


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
