"""The last row of each key, merged alone in Postgres: the outcome is that of all rows, merged in the other ways."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import KeyFromTwoPartitions
from leasehold.model import EventRange
from leasehold.sinks.postgres import merging
from leasehold.sinks.postgres.at_once import AtOnce
from leasehold.sinks.postgres.merging import Merge
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.rules.values import convert, most_json
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import SCHEMA, E, Model, batch
from tests.sinks.postgres import FLIGHTS, Place
from tests.sinks.random_tables import ANY, empty
from tests.sinks.streams import Delivered, Log, campaign, deliveries, known_by_chance, logs, taken

COLUMNS = "tail text PRIMARY KEY, status text, slot bigint, note text DEFAULT 'new'"
"""Batches have no values for `note`."""
NARROW = "tail varchar(1) PRIMARY KEY, status varchar(3), slot smallint, note text DEFAULT 'new'"
"""The same, with types that do not take every value of a batch."""
QUICK = ["CREATE TABLE flights_quick (@)"]
AT_ONCE = ["CREATE TABLE flights_at_once (@, CHECK (true))"]
"""Each row is looked at, and two statements write those that count."""
SET_WISE = [
    "CREATE TABLE flights_set_wise (@)",
    "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    "CREATE TRIGGER nothing AFTER INSERT ON flights_set_wise FOR EACH STATEMENT EXECUTE FUNCTION nothing()",
]
NAMES = ("flights_quick", "flights_at_once", "flights_set_wise")


@dataclass(frozen=True)
class Tables:
    """Tables that are written in different ways, emptied for each example."""

    place: Place
    sinks: tuple[PostgresSink, ...]

    def left(self, name: str) -> list[list[tuple[Any, ...]]]:
        """What a batch leaves, but for when rows were set aside."""
        queries = (
            f"SELECT tail, status, slot, note FROM {name}",
            "SELECT m.key_1, w.hub, w.partition, m.number, m.by_number, m.by_text, m.gone "
            f"FROM leasehold_key_{name} m LEFT JOIN leasehold_watermark w ON w.id = m.lane",
            f"SELECT hub, partition, sequence_number, place, body, reason FROM {name}_rejected",
        )
        return [sorted(self.place.look(query), key=repr) for query in queries]


@contextmanager
def tables_of(place: Place, columns: str, schema: pa.Schema = SCHEMA) -> Iterator[Tables]:
    for statement in (*QUICK, *AT_ONCE, *SET_WISE):
        place.run(statement.replace("@", columns))
    sinks = tuple(place.sink(TableSpec(name=name, pipeline=name, keys=("tail",))) for name in NAMES)
    for one in sinks:
        one.check(schema)
    yield Tables(place, sinks)
    for one in sinks:
        one.close()


@pytest.fixture(params=[COLUMNS, NARROW], ids=["wide", "narrow"])
def tables(place: Place, request: pytest.FixtureRequest) -> Iterator[Tables]:
    with tables_of(place, request.param) as made:
        yield made


def applied(table: PostgresSink, it: Batch) -> BatchResult | str:
    try:
        return table.apply(it)
    except KeyFromTwoPartitions as error:
        return str(error).replace(table.spec.name, "the table")


@pytest.mark.more
@pytest.mark.parametrize("by_version", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
@campaign(6, 2500, unfit=ANY)
@given(log=logs(), delivered=deliveries)
def test_the_outcome_is_that_of_the_other_ways(
    tables: Tables, log: Log, delivered: Delivered, by_version: bool, deletes: bool
) -> None:
    all_come_to_the_same(tables, log, delivered, by_version=by_version, deletes=deletes)


@pytest.mark.more
@pytest.mark.parametrize("by_version", [False, True])
@campaign(6, 2500, unfit=ANY)
@given(log=logs(), delivered=deliveries, seed=st.integers(0, 99))
def test_the_outcome_is_that_of_the_other_ways_where_duplicates_are_dropped(
    tables: Tables, log: Log, delivered: Delivered, seed: int, by_version: bool
) -> None:
    all_come_to_the_same(tables, log, delivered, by_version=by_version, deletes=False, seed=seed)


def all_come_to_the_same(
    tables: Tables, log: Log, delivered: Delivered, *, by_version: bool, deletes: bool, seed: int | None = None
) -> None:
    """Apply batches to all of these tables: after each one they are alike. With a seed, events have identities."""
    empty(tables.place, *tables.sinks)
    for ranges in delivered:
        good, bad = taken(log, ranges)
        it = batch(good, by_version=by_version, deletes=deletes, rejected=bad)
        if seed is not None:
            it = known_by_chance(it, [*good, *bad], seed)
        results = [applied(table, it) for table in tables.sinks]
        assert results == results[:1] * len(results)
        kept = [tables.left(name) for name in NAMES]
        assert kept == kept[:1] * len(kept)
        tables.place.run(*(f"UPDATE {name} SET note = 'kept'" for name in NAMES))


def test_rows_of_a_table_without_rules_are_merged_by_the_last_of_each_key(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Merge, "upsert")
    sink = place.sink(FLIGHTS)
    some = [E("b", "1", number=0), E("a", "2", number=1), E("b", "3", number=2), E(None, "4", number=3)]
    assert sink.apply(batch(some)) == one_row_each(applied=3, rejected=1)
    assert place.look("SELECT tail, status FROM flights ORDER BY 1") == [("a", "2"), ("b", "3")]
    more = [E("a", number=4), E("a", number=5, gone=True), E("c\0", number=6), E("b", "5", number=7)]
    sink.close()
    place.run("UPDATE leasehold_table SET deletes = NULL")
    assert sink.apply(batch(more, deletes=True)) == one_row_each(applied=3, rejected=1)
    assert place.look("SELECT tail, status FROM flights") == [("b", "5")]
    sink.close()


@pytest.mark.more(but=5)
@pytest.mark.parametrize(
    ("rule", "quick"),
    [
        ("", True),
        ("CREATE INDEX ON flights (status)", True),
        ("CREATE TABLE other (id bigint PRIMARY KEY, tail text REFERENCES flights)", False),
        ("CREATE INDEX ON flights (lower(status))", False),
        ("CREATE INDEX ON flights (status) WHERE slot > 1", False),
        ("CREATE INDEX ON flights USING gin (to_tsvector('simple', status))", False),
        ("CREATE UNIQUE INDEX ON flights (slot)", False),
        ("CREATE UNIQUE INDEX ON flights (tail, slot)", False),
        ("ALTER TABLE flights ADD CHECK (slot > 0)", False),
        ("ALTER TABLE flights ADD CONSTRAINT apart EXCLUDE USING btree (slot WITH =)", False),
        ("ALTER TABLE flights ADD COLUMN c bigint GENERATED ALWAYS AS (slot + 1) STORED", False),
        ("ALTER TABLE flights ADD COLUMN c text REFERENCES flights", False),
        ("ALTER TABLE flights ADD COLUMN c bigint NOT NULL DEFAULT 1", True),
        ("ALTER TABLE flights ALTER COLUMN slot SET NOT NULL", True),
        ("ALTER TABLE flights ALTER COLUMN status TYPE varchar(9)", True),
        ("ALTER TABLE flights ALTER COLUMN slot TYPE integer", True),
        ("ALTER TABLE flights ENABLE ROW LEVEL SECURITY", False),
        ("CREATE RULE stays AS ON DELETE TO flights DO INSTEAD NOTHING", False),
        ("CREATE TABLE heirs () INHERITS (flights)", False),
        ("ALTER TABLE flights ALTER COLUMN status SET STORAGE PLAIN", False),
        ("ALTER TABLE flights " + ", ".join(f"ADD COLUMN c{n} name" for n in range(130)), False),
        ("ALTER TABLE flights " + ", ".join(f"ADD COLUMN c{n} float" for n in range(900)), True),
        (
            "CREATE TABLE root (LIKE flights) PARTITION BY LIST (slot); "
            "ALTER TABLE root ATTACH PARTITION flights FOR VALUES IN (1, 2)",
            False,
        ),
    ],
)
def test_which_tables_have_a_rule_that_could_see_each_row(place: Place, rule: str, quick: bool) -> None:
    sink = place.sink(FLIGHTS)
    assert sink.apply(batch([E("a", slot=1), E("a", slot=2, number=1)])).applied == 2
    if rule:
        place.run(rule)
    with sink._transaction() as transaction:
        assert transaction.layout(SCHEMA).lets_last_alone is quick
    sink.close()


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("ALTER TABLE flights ALTER COLUMN status SET NOT NULL", None),
        ("CREATE INDEX ON flights (status)", random.Random(1).randbytes(9000).hex()),  # too long for it
        ("ALTER TABLE flights ALTER COLUMN status TYPE varchar(3)", "long"),
        ("ALTER TABLE flights ALTER COLUMN status TYPE uuid USING NULL", "no UUID"),
        (
            "CREATE TABLE root (LIKE flights) PARTITION BY LIST (status); "
            "ALTER TABLE root ATTACH PARTITION flights FOR VALUES IN ('x')",
            "y",
        ),
    ],
    ids=["NOT NULL", "an index", "a length", "a type", "a partition's bound"],
)
def test_a_row_that_breaks_a_rule_before_the_last_one_of_its_key_is_set_aside(
    place: Place, rule: str, wrong: str | None
) -> None:
    place.run("CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)", rule)
    sink = place.sink(FLIGHTS)
    right = str(UUID(int=1)) if "uuid" in rule else "x"
    assert sink.apply(batch([E("a", wrong), E("a", right, number=1)])) == one_row_each(applied=1, rejected=1)
    assert place.look("SELECT tail, status::text FROM flights") == [("a", right)]
    sink.close()


BY_VERSION = TableSpec(name="flights", pipeline="p", keys=("tail",), sequence_by="version")


def versions(*rows: tuple[str, int], first: int = 0, partition: str = "0") -> Batch:
    """Rows of these keys and versions, with the version as status."""
    some = [
        E(tail, str(version), version=version, number=number, partition=partition)
        for number, (tail, version) in enumerate(rows, first)
    ]
    ranges = (EventRange("h", partition, 1, first, first + len(rows)),)  # or its writer locks all partitions
    return replace(batch(some, by_version=True), ranges=ranges)


def test_rows_that_versions_put_in_order_are_merged_by_the_highest_of_each_key(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Merge, "upsert")
    sink = place.sink(BY_VERSION)
    some = versions(("a", 1), ("a", 3), ("a", 2), ("b", 5))
    assert sink.apply(some) == one_row_each(applied=3, superseded=1)
    # Of `a` the second is above what is known, of `b` none, and `c` is new.
    more = versions(("a", 2), ("a", 4), ("b", 3), ("b", 4), ("c", 1), ("c", 1), first=4)
    assert sink.apply(more) == one_row_each(applied=3, superseded=3)
    assert place.look("SELECT tail, status FROM flights ORDER BY 1") == [("a", "4"), ("b", "5"), ("c", "1")]
    sink.close()


@contextmanager
def between_look_and_writing(monkeypatch: pytest.MonkeyPatch, come: Callable[[], None]) -> Iterator[None]:
    """Have `come` called once in this block, when a batch knows what is remembered of its keys and has locked none."""
    load, awaited = AtOnce._load_known, [come]

    def load_before_others(it: AtOnce) -> Any:
        known = load(it)
        if awaited:  # no more in what it calls itself
            awaited.pop()()
        return known

    with monkeypatch.context() as patch:
        patch.setattr(AtOnce, "_load_known", load_before_others)
        yield
    assert not awaited, "the batch has not looked"


@pytest.mark.parametrize(
    ("there", "applied", "left"),
    [((("a", 5),), 3, "6"), ((("a", 5), ("a", 7)), 2, "7"), ((("c", 5),), 4, "6")],
    ids=["lower", "higher", "a new key"],
)
def test_a_key_that_somebody_notes_meanwhile_is_judged_by_that(
    place: Place, monkeypatch: pytest.MonkeyPatch, there: tuple[tuple[str, int], ...], applied: int, left: str
) -> None:
    """Another writer comes between the look at what is known and the writing."""
    sink, other = place.sink(BY_VERSION), place.sink(BY_VERSION)
    assert sink.apply(versions(("a", 1), ("b", 1))).applied == 2
    assert other.apply(versions(("z", 1), partition="1")).applied == 1

    def come() -> None:
        assert other.apply(versions(*there, first=1, partition="1")).applied == len(there)

    rest = [("b", "3"), ("c", "6"), ("z", "1")]
    mine = versions(("a", 4), ("a", 6), ("b", 3), ("c", 6), first=2)
    with between_look_and_writing(monkeypatch, come):
        assert sink.apply(mine) == one_row_each(applied=applied, superseded=4 - applied)
    assert place.look("SELECT tail, status FROM flights ORDER BY 1") == [("a", left), *rest]
    sink.close()
    other.close()


def test_a_row_whose_key_and_values_are_too_long_for_an_index_is_set_aside(place: Place) -> None:
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",
        "CREATE INDEX ON flights (tail, status)",
    )
    sink, chance = place.sink(FLIGHTS), random.Random(2)
    key, wrong = chance.randbytes(1200).hex(), chance.randbytes(499).hex()
    assert sink.apply(batch([E(key, wrong), E(key, "x", number=1)])) == one_row_each(applied=1, rejected=1)
    sink.close()


def test_a_key_that_was_cleared_meanwhile_does_not_stand_for_one_that_somebody_noted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many keys are noted as were to be, and others."""
    sink, other = place.sink(BY_VERSION), place.sink(BY_VERSION)
    assert sink.apply(versions(("a", 5), ("b", 1))).applied == 2
    assert other.apply(versions(("z", 1), partition="1")).applied == 1

    def come() -> None:
        place.run("DELETE FROM leasehold_key_flights WHERE key_1 = 'a'")
        assert other.apply(versions(("b", 3), first=1, partition="1")).applied == 1

    with between_look_and_writing(monkeypatch, come):
        assert sink.apply(versions(("a", 3), ("a", 4), ("b", 6), first=2)).applied == 3
    assert place.look("SELECT tail, status FROM flights ORDER BY 1") == [("a", "4"), ("b", "6"), ("z", "1")]
    sink.close()
    other.close()


