"""The components of a store in a SQLite file, and how their tables are made.

The file may hold others' tables too, a sink's for example.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from leasehold.database.statements import native
from leasehold.database.tables import Kind, Table
from leasehold.stores.sql.steps import Row
from leasehold.stores.sql.tables import lease_tables, store_tables
from leasehold.stores.sql.versions import VERSIONS, Component

_BOOT: dict[str, Kind] = {"boot_id": "text"}  # of which a time of the boot-time clock is
_FENCE = Table("leasehold_fence", {"last": "bigint", "reserved": "bigint", "boot_id": "text"})


def _makings(tables: tuple[Table, ...]) -> dict[str, tuple[str, ...]]:
    return {table.name: table.in_sqlite() for table in tables}


STORES = Component(
    "stores",
    3,
    _makings(store_tables({**_BOOT, "last_modified": "double precision"}, "double precision")),
    versions=VERSIONS.in_sqlite(),
)
LEASES = Component(
    "leases",
    1,
    {
        **_makings(lease_tables({**_BOOT, "until": "double precision"})),
        _FENCE.name: (*_FENCE.in_sqlite(), "INSERT INTO leasehold_fence VALUES (0, 0, '')"),
    },
    versions=VERSIONS.in_sqlite(),
    # The count is lost with its table: the time in microseconds is ahead of what anybody can have counted.
    again={
        _FENCE.name: "UPDATE leasehold_fence "
        "SET reserved = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
    },
)


class SqliteStoreSession:
    """A connection, as `sql.versions` asks it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Mapping[str, Any]) -> list[Row]:
        return self._connection.execute(native(statement, ":").text, values).fetchall()

    def relations(self) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}

    @contextmanager
    def making(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
