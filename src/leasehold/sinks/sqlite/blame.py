"""Whether a row is to blame for an error of SQLite, and not the table, the file or the statement.

Owns the line between an event that is set aside and a pipeline that stops. A broken constraint is the row's, and so is
what a CHECK, a trigger, or an expression in an index or a column raises for its values, as `json_extract` does for text
that is no JSON. SQLite gives these the code of an error in SQL. A statement that names what is gone has the same code,
but fails when it is compiled: so it is compiled once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from leasehold.sqlite_file import primary_code

ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.OperationalError)
"""What may be a row's fault."""


def is_the_rows(
    connection: sqlite3.Connection, error: sqlite3.Error, statements: Iterable[tuple[str | None, int]]
) -> bool:
    """Whether one of `statements`, each with how many values it takes, failed for the values that it was given."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    if primary_code(error) != sqlite3.SQLITE_ERROR:
        return False
    try:
        for statement, values in statements:
            if statement is not None:
                connection.execute(f"EXPLAIN {statement}", [None] * values)
    except sqlite3.OperationalError:
        return False
    return True
