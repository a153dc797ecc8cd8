"""A Postgres of the tests' own that keeps logical changes, and a database of it for each test, which Debezium captures.

How far an engine is, its messages say: a mark is a message of the server's log. Whether it streams, and whether it is
gone, its replication slot says.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.peers.debezium_engine import PREFIX, Change, Source, engine_program
from tests.ports import free_port
from tests.stores.servers import PostgresServer, postgres_of_its_own

RELEASE = "3.6.1.Final"
JARS = (
    f"io.debezium:debezium-api:{RELEASE}",
    f"io.debezium:debezium-embedded:{RELEASE}",
    f"io.debezium:debezium-connector-postgres:{RELEASE}",
    "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",
    "org.slf4j:slf4j-simple:1.7.36",
)
_MARK = "mark-"
"""What the prefixes of those messages begin with that tell how far the engine is."""
_LOGICAL = ("wal_level=logical", "max_replication_slots=40", "max_wal_senders=40", "listen_addresses=127.0.0.1")


class CapturedPostgres:
    """A database with one replication slot and publication, both of the name `slot`."""

    def __init__(self, database: psycopg.Connection[Any], slot: str) -> None:
        self._database, self._slot = database, slot

    def settings(self, folder: Path) -> Mapping[str, str]:
        where = self._database.info
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(where.port),
            "database.user": where.user,
            "database.password": "none",
            "database.dbname": where.dbname,
            "plugin.name": "pgoutput",
            "slot.name": self._slot,
            "publication.name": self._slot,
        }

    def run(self, statement: str) -> None:
        self._database.execute(statement.encode())

    def mark(self, word: str) -> None:
        self._database.execute("SELECT pg_logical_emit_message(true, %s, '')", [_MARK + word])

    def is_mark(self, change: Change, word: str = "") -> bool:
        return change.topic == f"{PREFIX}.message" and (_MARK + word).encode() in (change.key or b"")

    def streams(self, arrived: Sequence[Change]) -> bool:
        return self._is_slot("active AND confirmed_flush_lsn IS NOT NULL")

    def is_free(self) -> bool:
        return not self._is_slot("active")  # or another engine would not get it

    def forget(self) -> None:
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        self._database.execute(drop, [self._slot])

    def _is_slot(self, state: str) -> bool:
        query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{self._slot}' AND {state}"
        return bool(self._database.execute(query.encode()).fetchall())


class PostgresSource(Source):
    """A database of Postgres. `url` is where it is, for psycopg."""

    def __init__(self, program: Sequence[str], url: str, folder: Path) -> None:
        super().__init__(program, folder)
        self.url = url
        self._database = psycopg.connect(url, autocommit=True)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._database.execute(statement.encode())

    def look(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query.encode()).fetchall()

    def _as_captured(self, settings: Mapping[str, str]) -> CapturedPostgres:
        return CapturedPostgres(self._database, settings.get("slot.name", f"slot_{secrets.token_hex(4)}"))

    def end(self) -> None:
        super().end()
        self._database.close()


class Debezium:
    """A Postgres server whose databases can be captured, and the engine's program."""

    def __init__(self, server: PostgresServer, program: Sequence[str]) -> None:
        self._server, self._program = server, program

    @contextmanager
    def source(self, folder: Path) -> Iterator[PostgresSource]:
        """A new database for the length of the block; what its engines keep is in the folder."""
        name = f"source_{secrets.token_hex(4)}"
        self._server.within(name)
        source = PostgresSource(self._program, self._server.database(name), folder)
        try:
            yield source
        finally:
            source.end()


@contextmanager
def debezium_of_its_own() -> Iterator[Debezium]:
    """A server, for the length of the block."""
    program = engine_program("debezium", JARS)
    with postgres_of_its_own(free_port(), *_LOGICAL) as server:
        yield Debezium(server, program)
