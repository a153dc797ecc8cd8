"""INSERT of several rows a statement, where SQLite takes a seventh of the time off a statement a row.

Owns how many rows a statement has. Promises what a statement for each row does, in their order; but that SQLite checks
foreign keys at the end of a statement, so that no table with foreign keys may be written so, and that a row which is
refused takes back others of its statement: the caller has to undo all of them anyway.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

_VALUES = 5_000
"""How many values a statement binds: with more, it is no quicker."""


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


def insert(connection: sqlite3.Connection, into: Insert, rows: Sequence[Sequence[Any]]) -> int:
    """Insert these rows. Returns how many rows of the table are new or were updated."""
    values_at_once = min(_VALUES, connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER))
    at_once = max(1, values_at_once // into.width)
    alone = len(rows) % at_once
    values = list(chain.from_iterable(rows[alone:]))
    step = at_once * into.width
    together = (values[start : start + step] for start in range(0, len(values), step))
    changed = 0
    for statement, bound in ((into.of(1), rows[:alone]), (into.of(at_once), together)):
        changed += max(0, connection.executemany(statement, bound).rowcount)
    return changed
