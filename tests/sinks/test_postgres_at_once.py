"""The short way of a batch in Postgres: when it is gone, and that its outcome is that of one row after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks import Batch, TableSpec
from leasehold.sinks.postgres.at_once import Chance
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch
from tests.sinks.postgres import FLIGHTS, Place

BY_VERSION = TableSpec(name="flights", pipeline="p", keys=("tail",), sequence_by="version")
SLOT = "status text, slot integer UNIQUE"
FREE = "status text, slot integer"
PARTIAL = "CREATE UNIQUE INDEX ON flights (slot) WHERE status = 'on'"
KNOWN = "SELECT key_1, partition, number, gone FROM leasehold_key_flights m JOIN leasehold_watermark w ON w.id = m.lane"

SHORT, LONG = True, False
CASES = [
    ("new rows, and rows that stay", SLOT, (), [E("a", "x", 1)], [E("b", "y", 2), E("a", "y", 1)], [], SHORT),
    ("a value that is there", SLOT, (), [E("a", slot=1)], [E("b", slot=1), E("c", slot=3)], [0], LONG),
    ("two that take one value", SLOT, (), [E("c", slot=3)], [E("b", slot=1), E("a", slot=1)], [1], LONG),
    # A statement in the order of keys alone would take the value from its holder first.
    ("given up by a later event", SLOT, (), [E("a", slot=1)], [E("b", slot=1), E("a", slot=2)], [0], LONG),
    ("given up by an earlier event", SLOT, (), [E("a", slot=1)], [E("a", slot=2), E("b", slot=1)], [], LONG),
    ("given up later, the key behind", SLOT, (), [E("b", slot=1)], [E("a", slot=1), E("b", slot=2)], [0], LONG),
    (
        "values that move up, in the order of keys",
        SLOT,
        (),
        [E("a", slot=1), E("b", slot=2), E("c", slot=3)],
        [E("a", slot=4), E("b", slot=1), E("c", slot=2), E("d", slot=5)],
        [],
        SHORT,
    ),
    (
        "values that move up, against the order of keys",
        SLOT,
        (),
        [E("a", slot=1), E("b", slot=2), E("c", slot=3)],
        [E("c", slot=4), E("b", slot=3), E("a", slot=2), E("d", slot=5)],
        [],
        SHORT,
    ),
    ("two that swap", SLOT, (), [E("a", slot=1), E("b", slot=2)], [E("a", slot=2), E("b", slot=1)], [0, 1], LONG),
    (
        "one that takes what another has left, too early",
        SLOT,
        (),
        [E("a", slot=1), E("b", slot=2)],
        [E("b", slot=1), E("a", slot=4)],
        [0],
        LONG,
    ),
    ("deleted behind it", SLOT, (), [E("a", slot=1)], [E("b", slot=1), E("a", gone=True)], [0], LONG),
    ("deleted before it", SLOT, (), [E("a", slot=1)], [E("a", gone=True), E("b", slot=1)], [], LONG),
    ("a delete", SLOT, (), [E("a", slot=1), E("b")], [E("a", gone=True), E("c", slot=2)], [], SHORT),
    ("NULL as it was", SLOT, (), [E("a"), E("b")], [E("a", "x"), E("b", "x"), E("c", "x")], [], SHORT),
    ("a check", "status text CHECK (status <> 'bad'), slot integer", (), [E("a")], [E("a", "bad"), E("b")], [0], LONG),
    (
        "nothing but a key",
        FREE,
        ("ALTER TABLE flights ADD CHECK (slot > 0)",),
        [E("a", slot=1)],
        [E("a", slot=9), E("b", slot=9)],
        [],
        SHORT,
    ),
    (
        "an index that has the key in it",
        f"{FREE}, UNIQUE (slot, tail)",
        (),
        [E("a", slot=1), E("b", slot=2)],
        [E("a", slot=2), E("b", slot=1)],
        [],
        SHORT,
    ),
    (
        "rows that leave a part of the table",
        FREE,
        (PARTIAL,),
        [E("a", "on", 1), E("b", "off", 1)],
        [E("a", "off", 1), E("b", "on", 1)],
        [],
        SHORT,
    ),
    (
        "rows that leave a part of the table too late",
        FREE,
        (PARTIAL,),
        [E("a", "on", 1), E("b", "off", 1)],
        [E("b", "on", 1), E("a", "off", 1)],
        [0],
        LONG,
    ),
    (
        "a constraint that is checked behind a statement",
        "status text, slot integer UNIQUE DEFERRABLE",
        (),
        [E("a", slot=1), E("b", slot=2)],
        [E("b", slot=1), E("a", slot=3)],
        [0],
        LONG,
    ),
    (
        "a reference to a row behind it",
        "status text REFERENCES flights, slot integer",
        (),
        [E("z", "z")],
        [E("a", "b"), E("b", "b")],
        [0],
        LONG,
    ),
    (
        "a unique column that the table computes",
        "status text, slot integer, g text GENERATED ALWAYS AS (lower(status)) STORED UNIQUE",
        (),
        [E("a", "x")],
        [E("b", "X"), E("a", "y")],
        [0],
        LONG,
    ),
    (
        "a trigger that gives a value up",
        SLOT,
        (
            "CREATE FUNCTION leaves() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.status = 'off' THEN NEW.slot := NULL; END IF; RETURN NEW; END $$",
            "CREATE TRIGGER leaves BEFORE INSERT OR UPDATE ON flights FOR EACH ROW EXECUTE FUNCTION leaves()",
        ),
        [E("a", "on", 1)],
        [E("b", "on", 1), E("a", "off", 1)],
        [0],
        LONG,
    ),
    (
        "a table that another one inherits from",
        SLOT,
        ("CREATE TABLE heirs () INHERITS (flights)",),
        [E("a", slot=1)],
        [E("a", slot=1), E("b", slot=2)],
        [],
        LONG,
    ),
    # Keys that come more than once, which by version is the long way.
    (
        "the last row of each key",
        SLOT,
        (),
        [E("a", "x", 1)],
        [E("a", "x", 1), E("b", "x", 2), E("a", "y", 1), E("b", "y", 2), E("c")],
        [],
        SHORT,
    ),
    (
        "an earlier row that breaks a check",
        "status text CHECK (status <> 'bad'), slot integer",
        (),
        [E("b")],
        [E("a", "bad"), E("a", "x")],
        [0],
        LONG,
    ),
    (
        "an earlier row that raises in a check",
        "status text, slot integer CHECK (100 / slot > 0)",
        (),
        [E("b")],
        [E("a", slot=0), E("a", slot=1)],
        [0],
        LONG,
    ),
    (
        "an earlier row without a value",
        "status text NOT NULL, slot integer",
        (),
        [E("b")],
        [E("a", None), E("a", "x")],
        [0],
        LONG,
    ),
    (
        "an earlier row that is too long",
        "status varchar(3), slot integer",
        (),
        [E("b")],
        [E("a", "long"), E("a", "x")],
        [0],
        LONG,
    ),
    ("a value had for a time", SLOT, (), [E("c")], [E("a", slot=1), E("b", slot=1), E("a", slot=2)], [1], LONG),
    (
        "a value that is taken again once it is given up",
        SLOT,
        (),
        [E("b", slot=1), E("c", slot=9)],
        [E("c", slot=1), E("b", slot=5), E("c", slot=1)],
        [0],
        LONG,
    ),
    (
        "a value of a new key that is taken again once it is given up",
        SLOT,
        (),
        [E("b", slot=1)],
        [E("a", slot=1), E("b", slot=5), E("a", slot=1)],
        [0],
        LONG,
    ),
    (
        "a key that comes once and changes its value",
        SLOT,
        (),
        [E("a", slot=1), E("b", slot=2)],
        [E("b", slot=3), E("a", "x", 1), E("a", "y", 1)],
        [],
        SHORT,
    ),
    ("a key that comes twice and changes it", SLOT, (), [E("a", slot=1)], [E("a", slot=2), E("a", slot=2)], [], LONG),
    ("a delete among them", SLOT, (), [E("a", slot=1)], [E("b"), E("b", gone=True), E("b", "x")], [], LONG),
    ("a delete at the end", SLOT, (), [E("a", slot=1)], [E("b", slot=1), E("b", gone=True)], [0], LONG),
    (
        "a delete beside them",
        SLOT,
        (),
        [E("a", slot=1), E("b", slot=2)],
        [E("b", "x", 2), E("a", gone=True), E("b", "y", 2)],
        [],
        SHORT,
    ),
]


@pytest.fixture(params=[FLIGHTS, BY_VERSION], ids=["by partition", "by version"])
def sink(request: pytest.FixtureRequest, place: Place) -> Iterator[PostgresSink]:
    made = place.sink(request.param)
    yield made
    made.close()


def of(sink: PostgresSink, rows: list[E], first: int, *, deletes: bool) -> Batch:
    by_version = sink.spec.sequence_by is not None
    events = [row._replace(number=number, version=number) for number, row in enumerate(rows, first)]
    return batch(events, by_version=by_version, deletes=deletes)


def went_short(sink: PostgresSink) -> bool:
    """Whether the last batch did: the long way makes lists of the keys that were known and of those that were not."""
    with sink._using() as session:
        lists = "SELECT kid FROM pg_temp.leasehold_known UNION ALL SELECT kid FROM pg_temp.leasehold_fresh"
        return bool(session.one(f"SELECT count(*) FROM ({lists}) AS listed") == 0)


@pytest.mark.more(but=10)
@pytest.mark.parametrize(
    ("columns", "made", "before", "rows", "wrong", "short"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
def test_the_outcome_is_that_of_one_row_after_the_other(
    place: Place,
    sink: PostgresSink,
    columns: str,
    made: tuple[str, ...],
    before: list[E],
    rows: list[E],
    wrong: list[int],
    short: bool,
) -> None:
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, {columns})")
    deletes = any(row.gone for row in rows)
    sink.apply(of(sink, before, 0, deletes=deletes))
    place.run(*made)
    result = sink.apply(of(sink, rows, len(before), deletes=deletes))
    assert result == one_row_each(applied=len(rows) - len(wrong), rejected=len(wrong))
    repeated = len({row.tail for row in rows}) < len(rows)
    assert went_short(sink) is (short and not (repeated and sink.spec.sequence_by))
    aside = place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1")
    assert aside == [(len(before) + number,) for number in wrong]
    written = [row for number, row in enumerate(rows) if number not in wrong]
    last = {row.tail: row for row in [*before, *written]}
    kept = [(row.tail, row.status, row.slot) for row in last.values() if not row.gone]
    if "leaves" in "".join(made):
        kept = [(tail, status, None if status == "off" else slot) for tail, status, slot in kept]
    assert place.look("SELECT tail, status, slot FROM ONLY flights ORDER BY tail") == sorted(kept, key=repr)
    numbers = {row.tail: number for number, row in enumerate([*before, *rows]) if number - len(before) not in wrong}
    gone = {row.tail: row.gone for row in last.values()}
    assert sorted(place.look(KNOWN)) == sorted((tail, "0", number, gone[tail]) for tail, number in numbers.items())


def test_older_rows_and_those_of_the_same_value_are_judged_by_the_rules(place: Place) -> None:
    sink = place.sink(BY_VERSION)
    rows = [E("a", version=5), E("b", version=5), E("c", version=5), E("d", version=5)]
    first = [row._replace(partition="1", number=number) for number, row in enumerate(rows, 10)]
    sink.apply(batch(first, by_version=True))
    # The same value: the later number wins within a partition, and the higher partition across them.
    again = [
        E("a", "new", partition="1", number=20, version=5),
        E("b", "new", partition="0", number=21, version=5),
        E("c", "new", partition="2", number=0, version=5),
        E("d", "new", partition="1", number=22, version=4),
        E("e", "new", partition="1", number=23, version=1),
    ]
    assert sink.apply(batch(again, by_version=True)) == one_row_each(applied=3, superseded=2)
    assert went_short(sink)
    assert place.look("SELECT tail, status FROM flights ORDER BY 1") == [
        ("a", "new"),
        ("b", "ok"),
        ("c", "new"),
        ("d", "ok"),
        ("e", "new"),
    ]
    assert sorted(place.look(KNOWN)) == [
        ("a", "1", 20, False),
        ("b", "1", 11, False),
        ("c", "2", 0, False),
        ("d", "1", 13, False),
        ("e", "1", 23, False),
    ]
    sink.close()


def test_an_older_row_that_would_break_a_rule_is_older(place: Place) -> None:
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, {SLOT})")
    sink = place.sink(BY_VERSION)
    sink.apply(batch([E("a", slot=1, version=5), E("b", slot=2, number=1, version=5)], by_version=True, deletes=True))
    later = [E("a", slot=2, number=2, version=4), E("b", number=3, version=4, gone=True), E("c", number=4, version=1)]
    assert sink.apply(batch(later, by_version=True, deletes=True)) == one_row_each(applied=1, superseded=2)
    assert went_short(sink)
    assert place.look("SELECT tail, slot FROM flights ORDER BY 1") == [("a", 1), ("b", 2), ("c", None)]
    sink.close()


def test_a_key_from_another_partition_is_refused_and_nothing_noted(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    sink.apply(batch([E("b")]))
    with pytest.raises(KeyFromTwoPartitions, match="'b'"):
        sink.apply(batch([E("a", partition="1"), E("b", partition="1", number=1)]))
    assert place.look("SELECT tail FROM flights") == [("b",)]
    assert place.look(KNOWN) == [("b", "0", 0, False)]
    sink.close()


def test_a_key_that_is_written_in_two_ways_comes_twice(place: Place) -> None:
    place.run("CREATE TABLE flights (tail uuid PRIMARY KEY, status text, slot integer)")
    sink = place.sink(FLIGHTS)
    key = "aaaaaaaa-0000-4000-8000-000000000000"
    assert sink.apply(batch([E(key), E(key.upper(), "later", number=1)])).applied == 2
    assert place.look("SELECT tail::text, status FROM flights") == [(key, "later")]
    assert sink.apply(batch([E(key.upper(), "last", number=2), E("none", number=3)])) == one_row_each(1, rejected=1)
    assert went_short(sink)
    assert place.look("SELECT tail::text, status FROM flights") == [(key, "last")]
    sink.close()


def test_a_table_of_nothing_but_its_key_goes_the_short_way(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    rows = batch([E("a"), E("b", number=1)]).rows.drop_columns(["status", "slot"])
    for first in (0, 2):
        place_of_numbers = rows.schema.get_field_index("sequenceNumber")
        numbers = pa.array([first, first + 1], pa.int64())
        its = rows.set_column(place_of_numbers, "sequenceNumber", numbers)
        assert sink.apply(Batch(its)).applied == 2
        assert went_short(sink)
    assert place.look("SELECT tail FROM flights ORDER BY 1") == [("a",), ("b",)]
    sink.close()


def test_many_rows_that_change_a_value_go_the_long_way(place: Place) -> None:
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, {SLOT})")
    sink = place.sink(FLIGHTS)
    for first in (0, 2000):
        rows = [E(f"k{number}", slot=first + number, number=first + number) for number in range(2000)]
        assert sink.apply(batch(rows)).applied == 2000
        assert went_short(sink) is (first == 0)
    assert place.look("SELECT min(slot), max(slot), count(*) FROM flights") == [(2000, 3999, 2000)]
    sink.close()


def test_a_table_whose_batches_cannot_go_the_short_way_is_tried_less_and_less() -> None:
    chance = Chance()
    tried = []
    for number in range(1000):
        if chance.taken():
            tried.append(number)
            chance.note(went=False)
    assert tried[:6] == [0, 2, 6, 14, 30, 62]
    assert {later - earlier for earlier, later in itertools.pairwise(tried[6:])} == {64}
    while not chance.taken():
        pass
    chance.note(went=True)
    assert chance.taken()


@pytest.mark.more
def test_rows_of_several_pieces_are_what_they_were(place: Place) -> None:
    """Columns are brought into their form by pieces of 20,000 rows, each a slice of the column."""
    count = 41_000
    numbers = range(count)
    columns = {
        "tail": pa.array([f"k{number}" for number in numbers]).dictionary_encode(),
        "flag": pa.array([None if number % 3 == 0 else number % 2 == 0 for number in numbers]),
        "at": pa.array([number * 1_000_001 for number in numbers], pa.timestamp("us", tz="UTC")),
        "amount": pa.array([Decimal(number) / 4 for number in numbers], pa.decimal128(12, 2)),
        "raw": pa.array([bytes([number % 256]) * (number % 5) for number in numbers]),
        "share": pa.array([number / 8 for number in numbers]),
        "parts": pa.array([[number] * (number % 3) for number in numbers]),
        "named": pa.array([{"n": number, "t": None if number % 7 else "x"} for number in numbers]),
        "pairs": pa.array([[("a", number)] * (number % 2) for number in numbers], pa.map_(pa.string(), pa.int64())),
    }
    fence = {"hub": ["h"] * count, "partition": ["0"] * count, "sequenceNumber": numbers, "ownerLevel": [1] * count}
    whole = pa.table({**columns, **fence})
    rows = pa.concat_tables([whole.slice(0, 30_001), whole.slice(30_001)])
    sink = place.sink(FLIGHTS)
    assert sink.apply(Batch(rows)).applied == count
    for number in (0, 1, 19_999, 20_000, 20_001, 30_000, 30_001, 39_999, 40_000, 40_999):
        expected = (
            None if number % 3 == 0 else number % 2 == 0,
            datetime.fromtimestamp(0, UTC) + timedelta(microseconds=number * 1_000_001),
            Decimal(number) / 4,
            bytes([number % 256]) * (number % 5),
            number / 8,
            [number] * (number % 3),
            {"n": number, "t": None if number % 7 else "x"},
            {"a": number} if number % 2 else {},
        )
        shown = "flag, at, amount, raw, share, parts, named, pairs"
        assert place.look(f"SELECT {shown} FROM flights WHERE tail = 'k{number}'") == [expected], number
    sums = place.look("SELECT count(*), sum(amount), sum(share), sum((named ->> 'n')::bigint) FROM flights")
    assert sums == [(count, Decimal(sum(numbers)) / 4, sum(numbers) / 8, sum(numbers))]
    sink.close()
