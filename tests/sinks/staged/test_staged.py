"""Rows that tasks stage: what killed, second, speculative and late attempts leave, who may, types."""

from __future__ import annotations

import logging
import pickle
import secrets
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from leasehold.errors import KeyFromTwoPartitions, StaleBatch, UsageError
from leasehold.sinks import Batch, BatchResult, TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.staged.stager import PostgresStager
from leasehold.sinks.postgres.staged.table import AGE
from leasehold.sinks.staged import StagedBatch, StagedRowsGone, StageReceipt, new_token, receipt_of, shape_of
from leasehold.testing.sinks.fixtures import UPSERT, Row, read
from leasehold.testing.sinks.fixtures import batch as of_range
from tests.sinks.events import E, batch
from tests.sinks.postgres import FLIGHTS, Place, place_on
from tests.sinks.postgres_writer import stage_and_die
from tests.sinks.processes import killed_in
from tests.sinks.staged.staging import StagedSink, staged
from tests.waiting import NEVER

TABLE = "SELECT tail, status FROM flights ORDER BY tail"
LEFT = "SELECT count(*) FROM leasehold_staged"


def stager_of(sink: PostgresSink) -> PostgresStager:
    stager = sink.stager()
    assert isinstance(stager, PostgresStager)
    return stager


def of(batch_: Batch, token: str, *receipts: StageReceipt) -> StagedBatch:
    return StagedBatch(token, shape_of(batch_), receipts)


def test_a_killed_attempt_counts_for_nothing_and_leaves_nothing(place: Place) -> None:
    sink, token, events = place.sink(FLIGHTS), new_token(), batch([E("a", number=0), E("b", number=1)])
    assert killed_in(stage_and_die, place.url, token)
    assert place.look(LEFT) == [(2,)]
    second = stager_of(sink).stage(token, 0, [events])
    assert sink.apply_staged(of(events, token, second)) == BatchResult(applied=2)
    assert place.look(TABLE) == [("a", "ok"), ("b", "ok")]
    assert place.look(LEFT) == [(0,)]
    sink.close()


def test_of_two_attempts_of_a_task_the_one_with_the_receipt_counts(place: Place) -> None:
    sink, token, events = place.sink(FLIGHTS), new_token(), batch([E("a"), E("b", number=1)])
    stager = stager_of(sink)
    first = stager.stage(token, 0, [batch([E("a", "first"), E("b", "first", number=1)])])
    second = stager.stage(token, 0, [events])
    with pytest.raises(UsageError, match="two receipts are of one task"):
        of(events, token, first, second)
    assert sink.apply_staged(of(events, token, second)).applied == 2
    assert place.look(TABLE) == [("a", "ok"), ("b", "ok")]
    assert place.look(LEFT) == [(0,)]
    sink.close()


def test_what_a_zombie_stages_after_the_merge_is_cleared_by_a_later_batch_and_nothing_younger(place: Place) -> None:
    sink, other = place.sink(FLIGHTS), place.sink(TableSpec(name="others", pipeline="q", keys=("tail",)))
    first = batch([E("a")])
    token = new_token()
    receipt = stager_of(sink).stage(token, 0, [first])
    assert sink.apply_staged(of(first, token, receipt)).applied == 1
    stager_of(sink).stage(token, 0, [batch([E("a", "zombie")])])
    others, later = batch([E("x")]), batch([E("b", number=1)])
    live, mine = staged(other, others), staged(sink, later)
    assert sink.apply_staged(mine).applied == 1
    assert place.look("SELECT batch FROM leasehold_staged ORDER BY 1") == [(it,) for it in sorted([token, live.batch])]
    old = f"UPDATE leasehold_staged SET staged_at = now() - interval '{AGE + 1} s' WHERE batch = '{token}'"
    place.run(old)
    with psycopg.connect(place.url) as somebody:  # who clears just now is not waited for
        somebody.execute("SELECT 1 FROM leasehold_staged WHERE batch = %s FOR UPDATE", [token])
        third = place.sink(FLIGHTS, timeout=NEVER)
        assert third.apply_staged(staged(third, batch([E("c", number=2)]))).applied == 1
        somebody.rollback()
    assert place.look(LEFT) == [(2,)]
    fourth = place.sink(FLIGHTS)
    assert fourth.apply_staged(staged(fourth, batch([E("d", number=3)]))).applied == 1
    assert place.look("SELECT batch FROM leasehold_staged") == [(live.batch,)]
    assert place.look(TABLE) == [(name, "ok") for name in "abcd"]
    assert other.apply_staged(live).applied == 1
    for one in (sink, other, third, fourth):
        one.close()


