"""The databases of a fleet, with its stores and its table: how the tests read them, lock them and take them away.

A `Database` is a SQLite file in the fleet's folder, or a database of a Postgres server. Stores and table may be in the
same one, or each in one of its own. Each statement has a connection of its own: the database may have been away.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.faults import hub_kinds
from tests.stores.servers import PostgresServer
from tests.waiting import PATIENCE

STORES = ("leasehold_ownership", "leasehold_presence", "leasehold_ask", "leasehold_checkpoint")
"""What the stores write."""
AGED = ("leasehold_ownership", "leasehold_presence")
"""What expires of it."""
TABLE = ("entities", "leasehold_watermark")
"""What each batch of the table writes."""


class Database(Protocol):
    """A database, as a fleet needs it."""

    @property
    def url(self) -> str:
        """As a pipeline file in the fleet's folder names it."""
        ...

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query gives, with `?` for each of the values."""
        ...

    def age(self, owners: str, seconds: float) -> None:
        """Set the time of the ownership and presence records of owners, which LIKE knows, so far back."""
        ...

    def locked(self, *tables: str) -> contextlib.AbstractContextManager[None]:
        """A block in which nobody else writes these tables, or, of a file, anything."""
        ...

    def away(self) -> contextlib.AbstractContextManager[None]:
        """A block in which nobody reaches the database."""
        ...


@dataclass(frozen=True)
class InFile:
    """A SQLite file."""

    folder: Path
    name: str

    @property
    def url(self) -> str:
        return f"sqlite:///{self.name}"

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self.folder / self.name, timeout=PATIENCE)) as connection:
            return connection.execute(sql, values).fetchall()

    def age(self, owners: str, seconds: float) -> None:
        path = self.folder / self.name
        with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE)) as connection, connection:
            for table in AGED:
                connection.execute(
                    f"UPDATE {table} SET last_modified = last_modified - ? WHERE owner_id LIKE ?",
                    (seconds, owners),
                )

    @contextlib.contextmanager
    def locked(self, *tables: str) -> Iterator[None]:
        path = self.folder / self.name
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")

    def away(self) -> contextlib.AbstractContextManager[None]:
        return hub_kinds.away(self.folder, self.name)


@dataclass(frozen=True)
class InPostgres:
    """A database of a server, which is killed when the database is to be away: all others are away with it."""

    server: PostgresServer
    name: str

    @property
    def url(self) -> str:
        return self.server.database(self.name)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.replace("?", "%s").encode(), values or None).fetchall()

    def age(self, owners: str, seconds: float) -> None:
        with psycopg.connect(self.url) as connection:
            for table in AGED:
                connection.execute(
                    f"UPDATE {table} SET last_modified = last_modified - make_interval(secs => %s) "
                    "WHERE owner_id LIKE %s".encode(),
                    (seconds, owners),
                )

    @contextlib.contextmanager
    def locked(self, *tables: str) -> Iterator[None]:
        with psycopg.connect(self.url) as connection:
            connection.execute(f"LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE".encode())
            yield
            # Or the server would do, after the block, what somebody has asked for who is dead by then.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            connection.rollback()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.server.kill(hard=True)
        try:
            yield
        finally:
            self.server.start()


@contextlib.contextmanager
def postgres_database(server: PostgresServer) -> Iterator[InPostgres]:
    """A new database of the server, for the length of the block."""
    made = InPostgres(server, f"fleet_{secrets.token_hex(4)}")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {made.name}".encode())
    yield made
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {made.name} WITH (FORCE)".encode())
