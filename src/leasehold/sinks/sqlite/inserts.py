"""INSERT statements of several rows, which take SQLite less time than one statement for each row.

Owns how many rows a statement has. Promises that the rows are written in their order, with the outcome of one statement
for each row, except for the default of a column that is not bound and asks what a statement has done, as `changes()`
does. The caller keeps two rules. No table with foreign keys is written here, since SQLite checks them at the end of a
statement. And where a row is refused, the caller undoes all of them: SQLite takes back one statement, and keeps the
ones before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VALUES_A_STATEMENT = 5_000
"""With more, a statement is no quicker."""
_BYTES_KEPT = 1 << 20
"""How much text of a batch may stay in memory: a connection keeps what a statement was given until it runs again."""


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT of rows of `width` values: what it says before VALUES, and behind the rows."""

    into: str
    width: int
    then: str = ""

    def of(self, rows: int) -> str:
        """The statement for this number of rows."""
        row = f"({', '.join('?' * self.width)})"
        return f"{self.into} VALUES {', '.join([row] * rows)} {self.then}"


def insert(connection: sqlite3.Connection, into: Insert, columns: Sequence[Sequence[Any]]) -> int:
    """Insert rows of these columns, which are of one length. Returns how many rows of the table are new or updated."""
    values_at_once = min(VALUES_A_STATEMENT, connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER))
    count, at_once = len(columns[0]), max(1, values_at_once // into.width)
    end = count - count % at_once  # of those that are written together
    while end and _weight(columns, end - at_once, end) > _BYTES_KEPT:
        end -= at_once
    changed = 0
    if end:
        values: list[Any] = [None] * (end * into.width)
        for place, column in enumerate(columns):
            values[place :: into.width] = column[:end]
        step = at_once * into.width
        together = (values[start : start + step] for start in range(0, len(values), step))
        changed += connection.executemany(into.of(at_once), together).rowcount
    if end < count:
        others = zip(*(column[end:] for column in columns), strict=True)
        changed += connection.executemany(into.of(1), others).rowcount
    return changed


def _weight(columns: Sequence[Sequence[Any]], start: int, end: int) -> int:
    return sum(len(value) for column in columns for value in column[start:end] if isinstance(value, (str, bytes)))
