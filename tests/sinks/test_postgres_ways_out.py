"""What an error says to do about a column that does not hold what is to be written, is done, and helps."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import SchemaMismatch
from leasehold.sinks import Batch, TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.postgres import Place

THINGS = TableSpec(name="things", pipeline="p", keys=("id",))


def of(values: pa.Array, first: int = 0) -> Batch:
    count = len(values)
    fence = {"hub": ["h"] * count, "partition": ["0"] * count, "ownerLevel": [1] * count}
    ids = [f"k{number}" for number in range(count)]
    return Batch(pa.table({"id": ids, "v": values, **fence, "sequenceNumber": range(first, first + count)}))


def remedy(sink: PostgresSink, values: pa.Array) -> str:
    """What the error says of these values."""
    with pytest.raises(SchemaMismatch) as refused:
        sink.apply(of(values))
    found = re.search(r"  v: is of type .*?, and the table declares it .*?: (.*)", str(refused.value))
    assert found, refused.value
    return found[1]


def test_a_column_of_the_fence_stays_as_the_source_gives_it(place: Place) -> None:
    """A cast in the transform would be refused in its turn."""
    place.run("CREATE TABLE things (id text PRIMARY KEY, v text, partition integer)")
    sink = place.sink(replace(THINGS, keep=("partition",)))
    with pytest.raises(
        SchemaMismatch, match=r"the table declares it integer: (ALTER .* TYPE text), or keep it"
    ) as refused:
        sink.apply(of(pa.array(["x"])))
    found = re.search("ALTER .* TYPE text", str(refused.value))
    assert found
    place.run(found[0])
    assert sink.apply(of(pa.array(["x"]))) == one_row_each(applied=1)
    sink.close()


CAST_BY_THE_TABLE = {
    "inet": ("10.0.0.0/8", "none"),
    "cidr": ("10.0.0.0/8", "none"),
    "macaddr": ("08:00:2b:01:02:03", "none"),
    "bit(3)": ("101", "12"),
    "bit varying(3)": ("10", "2"),
    "tsvector": ("'a' 'b'", "'a"),
    "point": ("(1,2)", "none"),
    "jsonb": ('{"a": 1}', "{"),
    "json": ('{"a":1}', "{"),
}
CAST_IN_A_VIEW = {
    "interval": ("01:00:00", "none"),
    "money": ("$1.00", "none"),
    "time without time zone": ("10:00:00", "25:00"),
    "int4range": ("[1,3)", "none"),
    "tstzrange": ("empty", "none"),
    "pair": ("(1,x)", "none"),
    "xml": (None, "<a/>"),  # the server is built without it
}


@pytest.mark.more(but=3)
@pytest.mark.parametrize("declared", CAST_BY_THE_TABLE)
def test_a_generated_column_casts_a_text(place: Place, declared: str) -> None:
    good, bad = CAST_BY_THE_TABLE[declared]
    place.run(
        f"CREATE TABLE things (id text PRIMARY KEY, v {declared})", f"INSERT INTO things VALUES ('k', $${good}$$)"
    )
    sink = place.sink(THINGS)
    values = pa.array([good, bad, None])
    said = remedy(sink, values)
    before, _, statement = said.partition(": ")
    assert before == "write a text, which the table casts"
    place.run(statement)
    assert sink.apply(of(values)) == one_row_each(applied=2, rejected=1)
    there = place.look("SELECT id, v, v_typed::text FROM things ORDER BY id")
    assert there == [("k", good, good), ("k0", good, good), ("k2", None, None)]
    assert place.look("SELECT sequence_number FROM things_rejected") == [(1,)]
    sink.close()


@pytest.mark.more(but=3)
@pytest.mark.parametrize("declared", CAST_IN_A_VIEW)
def test_a_view_casts_a_text_that_a_check_has_tried(place: Place, declared: str) -> None:
    good, bad = CAST_IN_A_VIEW[declared]
    place.run("CREATE TYPE pair AS (a int, b text)", f"CREATE TABLE things (id text PRIMARY KEY, v {declared})")
    sink = place.sink(THINGS)
    values = pa.array([good, bad, None])
    before, _, statement = remedy(sink, values).partition(": ")
    assert before == "write a text, and cast it in a view"
    place.run(statement, f"CREATE VIEW typed AS SELECT id, CAST(v AS {declared}) AS v FROM things")
    assert sink.apply(of(values)) == one_row_each(applied=2, rejected=1)
    assert place.look("SELECT id, v::text FROM typed ORDER BY id") == [("k0", good), ("k2", None)]
    sink.close()


NESTED: list[tuple[str, str, pa.DataType, Any]] = [
    ("pair", "('(1,x)')", pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1, "b": "x"}),
    ("integer[][]", "('{{1,2}}')", pa.list_(pa.list_(pa.int64())), [[1], [2, 3]]),
    ("pair[]", "('{\"(1,x)\"}')", pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}]),
    ("text", "", pa.struct([("a", pa.int64())]), {"a": 1}),
    ("integer", "(1)", pa.list_(pa.int64()), [1]),
]


@pytest.mark.more(but=2)
@pytest.mark.parametrize(("declared", "there", "type_", "value"), NESTED, ids=[one[0] for one in NESTED])
def test_what_is_nested_goes_into_jsonb(
    place: Place, declared: str, there: str, type_: pa.DataType, value: Any
) -> None:
    place.run("CREATE TYPE pair AS (a int, b text)", f"CREATE TABLE things (id text PRIMARY KEY, v {declared})")
    sink = place.sink(THINGS)
    values = pa.array([value, None], type_)
    if declared == "text":  # which takes it as its JSON
        assert sink.apply(of(values)).applied == 2
        return
    place.run(f"INSERT INTO things VALUES ('k', {there})")
    said = remedy(sink, values)
    assert said.endswith(' TYPE jsonb USING to_jsonb("v")')
    place.run(said)
    assert sink.apply(of(values)).applied == 2
    assert place.look("SELECT v FROM things WHERE id = 'k0'") == [(value,)]
    sink.close()


@pytest.mark.parametrize("declared", ["inet[]", "timestamp(3) without time zone[]"])
def test_an_array_of_what_is_not_held_becomes_one_that_is(place: Place, declared: str) -> None:
    type_ = pa.string() if declared == "inet[]" else pa.timestamp("us")
    place.run(f"CREATE TABLE things (id text PRIMARY KEY, v {declared})")
    sink = place.sink(THINGS)
    values = pa.array([[], None], pa.list_(type_))
    statement, _, rest = remedy(sink, values).partition(", and cast it in a view")
    assert rest == ""
    place.run(statement)
    assert sink.apply(of(values)).applied == 2
    sink.close()


CASTS: list[tuple[str, pa.Array, str, pa.DataType, Any]] = [
    ("integer", pa.array(["1"]), "INT, as by CAST(v AS INT) AS v", pa.int32(), 1),
    (
        *("numeric(10,2)", pa.array([Decimal("1.0000")]), "DECIMAL(10,2), as by CAST(v AS DECIMAL(10,2)) AS v"),
        *(pa.decimal128(10, 2), Decimal("1.00")),
    ),
    ("numeric", pa.array(["1"]), "DECIMAL(38,18), as by CAST(v AS DECIMAL(38,18)) AS v", pa.decimal128(38, 18), 1),
    ("real", pa.array([0.5]), "FLOAT, as by CAST(v AS FLOAT) AS v", pa.float32(), 0.5),
    ("text", pa.array([1]), "STRING, as by CAST(v AS STRING) AS v", pa.string(), "1"),
    ("mood", pa.array([1]), "STRING, as by CAST(v AS STRING) AS v", pa.string(), "1"),
    ("timestamptz", pa.array(["now"]), "TIMESTAMP, as by CAST(v AS TIMESTAMP) AS v", pa.timestamp("us", "UTC"), 0),
    (
        "smallint[]",
        pa.array([["1"]]),
        "ARRAY<SMALLINT>, as by CAST(v AS ARRAY<SMALLINT>) AS v",
        pa.list_(pa.int16()),
        [1],
    ),
    (
        "mood[]",
        pa.array(["1"]),
        "ARRAY<STRING>, as by from_json(v, 'ARRAY<STRING>') AS v",
        pa.list_(pa.string()),
        ["1"],
    ),
    ("bigint[]", pa.array([1]), "ARRAY<BIGINT>, as by array(CAST(v AS BIGINT)) AS v", pa.list_(pa.int64()), [1]),
]


@pytest.mark.more(but=3)
@pytest.mark.parametrize(("declared", "values", "said", "type_", "value"), CASTS, ids=[one[0] for one in CASTS])
def test_what_spark_has_a_type_for_is_cast(
    place: Place, declared: str, values: pa.Array, said: str, type_: pa.DataType, value: Any
) -> None:
    place.run("CREATE TYPE mood AS ENUM ('1')", f"CREATE TABLE things (id text PRIMARY KEY, v {declared})")
    sink = place.sink(THINGS)
    assert remedy(sink, values) == f"write it as {said}"
    assert sink.apply(of(pa.array([value], type_))).applied == 1
    sink.close()


def test_a_column_that_would_cut_digits_off_gets_them(place: Place) -> None:
    place.run("CREATE TABLE things (id text PRIMARY KEY, v timestamptz(3))")
    sink = place.sink(THINGS)
    values = pa.array([5], pa.timestamp("us", "UTC"))
    before, _, statement = remedy(sink, values).partition(": ")
    assert before == "it would cut digits off"
    place.run(statement)
    assert sink.apply(of(values)).applied == 1
    sink.close()
