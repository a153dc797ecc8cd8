"""Tables as values, and the statements that make them in either database.

Owns what a table is made of, and how each dialect writes that. What is written here is a format: whoever changes a
table that a release has made raises that table's number of format (`stored_formats`). Pure.

In Postgres all texts are ordered and compared by their bytes, as in SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from leasehold.database.statements import quoted

Kind = Literal["text", "bigint", "boolean", "double precision", "timestamptz", "bytea"]
"""What a column holds, called as in Postgres. SQLite has no times: values of `timestamptz` come as text, ISO 8601 in
UTC, which sorts by time."""

_IN_SQLITE: dict[Kind, str] = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "boolean": "INTEGER",
    "double precision": "REAL",
    "timestamptz": "TEXT",
    "bytea": "BLOB",
}
_VALUES_IN_SQLITE = {"false": "0", "true": "1"}


@dataclass(frozen=True, slots=True)
class Index:
    """An index on these columns of a table. Only speed depends on it."""

    name: str
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of this name, with these columns in this order.

    key       the columns whose values tell rows apart
    nullable  the columns that take NULL; all others are NOT NULL
    defaults  SQL for what a column has that a row does not give
    numbered  the column that the database numbers: upwards, and no number twice, also of rows that are gone
    folded    columns that a database compares without regard to capital letters if it names its tables so
    updated   whether rows are updated all the time, so that room is left beside them
    indexes   those that are made with it
    """

    name: str
    columns: Mapping[str, Kind]
    key: tuple[str, ...] = ()
    nullable: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    numbered: str | None = None
    folded: frozenset[str] = frozenset()
    updated: bool = False
    indexes: tuple[Index, ...] = ()

    def in_sqlite(self) -> tuple[str, ...]:
        """The statements that make it in SQLite where it is missing."""
        parts = [self._column_in_sqlite(name, kind) for name, kind in self.columns.items()]
        by_key = " WITHOUT ROWID" if self.key and not self.numbered else ""
        parts += self._keys("PRIMARY KEY" if by_key else "UNIQUE")
        create = f"CREATE TABLE IF NOT EXISTS {quoted(self.name)} ({', '.join(parts)}){by_key}"
        return create, *(index_on(index, quoted) for index in self.indexes)

    def in_postgres(self, of: Callable[[str], str]) -> tuple[str, ...]:
        """The statements that make it in Postgres where it is missing. `of` gives a table's name with its schema."""
        parts = [self._column_in_postgres(name, kind) for name, kind in self.columns.items()]
        parts += self._keys("UNIQUE" if self.numbered else "PRIMARY KEY")
        room = " WITH (fillfactor = 50)" if self.updated else ""
        create = f"CREATE TABLE IF NOT EXISTS {of(self.name)} ({', '.join(parts)}){room}"
        return create, *(index_on(index, of) for index in self.indexes)

    def _keys(self, how: str) -> list[str]:
        own = [name for name in self.key if name != self.numbered]
        return [f"{how} ({', '.join(map(quoted, own))})"] if own else []

    def _column_in_sqlite(self, name: str, kind: Kind) -> str:
        if name == self.numbered:
            return f"{quoted(name)} INTEGER PRIMARY KEY AUTOINCREMENT"
        folding = " COLLATE NOCASE" if name in self.folded else ""
        value = self.defaults.get(name)
        default = "" if value is None else f" DEFAULT {_VALUES_IN_SQLITE.get(value, value)}"
        return f"{quoted(name)} {_IN_SQLITE[kind]}{folding}{self._needed(name)}{default}"

    def _column_in_postgres(self, name: str, kind: Kind) -> str:
        if name == self.numbered:
            return f"{quoted(name)} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        by_bytes = ' COLLATE "C"' if kind == "text" else ""
        value = self.defaults.get(name)
        return f"{quoted(name)} {kind}{by_bytes}{self._needed(name)}{'' if value is None else f' DEFAULT {value}'}"

    def _needed(self, name: str) -> str:
        return "" if name in self.nullable else " NOT NULL"


def index_on(index: Index, of: Callable[[str], str]) -> str:
    """The statement that makes an index where it is missing, in either database."""
    columns = ", ".join(map(quoted, index.columns))
    return f"CREATE INDEX IF NOT EXISTS {quoted(index.name)} ON {of(index.table)} ({columns})"
