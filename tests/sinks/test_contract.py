"""The contract of sinks, on SQLite and Postgres."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.sinks import Sink, TableSpec, open_sink
from leasehold.testing.sinks import (
    DuplicatesContract,
    ForgettingContract,
    MessagesContract,
    ParkingContract,
    RejectedContract,
    SinkContract,
    StatesContract,
)
from tests.sinks.events import look
from tests.sinks.postgres import Place


class OnSqlite:
    """What each suite is given."""

    @pytest.fixture
    def open_table(self, tmp_path: Path) -> Callable[[TableSpec], Sink]:
        return lambda spec: open_sink("sqlite:///table.db", spec, base=tmp_path)

    @pytest.fixture
    def contents(self, tmp_path: Path) -> Callable[[], list[tuple[str, int]]]:
        query = "SELECT entity, value FROM entities ORDER BY entity, value"
        return lambda: look(tmp_path / "table.db", query)

    @pytest.fixture
    def set_aside(self, tmp_path: Path) -> Callable[[], list[tuple[str, int]]]:
        query = "SELECT partition, sequence_number FROM entities_rejected ORDER BY 1, 2"
        return lambda: look(tmp_path / "table.db", query)


class TestSqliteSink(OnSqlite, SinkContract):
    pass


class TestRejectedRowsOfSqlite(OnSqlite, RejectedContract):
    pass


class TestDuplicatesOnSqlite(OnSqlite, DuplicatesContract):
    pass


class TestMessagesOnSqlite(OnSqlite, MessagesContract):
    @pytest.fixture
    def aged(self, tmp_path: Path) -> Callable[[float], object]:
        def make(seconds: float) -> None:
            with closing(sqlite3.connect(tmp_path / "table.db")) as connection, connection:
                for name in ("leasehold_message", "leasehold_message_sent"):
                    connection.execute(f"UPDATE {name} SET done_at = done_at - ?", (seconds,))

        return make


class TestStatesOnSqlite(OnSqlite, StatesContract):
    @pytest.fixture
    def constrain(self, tmp_path: Path) -> Callable[[], object]:
        def make() -> None:
            with closing(sqlite3.connect(tmp_path / "table.db")) as connection, connection:
                connection.execute("CREATE UNIQUE INDEX one_each ON entities (value)")

        return make


class TestParkingOnSqlite(OnSqlite, ParkingContract):
    pass


class TestForgettingOnSqlite(OnSqlite, ForgettingContract):
    pass


class OnPostgres:
    """What each suite is given."""

    @pytest.fixture
    def open_table(self, place: Place) -> Iterator[Callable[[TableSpec], Sink]]:
        opened: list[Sink] = []

        def open_one(spec: TableSpec) -> Sink:
            opened.append(open_sink(place.url, spec))
            return opened[-1]

        yield open_one
        for sink in opened:
            sink.close()

    @pytest.fixture
    def contents(self, place: Place) -> Callable[[], list[tuple[Any, ...]]]:
        return lambda: place.look("SELECT entity, value FROM entities ORDER BY entity, value")

    @pytest.fixture
    def set_aside(self, place: Place) -> Callable[[], list[tuple[Any, ...]]]:
        return lambda: place.look("SELECT partition, sequence_number FROM entities_rejected ORDER BY 1, 2")


class TestPostgresSink(OnPostgres, SinkContract):
    pass


class TestRejectedRowsOfPostgres(OnPostgres, RejectedContract):
    pass


class TestParkingOnPostgres(OnPostgres, ParkingContract):
    pass


class TestForgettingOnPostgres(OnPostgres, ForgettingContract):
    pass


class TestDuplicatesOnPostgres(OnPostgres, DuplicatesContract):
    pass


class TestMessagesOnPostgres(OnPostgres, MessagesContract):
    @pytest.fixture
    def aged(self, place: Place) -> Callable[[float], object]:
        names = ("leasehold_message", "leasehold_message_sent")
        return lambda seconds: place.run(*(f"UPDATE {name} SET done_at = done_at - {seconds}" for name in names))


class TestStatesOnPostgres(OnPostgres, StatesContract):
    @pytest.fixture
    def constrain(self, place: Place) -> Callable[[], object]:
        return lambda: place.run("CREATE UNIQUE INDEX one_each ON entities (value)")
