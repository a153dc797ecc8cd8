"""Tables that random streams are delivered to, in Postgres and in SQLite: after each batch both are as the model is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.base import Sink
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.sinks.events import SCHEMA, Model, batch, look, look_rejected
from tests.sinks.postgres import Place
from tests.sinks.streams import Delivered, Log, taken
from tests.waiting import PATIENCE

REJECTING = "upsert, and keys from two partitions are rejected"
MODES = ("append", "upsert", REJECTING, "upsert by version")
ANY = list(HealthCheck)
"""Checks that do not fit: a table serves all examples of a test, and is emptied for each."""


def on_two_partitions(mode: str) -> str:
    """What becomes of a key from two partitions in this mode."""
    return "reject" if mode == REJECTING else "stop"


def model_of(mode: str, **more: Any) -> Model:
    """The model of a table in this mode."""
    rejects = mode == REJECTING
    append, by_version = mode == "append", mode == "upsert by version"
    return Model(append=append, by_version=by_version, deletes=not append, rejects_strangers=rejects, **more)


def empty(place: Place, *sinks: PostgresSink) -> None:
    """Leave the tables of a schema as they are before their first batch.

    These `sinks` write them, and know of a reset that nothing has gone back behind them.
    """
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{place.schema}'"
    emptied = [name for (name,) in place.look(tables) if name != "leasehold_table"]
    place.run(
        *(f"DELETE FROM {name}" for name in emptied),
        "UPDATE leasehold_table SET ordered_by = NULL, sequence_by = NULL, deletes = NULL",
    )
    for sink in sinks:
        sink.set_watermarks("h", dict.fromkeys(("0", "1"), Watermark()))
    place.run("DELETE FROM leasehold_watermark")


@dataclass(frozen=True)
class Table:
    """The table `flights` of one test, emptied for each example."""

    place: Place
    sink: PostgresSink

    def empty(self) -> None:
        empty(self.place, self.sink)


@contextmanager
def table_of(place: Place, mode: str) -> Iterator[Table]:
    """The table, which has been made there, for the length of the block."""
    keys = () if mode == "append" else ("tail",)
    kind, policy = "append" if mode == "append" else "upsert", on_two_partitions(mode)
    spec = TableSpec(name="flights", pipeline="p", mode=kind, keys=keys, on_two_partitions=policy)
    made = place.sink(spec, timeout=PATIENCE)
    made.check(SCHEMA)
    yield Table(place, made)
    made.close()


def deliver(model: Model, table: Table, beside: tuple[Path, SqliteSink] | None, log: Log, delivered: Delivered) -> None:
    """Apply batches to the tables, in Postgres and in SQLite: after each one both are as the model is."""
    both: list[Sink] = [table.sink, *([] if beside is None else [beside[1]])]
    if beside is not None:
        beside[1].check(SCHEMA)
    for ranges in delivered:
        good, bad = taken(log, ranges)
        it = batch(good, by_version=model.by_version, deletes=model.deletes, rejected=bad)
        if model.apply(good, bad):
            results = [one.apply(it) for one in both]
            assert results == results[:1] * len(both)
        else:
            for one in both:
                with pytest.raises(KeyFromTwoPartitions):
                    one.apply(it)
        expected = sorted(model.rows.values(), key=repr)
        assert sorted(table.place.look("SELECT tail, status, slot FROM flights"), key=repr) == expected
        aside = table.place.look("SELECT hub, partition, sequence_number FROM flights_rejected")
        assert sorted(aside) == sorted(model.rejected)
        if beside is not None:
            assert sorted(look(beside[0]), key=repr) == expected
            assert sorted(look_rejected(beside[0])) == sorted(model.rejected)
            assert table.sink.watermarks("h") == beside[1].watermarks("h")
