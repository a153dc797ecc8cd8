"""`leasehold parked`: what it lists, shows, has tried at once and drops."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable
from leasehold.hubs.log.hub import LogHub
from leasehold.operations.aside import contract
from leasehold.operations.aside import parked as operations
from leasehold.sinks import open_sink
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.beside.outbox import table as outbox
from leasehold.sinks.beside.tables import WHEN_NEEDED
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.session import SqliteSession
from leasehold.stores.sqlite.store import SqliteStore
from tests.cli.set_aside import PIPELINE, Command
from tests.handlers.batches import given


@entity(keys=["id"])
def failing(state: Any, event: EntityEvent) -> Any:
    if event.row["n"] is not None:
        raise RuntimeError("\x1b[1maway")
    return {}


invoke = Command("parked")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table with events 0 and 2 of the entity `a` parked, and 1 of `b`."""
    (tmp_path / "flights.toml").write_text(PIPELINE)
    url = f"sqlite:////{tmp_path}/entities.db"
    table = HandledTable(
        failing, url, table="flights", pipeline="flights", schema="id STRING, n BIGINT", state="id STRING"
    )
    batch, _ = given(1, 0, {"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a"}, {"id": "c"})
    table.on_events(batch, SimpleNamespace(start=0, call_again=lambda seconds: None))
    table.sink.close()
    return tmp_path


def test_events_are_listed_with_and_without_the_word(place: Path) -> None:
    assert invoke(place, "").stdout == invoke(place, "list").stdout
    said = invoke(place, "").stdout
    assert "3 parked events of flights" in said
    assert "\x1b" not in said
    rows = invoke.document(place, "")["parked"]
    assert [(row["sequenceNumber"], row["key"], row["tries"], row["next"] is None) for row in rows] == [
        (0, ["a"], 1, False),
        (1, ["b"], 1, False),
        (2, ["a"], 0, True),
    ]
    assert rows[0]["next"] > rows[0]["parkedAt"]
    assert json.loads(rows[0]["body"]) == {"id": "a", "n": 1}
    assert "the first 1 are listed" in invoke(place, "", "--limit", "1").stdout
    assert "no such parked event" in invoke(place, "", "--event", "0:9").stdout


def test_a_long_key_makes_no_line_long(place: Path) -> None:
    """A producer names the entity, and each line of a table is as long as its longest cell."""
    with closing(sqlite3.connect(place / "entities.db")) as connection, connection:
        connection.execute(
            "UPDATE leasehold_parked SET key = ? WHERE sequence_number = 1", (json.dumps(["b" * 9_999]),)
        )
    assert max(map(len, invoke(place, "list").stdout.splitlines())) < 1_000
    assert "b" * 9_999 in invoke(place, "show", "--event", "0:1").stdout


def test_status_tells_how_many_wait_and_until_when(place: Path) -> None:
    with closing(LogHub.create(place / "hub.db", partitions=1)) as hub:
        SqliteStore(place / "leasehold.db").list_ownership(hub.consumer_group("$Default"))
    said = CliRunner().invoke(app, ["status", str(place / "flights.toml")])
    assert said.exit_code == 0, said.output
    assert re.search(
        r"^3 parked events, the oldest for [\d.]+ s, the next is (due|tried in [\d.]+ s)$", said.stdout, re.M
    )
    assert "rejected row" not in said.stdout
    assert "outbox" not in said.stdout
    spec = TableSpec(name="flights", pipeline="flights", keys=("id",))
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        for statement in WHEN_NEEDED[outbox.OUTBOX].in_sqlite():
            connection.execute(statement)
        outbox.put(
            SqliteSession(connection, spec), [EmittedEvent("h", "0", n, 0, ("a",), b"x") for n in range(3)], 1_000.0
        )
        connection.execute("UPDATE leasehold_outbox SET refused = 'too large' WHERE number = 2")
        connection.commit()
    said = CliRunner().invoke(app, ["status", str(place / "flights.toml")])
    assert re.search(r"^2 events in the outbox, the oldest for .+$\n^1 event in the outbox refused", said.stdout, re.M)
    found = json.loads(CliRunner().invoke(app, ["status", str(place / "flights.toml"), "--json"]).stdout)
    assert (found["parked"], found["deadLetters"], found["rejected"]) == (3, 0, 0)
    assert found["oldestParked"] < found["nextRetry"]


