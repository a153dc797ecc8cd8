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
from tests.sinks.plain import PlainSink
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
        return lambda spec: PlainSink(tmp_path / "table.db", spec)


class TestRejectedRowsOfPlainSink(OnSqlite, RejectedContract):
    """Every sink keeps them."""

    @pytest.fixture
    def open_table(self, tmp_path: Path) -> Callable[[TableSpec], Sink]:
        return lambda spec: PlainSink(tmp_path / "table.db", spec)


@pytest.mark.more_of(
    "test_compare_makes_and_changes_nothing",
    "test_new_columns_are_added_beside_writers_that_do_not_know_them",
    "test_of_many_that_add_the_same_columns_all_go_on",
    "test_the_table_keeps_its_identity_and_its_pipeline",
)
class TestPostgresSink(OnPostgres, SinkContract):
    pass


@pytest.mark.more_of("test_many_try_the_same_events_beside_batches_and_each_counts_once")
class TestRejectedRowsOfPostgres(OnPostgres, RejectedContract):
    pass


@pytest.mark.more
class TestPostgresSinkInNamedSchema(InNamedSchema, SinkContract):
    pass


@pytest.mark.more
class TestRejectedRowsInNamedSchema(InNamedSchema, RejectedContract):
    pass


@pytest.mark.more
class TestDuplicatesInNamedSchema(InNamedSchema, DuplicatesContract):
    pass


class AllRowsMerged(OnPostgres):
    """All rows of a batch are merged, also where the last one of each key alone, or a plain copy, would do."""

    @pytest.fixture(autouse=True)
    def _the_long_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for shorter in ("_merged_last", "_appended"):
            monkeypatch.setattr(PostgresTransaction, shorter, lambda *_: None)


@pytest.mark.more
class TestPostgresSinkThatMergesAllRows(AllRowsMerged, SinkContract):
    pass


@pytest.mark.more
class TestRejectedRowsOfPostgresThatMergesAllRows(AllRowsMerged, RejectedContract):
    pass


@pytest.mark.more
class TestForgettingOnPostgresThatMergesAllRows(AllRowsMerged, ForgettingContract):
    pass


class TestParkingOnPostgres(OnPostgres, ParkingContract):
    pass


class TestForgettingOnPostgres(OnPostgres, ForgettingContract):
    pass


@pytest.mark.more_of(
    "test_a_note_and_a_batch_at_the_same_time_come_one_after_the_other",
    "test_a_skipped_event_is_a_rejected_one_and_can_be_tried_again",
    "test_an_entity_that_is_forgotten_leaves_an_empty_note",
    "test_an_event_that_was_skipped_is_read_again_after_a_reset",
)
class TestSkippingOnPostgres(OnPostgres, SkippingContract):
    pass


@pytest.mark.more_of(
    "test_a_repeat_is_found_by_when_it_comes_where_its_clock_is_wrong",
    "test_a_reset_finds_the_same_firsts_again",
    "test_an_event_that_is_tried_again_is_judged_and_remembered",
    "test_many_apply_events_of_the_same_identities_and_one_of_each_counts",
    "test_nothing_is_remembered_of_a_batch_that_fails",
    "test_one_clock_that_is_wrong_does_not_keep_the_rest_from_being_forgotten",
    "test_what_nobody_asks_for_is_forgotten_in_small_steps",
)
class TestDuplicatesOnPostgres(OnPostgres, DuplicatesContract):
    pass


@pytest.mark.more_of(
    "test_threads_that_add_up_lose_nothing",
    "test_what_was_sent_twice_is_done_once_for_a_time",
)
class TestMessagesOnPostgres(OnPostgres, MessagesContract):
    @pytest.fixture
    def aged(self, place: Place) -> Callable[[float], object]:
        names = ("leasehold_message", "leasehold_message_sent")
        return lambda seconds: place.run(*(f"UPDATE {name} SET done_at = done_at - {seconds}" for name in names))


@pytest.mark.more_of("test_what_was_computed_from_states_that_may_have_changed_is_outdated")
class TestStatesOnPostgres(OnPostgres, StatesContract):
    @pytest.fixture
    def constrain(self, place: Place) -> Callable[[], object]:
        return lambda: place.run("CREATE UNIQUE INDEX one_each ON entities (value)")
