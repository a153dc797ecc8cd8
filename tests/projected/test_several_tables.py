"""Pipeline files that fill several tables, in plain processes: what they do, what commands say, and what is refused."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.errors import ConfigError
from leasehold.hubs.log import LogHub
from leasehold.operations.rights import uses_of
from leasehold.pipeline_file import read_pipeline_file
from leasehold.processors import projected_processor
from tests.projected.shop import FILE, answer, bodies, contents, send, write
from tests.repository import ROOT
from tests.waiting import PATIENCE, until


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return LogHub.create(tmp_path / "hub.db", partitions=2)


def command(*words: str, code: int = 0) -> str:
    said = CliRunner().invoke(app, [*words])
    assert said.exit_code == code, said.output
    return said.output


def run(file: Path, *more: str) -> dict[str, Any]:
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json", *more])
    assert said.exit_code == 0, said.output
    account: dict[str, Any] = json.loads(said.stdout)
    return account


def test_each_table_has_its_rows_and_an_event_counts_once(tmp_path: Path, hub: LogHub) -> None:
    sent = bodies(Random(59), 300)
    send(hub, sent)
    account = run(write(tmp_path))
    found, expected = contents(tmp_path), answer(sent)
    assert dict(found["orders"]) == expected["orders"]
    assert dict(found["customers"]) == expected["customers"]
    unread = {tuple(place) for *place, reason in found["log_rejected"]}
    assert unread
    assert len(found["log"]) == 300 - len(unread)
    assert unread <= {tuple(place) for *place, reason in found["customers_rejected"]}
    assert (account["read"], account["used"]) == (300, 300)
    rows = sum(len(found[f"{name}_rejected"]) for name in ("orders", "customers", "log"))
    assert account["rejected"] == rows
    assert run(write(tmp_path))["read"] == 0


def test_commands_say_which_table(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path)
    rows = [
        {"kind": "order", "id": 1, "total": 2.5},
        {"kind": "order", "id": None},
        {"kind": "customer", "id": 1, "at": 1},
    ]
    hub.send([Event(json.dumps(row).encode()) for row in rows], partition="0")
    said = command("check", str(file), "--no-spark")
    for name in ("orders", "customers", "log"):
        assert f"the table {name} can be made of these columns" in " ".join(said.split())
    run(file)
    status = json.loads(command("status", str(file), "--json"))
    assert (status["rejected"], status["rejectedOf"]) == (1, {"orders": 1, "customers": 0, "log": 0})
    assert "1 rejected row: 1 of orders" in command("status", str(file))
    assert "Name one of them" in command("rejected", str(file), code=1)
    assert "the key id is null" in command("rejected", str(file), "--table", "orders")
    assert "no rejected rows" in command("rejected", str(file), "--table", "log")
    assert "the tables of" in command("rejected", str(file), "--table", "Orders", code=1)
    dropped = command("rejected", "drop", str(file), "--table", "orders", "--all", "--because", "no id")
    assert "1 rejected row dropped" in dropped
    assert "1 key and 0 rejected rows forgotten" in command("forget", str(file), "--table", "orders", "--key", "1")
    assert "Name one of them" in command("forget", str(file), "--key", "1", code=1)


def test_an_event_is_skipped_at_every_table(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path)
    hub.send([Event(b'{"kind": "order", "id": 1}')], partition="0")
    run(file)
    hub.send([Event(b'{"kind": "order", "id": 2}'), Event(b'{"kind": "order", "id": 3}')], partition="0")
    assert "will be skipped" in command("skip", str(file), "--event", "0:1", "--because", "a test")
    assert "skipped already" in command("skip", str(file), "--event", "0:1", "--because", "a test")
    account = run(file)
    assert (account["read"], account["skipped"], account["used"]) == (2, 1, 1)
    found = contents(tmp_path)
    assert ([row[0] for row in found["orders"]], [row[1] for row in found["log"]]) == ([1, 3], [1, 3])
    assert all(len(found[f"{name}_rejected"]) == 1 for name in ("orders", "customers", "log"))


def test_a_reset_reads_again_for_all_of_them(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path, FILE.replace('mode = "append"', 'keys = ["id"]'))
    sent = [body for body in bodies(Random(7), 80) if b'"gone"' in body]
    send(hub, sent)
    run(file)
    before = contents(tmp_path)
    command("reset", str(file), "--to", "earliest")
    assert run(file)["read"] == len(sent)
    assert contents(tmp_path) == before


def test_a_reset_is_refused_where_one_of_them_would_append_events_twice(tmp_path: Path, hub: LogHub) -> None:
    file = write(tmp_path)
    hub.send([Event(b'{"kind": "order", "id": 1}')], partition="0")
    run(file)
    before = contents(tmp_path)
    assert "would append them twice" in command("reset", str(file), "--to", "earliest", code=1)
    run(file)
    assert contents(tmp_path) == before


def test_a_table_that_was_taken_out_for_a_while_reads_what_it_lacks(tmp_path: Path, hub: LogHub) -> None:
    sent = bodies(Random(3), 60)
    without = FILE[: FILE.index('[[sink]]\ntable = "customers"')] + FILE[FILE.index('[[sink]]\ntable = "log"') :]
    for text, part in ((FILE, sent[:20]), (without, sent[20:40])):
        send(hub, part)
        run(write(tmp_path, text))
    send(hub, sent[40:])
    file = write(tmp_path)
    said = command("run", str(file), "--no-spark", "--available-now", code=1)
    assert "reset PIPELINE.toml --to sink" in said
    command("reset", str(file), "--to", "sink")
    run(file)
    found, expected = contents(tmp_path), answer(sent)
    assert (dict(found["orders"]), dict(found["customers"])) == (expected["orders"], expected["customers"])
    assert len(found["log"]) + len(found["log_rejected"]) == 60


def test_a_row_refers_to_one_of_a_table_before_its_own(tmp_path: Path, hub: LogHub) -> None:
    """In the order of the file. What COMMIT refuses is told with the names of all tables."""
    one, other = 'table = "orders"', 'table = "customers"'
    file = write(tmp_path, FILE.replace(one, 'table = "b"').replace(other, 'table = "a"'))
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        connection.execute("CREATE TABLE b (id INTEGER PRIMARY KEY, total REAL)")
        connection.execute("CREATE TABLE a (id INTEGER PRIMARY KEY REFERENCES b, name TEXT)")
    hub.send([Event(b'{"kind": "customer", "id": 1, "at": 1}'), Event(b'{"kind": "order", "id": 1}')], partition="0")
    assert run(file)["rejected"] == 0
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        assert connection.execute("SELECT a.id FROM a JOIN b USING (id)").fetchall() == [(1,)]
        connection.execute("CREATE TABLE c (id INTEGER PRIMARY KEY REFERENCES nobody DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("CREATE TABLE nobody (id INTEGER PRIMARY KEY)")
    file.write_text(file.read_text() + '[[sink]]\ntable = "c"\nkeys = ["id"]\nonly_columns = ["id"]\n')
    hub.send([Event(b'{"kind": "order", "id": 2}')], partition="0")
    said = command("run", str(file), "--no-spark", "--available-now", code=1)
    assert "one transaction on the tables b, a, log, c" in " ".join(said.split())
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        assert connection.execute("SELECT id FROM b").fetchall() == [(1,)]


def test_each_table_has_rights_of_its_own(tmp_path: Path) -> None:
    uses = [use.table for its in uses_of(read_pipeline_file(write(tmp_path))).values() for use in its if use.table]
    assert [(one.spec.name, one.deletes) for one in uses] == [("orders", True), ("customers", False), ("log", False)]


BESIDE = '[[sink]]\ntable = "more"\nkeys = ["id"]\n'


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        (FILE + '[[sink]]\ntable = "ORDERS"\nkeys = ["id"]', "sink[4].table", "it is named before"),
        (FILE + BESIDE + 'url = "sqlite:///other.db"', "sink[4].url", "one transaction, and have one database"),
        (FILE + BESIDE.replace('"more"', '"crm.more"'), "sink[4].table", "are in one schema"),
        (FILE + BESIDE + 'handler = "m:f"\nstate = "id INT"', "sink[4].handler", "a handler fills one table"),
        (FILE + BESIDE + 'modes = "append"', "", "sink[4].modes: is not a key"),
        (FILE + BESIDE + 'only_columns = ["name"]', "sink[4].only_columns", "id is a key"),
        (FILE + BESIDE + 'when = "kin = 1"', "sink[4].when", "kin is no column"),
        (FILE.replace('[[sink]]\nurl = "sqlite:///entities.db"', "[[sink]]"), "", "sink[1].url: is missing"),
        (FILE + BESIDE + 'keep = ["${NOPE}"]', "sink[4].keep", "NOPE"),
        ("sink = []\n" + FILE.partition("[[sink]]")[0], "", "sink: is missing"),
        (FILE.partition("[[sink]]")[0].replace("[source]", "sink = [1]\n[source]"), "", "sink[1]: must be a section"),
    ],
    ids=["twice", "url", "schema", "handler", "unknown", "key", "when", "no url", "no variable", "none", "no section"],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_by_its_key(
    tmp_path: Path, hub: LogHub, text: str, field: str, why: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        projected_processor(file)
    assert why in str(caught.value)
    assert caught.value.field == (f"{file}: {field}" if field else str(file))


def test_a_setting_of_the_command_line_goes_to_each_table(tmp_path: Path, hub: LogHub) -> None:
    file = read_pipeline_file(write(tmp_path), settings={"sink.url": "sqlite:///other.db"})
    assert {one.url for one in file.sinks} == {"sqlite:///other.db"}
    with pytest.raises(ConfigError, match="knows no keys") as caught:
        read_pipeline_file(write(tmp_path), settings={"sink.keys": "id"})
    assert caught.value.field.endswith("sink[3].keys")


@pytest.mark.more
@pytest.mark.parametrize("seed", [1, 2])
def test_two_processes_one_killed_again_and_again_leave_what_one_run_leaves(tmp_path: Path, seed: int) -> None:
    """In all tables; and at each moment all of them have the rows of the same events."""
    sent = bodies(Random(seed), 3_000)
    answer_of, place = tmp_path / "answer", tmp_path / "place"
    for folder in (answer_of, place):
        folder.mkdir()
        write(folder)
    send(LogHub.create(answer_of / "hub.db", partitions=4), sent)
    run(answer_of / "shop.toml")
    hub = LogHub.create(place / "hub.db", partitions=4)
    words = [sys.executable, "-m", "leasehold", "run", str(place / "shop.toml"), "--no-spark"]
    settings = ["--set", "ownership.partition_expiration=6s"]  # expires: whoever is killed is outwaited
    running: list[subprocess.Popen[bytes]] = []

    def grown(before: dict[str, list[Any]]) -> bool:
        now = contents(place)
        if now:
            kinds = {(one, name) for name, one, *_ in now["log"]}
            assert {("customer", key) for key, *_ in now["customers"]} <= {(name, one) for one, name in kinds}
            assert {("order", key) for key, *_ in now["orders"]} <= {(name, one) for one, name in kinds}
        return now != before

    try:
        for first in range(0, 3_000, 1_000):
            running.append(subprocess.Popen([*words, *settings], env=dict(os.environ, PYTHONPATH=str(ROOT / "src"))))
            before = contents(place)
            send(hub, sent[first : first + 1_000])
            until(lambda before=before: grown(before), "somebody to be at work")  # type: ignore[misc]
            if len(running) > 1:
                victim = running.pop(0)
                victim.kill()
                victim.wait()
        until(lambda: contents(place) == contents(answer_of), "the same rows as in one run", 2 * PATIENCE)
    finally:
        for process in running:
            process.kill()
            process.wait()
