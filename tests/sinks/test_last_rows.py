"""The last row of each key, written alone: the outcome is that of all rows, written one after the other."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.row_by_row import RowWriter
from leasehold.sinks.rules.rows import LastRows, Rows
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.sqlite import shape
from leasehold.sinks.sqlite.rules import sees_each_row
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.sinks.sqlite.writing import SqliteRows
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import SCHEMA, E, batch, left, look, run, sink
from tests.sinks.streams import Delivered, Log, campaign, deliveries, known_by_chance, logs, taken

PLAIN = "CREATE TABLE flights (tail TEXT NOT NULL PRIMARY KEY, status TEXT, slot INTEGER, note TEXT DEFAULT 'new')"
"""Batches do not bind `note`."""
EACH = PLAIN.replace("slot INTEGER", "slot INTEGER CHECK (1)")
"""The same, with a rule that refuses nothing, so that each row is written."""
WITHOUT_C = PLAIN.replace("status TEXT", "status TEXT CHECK (tail <> 'c')")


@contextmanager
def tables(*statements: str) -> Iterator[list[tuple[Path, SqliteSink]]]:
    """Tables that are made so, each in a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for number, statement in enumerate(statements):
            path = Path(folder, f"{number}.db")
            run(path, statement)
            made.append((path, sink(path)))
            made[-1][1].check(SCHEMA)
        yield made
        for _, table in made:
            table.close()


def applied(table: SqliteSink, it: Any) -> BatchResult | str:
    try:
        return table.apply(it)
    except KeyFromTwoPartitions as error:
        return str(error)


def deliver(
    made: list[tuple[Path, SqliteSink]],
    log: Log,
    delivered: Delivered,
    *,
    by_version: bool,
    deletes: bool,
    seed: int | None = None,
) -> None:
    """Apply batches to all of these tables: after each one they are alike. With a seed, events have identities."""
    for ranges in delivered:
        good, bad = taken(log, ranges)
        it = batch(good, by_version=by_version, deletes=deletes, rejected=bad)
        if seed is not None:
            it = known_by_chance(it, [*good, *bad], seed)
        results = [applied(table, it) for _, table in made]
        assert results == results[:1] * len(made)
        kept = [left(path) for path, _ in made]
        assert kept == kept[:1] * len(made)
        for path, _ in made:
            run(path, "UPDATE flights SET note = 'kept'")


@pytest.mark.more
@pytest.mark.parametrize("by_version", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
@campaign(40, 5000)
@given(log=logs(), delivered=deliveries)
def test_the_outcome_is_that_of_each_row(log: Log, delivered: Delivered, by_version: bool, deletes: bool) -> None:
    with tables(PLAIN, EACH) as made:
        deliver(made, log, delivered, by_version=by_version, deletes=deletes)


@pytest.mark.more
@pytest.mark.parametrize("by_version", [False, True])
@campaign(15, 2000)
@given(log=logs(), delivered=deliveries, seed=st.integers(0, 99))
def test_the_outcome_is_that_of_each_row_where_duplicates_are_dropped(
    log: Log, delivered: Delivered, seed: int, by_version: bool
) -> None:
    with tables(PLAIN, EACH) as made:
        deliver(made, log, delivered, by_version=by_version, deletes=False, seed=seed)


@pytest.mark.more
@pytest.mark.parametrize("by_version", [False, True])
@campaign(20, 2000)
@given(log=logs(), delivered=deliveries, seed=st.none() | st.integers(0, 99))
def test_where_a_last_row_is_refused_each_row_is_tried(
    log: Log, delivered: Delivered, seed: int | None, by_version: bool
) -> None:
    """The rule looks at the key alone, so that no row but the last one has to be seen to know what is refused."""
    with pytest.MonkeyPatch.context() as patch, tables(WITHOUT_C, WITHOUT_C) as ((path, last), (each_path, each)):
        with patch.context() as unseen:
            unseen.setattr(shape, "sees_each_row", lambda *_: False)
            last.close()
            last.check(SCHEMA)
        both = [(path, last), (each_path, each)]
        deliver(both, log, delivered, by_version=by_version, deletes=False, seed=seed)


@pytest.mark.parametrize("by_version", [False, True])
def test_rows_of_many_keys_are_written_several_a_statement(by_version: bool) -> None:
    """Some are new and some are known, some are deleted; in the end one comes from another partition."""

    def some(first: int, count: int, keys: int) -> list[E]:
        numbers = range(first, first + count)
        return [E(f"{n * 7919 % keys}", f"{n}", None, "0", n, version=n % 1000, gone=n % 11 == 5) for n in numbers]

    with tables(PLAIN, EACH) as made:
        stranger = E("7", "stranger", None, "1", 0, version=5000)
        for events in (some(0, 1500, 1500), some(1500, 4000, 3000), [*some(5500, 3000, 3000), stranger]):
            it = batch(events, by_version=by_version, deletes=True)
            results = [applied(table, it) for _, table in made]
            assert results == results[:1] * 2
            assert left(made[0][0]) == left(made[1][0])
        assert isinstance(results[0], BatchResult) == by_version, "a version puts keys of two partitions in order"
        assert len(left(made[0][0])[1]) > 1500


def test_last_rows_that_are_refused_are_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "sees_each_row", lambda *_: False)
    write, tried = SqliteRows.write_last, list[LastRows]()

    def noted(rows: SqliteRows, left: LastRows) -> None:
        tried.append(left)
        write(rows, left)

    monkeypatch.setattr(SqliteRows, "write_last", noted)
    run(tmp_path / "t.db", WITHOUT_C)
    table = sink(tmp_path / "t.db")
    for first in (0, 3):  # another batch tries anew
        some = [E("a", number=first), E("c", number=first + 1), E("b", number=first + 2)]
        assert table.apply(batch(some)) == one_row_each(applied=2, rejected=1)
        assert len(tried) == 1 + first // 3
    table.close()


