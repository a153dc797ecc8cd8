"""What a set-wise merge could miss in Postgres: the outcome is that of one row after the other, as in SQLite."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from leasehold.errors import SchemaMismatch
from leasehold.sinks import Batch, TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.set_aside import EventId, RetryResult
from leasehold_testkit.contracts.sinks.fixtures import one_row_each, retried
from tests.sinks.events import E, batch
from tests.sinks.postgres import FLIGHTS, Place

LONG = "".join(map(chr, random.Random(0).choices(range(0x4E00, 0x9FFF), k=4000)))
"""What no compression makes short enough for an index."""


@pytest.fixture
def sink(place: Place) -> Iterator[PostgresSink]:
    made = place.sink(FLIGHTS)
    yield made
    made.close()


APART = "EXCLUDE USING gist (int4range(slot, slot + 2) WITH &&)"
GENERATED = "g text GENERATED ALWAYS AS (lower(status)) STORED"
CASES = [
    (
        "a unique index on a generated column",
        f"status text, slot integer, {GENERATED} UNIQUE",
        (),
        [E("a", "X"), E("b", "x"), E("a", "y")],
        [1],
    ),
    (
        "a check on a generated column",
        f"status text, slot integer, {GENERATED} CHECK (g <> 'x')",
        (),
        [E("a", "y"), E("a", "X"), E("a", "z")],
        [1],
    ),
    (
        "a generated column that is NOT NULL",
        f"status text, slot integer, {GENERATED} NOT NULL",
        (),
        [E("a", "y"), E("a", None), E("a", "z")],
        [1],
    ),
    (
        "a unique index that carries a column along",
        "status text, slot integer",
        ("CREATE UNIQUE INDEX ON flights (slot) INCLUDE (status)",),
        [E("a", "x", 1), E("b", "y", 1), E("a", "z", 2)],
        [1],
    ),
    (
        "unique text of a fixed length",
        "status char(4) UNIQUE, slot integer",
        (),
        [E("a", "x"), E("b", "x "), E("a", "y")],
        [1],
    ),
    (
        "unique text that is cut off",
        "status varchar(3) UNIQUE, slot integer",
        (),
        [E("a", "abc "), E("b", "abc")],
        [1],
    ),
    (
        "a check that raises an error",
        "status text, slot integer CHECK (100 / slot > 0)",
        (),
        [E("a", slot=1), E("b", slot=0), E("a", slot=0), E("c", slot=200)],
        [1, 2, 3],
    ),
    (
        "an index that raises an error",
        "status text, slot integer",
        ("CREATE UNIQUE INDEX ON flights ((status::integer))",),
        [E("a", "1"), E("b", "x"), E("c", "1")],
        [1, 2],
    ),
    (
        "an exclusion constraint that only an earlier row breaks",
        f"status text, slot integer, {APART}",
        (),
        [E("a", slot=1), E("b", slot=2), E("a", slot=8)],
        [1],
    ),
    (
        "an exclusion constraint on a generated column",
        f"status text, slot integer, {GENERATED}, EXCLUDE USING btree (g WITH =)",
        (),
        [E("a", "X"), E("b", "x"), E("a", "y")],
        [1],
    ),
    (
        "an exclusion constraint with a collation",
        'status text, slot integer, EXCLUDE USING btree (status COLLATE "C" WITH =, slot WITH =)',
        (),
        [E("a", "X", 1), E("b", "X", 1), E("c", "X", 2), E("a", "y", 1)],
        [1],
    ),
    (
        "a value that is too long for an index",
        "status text UNIQUE, slot integer",
        (),
        [E("a", "x"), E("a", LONG), E("b", LONG)],
        [1, 2],
    ),
]


@pytest.mark.more(but=9)
@pytest.mark.parametrize(
    ("columns", "made", "rows", "wrong"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
def test_the_outcome_is_that_of_one_row_after_the_other(
    place: Place, sink: PostgresSink, columns: str, made: tuple[str, ...], rows: list[E], wrong: list[int]
) -> None:
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, {columns})", *made)
    events = [row._replace(number=number) for number, row in enumerate(rows)]
    assert sink.apply(batch(events)) == one_row_each(applied=len(rows) - len(wrong), rejected=len(wrong))
    assert [number for (number,) in place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1")] == wrong
    last = {e.tail: e for e in events if e.number not in wrong}
    kept = "SELECT tail, rtrim(status), slot FROM flights ORDER BY tail"
    assert place.look(kept) == sorted((e.tail, (e.status or "").rstrip(), e.slot) for e in last.values())


def test_rows_that_meet_no_other_are_written_at_once(place: Place, sink: PostgresSink) -> None:
    place.run(
        f"CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer, {APART})",
        "CREATE TABLE statements (n integer)",
        f"CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO {place.schema}.statements "
        "VALUES (1); RETURN NULL; END $$",
        "INSERT INTO flights VALUES ('old', 'ok', 2000)",
        "CREATE TRIGGER noted AFTER INSERT ON flights FOR EACH STATEMENT EXECUTE FUNCTION noted()",
    )
    meeting = [E("a", slot=2001), E("b", slot=3000), E("c", slot=3001)]
    events = [*(E(f"k{n}", slot=2 * n) for n in range(500)), *meeting]
    numbered = [row._replace(number=number) for number, row in enumerate(events)]
    assert sink.apply(batch(numbered)) == one_row_each(applied=501, rejected=2)
    assert place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1") == [(500,), (502,)]
    [(statements,)] = place.look("SELECT count(*) FROM statements")
    assert statements < 10


def test_a_key_that_is_written_in_several_ways_is_one(place: Place, sink: PostgresSink) -> None:
    place.run("CREATE TABLE flights (tail uuid PRIMARY KEY, status text, slot integer)")
    key = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    assert sink.apply(batch([E(key, "x"), E(key.upper(), "y", number=1)])) == one_row_each(applied=2)
    assert sink.apply(batch([E(key.upper(), "z", number=2)])) == one_row_each(applied=1)
    assert place.look("SELECT tail::text, status FROM flights") == [(key, "z")]


@pytest.mark.parametrize(
    ("declared", "keys"),
    [
        ("jsonb", pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int64()))),
        ("double precision", pa.array([math.nan, -math.nan])),
        ("double precision", pa.array([0.0, -0.0])),
    ],
)
def test_keys_that_postgres_takes_for_the_same_are_one(place: Place, declared: str, keys: pa.Array) -> None:
    place.run(f"CREATE TABLE same (k {declared} PRIMARY KEY, v text)")
    sink = place.sink(TableSpec(name="same", pipeline="p", keys=("k",)))
    fence = {"hub": ["h"] * 2, "partition": ["0"] * 2, "ownerLevel": [1] * 2, "sequenceNumber": [0, 1]}
    rows = pa.table({"k": keys, "v": ["x", "y"], **fence})
    assert sink.apply(Batch(rows)) == one_row_each(applied=2)
    assert place.look("SELECT v FROM same") == [("y",)]
    sink.close()


def test_a_key_too_long_for_an_index_is_rejected_alone(place: Place, sink: PostgresSink) -> None:
    fits = "x" * 9000  # it is compressed
    rows = [E("a"), E(LONG), E(fits), E(LONG, "again"), E(LONG, gone=True)]
    events = [row._replace(number=number) for number, row in enumerate(rows)]
    assert sink.apply(batch(events, deletes=True)) == one_row_each(applied=2, rejected=3)
    assert place.look("SELECT tail FROM flights ORDER BY tail") == [("a",), (fits,)]
    [*_, (reason,)] = place.look("SELECT reason FROM flights_rejected")
    assert reason.startswith("the key is too long: index row")


def test_what_is_tried_again_has_the_keys_that_a_batch_has(place: Place, sink: PostgresSink) -> None:
    place.run("CREATE TABLE flights (tail uuid PRIMARY KEY, status text, slot integer)")
    key, first = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", EventId("h", "0", 0)
    sink.apply(batch([], rejected=[E("?")]))
    again = batch([E(key, "x"), E(key.upper(), "y")])
    assert retried(sink, again, [first]) == RetryResult(applied=2)
    assert place.look("SELECT status FROM flights") == [("y",)]


def test_a_key_too_long_for_an_index_is_rejected_again(place: Place, sink: PostgresSink) -> None:
    sink.apply(batch([E(LONG)]))
    assert retried(sink, batch([E(LONG)]), [EventId("h", "0", 0)]) == RetryResult(rejected=1)
    assert place.look("SELECT count(*) FROM flights_rejected") == [(1,)]


def test_a_domain_of_fixed_length_is_no_key(place: Place, sink: PostgresSink) -> None:
    place.run(
        "CREATE DOMAIN code AS char(4)", "CREATE TABLE flights (tail code PRIMARY KEY, status text, slot integer)"
    )
    with pytest.raises(SchemaMismatch, match="compares tail otherwise than as it is"):
        sink.apply(batch([E("a")]))


def test_a_number_is_not_rounded_to_hundreds(place: Place, sink: PostgresSink) -> None:
    place.run("CREATE TABLE flights (tail text PRIMARY KEY, status text, slot numeric(5, -2))")
    with pytest.raises(SchemaMismatch, match=r"slot: is of type int64, and the table declares it numeric\(5,-2\)"):
        sink.apply(batch([E("a", slot=149)]))
