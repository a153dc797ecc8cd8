"""Rows inserted several a statement: what one statement a row leaves, and as many of them counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from leasehold.sinks.sqlite.inserts import Insert, insert

KEPT = Insert("INSERT INTO t", 3, "ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = excluded.c WHERE t.b < excluded.b")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        opened.execute("CREATE TABLE t (a PRIMARY KEY, b, c CHECK (c <> 13))")
        yield opened


def rows(count: int, keys: int, c: int = 0) -> list[tuple[int, int, int]]:
    """Rows of these keys, of which every third is below what is there of its key."""
    return [(n % keys, n - (n % 3) * keys, c) for n in range(count)]


@pytest.mark.parametrize("values", [5_000, 12, 3], ids=["many", "four rows a statement", "one row a statement"])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1665, 1666, 1667, 5000])
def test_rows_are_written_as_by_one_statement_each(connection: sqlite3.Connection, count: int, values: int) -> None:
    some, each = rows(count, 400), 0
    for row in some:
        each += connection.execute(KEPT.of(1), row).rowcount
    written = connection.execute("SELECT * FROM t ORDER BY a").fetchall()
    connection.execute("DELETE FROM t")
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, values)
    assert insert(connection, KEPT, some) == each
    assert connection.execute("SELECT * FROM t ORDER BY a").fetchall() == written


def test_a_row_that_is_refused_raises(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        insert(connection, KEPT, [*rows(2000, 2000), (2001, 0, 13)])