def test_rows_of_a_table_without_rules_are_not_written_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(RowWriter, "write")
    table = sink(tmp_path / "t.db")
    some = [E("b", "1", number=0), E("a", "2", number=1), E("b", "3", number=2), E(None, "4", number=3)]
    assert table.apply(batch(some)) == one_row_each(applied=3, rejected=1)
    assert look(tmp_path / "t.db") == [("a", "2", None), ("b", "3", None)]


@pytest.mark.parametrize(
    ("rule", "sees"),
    [
        ("", False),
        ("CREATE INDEX i ON flights (status)", False),
        ("CREATE TABLE other (tail TEXT REFERENCES others)", False),
        ("CREATE INDEX i ON flights (lower(status))", True),
        ("CREATE INDEX i ON flights (status) WHERE slot > 1", True),
        ("CREATE UNIQUE INDEX i ON flights (slot)", True),
        ("CREATE UNIQUE INDEX i ON flights (tail, slot)", True),
        ("CREATE TABLE other (tail TEXT REFERENCES Flights)", True),
        ("CREATE TRIGGER t AFTER INSERT ON FLIGHTS BEGIN SELECT 1; END", True),
        ("ALTER TABLE flights ADD COLUMN c INTEGER CHECK (c > 0)", True),
        ("ALTER TABLE flights ADD COLUMN c INTEGER REFERENCES flights", True),
        ("ALTER TABLE flights ADD COLUMN c INTEGER NOT NULL DEFAULT 1", True),
        ("ALTER TABLE flights ADD COLUMN c INTEGER AS (slot + 1)", True),
        ("DROP TABLE flights; CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT) STRICT", True),
        ("DROP TABLE flights; CREATE VIRTUAL TABLE flights USING fts5(tail, status)", True),
    ],
)
def test_which_tables_have_a_rule_that_sees_each_row(rule: str, sees: bool) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(f"{PLAIN}; {rule}")
        assert sees_each_row(connection, TableSpec(name="Flights", pipeline="p", keys=("Tail",))) == sees


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1.0, 1.5, float("inf"), 1.0], pa.float64()),
        ([1_000, 1_001_000, 2_002_000, 1_000], pa.timestamp("ns")),
        ([{"a": 1}, {"a": 2}, {"a": 1}], pa.struct([("a", pa.int64())])),
        (["b", "a", "b"], pa.dictionary(pa.int8(), pa.string())),
        (["b", "a", "b"], pa.large_string()),
        ([b"b", b"a", b"b"], pa.binary()),
        ([True, False, True], pa.bool_()),
        ([1, 0, 1], pa.uint16()),
    ],
)
def test_keys_of_any_type_are_one_where_they_are_stored_alike(
    tmp_path: Path, values: list[Any], type_: pa.DataType
) -> None:
    """Nanoseconds are stored as microseconds."""
    count = len(values)
    numbers = pa.array(range(count), pa.int64())
    fence = {"hub": ["h"] * count, "partition": ["0"] * count, "sequenceNumber": numbers, "ownerLevel": [1] * count}
    data = pa.table({"key": pa.array(values, type_), "n": numbers, **fence})
    made = SqliteSink(tmp_path / "t.db", TableSpec(name="t", pipeline="p", keys=("key",)))
    assert made.apply(Batch(data)).applied == count
    expected = {key: n for n, key in enumerate(Rows(data.select(["key"]), (0,), None, [], []).keys)}
    assert len(expected) < count
    assert sorted(n for (n,) in look(tmp_path / "t.db", "SELECT n FROM t")) == sorted(expected.values())
    made.close()


columns = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.sampled_from("01"), st.booleans()), min_size=1
)


@given(columns, st.booleans())
def test_the_last_row_of_each_key_is_found(some: list[tuple[str, int, str, bool]], one_lane: bool) -> None:
    """Several key columns, of two types."""
    data = pa.table({"n": range(len(some)), "text": [one[0] for one in some], "number": [one[1] for one in some]})
    lanes = [("h", one[2]) for one in some]
    found = Rows(data, (1, 2), [one[3] for one in some], lanes, range(len(some))).last_of_keys(one_lane=one_lane)
    last = {one[:2]: place for place, one in enumerate(some)}
    if one_lane and any(lanes[last[one[:2]]] != lanes[place] for place, one in enumerate(some)):
        assert found is None
        return
    assert found is not None
    assert found.last.to_pylist() == [last[key] for key in sorted(last)]
    assert {some[place][:2] for place in found.deleted.to_pylist()} == {one[:2] for one in some if one[3]}
