"""A database that has not been taught a feature yet: what its transaction and its sink say."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold.sinks.beside.unwritten import UnwrittenFeatures
from leasehold.sinks.features import ALL, BOOKKEEPING
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold.sinks.set_aside import Selection
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.sinks.sqlite.transaction import SqliteTransaction
from leasehold_testkit.contracts.sinks.fixtures import UPSERT, Row, batch

METHODS = {name: method for name, method in vars(UnwrittenFeatures).items() if not name.startswith("_")}


class Untaught(SqliteTransaction):
    """A transaction without the methods of any feature."""


for named, method in METHODS.items():
    setattr(Untaught, named, method)


class UntaughtSink(SqliteSink):
    """A sink that says BOOKKEEPING before its transaction has it."""

    features = frozenset({BOOKKEEPING})

    @contextmanager
    def _transaction(self) -> Iterator[SqliteTransaction]:
        with self._file.writing() as connection:
            yield Untaught(connection, self.spec, self._checked.get(connection))


@pytest.mark.parametrize("name", METHODS)
def test_each_method_names_itself_and_a_feature_that_there_is(name: str) -> None:
    taken = inspect.signature(METHODS[name]).parameters
    with pytest.raises(NotImplementedError, match=f"UnwrittenFeatures has no method {name},") as refused:
        METHODS[name](UnwrittenFeatures(), *[None] * (len(taken) - 1))
    assert any(f"the feature {feature}:" in str(refused.value) for feature in ALL)


def test_our_databases_have_themSelection() -> None:
    for transaction in (SqliteTransaction, PostgresTransaction):
        assert [name for name, method in METHODS.items() if getattr(transaction, name) is method] == []


def test_batches_ask_for_none_of_them(tmp_path: Path) -> None:
    sink = UntaughtSink(tmp_path / "t.db", UPSERT)
    assert sink.apply(batch(Row("a", 1, 0), rejected=[Row("?", 0, 1)])).applied == 1
    assert [row.event.sequence_number for row in sink.rejected_rows.rows(Selection(), 9)] == [1]


def test_what_is_said_and_not_written_is_named(tmp_path: Path) -> None:
    sink = UntaughtSink(tmp_path / "t.db", UPSERT)
    sink.apply(batch(Row("a", 1, 0)))
    with pytest.raises(NotImplementedError, match=r"Untaught has no method forget_key.*the feature BOOKKEEPING"):
        sink.forget_entity({"entity": "a"})
    assert sink.row_count() == 1
