"""The events that were set aside, with a reason: the table `<table>_rejected` beside an entity table in SQLite.

Owns its columns; what is done with its rows is in `sinks.beside.set_aside.rejected`.
Every function here runs inside a transaction of the caller's, which locks the database from its first statement.
"""

from __future__ import annotations

import sqlite3

from leasehold.database.statements import quoted
from leasehold.sinks.rules.rejected import other_columns
from leasehold.sinks.rules.table_spec import TableSpec, folded

_COLUMNS = ("hub", "partition", "sequence_number", "body", "reason", "rejected_at", "place", "source")


def make(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Make the table if it is missing. Raises `SchemaMismatch` for another one of its name."""
    table, index = statements(spec)
    connection.execute(table)
    there = connection.execute("SELECT name FROM pragma_table_info(?)", (spec.rejected,))
    if {folded(name) for (name,) in there} != set(_COLUMNS):
        raise other_columns(spec, _COLUMNS)
    connection.execute(index)


def statements(spec: TableSpec) -> tuple[str, str]:
    """What makes the table, and its index, if they are missing."""
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(spec.rejected)} (hub TEXT NOT NULL, partition TEXT NOT NULL, "
        "sequence_number INTEGER NOT NULL, body, reason TEXT NOT NULL, rejected_at TEXT NOT NULL, "
        "place INTEGER NOT NULL DEFAULT 0, source TEXT)",
        f"CREATE UNIQUE INDEX IF NOT EXISTS {quoted(f'leasehold_rejected_{spec.name}')} "
        f"ON {quoted(spec.rejected)} (hub, partition, sequence_number, place)",
    )
