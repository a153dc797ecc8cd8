"""The tables that all entity tables of a SQLite database share, most of them made when they are needed first.

Owns how SQLite declares what `sinks.beside.tables` describes. With what is beside each entity table that is a
format.
"""

from __future__ import annotations

import sqlite3

from leasehold.sinks.beside import record
from leasehold.sinks.beside.session import Kind
from leasehold.sinks.beside.tables import ALWAYS, FOLDED, WHEN_NEEDED, Index, SharedTable
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.session import SqliteSession

FORMAT = 7
"""The format that this release writes, and the only one that it reads."""

_TYPES: dict[Kind, str] = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "boolean": "INTEGER",
    "double precision": "REAL",
    "timestamptz": "TEXT",
    "bytea": "BLOB",
}
_VALUES = {"false": "0", "true": "1"}


def _made(table: SharedTable) -> tuple[str, ...]:
    parts = [_column(table, name, kind) for name, kind in table.columns.items()]
    if table.key and table.numbered is None:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))})")
    by_key = " WITHOUT ROWID" if table.key and table.numbered is None else ""
    create = f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(parts)}){by_key}"
    return create, *map(_index, table.indexes)


def _column(table: SharedTable, name: str, kind: Kind) -> str:
    if name == table.numbered:
        return f"{quoted(name)} INTEGER PRIMARY KEY AUTOINCREMENT"
    folding = " COLLATE NOCASE" if name in FOLDED else ""
    needed = "" if name in table.nullable else " NOT NULL"
    value = table.defaults.get(name)
    default = "" if value is None else f" DEFAULT {_VALUES.get(value, value)}"
    return f"{quoted(name)} {_TYPES[kind]}{folding}{needed}{default}"


def _index(index: Index) -> str:
    columns = ", ".join(map(quoted, index.columns))
    return f"CREATE INDEX IF NOT EXISTS {index.name} ON {index.table} ({columns})"


SCHEMA = tuple(statement for table in ALWAYS for statement in _made(table))
"""Those that every entity table needs: the statements that make them."""

MADE = {name: _made(table) for name, table in WHEN_NEEDED.items()}
"""Of the others, by their names, the statements that make each where it is missing."""


def check_formats(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Refuse a file of an earlier format, before anything is made in it."""
    record.check_formats(SqliteSession(connection, spec), FORMAT)
