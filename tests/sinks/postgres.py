"""A schema of the session's Postgres server: its URL, and a look into it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.table import TableSpec


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

    def sink(self, spec: TableSpec, **settings: Any) -> PostgresSink:
        """The table of `spec` here."""
        return PostgresSink(self.url, spec, **settings)

    def run(self, *statements: str) -> None:
        """Change the schema behind Leasehold's back."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        return self.connection.execute(query.encode()).fetchall()


@contextmanager
def place_on(server: str) -> Iterator[Place]:
    """A new schema of the server, for the length of the block."""
    name = f"sink_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        connection.execute(f"SET search_path = {name}".encode())
        yield Place(server, name, connection)
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
