"""What `check` says of a table in Postgres whose updates write more than they need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.table_spec import TableSpec
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place

SPEC = TableSpec(name="flights %", pipeline="p", keys=("tail",))
PIPELINE = """
name = "p"
[source]
hub = "log:///hub.db"
[transform]
schema = "tail STRING, status STRING, slot BIGINT"
sql = "SELECT tail, status, slot, hub, partition, sequenceNumber, ownerLevel FROM events"
[ownership]
store = "sqlite:///stores.db"
[sink]
url = "{url}"
table = "flights %"
keys = ["tail"]
"""


def filled(place: Place, room: str = "") -> PostgresSink:
    """The table, made with this room for updates."""
    place.run(f'CREATE TABLE "flights %" (tail text PRIMARY KEY, status text, slot bigint) {room}')
    sink = place.sink(SPEC)
    assert sink.apply(batch([E("a")])).applied == 1
    return sink


def update(place: Place) -> None:
    """Update rows so often that it tells something."""
    place.run(
        "INSERT INTO \"flights %\" SELECT number, repeat('x', 50) FROM generate_series(1, 6000) AS number",
        *["UPDATE \"flights %\" SET status = status || 'y'"] * 2,
        "SELECT pg_stat_force_next_flush()",
    )


@pytest.mark.parametrize(("room", "said"), [("", 1), ("WITH (fillfactor = 90)", 1), ("WITH (fillfactor = 50)", 0)])
def test_a_table_whose_updates_write_each_index_is_told_of(place: Place, room: str, said: int) -> None:
    sink = filled(place, room)
    assert sink.advice() == ()
    update(place)
    found = sink.advice()
    assert len(found) == said
    for one in found:
        assert one.startswith("flights % has fillfactor ")
        assert 'ALTER TABLE "flights %" SET (fillfactor = 50)' in one
    sink.close()


def test_the_command_prints_it(place: Place, tmp_path: Path) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    filled(place).close()
    update(place)
    (tmp_path / "flights.toml").write_text(PIPELINE.format(url=place.url))
    said = CliRunner().invoke(app, ["check", str(tmp_path / "flights.toml"), "--no-spark", "--json"])
    assert said.exit_code == 0, said.output
    advice = [one for one in json.loads(said.stdout)["checks"] if "fillfactor" in one["said"]]
    assert [(one["part"], one["ok"]) for one in advice] == [("table", True)]
    assert advice[0]["said"].startswith("flights % has fillfactor 100, and of ")
