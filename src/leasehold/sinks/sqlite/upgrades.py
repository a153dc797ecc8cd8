"""Brings the bookkeeping of an earlier release up to date, in place, at the first use of a table.

Owns the way from each format to the next. The tables of one database are brought up to date one by one, each when
its pipeline uses it: an earlier release may go on with the others beside it, and refuses by name those that were
brought up to date. What all tables share is therefore only ever widened, by columns with a default.

    2   watermarks know whether their last event is known from a range that was read whole (`fence`, rule 1)
    3   rejected rows have an identity (`rejected`), and what orders the rows is recorded (`remembered_order`)
    4   a partition may be in dispute (`fence`, rule 6)
    5   changes outside of batches are counted (`fence`, rule 10): a release that does not count them is kept out
    6   events may be parked (`parking`): a release that knows nothing of them would apply later ones before them

Within format 6 watermarks have come to know when their last event was enqueued. The number of that event is kept with
the time, so that a release that raises the watermark and knows of no time leaves none that is another event's: both
may work on one table.

Runs in the transaction of the first use, which locks the database from its first statement: of two processes that
come at once, the second finds the new format; one that is killed at any line leaves the old one.
"""

from __future__ import annotations

import sqlite3

from leasehold.sinks.beside import record
from leasehold.sinks.beside.watermarks import WATERMARK
from leasehold.sinks.rules.columns import quoted
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite import rejected_table
from leasehold.sinks.sqlite.session import Session
from leasehold.sinks.sqlite.shape import exists

FORMAT = 6
"""The format of the bookkeeping that this version writes, and the highest that it reads."""


def bring_up_to_date(session: Session, recorded: int) -> None:
    """Give the bookkeeping of the table, of the `recorded` format, the format `FORMAT`, and all its columns."""
    connection, spec = session.connection, session.spec
    if recorded < FORMAT:
        _widen(connection)
        rejected_table.identify(connection, spec)
        _say_that_there_was_no_order(connection, spec)
        record.note_format(session, FORMAT)
    elif "rows_count" not in _columns(connection, record.TABLE):  # another table of an earlier release was here first
        _widen(connection)


def _widen(connection: sqlite3.Connection) -> None:
    """Give what all tables of the database share the columns that have come since it was made."""
    _add_column(connection, WATERMARK, "whole", "INTEGER NOT NULL DEFAULT 0")
    _add_column(connection, WATERMARK, "disputed", "INTEGER NOT NULL DEFAULT 0")
    _add_column(connection, WATERMARK, "changes", "INTEGER NOT NULL DEFAULT 0")
    _add_column(connection, WATERMARK, "timed_number", "INTEGER")
    _add_column(connection, WATERMARK, "enqueued_time", "REAL")
    _add_column(connection, record.TABLE, "ordered_by", "TEXT")
    _add_column(connection, record.TABLE, "deletes", "INTEGER")
    _add_column(connection, record.TABLE, "rows_count", "INTEGER NOT NULL DEFAULT 1")  # the last that has come


def _say_that_there_was_no_order(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Keys were remembered, and never a value with them: that is all that can be told of what rows were ordered by."""
    if not spec.memory or not exists(connection, spec.memory):
        return
    if connection.execute(f"SELECT 1 FROM {quoted(spec.memory)} LIMIT 1").fetchone():
        connection.execute(
            "UPDATE leasehold_table SET ordered_by = '' WHERE name = ? AND sequence_by IS NULL", (spec.name,)
        )


def _add_column(connection: sqlite3.Connection, table: str, column: str, declared: str) -> None:
    if column not in _columns(connection, table):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {declared}")


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
