"""`leasehold skip`: what it notes, what it refuses, and where the note is seen until a batch has come to the event."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from leasehold import Event
from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import EventRange
from leasehold.operations import skipping
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.stores.sqlite.store import SqliteStore
from tests.cli.set_aside import PIPELINE, Command

SPEC = TableSpec(name="flights", pipeline="flights", keys=("id",))
listed = Command("rejected")


class Table:
    """The table of the pipeline file in this folder, and its hub of two partitions with four events each."""

    def __init__(self, folder: Path) -> None:
        (folder / "flights.toml").write_text(PIPELINE)
        self.hub = LogHub.create(folder / "hub.db", partitions=2)
        for partition in "01":
            events = [Event(b'{"id": "%d"}' % number, f"key {number}", {"a": "b"}) for number in range(4)]
            self.hub.send(events, partition=partition)
        self.sink = SqliteSink(folder / "entities.db", SPEC)
        SqliteStore(folder / "leasehold.db").list_ownership(self.hub.consumer_group("$Default"))
        self.apply(0, 2)

    def apply(self, begin: int, end: int) -> None:
        """A batch of partition 0, with a row for each event."""
        count = end - begin
        fence = {
            "hub": [self.hub.identity] * count,
            "partition": ["0"] * count,
            "sequenceNumber": pa.array(range(begin, end), pa.int64()),
            "ownerLevel": pa.array([1] * count, pa.int64()),
        }
        rows = pa.table({"id": [str(number) for number in range(begin, end)], **fence})
        self.sink.apply(Batch(rows, ranges=[EventRange(self.hub.identity, "0", 1, begin, end)]))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    made = Table(tmp_path)
    yield made
    made.sink.close()
    made.hub.close()


def skip(place: Path, event: str, *more: str, because: str = "it has no aircraft") -> Result:
    command = ["skip", str(place / "flights.toml"), "--event", event, "--because", because, *more]
    return CliRunner().invoke(app, command)


def status(place: Path, *more: str) -> str:
    said = CliRunner().invoke(app, ["status", str(place / "flights.toml"), *more])
    assert said.exit_code == 0, said.output
    return said.stdout


def test_a_noted_event_is_seen_until_it_is_passed_and_then_it_is_rejected(table: Table, tmp_path: Path) -> None:
    assert "to be skipped" not in status(tmp_path)
    said = skip(tmp_path, "0:3")
    assert said.exit_code == 0, said.output
    assert "event 3 of partition 0 will be skipped" in said.stdout
    assert "1 event to be skipped" in status(tmp_path)
    assert json.loads(status(tmp_path, "--json"))["toSkip"] == 1
    assert "flights has no rejected rows; 1 event to be skipped" in listed(tmp_path, "").stdout
    (note,) = listed.document(tmp_path, "")["toSkip"]
    assert (note["hub"], note["partition"], note["sequenceNumber"]) == (table.hub.identity, "0", 3)
    assert (note["because"], note["notedBy"], note["body"]) == ("it has no aircraft", skipping.who(), '{"id": "3"}')
    table.apply(2, 4)
    assert "to be skipped" not in status(tmp_path)
    assert "1 rejected row" in status(tmp_path)
    document = listed.document(tmp_path, "")
    (row,) = document["rejected"]
    assert document["toSkip"] == []
    assert (row["sequenceNumber"], row["reason"]) == (3, f"skipped by {skipping.who()}: it has no aircraft")
    assert row["body"] == '{"id": "3"}'
    source = json.loads(row["source"])
    assert (source["partitionKey"], source["properties"]) == ("key 3", {"a": "b"})
    assert source["enqueuedTime"]


def test_an_event_that_was_passed_or_noted_is_left_as_it_is(table: Table, tmp_path: Path) -> None:
    for number in (0, 1):
        said = skip(tmp_path, f"0:{number}", "--json")
        assert said.exit_code == 0
        found = json.loads(said.stdout)
        assert (found["passed"], found["noted"]) == (True, False)
    assert "nothing was changed: the table has come to event 1 of partition 0" in skip(tmp_path, "0:1").stdout
    skip(tmp_path, "1:0", because="the first reason")
    again = skip(tmp_path, "1:0", because="the second")
    assert again.exit_code == 0
    assert f"is to be skipped already, as {skipping.who()} said on" in again.stdout
    assert "the first reason" in again.stdout
    assert [note.because for note in table.sink.skip_notes()] == ["the first reason"]


@pytest.mark.parametrize(
    ("event", "because", "says"),
    [
        ("7:0", "x", "the hub has no partition 7; its partitions are 0, 1"),
        ("0:4", "x", "partition 0 has no event 4 yet: it ends at 4"),
        ("0", "x", "an event is PARTITION:SEQUENCE_NUMBER"),
        ("0:3", " ", "a text that is not empty"),
    ],
)
def test_what_cannot_be_skipped_is_refused(table: Table, tmp_path: Path, event: str, because: str, says: str) -> None:
    said = skip(tmp_path, event, because=because)
    assert said.exit_code == 1
    assert says in said.stderr
    assert table.sink.skip_notes() == []


def test_an_event_that_the_hub_has_removed_is_refused(table: Table, tmp_path: Path) -> None:
    """It holds nobody up: but an event that was passed may be gone as well."""
    for partition in "01":
        table.hub.send([Event(b"{}")], partition=partition)
    table.hub.retain(max_bytes=1)
    assert table.hub.partition_properties(["1"])["1"].begin == 5
    said = skip(tmp_path, "1:2")
    assert said.exit_code == 1
    assert "partition 1 has no event 2 any more: the hub has removed all that is below 5" in said.stderr
    assert "nothing was changed: the table has come to event 1" in skip(tmp_path, "0:0").stdout


def test_where_no_table_has_been_made_yet_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "flights.toml").write_text(PIPELINE)
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    said = skip(tmp_path, "0:0")
    assert said.exit_code == 1
    assert "there is no table flights" in said.stderr
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%skip%'").fetchall() == []


def test_a_note_that_somebody_else_has_written_raises_nothing(table: Table, tmp_path: Path) -> None:
    skip(tmp_path, "0:2")
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection, connection:
        fill: tuple[Any, ...] = ("flights", "flights", table.hub.identity)
        values = [(*fill, "0", "x"), (*fill, b"\xff", 3), (*fill, "1", 2)]
        connection.executemany("INSERT INTO leasehold_skip VALUES (?, ?, ?, ?, ?, 7, x'ff', x'ff', 3, 'never')", values)
    assert [note["sequenceNumber"] for note in listed.document(tmp_path, "")["toSkip"]] == [2, 2]
    table.apply(2, 4)
    assert [row["sequenceNumber"] for row in listed.document(tmp_path, "")["rejected"]] == [2]
