"""Statements that both databases read, in the form of a driver."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from leasehold.database.statements import native, sent


def test_parameters_get_the_mark_and_their_names_are_said_once() -> None:
    found = native("SELECT %(a)s, %(b_2)s WHERE %(a)s", "$")
    assert found == ("SELECT $a, $b_2 WHERE $a", ("a", "b_2"))


def test_a_percent_sign_of_a_name_comes_out_as_it_went_in() -> None:
    for name in ("100%", "%(a)s", "%%", "a%s"):
        assert native(f'SELECT 1 AS "{sent(name)}"', ":") == (f'SELECT 1 AS "{name}"', ())


def test_a_driver_reads_it() -> None:
    statement = native(f"SELECT %(it)s || '{sent('%(it)s')}'", ":")
    with closing(sqlite3.connect(":memory:")) as connection:
        assert connection.execute(statement.text, {"it": "x", "more": 1}).fetchone() == ("x%(it)s",)