@pytest.mark.parametrize(
    ("declared", "type_", "wrong", "right"),
    [
        ("smallint", pa.uint16(), 40_000, 1),
        ("integer", pa.uint32(), 2**31, 1),
        ("numeric(2,5)", pa.decimal128(10, 5), Decimal("0.00100"), Decimal("0.00001")),
        ("numeric(4,2)", pa.decimal32(5, 2), Decimal("100.00"), Decimal("1.00")),
        ("text NOT NULL", pa.dictionary(pa.int8(), pa.string()), None, "x"),
    ],
)
def test_a_value_at_the_edge_of_what_its_column_takes_is_set_aside(
    place: Place, declared: str, type_: pa.DataType, wrong: Any, right: Any
) -> None:
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, value {declared})")
    some = batch([E("a"), E("a", number=1)]).rows.drop_columns(["status", "slot"])
    values = pa.array([wrong, right], type_)
    if pa.types.is_dictionary(type_):  # the null is a value of the dictionary, and no place is null
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([wrong, right]))
    sink = place.sink(FLIGHTS)
    found = sink.apply(Batch(some.append_column("value", values)))
    assert found == one_row_each(applied=1, rejected=1)
    assert place.look("SELECT value FROM flights") == [(right,)]
    sink.close()


@dataclass(frozen=True)
class Wide:
    """A table of many columns of one type, and `more` that batches have no values for."""

    count: int
    declared: str
    type_: pa.DataType
    more: str = ""

    @property
    def columns(self) -> str:
        names = ", ".join(f"c{place} {self.declared}" for place in range(self.count))
        return f"tail text PRIMARY KEY, {names}{self.more}"

    def batch(self, *rows: tuple[str, Any], first: int = 0) -> Batch:
        """Rows of these keys, each with one value in all of its columns."""
        data = batch([E(tail, number=number) for number, (tail, _) in enumerate(rows, first)]).rows
        values = pa.array([value for _, value in rows], self.type_)
        for place in range(self.count):
            data = data.append_column(f"c{place}", values)
        return Batch(data.drop_columns(["status", "slot"]))


