"""When the last event of a watermark was enqueued: kept beside it, in SQLite and Postgres, and beside older releases.

`files/format-6-untimed.sqlite` is `files/format-5.sqlite` (see `test_upgrades`), brought to format 6 by a release whose
watermarks had no times.
"""

from __future__ import annotations

import shutil
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
from tests.sinks.events import look, run
from tests.sinks.postgres import Place

FILE = Path(__file__).parent / "files" / "format-6-untimed.sqlite"
NEXT = "UPDATE leasehold_watermark SET sequence_number = 19, whole = {true}"  # as a release does that knows of no times

Database = tuple[Callable[[TableSpec], Sink], Callable[[str], object]]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Opens tables of one database, and changes it as somebody else does."""
    if request.param == "sqlite":
        path = tmp_path / "table.db"
        return lambda spec: open_sink(f"sqlite:///{path}", spec), lambda text: run(path, text.format(true="1"))
    place: Place = request.getfixturevalue("place")
    return lambda spec: open_sink(place.url, spec), lambda text: place.run(text.format(true="true"))


def test_the_time_is_that_of_the_last_event_applied(database: Database) -> None:
    opened, _ = database
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


def test_a_release_that_knows_of_no_times_leaves_none_that_is_wrong(database: Database) -> None:
    opened, change = database
    with closing(opened(UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 2), ranges=[replace(read(0, 10), enqueued_time=100.5)]))
        change(NEXT)
        assert sink.watermarks(HUB)["0"] == Watermark(19, 1, whole=True)
        assert sink.watermarks(HUB)["0"].enqueued_time is None
        sink.apply(batch(ranges=[replace(read(20, 30), enqueued_time=130.5)]))
        assert sink.watermarks(HUB)["0"].enqueued_time == 130.5


def test_the_places_of_a_table_tell_the_times_too(database: Database) -> None:
    """So the lag in seconds of a pipeline that goes by its table needs no look into the hub."""
    opened, _ = database
    with closing(opened(UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 2), ranges=[replace(read(0, 10), enqueued_time=100.5)]))
        group = ConsumerGroup("n", "h", "g")
        assert [one.enqueued_time for one in TablePlaces(sink, HUB).list_checkpoints(group)] == [100.5]


def test_a_postgres_schema_without_times_is_widened(place: Place) -> None:
    with closing(place.sink(UPSERT)) as sink:
        sink.apply(batch(Row("a", 1, 0), ranges=[read(0, 1)]))
    place.run("ALTER TABLE leasehold_watermark DROP COLUMN timed_number, DROP COLUMN enqueued_time")
    with closing(place.sink(UPSERT)) as again:
        assert again.watermarks(HUB)["0"] == Watermark(0, 1, whole=True)
        again.apply(batch(ranges=[replace(read(1, 10), enqueued_time=100.5)]))
        assert again.watermarks(HUB)["0"].enqueued_time == 100.5
    assert place.look("SELECT DISTINCT format FROM leasehold_table") == [(2,)]


def test_a_file_without_times_is_read_and_gone_on_with(tmp_path: Path) -> None:
    path = Path(shutil.copy(FILE, tmp_path / "table.db"))
    before = look(path, "SELECT name, format FROM leasehold_table ORDER BY name")
    with closing(open_sink(f"sqlite:///{path}", UPSERT)) as sink:
        mark = sink.watermarks(HUB)["0"]
        assert (mark, mark.enqueued_time) == (Watermark(5, 1, whole=True), None)
        sink.apply(batch(ranges=[replace(read(6, 10), enqueued_time=100.5)]))
        assert sink.watermarks(HUB)["0"].enqueued_time == 100.5
    assert look(path, "SELECT name, format FROM leasehold_table ORDER BY name") == before


def test_a_replayed_or_refused_range_brings_no_time() -> None:
    stored = {("h", "0"): Watermark(9, 3, whole=True, enqueued_time=100.5)}
    told = [
        Range("h", "0", 3, 0, 9, True, enqueued_time=90.5),
        Range("h", "0", 2, 10, 19, True, enqueued_time=190.5),
    ]
    [mark] = plan(stored, told).watermarks.values()
    assert (mark.sequence_number, mark.enqueued_time) == (9, 100.5)
