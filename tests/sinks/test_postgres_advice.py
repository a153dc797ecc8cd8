"""What `check` says of a table in Postgres whose updates write more than they need."""

from __future__ import annotations

import pytest

from leasehold.sinks.features import COMPARISON, require
from leasehold.sinks.rules.table import TableSpec
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place

SPEC = TableSpec(name="flights %", pipeline="p", keys=("tail",))


@pytest.mark.parametrize(("room", "said"), [("", 1), ("WITH (fillfactor = 90)", 1), ("WITH (fillfactor = 50)", 0)])
def test_a_table_whose_updates_write_each_index_is_told_of(place: Place, room: str, said: int) -> None:
    place.run(f'CREATE TABLE "flights %" (tail text PRIMARY KEY, status text, slot bigint) {room}')
    sink = place.sink(SPEC)
    assert sink.apply(batch([E("a")])).applied == 1
    table = require(sink, COMPARISON, "a test")
    assert table.advice() == ()
    place.run(
        "INSERT INTO \"flights %\" SELECT number, repeat('x', 50) FROM generate_series(1, 6000) AS number",
        *["UPDATE \"flights %\" SET status = status || 'y'"] * 2,
        "SELECT pg_stat_force_next_flush()",
    )
    found = table.advice()
    assert len(found) == said
    for one in found:
        assert one.startswith("flights % has fillfactor ")
        assert 'ALTER TABLE "flights %" SET (fillfactor = 50)' in one
    sink.close()
