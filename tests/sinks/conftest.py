"""A Postgres server for the session, and a schema of it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sinks.postgres import Place, place_on
from tests.stores.servers import PostgresServer, postgres_server

__all__ = ["postgres_server"]


@pytest.fixture
def place(postgres_server: PostgresServer) -> Iterator[Place]:
    """A schema of the test's own."""
    with place_on(postgres_server.url) as made:
        yield made
