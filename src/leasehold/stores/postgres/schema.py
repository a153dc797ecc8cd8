"""The components of a store in Postgres, and how their tables are made.

They are in the first schema of the search path (`?options=-csearch_path%3Dname`; see `place.py`). Making them is one
transaction that holds an advisory lock, so that of several processes one makes the tables and the others wait for it; a
process that stops in there for a minute is ended by the server after the store's time-out.

`leasehold init` makes them as somebody who may, or prints the statements: a store needs no more than SELECT, INSERT,
UPDATE and DELETE afterwards (and USAGE of the sequence for leases).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg

from leasehold.database.postgres.connections import Connection, Row
from leasehold.database.tables import Table
from leasehold.errors import UsageError
from leasehold.stores.sql.tables import lease_tables, store_tables
from leasehold.stores.sql.versions import VERSIONS, Component

_LOCK = 0x6C656173  # "leas": one lock for all components, since any of them may make `leasehold_schema`
_VERSIONS = VERSIONS.in_postgres(str)


def _makings(tables: tuple[Table, ...]) -> dict[str, tuple[str, ...]]:
    return {table.name: table.in_postgres(str) for table in tables}  # a connection qualifies all names of ours


STORES = Component(
    "stores", 2, _makings(store_tables({"last_modified": "timestamptz"}, "timestamptz")), versions=_VERSIONS
)
LEASES = Component(
    "leases",
    1,
    {**_makings(lease_tables({"until": "timestamptz"})), "leasehold_fence": ("CREATE SEQUENCE leasehold_fence",)},
    versions=_VERSIONS,
    # The count is lost with its sequence: the time in microseconds is ahead of what anybody can have counted.
    again={
        "leasehold_fence": "SELECT setval('leasehold_fence', (extract(epoch FROM clock_timestamp()) * 1e6)::bigint)"
    },
)


class PostgresStoreSession:
    """A connection, as `sql.versions` asks it."""

    def __init__(self, connection: Connection, shown: str) -> None:
        self._connection = connection
        self._shown = shown

    def rows(self, statement: str, values: Mapping[str, Any]) -> list[Row]:
        cursor = self._connection.execute(statement, values)
        return cursor.fetchall() if cursor.description is not None else []

    def relations(self) -> set[str]:
        named = "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid WHERE nspname = %s"
        return {name for (name,) in self._connection.execute(named, [self._connection.schema])}

    @contextmanager
    def making(self) -> Iterator[None]:
        """A transaction that holds the lock. Raises `UsageError` for who may make no tables."""
        try:
            with self._connection.transaction():
                self._connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                yield
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(
                f"{self._shown}: tables of Leasehold are missing, and this user may not make them "
                f"({str(error).splitlines()[0]}). Run `leasehold init` once as somebody who may: --as USER, or --sql"
            ) from error