NAMES_OF_64_BYTES = "".join(f", more{place} name" for place in range(60))
DOUBLES = Wide(600, "double precision", pa.float64(), NAMES_OF_64_BYTES)
DEFAULTS = Wide(900, "double precision", pa.float64(), NAMES_OF_64_BYTES.replace("name", "name DEFAULT 'x'"))
NUMERICS = Wide(700, "numeric", pa.int64())
TEXT = Wide(1, "text", pa.string())
UNCOMPRESSED = random.Random(3).randbytes(9000).hex()


@pytest.mark.more
@pytest.mark.parametrize(
    ("wide", "altered", "wrong"),
    [
        (DEFAULTS, "", 0.5),
        (NUMERICS, "", 2**62 + 1),
        (TEXT, "ALTER TABLE @ ALTER COLUMN c0 SET STORAGE PLAIN", UNCOMPRESSED),
        (Wide(1, "bytea", pa.binary()), "ALTER TABLE @ ALTER COLUMN c0 SET STORAGE PLAIN", UNCOMPRESSED.encode()),
    ],
    ids=["defaults beside it", "numbers with more digits than bytes", "text within the row", "bytes within the row"],
)
def test_a_row_that_does_not_fit_its_page_is_set_aside_before_the_last_one_of_its_key(
    place: Place, wide: Wide, altered: str, wrong: Any
) -> None:
    some = wide.batch(("a", wrong), ("b", None), ("a", None))  # the merge fails over no last row
    with tables_of(place, wide.columns, some.rows.schema) as tables:
        for name, sink in zip(NAMES, tables.sinks, strict=True):
            if altered:
                place.run(altered.replace("@", name))
            assert sink.apply(some) == one_row_each(applied=2, rejected=1), name
            assert place.look(f"SELECT tail, c0 FROM {name} ORDER BY 1") == [("a", None), ("b", None)]
            [(number, reason)] = place.look(f"SELECT sequence_number, reason FROM {name}_rejected")
            assert number == 0
            assert reason.startswith("row is too big")


