"""A server that is killed, or stops, at each point of a batch: the batch comes again, and all of it is there once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import psycopg
import pytest

from leasehold.errors import SinkUnavailable
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.staged import stager
from leasehold.sinks.postgres.staged.stager import PostgresStager
from tests.sinks.events import E, batch
from tests.sinks.postgres_writer import POINTS, SPEC, STAGED, killed
from tests.sinks.staged.staging import StagedSink
from tests.sinks.test_postgres_writers import MADE
from tests.stores.servers import PostgresServer

WAYS: list[tuple[type[PostgresSink], Mapping[str, tuple[Any, str]]]] = [(PostgresSink, POINTS), (StagedSink, STAGED)]
LOOKS = (
    "SELECT tail, status, slot FROM flights ORDER BY 1",
    "SELECT sequence_number FROM flights_rejected ORDER BY 1",
    "SELECT key_1, number, gone FROM leasehold_key_flights ORDER BY 1",
    "SELECT partition, sequence_number, owner_level FROM leasehold_watermark ORDER BY 1",
)


class Database:
    """A schema of a server that dies; each statement has a connection of its own."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.schema = server, f"dies_{secrets.token_hex(4)}"
        self.run(f"CREATE SCHEMA {self.schema}", MADE)

    @property
    def url(self) -> str:
        return f"{self.server.url}&options=-csearch_path%3D{self.schema}"

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"SET search_path = {self.schema}".encode())
            for statement in statements:
                connection.execute(statement.encode())

    def found(self) -> list[list[tuple[Any, ...]]]:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"SET search_path = {self.schema}".encode())
            return [connection.execute(look.encode()).fetchall() for look in LOOKS]


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    made = Database(postgres_server)
    yield made
    made.run(f"DROP SCHEMA {made.schema} CASCADE")


def happens_at_each(
    database: Database,
    kind: type[PostgresSink],
    points: Mapping[str, tuple[Any, str]],
    names: Sequence[str],
    what: Callable[[ExitStack], object],
) -> None:
    """Something happens to the server once, behind each of these points, and is over once it was noticed."""
    expected: list[list[tuple[Any, ...]]] = []
    for point in ("", *names):
        beside = ("flights", "leasehold_key_flights", "flights_rejected", "leasehold_watermark")
        if expected:
            database.run(*(f"DELETE FROM {name}" for name in beside))
        sink = kind(database.url, SPEC, timeout=1.5)
        sink.apply(batch([E("old", slot=9)], by_version=True, deletes=True))
        made = sink.stager()
        assert isinstance(made, PostgresStager)
        for one in (made, sink):
            one.close()  # so that all connect anew
        stager._connections.cache_clear()
        with pytest.MonkeyPatch.context() as patched, ExitStack() as over:
            happened = _once_behind(patched, *points[point], partial(what, over)) if point else [True]
            for _ in range(20):
                try:
                    sink.apply(killed())
                    break
                except SinkUnavailable:
                    over.close()
        assert happened, point
        if not expected:
            expected = database.found()
        assert database.found() == expected, point
        assert sink.apply(killed()).replayed == 8, point
        sink.close()
    assert [rows for rows in expected if rows] == expected


def _once_behind(patched: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]) -> list[bool]:
    """Act once behind the function of this name; what is returned is filled then."""
    before, happened = getattr(owner, name), list[bool]()

    def then(*given: Any, **named: Any) -> Any:
        result = before(*given, **named)
        if not happened:
            happened.append(True)
            act()
        return result

    patched.setattr(owner, name, then)
    return happened


def killed_and_started(database: Database) -> Callable[[ExitStack], None]:
    def happen(_: ExitStack) -> None:
        database.server.kill(hard=True)
        database.server.start()

    return happen


def stopped(database: Database) -> Callable[[ExitStack], None]:
    def happen(over: ExitStack) -> None:
        over.enter_context(database.server.frozen())

    return happen


def test_a_server_killed_in_the_copy_of_a_task(database: Database) -> None:
    happens_at_each(database, StagedSink, STAGED, ["half copied"], killed_and_started(database))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "points"), WAYS)
@pytest.mark.parametrize("happens", [killed_and_started, stopped])
def test_at_every_point(
    database: Database,
    kind: type[PostgresSink],
    points: Mapping[str, tuple[Any, str]],
    happens: Callable[[Database], Callable[[ExitStack], None]],
) -> None:
    happens_at_each(database, kind, points, list(points), happens(database))