def test_an_event_is_shown_whole(place: Path) -> None:
    said = invoke(place, "show", "--event", "0:0").stdout
    assert 'partition: 0\nevent: 0\nentity: ["a"]\ntries: 1\n' in said
    assert r"reason: RuntimeError: \x1b[1maway" in said
    assert 'body: {"id": "a", "n": 1}' in said


def test_events_are_exported_whole_a_line_each(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "AT_A_TIME", 1)
    said = invoke(place, "export")
    assert said.exit_code == 0, said.output
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    assert rows == [{"kind": "parked", **row} for row in invoke.document(place, "")["parked"]]
    assert [
        json.loads(line)["sequenceNumber"] for line in invoke(place, "export", "--event", "0:1").stdout.splitlines()
    ] == [1]
    assert invoke(place, "export", "--event", "0:9").stdout == ""
    assert len(invoke.document(place, "")["parked"]) == 3, "they stay parked"


def test_events_are_to_be_tried_at_once(place: Path) -> None:
    before = invoke.document(place, "")["parked"][1]["next"]
    assert invoke.document(place, "retry", "--event", "0:1") == {"retried": 1, "left": []}
    assert invoke.document(place, "")["parked"][1]["next"] < before
    assert invoke.document(place, "retry", "--all") == {"retried": 3, "left": []}
    for wrong in ([], ["--all", "--event", "0:1"]):
        assert "say either which events" in invoke(place, "retry", *wrong).stderr


def test_events_are_dropped_for_a_reason(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract.pieces, "__defaults__", (1,))
    assert "not empty" in invoke(place, "drop", "--all").stderr
    assert "not empty" in invoke(place, "drop", "--all", "--because", " ").stderr
    assert invoke.document(place, "drop", "--reason-has", "away", "--because", "a test") == {"dropped": 2, "left": []}
    (left,) = invoke.document(place, "")["parked"]
    assert (left["sequenceNumber"], left["next"] is None) == (2, False), "it is the first now"
    assert invoke.document(place, "drop", "--all", "--because", "a test") == {"dropped": 1, "left": []}
    assert "flights has no parked event" in invoke(place, "").stdout
    said = CliRunner().invoke(app, ["rejected", "dropped", str(place / "flights.toml"), "--json"])
    assert [row["sequenceNumber"] for row in json.loads(said.stdout)["dropped"]] == [2, 1, 0]


def test_a_table_that_is_not_there(place: Path) -> None:
    (place / "entities.db").unlink()
    said = invoke(place, "")
    assert (said.exit_code, "there is no table flights" in said.stderr) == (1, True)


def test_a_table_without_handlers_has_nothing_parked(place: Path) -> None:
    for file in place.glob("entities.db*"):
        file.unlink()
    from leasehold.sinks import TableSpec, open_sink
    from tests.sinks.events import SCHEMA

    sink = open_sink(f"sqlite:////{place}/entities.db", TableSpec(name="flights", pipeline="flights", keys=("tail",)))
    sink.check(SCHEMA)
    sink.close()
    assert "flights has no parked event" in invoke(place, "", "--set", 'sink.keys=["tail"]').output


def test_of_messages_of_queues_it_says_how_many_wait(tmp_path: Path) -> None:
    (tmp_path / "flights.toml").write_text(PIPELINE)
    sink: Any = open_sink(
        f"sqlite:////{tmp_path}/entities.db", TableSpec(name="flights", pipeline="flights", keys=("id",))
    )
    sink.check_messages(pa.schema({"id": pa.string()}))
    for number in (1, 2):
        name = MessageName("shop/orders\x1b\n", f"{number}@0", number, 0.0)
        sink.parked_messages.park(ParkedMessage(name, ("a",), b"{}", ""))
    sink.close()
    said = invoke(tmp_path, "list")
    assert re.search(r"^shop/orders\\x1b\\n +2 +2\S+Z$", said.output, re.M)
    assert "flights has no parked events; 1 queue with parked message" in said.output
    (queue,) = invoke.document(tmp_path, "list")["queues"]
    assert (queue["queue"], queue["messages"]) == ("shop/orders\x1b\n", 2)
