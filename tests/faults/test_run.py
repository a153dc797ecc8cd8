"""`leasehold run`, `status` and `reset` as commands: rejected events, refusals at the start, repairs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.stores.sqlite.store import SqliteStore
from tests.faults.hub_kinds import EventHubs, Kafka, Log
from tests.faults.instance import PATIENCE
from tests.faults.place import FENCE, Place

pytestmark = pytest.mark.timeout(1200)

HUBS = (
    pytest.param(Log, id="log"),
    pytest.param(EventHubs, id="eventhubs", marks=pytest.mark.soak),
    pytest.param(Kafka, id="kafka", marks=pytest.mark.soak),
)
NEVER_ZERO = f"{FENCE}, IF(n > 0, n, CAST(raise_error('never zero') AS BIGINT)) AS checked"
"""The columns of the fence, and one that cannot be computed for an event whose n is 0."""
OF_JAVA = ("WARNING: Using incubator modules: jdk.incubator.vector",)
"""What Java writes before it has read any setting."""


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind = getattr(request, "param", Log)(tmp_path, 2)
    yield Place(tmp_path, kind)
    kind.close()


@pytest.mark.more  # tests/spark/test_runs_of_files.py runs files in one session
@pytest.mark.parametrize("place", HUBS, indirect=True)
def test_rejected_events_refusals_and_repairs(place: Place) -> None:
    connection = sqlite3.connect(place.folder / "table.db")
    connection.execute("CREATE TABLE entities (id TEXT NOT NULL PRIMARY KEY, n INTEGER CHECK (n < 100))")
    connection.close()
    place.send("0", '{"id":"a","n":1}', "oops", '{"id":"a","n":500}', '{"id":"b","n":"x"}', '{"id":"b","n":2}')
    place.send("1", '{"id":null,"n":1}', '{"id":"c","n":3}', '{"id":"c","n":4}')
    account = place.run()
    assert (account["applied"], account["rejected"]) == (4, 4)
    assert place.query("SELECT id, n FROM entities ORDER BY id") == [("a", 1), ("b", 2), ("c", 4)]
    rejected = place.query("SELECT partition, sequence_number, body, reason FROM entities_rejected ORDER BY 1, 2")
    assert [(p, n) for p, n, _, _ in rejected] == [("0", 1), ("0", 2), ("0", 3), ("1", 0)]
    assert rejected[0][2] == b"oops"
    assert str(rejected[0][3]).startswith("the body is not a JSON object")
    assert "CHECK" in str(rejected[1][3])
    assert str(rejected[2][3]).startswith("the field n ")
    assert "id" in str(rejected[3][3])

    status = place.command("status", "p.toml", "--json")
    assert json.loads(status.stdout)["lag"] == 0
    first = place.command("status", "p.toml").stdout.splitlines()[1].split()
    assert first[:-1] == ["0", "-", "1", "-", "5", "5", "0", "-"]
    assert first[-1] == ("never" if isinstance(place.kind, Log) else "unknown"), "when retention removes what is unread"

    # A second pipeline on the group.
    place.write(name="second")
    assert "belongs to the pipeline 'first'" in place.refused("run", "p.toml")
    place.write()

    # The table's database was deleted: refused, until the group is set back.
    for path in place.folder.glob("table.db*"):
        path.unlink()
    said = place.refused("run", "p.toml")
    assert "its database was deleted" in said
    assert "leasehold reset p.toml --to earliest" in said
    assert place.command("reset", "p.toml", "--to", "earliest").returncode == 0
    assert place.run()["applied"] == 5  # without the CHECK, 500 is in order
    assert place.query("SELECT id, n FROM entities ORDER BY id") == [("a", 500), ("b", 2), ("c", 4)]

    # The stores were wiped: refused, until they follow the table.
    for path in place.folder.glob("stores.db*"):
        path.unlink()
    said = place.refused("run", "p.toml")
    assert "leasehold reset p.toml --to sink" in said
    moved = place.command("reset", "p.toml", "--to", "sink", "--json")
    assert [entry["after"] for entry in json.loads(moved.stdout)["partitions"]] == [5, 3]

    # An event that cannot be computed is rejected, and the log says which.
    place.send("1", '{"id":"d","n":9}', '{"id":"e","n":0}')
    place.write(fence=NEVER_ZERO, order='schema_evolution = "add"')
    done = place.command("run", "p.toml", "--available-now", "--json", "--log-format", "json", "--owner-id", "blue")
    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert (account["applied"], account["replayed"], account["rejected"]) == (1, 0, 1)
    assert place.query("SELECT id, n FROM entities WHERE id >= 'd'") == [("d", 9)]
    check_log([json.loads(line) for line in done.stderr.splitlines() if line not in OF_JAVA])
    computed = "SELECT sequence_number, body, reason FROM entities_rejected WHERE reason LIKE '%never zero%'"
    [(number, body, _)] = place.query(computed)
    assert (number, body) == (4, b'{"id":"e","n":0}')


def check_log(lines: list[dict[str, Any]]) -> None:
    """What a run says of one event that cannot be computed: who, where, in which batch."""
    [rejected] = [line for line in lines if "cannot be computed:" in line["message"]]
    assert (rejected["log.level"], rejected["leasehold.partition"]) == ("warning", "1")
    assert rejected["leasehold.batch.id"]
    assert {line.get("leasehold.owner.id", "")[:5] for line in lines} == {"", "blue/"}
    assert {"ownership-claimed", "ownership-relinquished"} <= {line.get("event.action") for line in lines}
    assert "starting Spark" in [line["message"] for line in lines]


@pytest.mark.soak  # in `make test` tests/spark/test_runs_of_files.py
@pytest.mark.parametrize("place", HUBS, indirect=True)
def test_a_run_that_is_to_stop_at_errors_names_the_batch(place: Place) -> None:
    place.send("1", '{"id":"a","n":1}', '{"id":"b","n":2}', '{"id":"c","n":0}')
    place.write(fence=NEVER_ZERO, on_error="stop")
    said = place.refused("run", "p.toml", "--available-now")
    assert "never zero" in said
    assert "(batch: partition 1 [0, 3))" in said
    assert place.query("SELECT * FROM entities") == []


@pytest.mark.soak
def test_another_order_is_refused_until_all_is_read_anew(place: Place) -> None:
    """And what was rejected is there once, however often it is read."""

    def rejected() -> list[tuple[object, ...]]:
        return place.query("SELECT partition, sequence_number, place, body FROM entities_rejected ORDER BY 1, 2, 3")

    place.write(order='sequence_by = "n"')
    place.send("0", '{"id":"a","n":1}', '{"id":"a","n":5}', "oops", '{"id":"a","n":3}', '{"id":null,"n":3}')
    assert place.run()["superseded"] == 1
    assert place.query("SELECT id, n FROM entities") == [("a", 5)]
    before = rejected()
    assert [row[:2] for row in before] == [("0", 2), ("0", 4)]

    place.write(order='sequence_by = "-n"')
    said = place.refused("run", "p.toml", "--available-now")
    assert "has been ordered by n so far, and is to be by -n" in said
    assert "--to earliest" in said
    assert place.query("SELECT id, n FROM entities") == [("a", 5)]
    assert place.command("reset", "p.toml", "--to", "earliest").returncode == 0
    account = place.run()
    assert (account["superseded"], account["rejected"]) == (2, 2)
    assert place.query("SELECT id, n FROM entities") == [("a", 1)]
    assert rejected() == before


@pytest.mark.soak  # in `make test` test_transform and test_checking of tests/spark
def test_what_cannot_work_is_refused_before_anything_is_read(place: Place) -> None:
    place.send("0", '{"id":"a","n":1}')
    place.write(fence="hub, partition, sequenceNumber")
    assert "ownerLevel" in place.refused("run", "p.toml")
    place.write(fence=f"{FENCE}, count(*) OVER (PARTITION BY partition) c")
    assert "Window, which looks at more than one row" in place.refused("run", "p.toml")
    connection = sqlite3.connect(place.folder / "table.db")
    connection.execute("CREATE TABLE entities (id TEXT PRIMARY KEY, m INTEGER NOT NULL)")
    connection.close()
    place.write()
    said = place.refused("run", "p.toml")
    assert "n" in said
    assert "m" in said
    assert place.query("SELECT * FROM entities") == []


@pytest.mark.more
def test_whoever_listens_may_leave(place: Place) -> None:
    """As in `leasehold run … 2>&1 | head -1`: the run goes on to its end, and gives up what it holds."""
    place.send("0", '{"id":"a","n":1}', "oops")
    run = subprocess.Popen(
        [sys.executable, "-m", "leasehold.cli.app", "run", "p.toml", "--available-now"],
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **place.kind.environment},
    )
    assert run.stdout is not None
    run.stdout.close()
    assert run.wait(timeout=PATIENCE) in (0, 1), "1: the account could not be printed"
    assert place.query("SELECT id, n FROM entities") == [("a", 1)]
    listed = SqliteStore(place.folder / "stores.db").list_ownership(place.kind.hub.consumer_group("$Default"))
    assert [record.owner_id for record in listed.records] == ["", ""]


@pytest.mark.soak
def test_what_a_producer_sends_twice_is_applied_once(place: Place) -> None:
    """By a column that the transform drops; a replay after a reset finds the same firsts."""
    text = (place.folder / "p.toml").read_text()
    text = text.replace("[ownership]", 'deduplicate_by = "substring(id, 1, 1)"\ndeduplicate_for = "1h"\n[ownership]')
    (place.folder / "p.toml").write_text(text)
    place.send("0", *(f'{{"id":"{key}{n}","n":{n}}}' for n, key in enumerate("aabca")), "oops", "oops")
    place.send("1", '{"id":"c9","n":9}', '{"id":"d9","n":9}')
    account = place.run()
    assert (account["applied"], account["duplicates"], account["rejected"]) == (4, 3, 2)
    before = place.query("SELECT id, n FROM entities ORDER BY id")
    assert place.command("reset", "p.toml", "--to", "earliest").returncode == 0
    account = place.run()
    assert (account["applied"], account["duplicates"], account["rejected"]) == (4, 3, 2)
    assert place.query("SELECT id, n FROM entities ORDER BY id") == before
    # What is rejected is kept for a millisecond from now on, and what the hub has removed is left out, and counted.
    text = (place.folder / "p.toml").read_text().replace("[spark]", 'rejected_retention = "1ms"\n[spark]')
    (place.folder / "p.toml").write_text(text.replace("[source]", "[source]\nfail_on_data_loss = false"))
    place.send("0", '{"id":"gone","n":1}')
    assert isinstance(place.kind.hub, LogHub)
    place.kind.hub.retain(max_bytes=0)
    place.send("0", '{"id":"e1","n":1}')
    account = place.run()
    assert (account["applied"], account["lost"]) == (1, 1)
    assert place.query("SELECT * FROM entities_rejected") == []
