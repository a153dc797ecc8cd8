"""The tables that all entity tables of a SQLite database share, most of them made when they are needed first.

Owns the number of their format, with which goes what is beside each entity table.
"""

from __future__ import annotations

import sqlite3

from leasehold.sinks.beside import record
from leasehold.sinks.beside.tables import ALWAYS
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.session import SqliteSession

FORMAT = 8
"""The format that this release writes, and the only one that it reads."""

SCHEMA = tuple(statement for table in ALWAYS for statement in table.in_sqlite())
"""Those that every entity table needs: the statements that make them."""


def check_formats(connection: sqlite3.Connection, spec: TableSpec) -> None:
    """Refuse a file of an earlier format, before anything is made in it."""
    record.check_formats(SqliteSession(connection, spec), FORMAT)