@pytest.mark.more
def test_a_row_that_does_not_fit_beside_what_others_have_filled_is_set_aside(place: Place) -> None:
    before, some = DOUBLES.batch(("a", None)), DOUBLES.batch(("a", 0.5), ("b", 0.5), ("a", None), ("b", None), first=1)
    with tables_of(place, DOUBLES.columns, some.rows.schema) as tables:
        for name, sink in zip(NAMES, tables.sinks, strict=True):
            assert sink.apply(before).applied == 1
            place.run(f"UPDATE {name} SET {', '.join(f'more{place} = tail' for place in range(60))}")
            assert sink.apply(some) == one_row_each(applied=3, rejected=1), name
            assert place.look(f"SELECT sequence_number FROM {name}_rejected") == [(1,)]


@pytest.mark.more
@pytest.mark.parametrize(
    ("wide", "value"),
    [
        (DOUBLES, 0.5),
        (NUMERICS, None),
        (Wide(600, "text", pa.string()), "x"),
        (Wide(320, "jsonb", pa.list_(pa.int8())), [1]),
    ],
    ids=["columns that nobody has filled", "NULL", "short text", "many columns"],
)
def test_rows_that_fit_their_page_are_merged_set_wise_in_a_table_whose_rows_may_not(
    place: Place, monkeypatch: pytest.MonkeyPatch, wide: Wide, value: Any
) -> None:
    monkeypatch.delattr(merging, "RowWriter")
    some = wide.batch(("a", value), ("b", value), ("a", value))
    with tables_of(place, wide.columns, some.rows.schema) as tables:
        assert [sink.apply(some) for sink in tables.sinks] == [one_row_each(applied=3)] * 3


