"""`leasehold outbox`: the refused events it lists, has sent again and drops."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.operations.aside import refused
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.beside.outbox import table as outbox
from leasehold.sinks.beside.tables import WHEN_NEEDED
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.sqlite.session import SqliteSession
from leasehold.stores.sqlite.store import SqliteStore
from tests.cli.set_aside import PIPELINE, Command
from tests.sinks.events import SCHEMA

invoke = Command("outbox")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table of whose five emitted events the last four are refused; the fourth is no text, the last is spoiled."""
    (tmp_path / "flights.toml").write_text(PIPELINE)
    with closing(LogHub.create(tmp_path / "hub.db", partitions=1)) as hub:
        SqliteStore(tmp_path / "leasehold.db").list_ownership(hub.consumer_group("$Default"))
    spec = TableSpec(name="flights", pipeline="flights", keys=("id",))
    sink = open_sink(f"sqlite:////{tmp_path}/entities.db", spec)
    sink.check(SCHEMA.append(pa.field("id", pa.string())))
    sink.close()
    bodies = (b"waits", b"\x1b[2Jx", b"b" * 9_999, b"\xff", b"none")
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        for statement in WHEN_NEEDED[outbox.OUTBOX].in_sqlite():
            connection.execute(statement)
        emitted = [
            EmittedEvent("h", "0", 7, at, ("a",), body, f"k\n{at}", {"at": str(at)}) for at, body in enumerate(bodies)
        ]
        outbox.put(SqliteSession(connection, spec), emitted, 1_000.0)
        connection.execute("UPDATE leasehold_outbox SET refused = 'too large: ' || place || char(27) WHERE place > 0")
        connection.execute("UPDATE leasehold_outbox SET properties = '[1]', emitted_at = 'x' WHERE place = 4")
        connection.commit()
    return tmp_path


def test_events_are_listed_with_and_without_the_word(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "AT_A_TIME", 1)
    said = invoke(place, "").stdout
    assert said == invoke(place, "list").stdout
    assert "4 refused events of flights" in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) < 300
    rows = invoke.document(place, "")["refused"]
    assert [(row["id"], row["key"], row["reason"]) for row in rows[:3]] == [
        (f"h/0/7/{at}", f"k\n{at}", f"too large: {at}\x1b") for at in (1, 2, 3)
    ]
    assert [row["body"] for row in rows[:3]] == ["\x1b[2Jx", "b" * 9_999, "/w=="]
    assert [row["bodyEncoding"] for row in rows[:3]] == ["text", "text", "base64"]
    assert (rows[0]["emittedAt"], rows[0]["properties"]) == ("1970-01-01T00:16:40.000Z", {"at": "1"})
    assert (rows[3]["body"], rows[3]["properties"]) == ("", {}), "somebody else has written it"
    assert "the first 1 are listed" in invoke(place, "", "--limit", "1").stdout
    assert "no such refused event" in invoke(place, "", "--event", "9").stdout
    assert "see `leasehold outbox`" in CliRunner().invoke(app, ["status", str(place / "flights.toml")]).stdout


def test_events_are_sent_again_or_dropped(place: Path) -> None:
    first, second, *_ = [row["number"] for row in invoke.document(place, "")["refused"]]

    def document(word: str, *options: str) -> object:
        return invoke.document(place, word, *options)

    for word in ("retry", "drop"):
        for wrong in ([], ["--all", "--event", "1"]):
            assert "say either which events" in invoke(place, word, *wrong).stderr
        done = "retried" if word == "retry" else "dropped"
        assert document(word, "--event", str(first - 1)) == {done: 0, "left": []}
    assert document("drop", "--event", str(first), "--event", str(second)) == {"dropped": 2, "left": []}
    assert document("retry", "--reason-has", ": 3") == {"retried": 1, "left": []}
    assert document("drop", "--all") == {"dropped": 1, "left": []}
    assert "flights has no refused event" in invoke(place, "").stdout
    found = json.loads(CliRunner().invoke(app, ["status", str(place / "flights.toml"), "--json"]).stdout)
    assert (found["outbox"], found["refusedInOutbox"]) == (2, 0)


def test_a_table_without_an_outbox_has_nothing_refused(place: Path) -> None:
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        connection.execute("DROP TABLE leasehold_outbox")
    assert "flights has no refused event" in invoke(place, "").stdout
    assert invoke.document(place, "drop", "--all") == {"dropped": 0, "left": []}
