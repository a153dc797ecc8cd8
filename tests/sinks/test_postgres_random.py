"""Random streams, cut and delivered in any way: SQLite, Postgres and a plain model come to the same tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.base import Sink
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.sqlite import SqliteSink
from leasehold.sinks.table import TableSpec
from tests.sinks.events import MADE, MADE_APPEND, SCHEMA, E, Model, batch, look, look_rejected, sink
from tests.sinks.postgres import Place
from tests.sinks.test_exactly_once import deliveries, logs

Log = dict[str, list[tuple[E, bool]]]
Delivered = list[list[tuple[str, int, int, int]]]
MODES = ("append", "upsert", "upsert by version")
ANY = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@dataclass(frozen=True)
class Table:
    """The table `flights` of one test, emptied for each example."""

    place: Place
    sink: PostgresSink

    def empty(self) -> None:
        tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.place.schema}'"
        emptied = [name for (name,) in self.place.look(tables) if name != "leasehold_table"]
        self.place.run(
            *(f"DELETE FROM {name}" for name in emptied),
            "UPDATE leasehold_table SET ordered_by = NULL, sequence_by = NULL, deletes = NULL",
        )


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(place: Place, mode: str) -> Iterator[Table]:
    append = mode == "append"
    place.run(MADE_APPEND if append else MADE)
    spec = TableSpec(
        name="flights", pipeline="p", mode="append" if append else "upsert", keys=() if append else ("tail",)
    )
    made = place.sink(spec, timeout=60.0)
    made.check(SCHEMA)
    yield Table(place, made)
    made.close()


def all_come_to_the_same(table: Table, mode: str, log: Log, delivered: Delivered) -> None:
    append, by_version = mode == "append", mode == "upsert by version"
    model = Model(append=append, by_version=by_version, deletes=not append)
    table.empty()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        beside = sink(path, "append" if append else "upsert", made=True)
        deliver(model, table, (path, beside), log, delivered)
        beside.close()


def deliver(model: Model, table: Table, beside: tuple[Path, SqliteSink] | None, log: Log, delivered: Delivered) -> None:
    """Apply batches to the tables, in Postgres and in SQLite: after each one both are as the model is."""
    both: list[Sink] = [table.sink, *([] if beside is None else [beside[1]])]
    if beside is not None:
        beside[1].check(SCHEMA)
    for ranges in delivered:
        some = {(p, level): (first, first + more) for p, first, more, level in ranges}
        taken = [
            (e._replace(level=level), parsed)
            for (p, level), (first, end) in some.items()
            for e, parsed in log[p]
            if first <= e.number < end
        ]
        good, bad = [e for e, parsed in taken if parsed], [e for e, parsed in taken if not parsed]
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


@settings(max_examples=15, phases=(Phase.generate,), **ANY)  # type: ignore[arg-type]
@given(log=logs(), delivered=deliveries)
def test_any_batches_give_what_sqlite_and_the_model_give(
    table: Table, mode: str, log: Log, delivered: Delivered
) -> None:
    all_come_to_the_same(table, mode, log, delivered)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=3400, **ANY)  # type: ignore[arg-type]
@given(log=logs(), delivered=deliveries)
def test_ten_thousand_streams_do(table: Table, mode: str, log: Log, delivered: Delivered) -> None:
    all_come_to_the_same(table, mode, log, delivered)
