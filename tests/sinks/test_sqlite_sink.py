"""Rows and keys: what is written, what is set aside, what is remembered."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from leasehold.errors import (
    ConfigError,
    KeyFromTwoPartitions,
    SchemaMismatch,
    SinkError,
    Verdict,
)
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import SCHEMA, E, batch, look, look_rejected, run, sink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


def reasons(path: Path) -> list[tuple[int, str]]:
    return look(path, "SELECT sequence_number, reason FROM flights_rejected ORDER BY rowid")


def test_a_batch_and_its_watermarks(path: Path) -> None:
    table = sink(path)
    events = [E("a", "x", number=3), E("b", "y", number=4), E("a", "z", number=5), E("c", partition="1", level=2)]
    assert table.apply(batch(events)) == one_row_each(applied=4)
    assert look(path) == [("a", "z", None), ("b", "y", None), ("c", "ok", None)]
    assert table.watermarks("h") == {"0": Watermark(5, 1), "1": Watermark(0, 2)}
    assert table.watermarks("other") == {}
    assert table.apply(batch([e._replace(level=7) for e in events])) == one_row_each(replayed=4)


def test_append_keeps_every_row_of_an_exploded_event_in_order(path: Path) -> None:
    table = sink(path, "append")
    it = batch([E("b", slot=1, number=1), E("a", slot=0), E("c", slot=2, number=1), E("b", slot=3, number=1)])
    assert table.apply(it) == BatchResult(applied=4, used=2)
    assert table.apply(it) == BatchResult(replayed=2), "which counts events"
    assert [slot for _, _, slot in look(path)] == [0, 1, 2, 3]


def test_deletes_and_upserts_keep_their_order(path: Path) -> None:
    table = sink(path)
    events = [E("a"), E("a", gone=True, number=1), E("b", gone=True, number=2), E("b", "new", number=3)]
    assert table.apply(batch(events, deletes=True)).applied == 4
    assert look(path) == [("b", "new", None)]
    assert look(path, "SELECT key_1, sequence_number, deleted FROM leasehold_key_flights") == [("a", 1, 1), ("b", 3, 0)]


def test_a_null_condition_does_not_delete(path: Path) -> None:
    it = batch([E("a")])
    sink(path).apply(Batch(it.rows, delete=pa.chunked_array([pa.nulls(1, pa.bool_())])))
    assert look(path) == [("a", "ok", None)]


def test_a_deleted_entity_does_not_come_back_with_an_older_event(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", version=5), E("a", version=6, gone=True, number=1)], by_version=True, deletes=True))
    late = batch([E("a", version=4, partition="1")], by_version=True, deletes=True)
    assert table.apply(late) == one_row_each(superseded=1)
    assert look(path) == []
    table.apply(batch([E("a", "back", version=7, partition="1", number=1)], by_version=True, deletes=True))
    assert look(path) == [("a", "back", None)]


# Rows that cannot be written


@pytest.mark.parametrize("cuts", [[0, 9], [0, 3, 9], list(range(10))])
def test_rows_that_break_a_constraint_are_set_aside_one_by_one(path: Path, cuts: list[int]) -> None:
    table = sink(path, made=True)
    events = [
        E("a", slot=1),
        E(None, number=1),
        E("b", "bad", number=2),
        E("b", None, number=3),
        E("b", slot=1, number=4),
        E("b", slot=2, number=5),
        E("a", gone=True, number=6),
        E("c", slot=1, number=7),
        E("c", "bad", number=8),
    ]
    for start, end in pairwise(cuts):
        table.apply(batch([e for e in events if start <= e.number < end], deletes=True))
    assert look(path) == [("b", "ok", 2), ("c", "ok", 1)]
    assert reasons(path) == [
        (1, "the key tail is null"),
        (2, "CHECK constraint failed: status <> 'bad'"),
        (3, "NOT NULL constraint failed: flights.status"),
        (4, "UNIQUE constraint failed: flights.slot"),
        (8, "CHECK constraint failed: status <> 'bad'"),
    ]
    ((body, at),) = look(path, "SELECT body, rejected_at FROM flights_rejected WHERE sequence_number = 2")
    assert json.loads(body) == {"tail": "b", "status": "bad", "slot": None}
    assert len(at) == len("2026-01-31T08:00:00.000000Z")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX i ON flights (json_extract(status, '$.n'))",
        "ALTER TABLE flights ADD COLUMN n AS (json_extract(status, '$.n')) CHECK (n IS NOT 0)",
        "CREATE TRIGGER i AFTER INSERT ON flights BEGIN SELECT json_extract(new.status, '$.n'); END",
    ],
)
def test_what_raises_an_error_for_the_values_of_a_row_sets_that_row_aside(path: Path, statement: str) -> None:
    run(path, "CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT, slot BIGINT)", statement)
    table = sink(path)
    result = table.apply(batch([E("a", '{"n": 1}'), E("b", "{no JSON", number=1), E("c", '{"n": 2}', number=2)]))
    assert (result.applied, result.rejected) == (2, 1)
    assert look(path, "SELECT tail FROM flights ORDER BY 1") == [("a",), ("c",)]
    assert reasons(path) == [(1, "malformed JSON")]


def test_a_trigger_that_names_what_is_gone_is_no_rows_fault(path: Path) -> None:
    run(
        path,
        "CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT, slot BIGINT)",
        "CREATE TABLE seen (tail TEXT)",
        "CREATE TRIGGER i AFTER INSERT ON flights BEGIN INSERT INTO seen VALUES (new.tail); END",
    )
    table = sink(path)
    assert table.apply(batch([E("a")])).applied == 1
    run(path, "PRAGMA writable_schema = 1", "DELETE FROM sqlite_master WHERE name = 'seen'")
    with pytest.raises((SinkError, SchemaMismatch), match=r"no such table: main\.seen"):
        sink(path).apply(batch([E("b", number=1)]))
    assert look(path) == [("a", "ok", None)]


def test_foreign_keys_and_triggers_set_rows_aside_and_undo_what_a_failed_row_did(path: Path) -> None:
    run(
        path,
        "CREATE TABLE status (status TEXT PRIMARY KEY)",
        "INSERT INTO status VALUES ('ok'), ('abort'), ('fail')",
        "CREATE TABLE seen (tail)",
        "CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT REFERENCES status, slot INTEGER)",
        """CREATE TRIGGER t AFTER INSERT ON flights BEGIN
           INSERT INTO seen VALUES (new.tail);
           SELECT RAISE(ABORT, 'told to') WHERE new.status = 'abort';
           SELECT RAISE(FAIL, 'told to') WHERE new.status = 'fail'; END""",
    )
    events = [E("a"), E("b", "abort", number=1), E("c", "fail", number=2), E("d", "what", number=3), E("e", number=4)]
    assert sink(path).apply(batch(events)) == one_row_each(applied=2, rejected=3)
    assert look(path, "SELECT tail FROM seen") == [("a",), ("e",)]
    assert reasons(path) == [(1, "told to"), (2, "told to"), (3, "FOREIGN KEY constraint failed")]


@pytest.mark.parametrize("made", ["trigger", "constraint"])
def test_a_table_that_ends_the_transaction_fails_the_batch(path: Path, made: str) -> None:
    clause = " NOT NULL ON CONFLICT ROLLBACK" if made == "constraint" else ""
    run(path, f"CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT{clause}, slot INTEGER)")
    if made == "trigger":
        body = "SELECT RAISE(ROLLBACK, 'no') WHERE new.status IS NULL;"
        run(path, f"CREATE TRIGGER t BEFORE INSERT ON flights BEGIN {body} END")
    table = sink(path)
    with pytest.raises(SinkError, match=r"ended the transaction.*RAISE\(ABORT\)") as ended:
        table.apply(batch([E("a"), E("b", None, number=1)]))
    assert ended.value.verdict is Verdict.ROWS, "one event is at fault"
    assert (look(path), table.watermarks("h")) == ([], {})
    assert table.apply(batch([E("a")])).applied == 1


def test_a_deferred_foreign_key_fails_the_batch(path: Path) -> None:
    run(
        path,
        "CREATE TABLE flights (tail TEXT PRIMARY KEY, status REFERENCES flights DEFERRABLE INITIALLY DEFERRED, slot)",
    )
    with pytest.raises(SinkError, match="DEFERRED"):
        sink(path).apply(batch([E("a", "nobody")]))
    assert look(path) == []


def test_a_column_body_is_what_is_kept_of_a_rejected_row(path: Path) -> None:
    it = batch([E(None), E("a", number=1)])
    rows = it.rows.append_column("Body", pa.array([b"\xffraw", b"x"]))
    sink(path).apply(Batch(rows))
    assert look(path, "SELECT body FROM flights_rejected") == [(b"\xffraw",)]
    assert look(path, "SELECT Body FROM flights") == [(b"x",)]


def test_events_that_could_not_be_parsed_are_under_the_same_watermark(path: Path) -> None:
    table = sink(path)
    good, bad = [E("a"), E("b", number=3)], [E("?", number=1), E("?", number=5), E("?", partition="1", number=2)]
    assert table.apply(batch(good, rejected=bad)) == one_row_each(applied=2, rejected=3)
    assert table.watermarks("h") == {"0": Watermark(5, 1), "1": Watermark(2, 1)}
    assert look_rejected(path) == [("h", "0", 1), ("h", "0", 5), ("h", "1", 2)]
    assert look(path, "SELECT body, reason FROM flights_rejected LIMIT 1") == [(b"?", "not JSON")]
    assert table.apply(batch(good, rejected=bad)) == one_row_each(replayed=5)
    assert table.apply(batch([], rejected=[E("?", number=6)])) == one_row_each(rejected=1)
    zombie = batch([], rejected=[E("?", number=9, level=0)])
    assert table.apply(zombie).refused == 1
    assert len(look_rejected(path)) == 4


def test_a_table_of_unparsed_events_without_a_reason_is_refused(path: Path) -> None:
    it = batch([E("a")], rejected=[E("b", number=1)])
    assert it.rejected is not None
    with pytest.raises(SchemaMismatch, match="no column reason"):
        sink(path).apply(Batch(it.rows, it.rejected.drop_columns(["reason"])))
    with pytest.raises(SchemaMismatch, match="body is of type int64"):
        sink(path).apply(Batch(it.rows, it.rejected.set_column(4, "body", pa.array([1]))))


def test_values_without_a_form_are_set_aside(path: Path) -> None:
    it = batch([E("a"), E("b", number=1), E("c", number=2, gone=True)], deletes=True)
    years = pa.array([0, 10**18, 10**18], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert sink(path).apply(Batch(it.rows.append_column("at", years), delete=it.delete)).rejected == 1
    assert reasons(path) == [(1, "at is outside the years 1 to 9999")]


def test_a_null_order_is_set_aside(path: Path) -> None:
    assert sink(path).apply(batch([E("a", version=None), E("a", number=1)], by_version=True)).rejected == 1
    assert reasons(path) == [(0, "sequence_by is null or NaN")]


# Keys and orders


def test_a_key_from_two_partitions_is_refused_with_nothing_applied(path: Path) -> None:
    table = sink(path)
    with pytest.raises(
        KeyFromTwoPartitions, match=r"tail = 'a'.*partition 0, and event 4 of partition 1.*sequence_by.*--to earliest"
    ):
        table.apply(batch([E("b"), E("a", number=1), E("a", partition="1", number=4)]))
    assert (table.row_count(), table.watermarks("h")) == (0, {})
    table.apply(batch([E("a")]))
    with pytest.raises(KeyFromTwoPartitions, match="partition 0 of hub h, and event 0 of partition 0 of hub g"):
        table.apply(batch([E("a", hub="g")]))


def test_an_event_that_was_not_written_is_no_conflict(path: Path) -> None:
    table = sink(path, made=True)
    result = table.apply(batch([E("a", "bad"), E("a", partition="1"), E("b", partition="1", number=1)]))
    assert result == one_row_each(applied=2, rejected=1)


@pytest.mark.parametrize(
    "type_", [pa.int16(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("ms")]
)
def test_orders_of_all_types_are_remembered(path: Path, type_: pa.DataType) -> None:
    low, middle, high = ("1", "2", "3") if type_ == pa.string() else (1, 2, 3)

    def apply(status: str, value: object, number: int) -> BatchResult:
        values = pa.array([value], pa.int32() if pa.types.is_date(type_) else None)
        values = values.cast(pa.int64()).cast(type_) if pa.types.is_timestamp(type_) else values.cast(type_)
        it = batch([E("a", status, partition=str(number))])
        return sink(path).apply(Batch(it.rows, sequence_by=pa.chunked_array([values])))

    assert apply("middle", middle, 2).applied == 1
    assert apply("low", low, 9).superseded == 1
    assert apply("tie, lower partition", middle, 1).superseded == 1
    assert apply("tie, higher partition", middle, 3).applied == 1
    assert apply("high", high, 0).applied == 1
    assert look(path) == [("a", "high", None)]


def test_orders_that_cannot_be_compared_are_refused(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a", version=1)], by_version=True))
    it = batch([E("a", number=1)])
    with pytest.raises(SchemaMismatch, match=r"gives a string.*a number"):
        table.apply(Batch(it.rows, sequence_by=pa.chunked_array([["x"]])))
    with pytest.raises(ConfigError, match=r"gives a bool.*CAST"):
        table.apply(Batch(it.rows, sequence_by=pa.chunked_array([[True]])))
    with pytest.raises(ConfigError, match="appended events"):
        sink(path, "append", name="log").apply(batch([E("a")], by_version=True))


def test_keys_of_all_kinds(path: Path) -> None:
    it = batch([E(f"k{n}", number=n) for n in range(1200)])
    rows = it.rows.append_column("x", pa.array([n / 2 for n in range(1200)])).append_column(
        "b", it.rows["tail"].cast(pa.binary())
    )
    table = sink(path, keys=("b", "x", "tail"))
    table.apply(Batch(rows))
    again = sink(path, keys=("tail", "b", "x"))
    moved = rows.set_column(SCHEMA.names.index("partition"), "partition", pa.array(["1"] * 1200))
    with pytest.raises(KeyFromTwoPartitions, match=r"b = b'k0', tail = 'k0', x = 0.0"):
        again.apply(Batch(moved))
    assert again.row_count() == 1200
