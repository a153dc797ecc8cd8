"""`leasehold rejected`: what it lists, shows and drops. Trying again needs Spark: tests/spark/test_retrying.py."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.cli.set_aside import PIPELINE, Command

BODIES = (b'{"id": 1', b"\x1b[2J\xe2\x80\xae", b"\xff")


invoke = Command("rejected")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "flights.toml").write_text(PIPELINE)
    sink = SqliteSink(tmp_path / "entities.db", TableSpec(name="flights", pipeline="flights", keys=("id",)))
    count = len(BODIES)
    fence = {
        "hub": ["h"] * count,
        "partition": ["3"] * count,
        "sequenceNumber": pa.array(range(count), pa.int64()),
        "ownerLevel": pa.array([1] * count, pa.int64()),
    }
    good = {name: column[:1] for name, column in fence.items()} | {"sequenceNumber": pa.array([9], pa.int64())}
    rows = pa.table({"id": ["a"], **good})
    reasons = ["not JSON", "not JSON", "not \x1b[1mUTF-8"]
    sink.apply(Batch(rows, pa.table({**fence, "body": BODIES, "reason": reasons, "publisher": [None, "p", "q"]})))
    sink.close()
    return tmp_path


def test_rows_and_reasons_are_listed_with_and_without_the_word(place: Path) -> None:
    assert invoke(place, "").stdout == invoke(place, "list").stdout
    said = invoke(place, "")
    assert said.exit_code == 0
    assert "3 rejected rows of flights" in said.stdout
    assert "\x1b" not in said.stdout
    assert "‮" not in said.stdout
    assert r"\x1b[2J\u202e" in said.stdout
    listed = invoke.document(place, "")
    assert [(one["example"], one["count"]) for one in listed["reasons"]] == [("not JSON", 2), ("not \x1b[1mUTF-8", 1)]
    rows = listed["rejected"]
    assert isinstance(rows, list)
    assert [(row["partition"], row["sequenceNumber"], row["place"], row["hub"]) for row in rows] == [
        ("3", number, 0, "h") for number in range(3)
    ]
    assert [(row["body"], row["bodyEncoding"]) for row in rows] == [
        ('{"id": 1', "text"),
        ("\x1b[2J‮", "text"),
        ("/w==", "base64"),
    ]
    assert json.loads(rows[1]["source"]) == {"publisher": "p"}


def test_a_choice_is_listed_alone(place: Path) -> None:
    chosen = invoke.document(place, "", "--event", "3:1", "--event", "3:2", "--reason-has", "JSON")["rejected"]
    assert isinstance(chosen, list)
    assert [row["sequenceNumber"] for row in chosen] == [1]
    assert "flights has no such rejected row" in invoke(place, "", "--hub", "another").stdout
    assert "the first 1 are listed" in invoke(place, "", "--limit", "1").stdout
    wrong = invoke(place, "", "--event", "3")
    assert wrong.exit_code == 1
    assert "an event is PARTITION:SEQUENCE_NUMBER" in wrong.stderr
    for number in (2**63, "1" * 5000):
        assert "an event is PARTITION:SEQUENCE_NUMBER" in invoke(place, "", "--event", f"3:{number}").stderr


def test_where_a_row_comes_from_is_on_one_line_whoever_wrote_it(place: Path) -> None:
    with closing(sqlite3.connect(place / "entities.db")) as connection, connection:
        connection.execute('UPDATE flights_rejected SET "partition" = ?', ("3\nbody: mine\x1b[2J",))
    said = invoke(place, "show", "--reason-has", "UTF-8").stdout
    assert r"partition: 3\nbody: mine\x1b[2J" in said
    assert [line.partition(":")[0] for line in said.splitlines() if line.startswith("body")] == ["body"]


def test_a_body_is_shown_whole_and_printable(place: Path) -> None:
    said = invoke(place, "show", "--event", "3:1")
    assert said.stdout.splitlines()[:4] == ["hub: h", "partition: 3", "event: 1", "row: 0"]
    assert r"body: \x1b[2J\u202e" in said.stdout
    assert '"publisher":"p"' in said.stdout
    assert invoke.document(place, "show", "--event", "3:2")["body"] == "/w=="


def test_rows_are_dropped_with_a_reason_that_is_kept(place: Path) -> None:
    assert "say either which events" in invoke(place, "drop", "--because", "no").stderr
    assert "say either which events" in invoke(place, "drop", "--because", "no", "--all", "--event", "3:1").stderr
    assert "a text that is not empty" in invoke(place, "drop", "--event", "3:1").stderr
    assert invoke.document(place, "drop", "--event", "3:1", "--event", "9:9", "--because", "a test")["dropped"] == 1
    assert "2 rejected rows dropped" in invoke(place, "drop", "--all", "--because", "too old").stdout
    assert "flights has no rejected row" in invoke(place, "").stdout
    noted = invoke.document(place, "dropped")["dropped"]
    assert isinstance(noted, list)
    assert sorted((one["sequenceNumber"], one["droppedFor"]) for one in noted) == [
        (0, "too old"),
        (1, "a test"),
        (2, "too old"),
    ]
    assert "a test" in invoke(place, "dropped").stdout


def test_all_rows_of_an_event_are_meant_however_many_they_are(place: Path) -> None:
    count = 2_500
    sink = SqliteSink(place / "entities.db", TableSpec(name="flights", pipeline="flights", keys=("id",)))
    fence = {"hub": ["h"] * count, "partition": ["4"] * count}
    numbers = {"sequenceNumber": pa.array([7] * count, pa.int64()), "ownerLevel": pa.array([1] * count, pa.int64())}
    rejected = pa.table({**fence, **numbers, "body": [b"?"] * count, "reason": ["not JSON"] * count})
    none = pa.table({name: rejected[name] for name in ("hub", "partition", "sequenceNumber", "ownerLevel")}).slice(0, 0)
    sink.apply(Batch(none.add_column(0, "id", pa.array([], pa.string())), rejected))
    sink.close()
    assert "2,500 rejected rows dropped" in invoke(place, "drop", "--event", "4:7", "--because", "a test").stdout


def test_a_table_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    (tmp_path / "flights.toml").write_text(PIPELINE)
    for words in (("",), ("dropped",), ("drop", "--all", "--because", "old")):
        assert "no instance has filled it yet" in invoke(tmp_path, *words).stderr
    forgotten = CliRunner().invoke(app, ["forget", str(tmp_path / "flights.toml"), "--key", "1"])
    assert "no instance has filled it yet" in forgotten.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["flights.toml"]


def test_retry_wants_to_know_which(place: Path) -> None:
    assert "say either which events" in invoke(place, "retry").stderr


TEXT = (b"\xff\x00", "CAST(x'ff41' AS TEXT)")


@pytest.mark.parametrize("column", ["hub", "partition", "sequence_number", "place", "rejected_at"])
def test_a_row_that_says_of_no_event_is_left_to_whoever_wrote_it(place: Path, column: str) -> None:
    for value in TEXT:
        _change(place, column, value)
        listed = invoke.document(place, "")
        assert (listed["totals"], len(listed["rejected"])) == ({"rejected": 2}, 2)
        assert len(invoke(place, "export").stdout.splitlines()) == 2
    assert invoke.document(place, "drop", "--all", "--because", "old")["dropped"] == 2
    assert invoke.document(place, "dropped")["totals"] == {"dropped": 2}


@pytest.mark.parametrize("column", ["body", "reason", "source"])
def test_what_others_have_left_in_a_row_is_read_as_the_nearest_text(place: Path, column: str) -> None:
    for value in TEXT:
        _change(place, column, value)
        assert invoke.document(place, "")["totals"] == {"rejected": 3}
        assert invoke(place, "show", "--event", "3:1").exit_code == 0
        assert len(invoke(place, "export").stdout.splitlines()) == 3
    assert invoke.document(place, "drop", "--all", "--because", "old")["dropped"] == 3
    assert invoke.document(place, "dropped")["totals"] == {"dropped": 3}


@pytest.mark.parametrize("column", ["hub", "reason", "dropped_at"])
def test_a_note_that_others_have_changed_hides_no_other(place: Path, column: str) -> None:
    invoke(place, "drop", "--all", "--because", "old")
    for value in TEXT:
        _change(place, column, value, table="leasehold_dropped")
        assert invoke.document(place, "dropped")["totals"] == {"dropped": 3 if column == "reason" else 2}


def test_a_time_before_all_calendars_is_shown_as_the_first(place: Path) -> None:
    _change(place, "rejected_at", "'0001-01-01T00:00:00+14:00'")
    assert "0001-01-01T00:00:00.000Z" in invoke(place, "").stdout


def test_a_reason_of_several_lines_is_chosen_as_it_is_counted(place: Path) -> None:
    _change(place, "reason", "'no customer' || char(10) || '  of the name \"Ada\" is there'")
    counted = "no customer of the name … is there"
    assert counted in {one["reason"] for one in invoke.document(place, "")["reasons"]}
    for text in (counted, "customer of the", "no customer\n  of"):
        found = invoke.document(place, "", "--reason-has", text)
        assert (found["totals"], [row["sequenceNumber"] for row in found["rejected"]]) == ({"rejected": 1}, [1]), text
        assert invoke.document(place, "drop", "--reason-has", text, "--dry-run")["chosen"] == 1
    assert invoke.document(place, "", "--reason-has", "of customer")["totals"] == {"rejected": 0}


def test_more_reasons_than_are_read_at_once_are_counted_all_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = invoke.document(place, "")
    monkeypatch.setattr("leasehold.operations.aside.rejected.MOST_REASONS", 2)
    assert invoke.document(place, "") == found


def test_a_large_file_is_taken_in_one_look(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = invoke(place, "export").stdout.splitlines()
    (place / "mend.jsonl").write_text("\n".join([lines[0].replace('{\\"id\\": 1', "{}"), lines[2]]))
    retry = ("retry", "--from", str(place / "mend.jsonl"), "--dry-run")
    few = invoke.document(place, *retry)
    assert (few["chosen"], few["mended"]) == (2, 1)
    monkeypatch.setattr("leasehold.operations.aside.contract.FEW", 0)
    assert invoke.document(place, *retry) == few


def _change(place: Path, column: str, value: str | bytes, table: str = "flights_rejected") -> None:
    """Write SQL, or bytes, into a column of the second row, as somebody else may."""
    sql, values = ("?", [value]) if isinstance(value, bytes) else (value, [])
    with closing(sqlite3.connect(place / "entities.db")) as database, database:
        database.execute(f"UPDATE {table} SET {column} = {sql} WHERE rowid = 2", values)
