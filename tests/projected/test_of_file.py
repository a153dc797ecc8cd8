"""Pipeline files whose transform only picks columns, in a plain process: what they do, and what is refused."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.errors import ConfigError, SchemaMismatch
from leasehold.hubs.log import LogHub
from leasehold.processors import projected_processor
from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.debezium_events import UNAVAILABLE, envelope, written
from tests.projected.debezium_flights import write_debezium
from tests.projected.flights import (
    avro_bodies,
    bodies,
    contents,
    contents_of,
    registered,
    registered_start,
    send,
    write,
    write_registered,
)
from tests.repository import ROOT
from tests.waiting import PATIENCE, until


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return LogHub.create(tmp_path / "hub.db", partitions=2)


def run(file: Path, *more: str) -> dict[str, Any]:
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json", *more])
    assert said.exit_code == 0, said.output
    account: dict[str, Any] = json.loads(said.stdout)
    return account


def event(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_rows_are_picked_renamed_deleted_and_rejected(tmp_path: Path, hub: LogHub) -> None:
    sent = [
        event(id="a", delay=1, op="u", at=7, paid="2.50", day="2026-02-03", note="x"),
        event(id="b", delay=2, op="u"),
        event(id="b", delay=3, op="d"),
        event(id="c", delay="late"),
        event(id="a", delay=4, op="u"),
    ]
    hub.send([Event(body) for body in sent], partition="0")
    account = run(write(tmp_path))
    assert (account["read"], account["rejected"]) == (5, 1)
    found = contents(tmp_path)
    names = ["id", "late", "op", "AT", "amount paid", "day", "seen", "rest", "told", "raw", "sequenceNumber"]
    assert found["columns"] == names
    ((*row, raw, number),) = found["rows"]
    assert (row[:3], raw, number) == (["a", 4.0, "u"], sent[4], 4)
    ((_, place, reason, body),) = found["rejected"]
    assert (place, body) == (3, sent[3])
    assert "the field delay" in reason
    hub.send([Event(event(id="a", delay=5, op="u"))], partition="0")
    assert run(write(tmp_path))["read"] == 1
    assert contents(tmp_path)["rows"][0][1] == 5.0


def test_a_registry_that_is_away_is_waited_for(tmp_path: Path, hub: LogHub) -> None:
    dice = Random(59)
    with closing(RegistryServer()) as server:
        port, parts = server.port, registered(server, dice, avro_bodies(dice, 40))
    send(hub, parts, registered_start)
    file = write_registered(tmp_path, f"http://127.0.0.1:{port}")
    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold", "run", str(file), "--no-spark", "--available-now", "--json"],
        env=dict(os.environ, PYTHONPATH=str(ROOT / "src")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "does not answer" in line)
        assert f"http://127.0.0.1:{port}" in said
        with closing(RegistryServer(port)) as server:
            registered(server, Random(59), [])
            account, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert json.loads(account)["read"] == 40
    assert contents(tmp_path)["rows"]


def test_the_later_one_by_sequence_by_counts_and_what_was_sent_twice_is_dropped(tmp_path: Path, hub: LogHub) -> None:
    file = write(
        tmp_path,
        delete_when='sequence_by = "AT"',
        hub='hub = "log:///hub.db"\ndeduplicate_by = "op"\ndeduplicate_for = "1h"',
    )
    for partition, at, op in (("0", 5, "x"), ("1", 3, "y"), ("1", 9, "x"), ("0", 4, "z")):
        hub.send([Event(event(id="a", at=at, op=op))], partition=partition)
        run(file)
    assert contents(tmp_path)["rows"][0][2:4] == ("x", 5)


def test_what_is_old_beside_the_table_is_cleared(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path, keep='rejected_retention = "1s"')
    hub.send([Event(b"no JSON"), Event(event(id="a", op="u"))], partition="0")
    assert run(file)["rejected"] == 1

    def cleared() -> bool:
        run(file)
        with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
            return connection.execute("SELECT 1 FROM flights_rejected").fetchall() == []

    until(cleared, "the rejected row to be old and gone")


def test_a_start_goes_on_where_all_that_was_left_is_gone_from_the_hub(tmp_path: Path, hub: LogHub) -> None:
    """The checkpoint does not pass the table, so that nothing looks as if the table had been taken back."""
    file = write(tmp_path, hub='hub = "log:///hub.db"\nfail_on_data_loss = false')
    ids = ["a", "b", "c"]
    for identity in ids:
        hub.send([Event(event(id=identity, op="u"))], partition="0")
        if identity == "b":
            hub.retain(max_age=0)
        account = run(file)
        assert (account["read"], account["lost"]) == {"a": (1, 0), "b": (0, 1), "c": (1, 1)}[identity]
        run(file)  # nothing is new, and nothing is refused
    assert [row[0] for row in contents(tmp_path)["rows"]] == ["a", "c"]


def test_all_columns_and_append_without_a_schema(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path, schema="", rescue="", sql="", keys='mode = "append"', keep="", delete_when="")
    hub.send([Event(b"\xff anything", partition_key="k", properties={"a": "b"})])
    run(file)
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        (row,) = connection.execute('SELECT body, "partitionKey", properties FROM flights').fetchall()
    assert row == (b"\xff anything", "k", '{"a":"b"}')


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"sql": 'sql = "SELECT upper(id) AS id FROM events"\n'}, "transform.sql", "which is more than a column"),
        ({"sql": 'python = "module:function"\n'}, "transform.python", "a process without Spark"),
        ({"delete_when": 'delete_when = "late > 3"'}, "sink.delete_when", "which is more than a column"),
        ({"delete_when": 'delete_when = "op"'}, "sink.delete_when", "and not a condition"),
        ({"delete_when": 'delete_when = "delay = 3"'}, "sink.delete_when", "delay is no column; these are: id, late"),
        ({"delete_when": 'when = "op"'}, "sink.when", "and not a condition"),
        ({"delete_when": 'when = "lat = 3"'}, "sink.when", "lat is no column; these are: id, late"),
        ({"delete_when": 'only_columns = ["late"]'}, "sink.only_columns", "id is a key, and not among them"),
        ({"delete_when": 'only_columns = ["id"]\nexcept_columns = ["op"]'}, "sink.except_columns", "says already"),
        ({"delete_when": 'sequence_by = "at + 1"'}, "sink.sequence_by", "which is more than a column"),
        ({"delete_when": 'sequence_by = "`amount paid`"'}, "sink.sequence_by", "a column of whole numbers, floating"),
        ({"delete_when": "sequence_by = \"op = 'u'\""}, "sink.sequence_by", "a column of whole numbers, floating"),
        (
            {"sql": 'sql = "SELECT id, hub, partition FROM events"\n'},
            "transform.sql",
            "columns sequenceNumber, ownerLevel",
        ),
        ({"sql": 'sql = "SELECT *, hub FROM events"\n'}, "transform.sql", "hub occurs twice"),
        (
            {"delete_when": '[spark]\n"spark.sql.caseSensitive" = true'},
            "spark.spark.sql.caseSensitive",
            "what SQL means",
        ),
        ({"schema": 'schema = "id STRING, tags ARRAY<STRING>"'}, "transform.schema", "columns are flat"),
        ({"schema": 'schema = "id STRING, Hub STRING"'}, "transform.schema", "occurs twice"),
        (
            {"hub": 'hub = "log:///hub.db"\ndeduplicate_by = "delay"\ndeduplicate_for = "1h"'},
            "source.deduplicate_by",
            "a column of text or whole numbers",
        ),
    ],
)
def test_what_takes_spark_is_refused_by_its_key(
    tmp_path: Path, hub: LogHub, changes: dict[str, str], field: str, why: str
) -> None:
    file = write(tmp_path, **changes)
    with pytest.raises(ConfigError, match=why) as caught:
        projected_processor(file)
    assert caught.value.field == f"{file}: {field}"


def test_a_table_takes_its_rows_and_columns_of_a_stream(tmp_path: Path, hub: LogHub) -> None:
    """Rows of others are left out as by the transform; what cannot be read might be anybody's, and is set aside."""
    sent = [event(id="a", delay=1, op="u", at=1), event(id="b", op="d"), event(id="c"), event(id="a", delay=4, op="d")]
    hub.send([Event(body) for body in [*sent, b"no row"]], partition="0")
    account = run(write(tmp_path, delete_when='when = "op = \'u\'"\nonly_columns = ["Late", "id"]\nsequence_by = "at"'))
    assert (account["read"], account["filtered"], account["applied"], account["rejected"]) == (5, 3, 1, 1)
    found = contents(tmp_path)
    assert (found["columns"], found["rows"]) == (["id", "late", "sequenceNumber"], [("a", 1.0, 0)])


