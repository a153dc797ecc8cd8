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


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database declares the columns of a table.

    numbered  what declares the column that it numbers, with `{table}` for the name of the table
    types     its types, where they are not called as in Postgres
    values    what defaults are, where they are not written as in Postgres
    text      what stands behind the type of a text, and `folded` behind one that is compared as names of tables are
    """

    numbered: str
    types: Mapping[Kind, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    folded: str = ""


_SQLITE = Dialect(
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    {
        "text": "TEXT",
        "bigint": "INTEGER",
        "boolean": "INTEGER",
        "double precision": "REAL",
        "timestamptz": "TEXT",
        "bytea": "BLOB",
    },
    {"false": "0", "true": "1"},
    folded=" COLLATE NOCASE",
)
_POSTGRES = Dialect("bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", text=' COLLATE "C"', folded=' COLLATE "C"')


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
        return self.made(_SQLITE, quoted, " WITHOUT ROWID" if self.key and not self.numbered else "")

    def in_postgres(self, of: Callable[[str], str]) -> tuple[str, ...]:
        """The statements that make it in Postgres where it is missing. `of` gives a table's name with its schema."""
        return self.made(_POSTGRES, of, " WITH (fillfactor = 50)" if self.updated else "")

    def made(self, dialect: Dialect, of: Callable[[str], str] = quoted, end: str = "") -> tuple[str, ...]:
        """The statements that make it where it is missing: the table, and its indexes. `of` gives a table's name."""
        parts = [self._column(name, kind, dialect) for name, kind in self.columns.items()]
        if own := [quoted(name) for name in self.key if name != self.numbered]:
            parts.append(f"{'UNIQUE' if self.numbered else 'PRIMARY KEY'} ({', '.join(own)})")
        create = f"CREATE TABLE IF NOT EXISTS {of(self.name)} ({', '.join(parts)}){end}"
        return create, *(index_on(index, of) for index in self.indexes)

    def _column(self, name: str, kind: Kind, dialect: Dialect) -> str:
        if name == self.numbered:
            return f"{quoted(name)} {dialect.numbered.format(table=self.name)}"
        compared = dialect.folded if name in self.folded else dialect.text if kind == "text" else ""
        needed = "" if name in self.nullable else " NOT NULL"
        value = self.defaults.get(name)
        default = "" if value is None else f" DEFAULT {dialect.values.get(value, value)}"
        return f"{quoted(name)} {dialect.types.get(kind, kind)}{compared}{needed}{default}"


def index_on(index: Index, of: Callable[[str], str]) -> str:
    """The statement that makes an index where it is missing, in either database."""
    columns = ", ".join(map(quoted, index.columns))
    return f"CREATE INDEX IF NOT EXISTS {quoted(index.name)} ON {of(index.table)} ({columns})"