def test_what_comes_late_of_a_batch_that_was_given_up_is_cleared_behind_the_next_one(place: Place) -> None:
    sink, token = place.sink(FLIGHTS), new_token()
    stager = stager_of(sink)
    stager.stage(token, 0, [batch([E("a")])])
    sink.discard_staged(token)
    assert place.look(LEFT) == [(0,)]
    stager.stage(token, 1, [batch([E("a", "late")])])  # an attempt that was under way
    other = place.sink(TableSpec(name="others", pipeline="q", keys=("tail",)))
    live = staged(other, batch([E("x")]))
    assert sink.apply_staged(staged(sink, batch([E("a", number=1)]))).applied == 1
    assert place.look("SELECT batch FROM leasehold_staged") == [(live.batch,)]
    assert other.apply_staged(live).applied == 1
    sink.close()
    other.close()


def test_rows_that_go_while_they_are_merged_undo_the_merge(place: Place) -> None:
    sink, events = place.sink(FLIGHTS), batch([E("a"), E("b", number=1)])
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",
        "CREATE FUNCTION wipe() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM "
        f"{place.schema}.leasehold_staged WHERE n = 0; RETURN NULL; END $$",
        "CREATE TRIGGER wipe AFTER INSERT ON flights EXECUTE FUNCTION wipe()",
    )
    with pytest.raises(StagedRowsGone, match="has 1 of 2 rows"):
        sink.apply_staged(staged(sink, events, tasks=1))
    assert place.look(TABLE) == []
    place.run("DROP TRIGGER wipe ON flights")
    assert sink.apply_staged(staged(sink, events)).applied == 2
    sink.close()


def test_what_is_refused_leaves_nothing_staged(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    assert sink.apply_staged(staged(sink, batch([E("a")]))).applied == 1
    moved = batch([E("a", partition="1")])
    with pytest.raises(KeyFromTwoPartitions):
        sink.apply_staged(staged(sink, moved))
    assert place.look(LEFT) == [(0,)]
    sink.close()


def test_a_task_refuses_rows_of_another_batch_before_they_are_merged(place: Place) -> None:
    sink = place.sink(UPSERT)
    stale = of_range(Row("a", 1, 7), ranges=[read(0, 5)])
    with pytest.raises(StaleBatch):
        stager_of(sink).stage(new_token(), 0, [stale])
    sink.close()


def test_the_end_of_what_was_read_counts_where_a_task_has_no_row(place: Place) -> None:
    sink = place.sink(UPSERT)
    some = of_range(Row("a", 1, 3), ranges=[read(0, 10), read(0, 4, partition="1")])
    result = sink.apply_staged(staged(sink, some, tasks=4))
    assert result == BatchResult(applied=1)
    marks = sink.watermarks("contract-hub")
    assert {partition: (mark.sequence_number, mark.whole) for partition, mark in marks.items()} == {
        "0": (9, True),
        "1": (3, True),
    }
    sink.close()


def test_receipts_and_stagers_travel_and_tell_no_secret() -> None:
    receipt = StageReceipt("b", "a", 3, 2, 0, ())
    assert receipt_of(receipt.text()) == receipt
    stager = PostgresStager("postgresql://me:secret@host/db", 1.0, "public", UPSERT)
    assert pickle.loads(pickle.dumps(stager)) == stager  # noqa: S301 - our own
    assert "secret" not in repr(stager)


# who may


def test_a_user_who_may_not_stage_is_told_once_and_rows_pass_through_the_driver(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"least_{secrets.token_hex(4)}"
    sink = place.sink(FLIGHTS)
    sink.check(batch([]).rows.schema)
    tables = "flights, flights_rejected, leasehold_key_flights, leasehold_table, leasehold_watermark"
    place.run(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {place.schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}",
        f"GRANT SELECT ON leasehold_staged TO {role}",
    )
    least = PostgresSink(place.url.replace("postgres:@", f"{role}@"), FLIGHTS)
    with caplog.at_level(logging.WARNING):
        assert least.stager() is None
        assert "GRANT INSERT, DELETE ON leasehold_staged is missing" in caplog.text
        place.run("DROP TABLE leasehold_staged")
        assert least.stager() is None
        assert "leasehold init" in caplog.text
        sink.make_shared_tables()
        place.run(f"GRANT SELECT, INSERT, DELETE ON leasehold_staged TO {role}")
        assert least.apply_staged(staged(least, batch([E("a")]))) == BatchResult(applied=1)
    least.close()
    sink.close()
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# types

AT = datetime(2026, 1, 31, 8, 0, 0, 5, UTC)
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-5, 0, None]),
    (pa.int64(), [2**63 - 1, -(2**63), None]),
    (pa.float32(), [0.1, -0.0, None]),
    (pa.float64(), [float("inf"), float("nan"), -0.0]),
    (pa.float64(), [float("-inf"), 1e300, None]),
    (pa.string(), ['q"\\,{}\n', "NULL", ""]),
    (pa.string(), ["é\U0001f600", " a ", None]),
    (pa.binary(), [b"\x00\xff", b"", None]),
    (pa.decimal128(38, 10), [Decimal("-0.0000000012"), Decimal("1"), None]),
    (pa.date32(), [date(2026, 1, 31), date(1, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [AT, AT.replace(year=1), None]),
    (pa.timestamp("us"), [AT.replace(tzinfo=None), None, None]),
    (pa.list_(pa.float64()), [[1.5, None, float("nan")], [], None]),
    (pa.struct([("a", pa.string()), ("b", pa.timestamp("us", "UTC"))]), [{"a": '"', "b": AT}, None, None]),
    (pa.map_(pa.string(), pa.binary()), [[("k", b"AB")], [], None]),
    (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None]),
]