def test_a_column_that_the_table_is_to_store_and_nobody_gives_is_named(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path, delete_when='only_columns = ["id", "wind"]')
    with pytest.raises(SchemaMismatch, match="wind: only_columns names it, and no such column is to be written"):
        projected_processor(file)


def test_changes_of_a_database_become_its_rows(tmp_path: Path, hub: LogHub) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "op": "x", "delay": 1},
        {"id": "b"},
        {"id": "a", "op": UNAVAILABLE, "delay": 2},
    ]
    changes = [envelope("c", after=row) for row in rows]
    changes += [envelope("d", before={"id": "b"}), envelope("t"), envelope("m")]
    hub.send([Event(written(change)) for change in changes], partition="0")
    account = run(write_debezium(tmp_path))
    assert (account["read"], account["rejected"]) == (6, 1)
    found = contents(tmp_path)
    assert "__deleted" not in found["columns"]
    assert [row[:3] for row in found["rows"]] == [("a", 2.0, "x")]
    assert ["a truncation" in reason for _, _, reason, _ in found["rejected"]] == [True]


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"sql": 'sql = "SELECT id, hub, partition, sequenceNumber, ownerLevel FROM events"\n'}, "sink.delete_when",
         "__deleted is no column"),
        ({"delete_when": 'rejected_retention = "7d"'}, "sink.rejected_retention", "which values of a row are in doubt"),
        ({"delete_when": 'sequence_by = "__source_lsn"'}, "sink.sequence_by", "not in the order of a row's changes"),
        ({"rescue": 'format = "debezium"\nenvelope = "cloudevents"'}, "transform.envelope", "an envelope by itself"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_changes_is_refused_by_its_key(
    tmp_path: Path, hub: LogHub, changes: dict[str, str], field: str, why: str
) -> None:
    file = write_debezium(tmp_path, **changes)
    with pytest.raises(ConfigError, match=why) as caught:
        projected_processor(file)
    assert caught.value.field == f"{file}: {field}"


def test_check_compares_what_the_projection_gives_with_the_table(tmp_path: Path, hub: LogHub) -> None:
    def checked(*more: str) -> tuple[int, str]:
        said = CliRunner().invoke(app, ["check", str(write(tmp_path)), "--no-spark", *more])
        return said.exit_code, said.output

    code, said = checked()
    assert (code, "flights can start" in said, "not looked at without Spark" in said) == (0, True, False)
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        connection.execute("CREATE TABLE flights (id TEXT PRIMARY KEY, late REAL)")
    code, said = checked()
    assert (code, "amount paid" in " ".join(said.split())) == (1, True)


def changed(place: Path, before: Any) -> bool:
    return bool(contents_of(place) != before)


def test_columns_are_compared_whatever_rule_takes_spark(tmp_path: Path, hub: LogHub) -> None:
    """A run on Spark may delete by any expression: what its rows have is known all the same."""
    file = write(tmp_path, delete_when='delete_when = "late > 3"')
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        connection.execute("CREATE TABLE flights (id TEXT PRIMARY KEY)")
    said = CliRunner().invoke(app, ["check", str(file), "--no-spark"])
    assert (said.exit_code, "amount paid" in " ".join(said.output.split())) == (1, True)


@pytest.mark.more
@pytest.mark.parametrize("seed", [1, 2])
def test_two_processes_one_killed_again_and_again_leave_what_one_run_leaves(tmp_path: Path, seed: int) -> None:
    """Each entity's rows, every rejected body, and no event twice."""
    rng = Random(seed)
    sent = bodies(rng, 4_000)
    answer, place = tmp_path / "answer", tmp_path / "place"
    for folder in (answer, place):
        folder.mkdir()
        write(folder)
    send(LogHub.create(answer / "hub.db", partitions=4), sent)
    run(answer / "flights.toml")
    hub = LogHub.create(place / "hub.db", partitions=4)
    command = [sys.executable, "-m", "leasehold", "run", str(place / "flights.toml"), "--no-spark"]
    env = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
    settings = ["--set", "ownership.partition_expiration=6s"]  # expires: whoever is killed is outwaited
    running: list[subprocess.Popen[bytes]] = []
    try:
        for first in range(0, 4_000, 1_000):
            running.append(subprocess.Popen([*command, *settings], env=env))
            before = contents_of(place)
            send(hub, sent[first : first + 1_000])
            until(partial(changed, place, before), "somebody to be at work")
            if len(running) > 1:
                victim = running.pop(0)
                victim.kill()
                victim.wait()
        until(lambda: contents_of(place) == contents_of(answer), "the same rows as in one run", 2 * PATIENCE)
    finally:
        for process in running:
            process.kill()
            process.wait()
