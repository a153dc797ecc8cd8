"""A database in which the schema `public` gives nobody CREATE, and a role that has been given no right in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.stores.servers import PostgresServer


class FewRights:
    """The database, and the `role`, whose URL is `url`; `admin_url` is a superuser's."""

    def __init__(self, server: PostgresServer) -> None:
        self.role = self.database = f"few_{secrets.token_hex(4)}"
        self._server = psycopg.connect(server.url, autocommit=True)
        self._server.execute(f"CREATE ROLE {self.role} LOGIN".encode())
        self._server.execute(f"CREATE DATABASE {self.database}".encode())
        self.admin_url = server.database(self.database)
        self.url = self.admin_url.replace("postgres:@", f"{self.role}@")
        self._admin = psycopg.connect(self.admin_url, autocommit=True)
        self.run(
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC", f"REVOKE ALL ON DATABASE {self.database} FROM PUBLIC",
            f"GRANT CONNECT ON DATABASE {self.database} TO {self.role}",
        )  # fmt: skip

    def run(self, *statements: str) -> None:
        """As the superuser."""
        for statement in statements:
            self._admin.execute(statement.encode())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        return self._admin.execute(query.encode()).fetchall()

    def close(self) -> None:
        self._admin.close()
        self._server.execute(f"DROP DATABASE {self.database} WITH (FORCE)".encode())
        self._server.execute(f"DROP ROLE {self.role}".encode())
        self._server.close()


@contextmanager
def few_rights(server: PostgresServer) -> Iterator[FewRights]:
    """One for the length of the block."""
    made = FewRights(server)
    try:
        yield made
    finally:
        made.close()
