"""One connection to a SQLite file, on one entity table: how statements of `sinks.beside` are sent.

Owns the sending, and the words of SQL that are SQLite's own. See `sinks.beside.session.Session`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from leasehold.database.statements import native, quoted
from leasehold.database.tables import Kind
from leasehold.sinks.beside.session import Asked, Session
from leasehold.sinks.rules.columns import on_conflict
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.kept import anything, as_kept, number
from leasehold.sinks.sqlite.shape import exists


class SqliteSession(Session):
    """The connection, inside a transaction of the caller's."""

    def __init__(self, connection: sqlite3.Connection, spec: TableSpec) -> None:
        self.connection, self.spec = connection, spec

    def run(self, statement: str, **values: Any) -> int:
        return self.connection.execute(_native(statement), values).rowcount

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(_native(statement), values).fetchall()

    def many(self, statement: str, values: Sequence[Mapping[str, Any]]) -> int:
        return self.connection.executemany(_native(statement), values).rowcount

    def put(self, table: str, columns: Mapping[str, Kind], keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
        others = [name for name in columns if name not in keys]
        return self.connection.executemany(f"{_insert(table, columns)} {on_conflict(keys, others)}", rows).rowcount

    def there(self, table: str) -> bool:
        return exists(self.connection, table)

    def asked(self, alias: str, columns: Mapping[str, Kind], rows: Iterable[Sequence[Any]]) -> Asked:
        names = ", ".join(f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(columns))
        return f"(SELECT {names} FROM json_each(%({alias})s)) AS {alias}", {alias: json.dumps([*rows])}

    def clock(self) -> float:
        return float(self.one("SELECT (julianday('now') - 2440587.5) * 86400.0"))  # the day on which 1970 began

    def contains(self, column: str, name: str) -> str:
        return f"instr({column}, %({name})s) > 0"

    def sound(self, names: Sequence[str], *numbers: str) -> str:
        texts = (f"typeof({name}) = 'text' AND leasehold_is_text({self.text(name)})" for name in names)
        return " AND ".join([*(f"typeof({number}) = 'integer'" for number in numbers), *texts])

    @property
    def rejected_columns(self) -> str:
        is_text = "typeof(body) = 'text'"
        body = f"iif({is_text}, {self.text('body')}, body)"
        return f"{body}, {is_text}, {self.text('reason')}, {self.text('source')}, rejected_at"

    def remove_set_aside(self, ranges: Sequence[tuple[str, str, int, int]]) -> None:
        those = "hub = ? AND partition = ? AND sequence_number BETWEEN ? AND ?"
        self.connection.executemany(f"DELETE FROM {quoted(self.spec.rejected)} WHERE {those}", ranges)

    def set_aside(self, rows: Sequence[Rejected], time: str) -> None:
        columns = (*Rejected._fields, "rejected_at")
        self.connection.executemany(_insert(self.spec.rejected, columns), [(*row, time) for row in rows])

    @property
    def dead_letter(self) -> str:
        return "json_valid(source) AND json_extract(source, '$.traceback') IS NOT NULL"

    def text(self, column: str) -> str:
        return as_kept(column)

    def number(self, column: str) -> str:
        return number(column)

    def anything(self, column: str) -> str:
        return anything(column)


def _insert(table: str, columns: Collection[str]) -> str:
    return f"INSERT INTO {quoted(table)} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def prepare(connection: sqlite3.Connection) -> None:
    """Make the functions that are used here; once for a connection."""
    connection.create_function("leasehold_is_text", 1, _is_text, deterministic=True)


def _is_text(kept: bytes) -> bool:
    try:
        kept.decode()
    except UnicodeDecodeError:
        return False
    return True


def _native(statement: str) -> str:
    return native(statement, ":").text
