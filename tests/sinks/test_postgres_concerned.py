"""What a set-wise merge could miss in Postgres: the outcome is that of one row after the other, as in SQLite."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from leasehold.sinks import BatchResult, TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place

SPEC = TableSpec(name="flights", pipeline="p", keys=("tail",))
LONG = "".join(map(chr, random.Random(0).choices(range(0x4E00, 0x9FFF), k=4000)))
"""What no compression makes short enough for an index."""


@pytest.fixture
def sink(place: Place) -> Iterator[PostgresSink]:
    made = place.sink(SPEC, timeout=30.0)
    yield made
    made.close()


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
        "a value that is too long for an index",
        "status text UNIQUE, slot integer",
        (),
        [E("a", "x"), E("a", LONG), E("b", LONG)],
        [1, 2],
    ),
]


@pytest.mark.parametrize(
    ("columns", "made", "rows", "wrong"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
def test_the_outcome_is_that_of_one_row_after_the_other(
    place: Place, sink: PostgresSink, columns: str, made: tuple[str, ...], rows: list[E], wrong: list[int]
) -> None:
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, {columns})", *made)
    events = [row._replace(number=number) for number, row in enumerate(rows)]
    assert sink.apply(batch(events)) == BatchResult(applied=len(rows) - len(wrong), rejected=len(wrong))
    assert [number for (number,) in place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1")] == wrong
    last = {e.tail: e for e in events if e.number not in wrong}
    kept = "SELECT tail, rtrim(status), slot FROM flights ORDER BY tail"
    assert place.look(kept) == sorted((e.tail, (e.status or "").rstrip(), e.slot) for e in last.values())
