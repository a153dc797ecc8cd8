"""Formats of what is kept beside an entity table: an older one is refused by name, and left as it is.

`files/format-5.sqlite` and `files/format-6.sqlite` are as checkouts left them that wrote these formats.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import SinkError
from leasehold.sinks.postgres import bookkeeping
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.sqlite import tables as sqlite
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row
from leasehold_testkit.contracts.sinks.fixtures import batch as batch_of
from tests.sinks.events import SCHEMA, E, batch, sink
from tests.sinks.postgres import FLIGHTS, Place

FILES = Path(__file__).parent / "files"


@pytest.mark.parametrize("written", [5, 6])
@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.watermarks("h"),
        lambda table: table.apply(batch([E("a", number=9, level=4)], by_version=True, deletes=True)),
        lambda table: table.row_count(),
        lambda table: table.contents(),
        lambda table: table.set_aside_counts(),
        lambda table: table.recorded_identity(),
        lambda table: table.compare(SCHEMA),
    ],
)
def test_a_file_of_an_older_format(tmp_path: Path, written: int, use: Callable[[SqliteSink], object]) -> None:
    path = Path(shutil.copy(FILES / f"format-{written}.sqlite", tmp_path / "table.db"))
    before = path.read_bytes()
    for name in ("flights", "not_there_yet"):
        with closing(sink(path, name=name)) as table:
            with pytest.raises(
                SinkError, match=rf" has format {written}, and this release reads format {sqlite.FORMAT} alone"
            ) as it:
                use(table)
            assert "leasehold reset PIPELINE.toml --to earliest" in str(it.value)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["table.db"]


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.watermarks(HUB),
        lambda table: table.apply(batch_of(Row("a", 2, 1))),
        lambda table: table.row_count(),
        lambda table: table.contents(),
        lambda table: table.set_aside_counts(),
        lambda table: table.recorded_identity(),
        lambda table: table.read_states(SCHEMA, [("a",)]),
        lambda table: table.make_tables(),
        lambda table: table.compare(None),
    ],
)
def test_a_postgres_schema_of_an_older_format(place: Place, use: Callable[[PostgresSink], object]) -> None:
    with closing(place.sink(UPSERT)) as table:
        table.apply(batch_of(Row("a", 1, 0)))
    older = bookkeeping.FORMAT - 1
    place.run(f"UPDATE leasehold_table SET format = {older}", "DROP TABLE leasehold_outbox")
    refused = rf" has format {older}, .* format {bookkeeping.FORMAT} alone"
    for spec in (UPSERT, FLIGHTS):
        with closing(place.sink(spec)) as table, pytest.raises(SinkError, match=refused):
            use(table)
    assert place.look("SELECT name, format FROM leasehold_table") == [(UPSERT.name, older)]
    assert place.look("SELECT to_regclass('leasehold_outbox'), to_regclass('flights')") == [(None, None)]


def test_a_postgres_table_of_a_newer_format(place: Place) -> None:
    with closing(place.sink(UPSERT)) as table:
        table.apply(batch_of(Row("a", 1, 0)))
        place.run(f"UPDATE leasehold_table SET format = {bookkeeping.FORMAT + 1}")
        newer = rf" has format {bookkeeping.FORMAT + 1}, .* formats up to {bookkeeping.FORMAT}: pip install --upgrade"
        with pytest.raises(SinkError, match=newer):
            table.apply(batch_of(Row("a", 2, 1)))