NESTED = Wide(1, "jsonb", pa.list_(pa.string()))


def test_a_nested_value_that_may_be_too_long_for_jsonb_is_written_in_its_turn(place: Place) -> None:
    """A trigger sees all rows of its key, and of another key the last one alone."""
    place.run(
        f"CREATE TABLE flights ({NESTED.columns})",
        "CREATE TABLE seen (tail text, length bigint)",
        f"CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO {place.schema}.seen "
        "VALUES (NEW.tail, octet_length(NEW.c0::text)); RETURN NULL; END $$",
        "CREATE TRIGGER see AFTER INSERT OR UPDATE ON flights FOR EACH ROW EXECUTE FUNCTION see()",
    )
    sink, long = place.sink(FLIGHTS), 2**24
    assert sink.apply(NESTED.batch(("a", ["x" * long]), ("b", ["x"]), ("a", ["y"]), ("b", ["y"]))).applied == 4
    assert place.look("SELECT tail, length FROM seen ORDER BY 1, 2") == [("a", 5), ("a", long + 4), ("b", 5)]
    sink.close()


@pytest.mark.soak
def test_a_nested_value_that_is_too_long_for_jsonb_is_set_aside(place: Place) -> None:
    """The server asks for more memory than it has in one piece; the JSON is 33 MB long."""
    wide = Wide(1, "jsonb", pa.list_(pa.int8()))
    some = wide.batch(("a", [1] * (2**24 + 1)), ("a", [2]))
    with tables_of(place, wide.columns, some.rows.schema) as tables:
        for sink in tables.sinks:
            assert sink.apply(some) == one_row_each(applied=1, rejected=1), sink.spec.name


def test_the_bound_of_json_counts_the_names_of_fields() -> None:
    wide = pa.struct([(f"a long name of a field, number {n}", pa.bool_()) for n in range(60)])
    rows = pa.array([[None] * 1000, [{}] * 1000], pa.list_(wide))
    assert most_json(rows) > sum(len(text) for text in convert(rows).values)


