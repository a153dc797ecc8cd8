"""A schema of the session's Postgres server: its URL, and a look into it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.table_spec import TableSpec
from tests.waiting import PATIENCE

FLIGHTS = TableSpec(name="flights", pipeline="p", keys=("tail",))
"""The table of most tests, of which a row comes from one partition."""


@dataclass(frozen=True)
class Place:
    """The schema `schema` of the server at `server`, and a connection into it."""

    server: str
    schema: str
    connection: psycopg.Connection[Any]

    @property
    def url(self) -> str:
        """For `open_sink`."""
        return f"{self.server}&options=-csearch_path%3D{self.schema}"

    def sink(self, spec: TableSpec, timeout: float = PATIENCE) -> PostgresSink:
        """The table of `spec` here; the server ends its transaction where nothing is said for half of the time-out."""
        return PostgresSink(self.url, spec, timeout=timeout)

    def run(self, *statements: str) -> None:
        """Change the schema behind Leasehold's back."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        return self.connection.execute(query.encode()).fetchall()

    def waiting(self, kind: str) -> bool:
        """Whether somebody in this database waits for a lock of this kind."""
        return bool(
            self.look(
                f"SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND locktype = '{kind}' "
                "AND datname = current_database()"
            )
        )


@contextmanager
def place_on(server: str) -> Iterator[Place]:
    """A new schema of the server, for the length of the block."""
    name = f"sink_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        connection.execute(f"SET search_path = {name}".encode())
        yield Place(server, name, connection)
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
