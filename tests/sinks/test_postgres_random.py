"""Random streams, cut and delivered in any way: SQLite, Postgres and a plain model come to the same tables."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from tests.sinks.events import MADE, MADE_APPEND, sink
from tests.sinks.postgres import Place
from tests.sinks.random_tables import ANY, MODES, Table, deliver, model_of, on_two_partitions, table_of
from tests.sinks.streams import Delivered, Log, deliveries, logs


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(place: Place, mode: str) -> Iterator[Table]:
    place.run(MADE_APPEND if mode == "append" else MADE)
    with table_of(place, mode) as made:
        yield made


def all_come_to_the_same(table: Table, mode: str, log: Log, delivered: Delivered) -> None:
    model, append = model_of(mode), mode == "append"
    table.empty()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        policy = on_two_partitions(mode)
        beside = sink(path, "append" if append else "upsert", made=True, on_two_partitions=policy)
        deliver(model, table, (path, beside), log, delivered)
        beside.close()


@pytest.mark.more(but=1)
@settings(max_examples=8, phases=(Phase.generate,), suppress_health_check=ANY)
@given(log=logs(), delivered=deliveries)
def test_any_batches_give_what_sqlite_and_the_model_give(
    table: Table, mode: str, log: Log, delivered: Delivered
) -> None:
    all_come_to_the_same(table, mode, log, delivered)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=3400, suppress_health_check=ANY)
@given(log=logs(), delivered=deliveries)
def test_ten_thousand_streams_do(table: Table, mode: str, log: Log, delivered: Delivered) -> None:
    all_come_to_the_same(table, mode, log, delivered)