def of_all_types(*, body: bool) -> Batch:
    """Rows with every type, of which `refused` says which the table refuses."""
    columns: dict[str, Any] = {f"v{place}": pa.array(values, type_) for place, (type_, values) in enumerate(VALUES)}
    fence = {
        "hub": pa.array(["h"] * 6),
        "partition": pa.array(["0"] * 6),
        "sequenceNumber": pa.array([0, 1, 2, 3, 4, 4], pa.int64()),
        "ownerLevel": pa.array([1] * 6, pa.int64()),
    }
    both = {name: pa.chunked_array([column, column]).combine_chunks() for name, column in columns.items()}
    bodies = {"body": pa.array([b"a", None, b"\xff", b"a", None, b"\xff"])} if body else {}
    refused = pa.array([False, False, False, True, True, True])
    return Batch(pa.table({**both, **bodies, "refused": refused, **fence}))


@pytest.mark.parametrize("body", [False, True])
def test_rows_of_every_type_and_the_bodies_of_those_refused_are_as_without_staging(place: Place, body: bool) -> None:
    found = []
    for kind in (PostgresSink, StagedSink):
        with place_on(place.server) as own:
            sink = kind(own.url, TableSpec(name="t", pipeline="p", mode="append"))
            some = of_all_types(body=body)
            sink.check(some.rows.schema)
            own.run("ALTER TABLE t ADD CHECK (NOT refused)")
            assert sink.apply(some) == BatchResult(applied=3, rejected=3)
            rejected = own.look("SELECT sequence_number, place, body, is_text, reason, source FROM t_rejected")
            found.append((sorted(map(repr, own.look("SELECT * FROM t"))), sorted(map(repr, rejected))))
            sink.close()
    assert found[0] == found[1]
    assert len(found[0][0]) == len(found[0][1]) == 3


def test_a_delete_that_is_refused_keeps_a_body_with_what_postgres_cannot_hold(place: Place) -> None:
    found = []
    for kind in (PostgresSink, StagedSink):
        with place_on(place.server) as own:
            own.run(
                "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",
                "CREATE TABLE seats (tail text REFERENCES flights)",
                "INSERT INTO flights VALUES ('a', 'ok', 1)",
                "INSERT INTO seats VALUES ('a')",
            )
            sink = kind(own.url, FLIGHTS)
            result = sink.apply(batch([E("a", "n\0l", gone=True)], deletes=True))
            assert result == BatchResult(rejected=1)
            found.append(own.look("SELECT body, is_text FROM flights_rejected"))
            sink.close()
    assert found[0] == found[1]
    assert b"n\\u0000l" in bytes(found[1][0][0])