TYPED = """CREATE TABLE typed (id uuid, day date, at timestamptz, price numeric(9,2), what jsonb, code varchar(3),
    small smallint, PRIMARY KEY (id, day, at, price))"""
TYPES = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(8, 2)),
        ("what", pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.float64()))), ("b", pa.string())])),
        ("code", pa.string()),
        ("small", pa.int32()),
    ]
)


def typed(*rows: dict[str, Any], first: int = 0) -> Batch:
    """Rows of `TYPES`, which differ from one row in these values."""
    one = {
        "id": str(UUID(int=10)),
        "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC),
        "price": Decimal("1.50"),
        "what": {"a": [[("x", 0.5)]], "b": "b"},
        "code": "abc",
        "small": 1,
    }
    fence = batch([E("a", number=first + number) for number in range(len(rows))]).rows
    data = pa.Table.from_pylist([one | row for row in rows], TYPES)
    for name in ("hub", "partition", "sequenceNumber", "ownerLevel"):
        data = data.append_column(name, fence[name])
    return Batch(data)


TYPED_SPEC = TableSpec(name="typed", pipeline="p", keys=("id", "day", "at", "price"))


def test_rows_of_every_type_are_merged_by_the_last_of_each_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Merge, "upsert")
    place.run(TYPED)
    sink = place.sink(TYPED_SPEC)
    keys: list[dict[str, Any]] = [
        {},
        {"id": str(UUID(int=11))},
        {"day": dt.date(1, 1, 1)},
        {"at": dt.datetime(9999, 12, 31, tzinfo=dt.UTC)},
        {"price": Decimal("-999999.99")},
    ]
    for first in (0, 10):
        some = [*({**key, "small": 32767} for key in keys), *({**key, "what": None, "small": first} for key in keys)]
        assert sink.apply(typed(*some, first=first)).applied == 10
        assert place.look("SELECT small, what, count(*) FROM typed GROUP BY 1, 2") == [(first, None, 5)]
    sink.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"small": 32768},
        {"small": -32769},
        {"code": "abcd"},
        {"what": {"a": [], "b": "\0"}},
        {"what": {"a": [[("\0", 1.0)]], "b": ""}},
        {"id": "no UUID"},
    ],
    ids=repr,
)
def test_a_value_that_its_column_does_not_take_is_set_aside_wherever_it_comes(
    place: Place, wrong: dict[str, Any]
) -> None:
    place.run(TYPED)
    sink = place.sink(TYPED_SPEC)
    assert sink.apply(typed({}, wrong, {"code": "x"})) == one_row_each(applied=2, rejected=1)
    assert place.look("SELECT code FROM typed") == [("x",)]
    sink.close()


def test_a_key_that_is_written_in_two_ways_is_one(place: Place) -> None:
    place.run(TYPED)
    sink = place.sink(TYPED_SPEC)
    lower, upper = str(UUID(int=10)), str(UUID(int=10)).upper()
    assert sink.apply(typed({"id": lower}, {"id": upper, "code": "x"}, {"id": upper, "code": "y"})).applied == 3
    assert sink.apply(typed({"id": upper, "code": "z"}, first=3)).applied == 1
    assert place.look("SELECT code FROM typed") == [("z",)]
    sink.close()


def test_an_entity_that_is_deleted_and_comes_again_begins_anew_in_each_way(tables: Tables) -> None:
    for number, sink in enumerate(tables.sinks):
        assert sink.apply(batch([E("a"), E("b", number=1)], deletes=True)).applied == 2
        tables.place.run(f"UPDATE {NAMES[number]} SET note = 'kept'")
        again = [E("a", number=2, gone=True), E("a", "x", number=3), E("b", "x", number=4)]
        assert sink.apply(batch(again, deletes=True)).applied == 3
    kept = [("a", "x", None, "new"), ("b", "x", None, "kept")]
    assert [tables.left(name)[0] for name in NAMES] == [kept] * 3


def test_the_model_comes_to_the_same(tables: Tables) -> None:
    """A key from another partition than the one that is remembered is found by the memory's row count."""
    model, sink = Model(), tables.sinks[0]
    first, second = [E("a"), E("b", number=1)], [E("b", "x", partition="1"), E("c", partition="1", number=1)]
    assert model.apply(first)
    assert sink.apply(batch(first)).applied == 2
    assert not model.apply(second)
    before = tables.left(NAMES[0])
    with pytest.raises(KeyFromTwoPartitions, match="'b'"):
        sink.apply(batch(second))
    assert tables.left(NAMES[0]) == before
