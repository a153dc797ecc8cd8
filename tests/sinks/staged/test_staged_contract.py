"""The contract of sinks, and random streams, where tasks stage the rows of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import Phase, given, settings

from leasehold.sinks import Sink, TableSpec
from leasehold.testing.sinks import ForgettingContract, RejectedContract, SinkContract
from tests.sinks.events import MADE, MADE_APPEND, SCHEMA
from tests.sinks.postgres import Place
from tests.sinks.staged.staging import StagedSink
from tests.sinks.test_contract import OnPostgres
from tests.sinks.test_exactly_once import deliveries, logs
from tests.sinks.test_postgres_random import ANY, MODES, Delivered, Log, Table, all_come_to_the_same


class Staged(OnPostgres):
    """What each suite is given."""

    @pytest.fixture
    def open_table(self, place: Place) -> Iterator[Callable[[TableSpec], Sink]]:
        opened: list[Sink] = []

        def open_one(spec: TableSpec) -> Sink:
            opened.append(StagedSink(place.url, spec))
            return opened[-1]

        yield open_one
        for sink in opened:
            sink.close()


class TestStagedSink(Staged, SinkContract):
    pass


class TestRejectedRowsOfStagedBatches(Staged, RejectedContract):
    pass


class TestForgettingOfStagedBatches(Staged, ForgettingContract):
    pass


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
    made = StagedSink(place.url, spec, timeout=60.0)
    made.check(SCHEMA)
    yield Table(place, made)
    assert place.look("SELECT count(*) FROM leasehold_staged") == [(0,)]
    made.close()


@settings(max_examples=10, phases=(Phase.generate,), **ANY)  # type: ignore[arg-type]
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
