"""The contract of sinks, on SQLite and Postgres."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.sinks import Sink, TableSpec
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold_testkit.contracts.sinks import (
    DuplicatesContract,
    ForgettingContract,
    MessagesContract,
    ParkingContract,
    RejectedContract,
    SinkContract,
    SkippingContract,
    StatesContract,
)
from tests.sinks.databases import InNamedSchema, OnPostgres, OnSqlite
from tests.sinks.plain import plain
from tests.sinks.postgres import Place


class TestSqliteSink(OnSqlite, SinkContract):
    pass


class TestRejectedRowsOfSqlite(OnSqlite, RejectedContract):
    pass


class TestSkippingOnSqlite(OnSqlite, SkippingContract):
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


class TestPlainSink(OnSqlite, SinkContract):
    """A sink without features: what asks for one is skipped."""

    @pytest.fixture
    def open_table(self, tmp_path: Path) -> Callable[[TableSpec], Sink]:
        return lambda spec: plain(tmp_path / "table.db", spec)


class TestPostgresSink(OnPostgres, SinkContract):
    pass


class TestRejectedRowsOfPostgres(OnPostgres, RejectedContract):
    pass


class TestPostgresSinkInNamedSchema(InNamedSchema, SinkContract):
    pass


class TestRejectedRowsInNamedSchema(InNamedSchema, RejectedContract):
    pass


class TestDuplicatesInNamedSchema(InNamedSchema, DuplicatesContract):
    pass


class AllRowsMerged(OnPostgres):
    """All rows of a batch are merged, also where the last one of each key alone, or a plain copy, would do."""

    @pytest.fixture(autouse=True)
    def _the_long_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for shorter in ("_merged_last", "_appended"):
            monkeypatch.setattr(PostgresTransaction, shorter, lambda *_: None)


class TestPostgresSinkThatMergesAllRows(AllRowsMerged, SinkContract):
    pass


class TestRejectedRowsOfPostgresThatMergesAllRows(AllRowsMerged, RejectedContract):
    pass


class TestForgettingOnPostgresThatMergesAllRows(AllRowsMerged, ForgettingContract):
    pass


class TestParkingOnPostgres(OnPostgres, ParkingContract):
    pass


class TestForgettingOnPostgres(OnPostgres, ForgettingContract):
    pass


class TestSkippingOnPostgres(OnPostgres, SkippingContract):
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
