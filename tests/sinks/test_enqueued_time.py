"""When the last event of a watermark was enqueued: kept beside it, in SQLite and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from leasehold.model import ConsumerGroup
from leasehold.sinks import Sink, TableSpec, open_sink
from leasehold.sinks.rules.fence import Range, Watermark, plan
from leasehold.store_choice import TablePlaces
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, batch, read
from tests.sinks.postgres import Place

Database = Callable[[TableSpec], Sink]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Opens tables of one database."""
    if request.param == "sqlite":
        return lambda spec: open_sink(f"sqlite:///{tmp_path / 'table.db'}", spec)
    place: Place = request.getfixturevalue("place")
    return lambda spec: open_sink(place.url, spec)


def test_the_time_is_that_of_the_last_event_applied(opened: Database) -> None:
    with closing(opened(UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 2), ranges=[replace(read(0, 10), enqueued_time=100.5)]))
        assert sink.watermarks(HUB)["0"].enqueued_time == 100.5
        sink.apply(batch(Row("a", 1, 2), ranges=[replace(read(0, 6), enqueued_time=60.5)]))  # replayed, in part
        assert sink.watermarks(HUB)["0"].enqueued_time == 100.5
        sink.raise_owner_levels(HUB, {"0": 7})
        assert sink.watermarks(HUB)["0"].enqueued_time == 100.5
    with closing(opened(UPSERT)) as again:
        assert again.watermarks(HUB)["0"].enqueued_time == 100.5
        again.set_watermarks(HUB, {"0": Watermark(9, 8)})  # a person's reset: nobody knows of a time
        assert again.watermarks(HUB)["0"].enqueued_time is None


def test_the_places_of_a_table_tell_the_times_too(opened: Database) -> None:
    """So the lag in seconds of a pipeline that goes by its table needs no look into the hub."""
    with closing(opened(UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 2), ranges=[replace(read(0, 10), enqueued_time=100.5)]))
        group = ConsumerGroup("n", "h", "g")
        assert [one.enqueued_time for one in TablePlaces(sink, HUB).list_checkpoints(group)] == [100.5]


def test_a_replayed_or_refused_range_brings_no_time() -> None:
    stored = {("h", "0"): Watermark(9, 3, whole=True, enqueued_time=100.5)}
    told = [
        Range("h", "0", 3, 0, 9, True, enqueued_time=90.5),
        Range("h", "0", 2, 10, 19, True, enqueued_time=190.5),
    ]
    [mark] = plan(stored, told).watermarks.values()
    assert (mark.sequence_number, mark.enqueued_time) == (9, 100.5)
