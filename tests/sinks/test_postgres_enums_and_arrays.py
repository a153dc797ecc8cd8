"""Columns of ENUM types and arrays in a table of the user's own, on a real server: all ways into the table agree."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from leasehold.errors import SchemaMismatch
from leasehold.sinks import Batch, TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.set_aside import EventId, RetryResult
from leasehold_testkit.contracts.sinks.fixtures import one_row_each, retried
from tests.sinks.postgres import Place
from tests.sinks.random_tables import ANY, empty

KEYED = TableSpec(name="things", pipeline="p", keys=("id",))
APPENDED = TableSpec(name="things", pipeline="p", mode="append")
BY_VERSION = TableSpec(name="things", pipeline="p", keys=("id",), sequence_by="version")
MOOD = """CREATE TYPE mood AS ENUM ('sad', 'so "so", {%s}', 'happy')"""
ODD = 'so "so", {%s}'
REASONS = "SELECT sequence_number, reason FROM things_rejected ORDER BY 1"
WAYS = {
    "copied into the table": (APPENDED, ""),
    "the last row of each key": (KEYED, ""),
    "all rows at once": (KEYED, ", CHECK (id <> '')"),
    "row by row": (KEYED, ", twin text GENERATED ALWAYS AS (id) STORED UNIQUE"),
    "by version": (BY_VERSION, ""),
}


def of(values: dict[str, Any], first: int = 0) -> Batch:
    """Rows of these columns, one an event."""
    count = len(next(iter(values.values())))
    fence = {"hub": ["h"] * count, "partition": ["0"] * count, "ownerLevel": [1] * count}
    order = pa.chunked_array([pa.array(range(first, first + count), pa.int64())])
    table = pa.table({**values, **fence, "sequenceNumber": range(first, first + count)})
    return Batch(table, sequence_by=order if "version" in values else None)


def table(place: Place, way: str, columns: str) -> PostgresSink:
    spec, rule = WAYS[way]
    place.run(f"CREATE TABLE things (id text{' PRIMARY KEY' if spec.keys else ''}, version bigint, {columns}{rule})")
    return place.sink(spec)


@pytest.fixture(params=[*WAYS])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(way: str, **values: Any) -> dict[str, Any]:
    count = len(next(iter(values.values())))
    more = {"version": pa.array(range(count), pa.int64())} if way == "by version" else {}
    return {"id": pa.array([f"k{number}" for number in range(count)]), **more, **values}


def test_a_value_that_is_no_label_is_rejected_alone_and_the_labels_are_named(place: Place, way: str) -> None:
    place.run(MOOD)
    sink = table(place, way, "mood mood")
    sink.apply(of(rows(way, mood=pa.array(["sad", ODD, "glad", None, "SAD"]))))
    assert place.look("SELECT id, mood::text FROM things ORDER BY 1") == [("k0", "sad"), ("k1", ODD), ("k3", None)]
    said = f"; its labels are sad, {ODD}, happy"
    assert place.look(REASONS) == [
        (2, f'invalid input value for enum {place.schema}.mood: "glad"{said}'),
        (4, f'invalid input value for enum {place.schema}.mood: "SAD"{said}'),
    ]
    sink.close()


def test_a_row_that_a_later_one_replaces_is_judged_too(place: Place, way: str) -> None:
    place.run(MOOD)
    sink = table(place, way, "mood mood, moods mood[]")
    values = rows(
        way, mood=pa.array(["glad", "sad", "sad"]), moods=pa.array([["sad"], ["sad", "glad"], [None, "happy"]])
    )
    values["id"] = pa.array(["a", "a", "a"])
    assert sink.apply(of(values)).rejected == 2
    assert place.look("SELECT mood::text, moods::text[] FROM things") == [("sad", [None, "happy"])]
    assert [number for number, _ in place.look(REASONS)] == [0, 1]
    sink.close()


def test_a_type_that_is_altered_is_what_it_is_from_the_next_batch_on(place: Place, way: str) -> None:
    place.run(MOOD)
    sink = table(place, way, "mood mood, moods mood[]")

    def give(first: int, value: str) -> int:
        values = rows(way, mood=pa.array([value]), moods=pa.array([[value]]))
        return sink.apply(of(values, first)).rejected

    assert (give(0, "glad"), give(1, "sad")) == (1, 0)
    place.run("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'sad'")
    assert (give(2, "glad"), give(3, "down")) == (0, 1)
    place.run("ALTER TYPE mood RENAME VALUE 'sad' TO 'down'")
    assert (give(4, "down"), give(5, "sad")) == (0, 1)
    assert place.look(REASONS)[-1][1].endswith(f"; its labels are glad, down, {ODD}, happy")
    place.run("ALTER TYPE mood RENAME TO feeling")
    assert (give(6, "down"), give(7, "sad")) == (0, 1)
    assert f"{place.schema}.feeling" in place.look(REASONS)[-1][1]
    sink.close()


ARRAYS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "texts": ("text[]", pa.string(), ["a", "", None, 'ä, "q" \\ {x} NULL\n', "NULL"]),
    "short": ("varchar(3)[]", pa.string(), ["abc", None]),
    "moods": ("mood[]", pa.string(), ["sad", ODD, None]),
    "ids": ("uuid[]", pa.string(), ["aaaaaaaa-0000-4000-8000-000000000000", None]),
    "small": ("smallint[]", pa.int64(), [-(2**15), 2**15 - 1, None]),
    "big": ("bigint[]", pa.int64(), [-(2**63), None]),
    "yes": ("boolean[]", pa.bool_(), [True, None, False]),
    "reals": ("real[]", pa.float32(), [0.5, None, float("inf")]),
    "doubles": ("double precision[]", pa.float64(), [0.1, 1e-300, None, float("-inf")]),
    "exact": ("numeric(20,2)[]", pa.decimal128(20, 2), [Decimal("-123456789012345678.90"), None, Decimal("0.01")]),
    "tiny": ("numeric[]", pa.decimal128(38, 20), [Decimal("0.00000000000000000012"), None]),
    "days": ("date[]", pa.date32(), [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "times": ("timestamptz[]", pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 31, 8, 0, 0, 5, dt.UTC), None]),
    "local": ("timestamp[]", pa.timestamp("us"), [dt.datetime(1969, 1, 31, 8, 0, 0, 5), None]),
    "bytes": ("bytea[]", pa.binary(), [b"\x00\xff\\\"", b"", None]),
}  # fmt: skip


def columns_of(arrays: dict[str, tuple[str, pa.DataType, list[Any]]]) -> str:
    return ", ".join(f"{name} {declared}" for name, (declared, _, _) in arrays.items())


def values_back(place: Place, names: Any) -> list[tuple[Any, ...]]:
    casts = [f"{name}::text[]" if name in ("moods", "ids") else name for name in names]
    return place.look(f"SELECT {', '.join(casts)} FROM things ORDER BY id")


def test_arrays_come_through_exactly(place: Place, way: str) -> None:
    place.run(MOOD, "SET timezone = 'UTC'")
    sink = table(place, way, columns_of(ARRAYS))
    given_values = {
        name: pa.array([[], elements, None, [None], elements[:1]], pa.list_(type_))
        for name, (_, type_, elements) in ARRAYS.items()
    }
    assert sink.apply(of(rows(way, **given_values))).rejected == 0
    back = values_back(place, ARRAYS)
    for place_of_row, row in enumerate(back):
        assert row == tuple(column[place_of_row].as_py() for column in given_values.values())
    assert sink.apply(of(rows(way, **given_values))).applied == 0, "the same batch again"
    if way == "copied into the table":
        sink.close()
        return
    schema = pa.schema([("id", pa.string()), *((name, one.type) for name, one in given_values.items())])
    states = sink.read_states(schema, [("k1",), ("k2",)])
    for key, number in (("k1", 1), ("k2", 2)):
        assert states[key,] == {"id": key, **{name: one[number].as_py() for name, one in given_values.items()}}
    sink.close()


UNFIT: list[tuple[str, pa.DataType, Any, str]] = [
    ("small", pa.int64(), 2**15, "out of range"),
    ("short", pa.string(), "four", "too long"),
    ("moods", pa.string(), "glad", "its labels are"),
    ("ids", pa.string(), "none", "invalid input syntax for type uuid"),
    ("texts", pa.string(), "a\0b", "texts has an element that has a NUL character"),
    ("days", pa.date32(), -800_000, "days has an element that is outside the years 1 to 9999"),
]


@pytest.mark.more(but=3)
@pytest.mark.parametrize(("name", "type_", "wrong", "said"), UNFIT, ids=[one[0] for one in UNFIT])
def test_an_element_that_does_not_fit_rejects_its_row_alone(
    place: Place, way: str, name: str, type_: pa.DataType, wrong: Any, said: str
) -> None:
    place.run(MOOD)
    declared, _, elements = ARRAYS[name]
    sink = table(place, way, f"{name} {declared}")
    good = pa.array([elements], pa.list_(type_))
    bad = pa.ListArray.from_arrays([0, 1], pa.array([wrong], pa.int32()).cast(type_) if name == "days" else [wrong])
    values = pa.concat_arrays([good, bad.cast(good.type), good])
    assert sink.apply(of(rows(way, **{name: values}))) == one_row_each(applied=2, rejected=1)
    ((number, reason),) = place.look(REASONS)
    assert (number, said in reason) == (1, True), reason
    sink.close()


def test_a_rejected_row_is_tried_again_by_the_same_rules(place: Place) -> None:
    place.run(MOOD, "CREATE TABLE things (id text PRIMARY KEY, mood mood, moods mood[])")
    sink = place.sink(KEYED)
    mood, moods = pa.array(["glad", "down", "sad"]), pa.array([["glad"], ["sad"], ["up"]])
    values = rows("", mood=mood, moods=moods)
    assert sink.apply(of(values)).rejected == 3
    place.run("ALTER TYPE mood ADD VALUE 'glad'")
    events = [EventId("h", "0", number) for number in range(3)]
    assert retried(sink, of(values), events) == RetryResult(applied=1, rejected=2)
    assert place.look("SELECT id, mood::text, moods::text[] FROM things") == [("k0", "glad", ["glad"])]
    assert [reason.partition(": ")[2] for _, reason in place.look(REASONS)] == [
        f'"{wrong}"; its labels are sad, {ODD}, happy, glad' for wrong in ("down", "up")
    ]
    sink.close()


def test_a_key_of_an_enum_is_forgotten_by_its_text(place: Place) -> None:
    place.run(MOOD, "CREATE TABLE things (id mood PRIMARY KEY, n bigint)")
    sink = place.sink(KEYED)
    sink.apply(of({"id": pa.array(["sad", "happy"]), "n": pa.array([1, 2])}))
    assert [sink.forget_entity({"id": name}).memories for name in ("glad", "sad", "sad")] == [0, 1, 0]
    assert place.look("SELECT key_1::text FROM leasehold_key_things") == [("happy",)]
    sink.close()


def test_a_check_writes_a_row_of_them_on_trial(place: Place) -> None:
    place.run(MOOD, "CREATE TABLE things (id text PRIMARY KEY, mood mood NOT NULL, moods mood[] NOT NULL, n int[])")
    sink = place.sink(KEYED)
    schema = of(rows("", mood=pa.array(["sad"]), moods=pa.array([["sad"]]), n=pa.array([[1]]))).rows.schema
    assert sink.compare(schema).there
    place.run("INSERT INTO things VALUES ('k', 'sad', '{sad,NULL}', '{1}')")
    assert sink.compare(schema).there
    assert place.look("SELECT id, mood::text, moods::text[], n FROM things") == [("k", "sad", ["sad", None], [1])]
    sink.close()


def test_domains_over_them_go_too(place: Place) -> None:
    place.run(
        MOOD,
        "CREATE DOMAIN calm AS mood CHECK (VALUE <> 'happy')",
        "CREATE DOMAIN few AS int[] CHECK (cardinality(VALUE) < 3)",
    )
    place.run("CREATE TABLE things (id text PRIMARY KEY, calm calm, few few)")
    sink = place.sink(KEYED)
    calm, few = pa.array(["sad", "happy", "glad", "sad"]), pa.array([[1], [], [], [1, 2, 3]], pa.list_(pa.int32()))
    assert sink.apply(of(rows("", calm=calm, few=few))) == one_row_each(applied=1, rejected=3)
    assert place.look("SELECT calm::text, few FROM things") == [("sad", [1])]
    sink.close()


def test_an_enum_is_a_key_by_its_text(place: Place) -> None:
    place.run(MOOD, "CREATE TABLE things (id mood PRIMARY KEY, n bigint)")
    for spec in (KEYED, BY_VERSION):
        sink = place.sink(spec)
        ids = pa.array(["happy", "glad", "sad", "happy", None])
        values = {"id": ids, "n": pa.array(range(5))} | ({"version": pa.array(range(5))} if spec is BY_VERSION else {})
        if spec is BY_VERSION:
            place.run("ALTER TABLE things ADD COLUMN version bigint")
        assert sink.apply(of(values)) == one_row_each(applied=3, rejected=2)
        assert place.look("SELECT id::text, n FROM things ORDER BY things.id") == [("sad", 2), ("happy", 3)]
        said = f"the key id does not fit the type {place.schema}.mood, whose labels are sad, {ODD}, happy"
        assert place.look(REASONS) == [(1, said), (4, "the key id is null")]
        schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
        assert sink.read_states(schema, [("happy",), ("glad",)]) == {("happy",): {"id": "happy", "n": 3}}
        sink.close()
        place.run(
            "DROP TABLE things, things_rejected, leasehold_key_things",
            "DELETE FROM leasehold_table",
            "DELETE FROM leasehold_watermark",
        )
        place.run("CREATE TABLE things (id mood PRIMARY KEY, n bigint)")


def test_an_array_is_no_key(place: Place) -> None:
    place.run("CREATE TABLE things (id text[] PRIMARY KEY, n bigint)")
    sink = place.sink(KEYED)
    with pytest.raises(SchemaMismatch, match="id is an array, and no row is known by one"):
        sink.apply(of({"id": pa.array([["a"]]), "n": pa.array([1])}))
    sink.close()


def test_names_of_types_are_quoted_wherever_they_stand(place: Place) -> None:
    odd = '"Mood %s {} ""x"" []"'
    place.run(f"CREATE TYPE {odd} AS ENUM ('a%s', 'b')")
    place.run(f"CREATE TABLE things (id {odd} PRIMARY KEY, v {odd} UNIQUE, w {odd}[])")
    sink = place.sink(KEYED)
    values = {"id": pa.array(["a%s", "c"]), "v": pa.array(["b", "b"]), "w": pa.array([["b"], []])}
    assert sink.apply(of(values)) == one_row_each(applied=1, rejected=1)
    assert sink.apply(of(values, 2)) == one_row_each(applied=1, rejected=1)
    assert place.look("SELECT id::text, v::text, w::text[] FROM things") == [("a%s", "b", ["b"])]
    sink.close()


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
things = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b", "c"]),
        "mood": st.sampled_from(["sad", ODD, "happy", "glad", "", None]),
        "tags": st.none() | st.lists(st.none() | texts | st.sampled_from(['"', "\\", "NULL", "{}", ","]), max_size=3),
        "sizes": st.none() | st.lists(st.none() | st.integers(-40_000, 40_000), max_size=3),
    }
)
SHAPE = {"id": pa.string(), "mood": pa.string(), "tags": pa.list_(pa.string()), "sizes": pa.list_(pa.int32())}


def fits(row: dict[str, Any]) -> bool:
    labels = ("sad", ODD, "happy", None)
    return row["mood"] in labels and all(-(2**15) <= one < 2**15 for one in row["sizes"] or [] if one is not None)


@pytest.fixture
def random_table(place: Place, way: str) -> Iterator[PostgresSink]:
    place.run(MOOD)
    sink = table(place, way, "mood mood, tags text[], sizes smallint[]")
    version = [("version", pa.int64())] if way == "by version" else []
    fence = [
        ("hub", pa.string()),
        ("partition", pa.string()),
        ("sequenceNumber", pa.int64()),
        ("ownerLevel", pa.int64()),
    ]
    sink.check(pa.schema([*SHAPE.items(), *version, *fence]))
    yield sink
    sink.close()


@pytest.mark.more(but=2)
@settings(max_examples=25, phases=(Phase.generate,), suppress_health_check=ANY)
@given(batches=st.lists(st.lists(things, min_size=1, max_size=8), min_size=1, max_size=3))
def test_any_rows_give_what_the_model_gives(
    place: Place, way: str, random_table: PostgresSink, batches: list[list[dict[str, Any]]]
) -> None:
    empty(place, random_table)
    first, written, wrong = 0, [], []
    for batch in batches:
        values: dict[str, Any] = {name: pa.array([row[name] for row in batch], type_) for name, type_ in SHAPE.items()}
        if way == "by version":
            values["version"] = pa.array(range(first, first + len(batch)), pa.int64())
        random_table.apply(of(values, first))
        written += [row for row in batch if fits(row)]
        wrong += [number for number, row in enumerate(batch, first) if not fits(row)]
        first += len(batch)
        model = [tuple(row[name] for name in SHAPE) for row in written]
        if way != "copied into the table":
            model = list({row[0]: row for row in model}.values())
        there = place.look("SELECT id, mood::text, tags, sizes FROM things")
        assert sorted(there, key=repr) == sorted(model, key=repr)
        assert [number for number, _ in place.look(REASONS)] == wrong
