"""Rows inserted several a statement: what one statement a row leaves, and as many of them counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from leasehold.sinks.sqlite.inserts import Insert, insert

KEPT = Insert("INSERT INTO t", 3, "ON CONFLICT (a) DO UPDATE SET b = excluded.b, c = excluded.c WHERE t.b < excluded.b")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        opened.execute("CREATE TABLE t (a PRIMARY KEY, b, c CHECK (c <> 13))")
        yield opened


def rows(count: int, keys: int, c: int = 0) -> list[tuple[int, int, int]]:
    """Rows of these keys. Of the later ones some are above what is there of their key, some below, some equal."""
    return [(n % keys, n // keys * 7 % 5, c) for n in range(count)]


def by_column(some: list[Any]) -> list[list[Any]]:
    """The same rows, column by column."""
    return [[row[place] for row in some] for place in range(3)]


@pytest.mark.parametrize("values", [5_000, 12, 3], ids=["many", "four rows a statement", "one row a statement"])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1665, 1666, 1667, 5000])
def test_rows_are_written_as_by_one_statement_each(connection: sqlite3.Connection, count: int, values: int) -> None:
    some, each = rows(count, 400), 0
    for row in some:
        each += connection.execute(KEPT.of(1), row).rowcount
    written = connection.execute("SELECT * FROM t ORDER BY a").fetchall()
    connection.execute("DELETE FROM t")
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, values)
    assert insert(connection, KEPT, by_column(some)) == each
    assert connection.execute("SELECT * FROM t ORDER BY a").fetchall() == written


def test_a_row_that_is_refused_raises_and_takes_back_its_statement(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 12)
    some = [(n, 0, 13 if n == 6 else 0) for n in range(9)]
    connection.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        insert(connection, KEPT, by_column(some))
    assert [a for (a,) in connection.execute("SELECT a FROM t")] == [0, 1, 2, 3]


def test_large_values_do_not_stay_with_a_statement(connection: sqlite3.Connection) -> None:
    """Those of the last statement of several rows would, for as long as the connection is kept."""
    statements: list[int] = []
    connection.set_trace_callback(lambda statement: statements.append(statement.count("(")))
    light = [(n, 0, "x") for n in range(1666)]
    heavy = [(n, 0, "x" * 1000) for n in range(1666, 5000)]
    assert insert(connection, KEPT, by_column([*light, *heavy])) == 5000
    assert len(statements) == 1 + len(heavy)
    assert insert(connection, KEPT, by_column([(n, 1, "x") for n in range(5000)])) == 5000, "what is light again"
    assert len(statements) == 1 + len(heavy) + 3 + 5000 % 1666
