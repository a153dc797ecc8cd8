"""A reset that is killed between its steps: the next start and status say it, and the same reset completes it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.errors import UsageError
from leasehold.hubs.log import LogHub
from leasehold.model import Checkpoint
from leasehold.ownership.starting import check_levels
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.rules.fence import Watermark
from leasehold.stores import PipelineBinding, open_store
from tests.repository import ROOT
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place

FILE = """
name = "flights"
[source]
hub = "log:///hub.db"
[transform]
schema = "tail STRING, status STRING, slot BIGINT"
sql = "SELECT tail, status, slot, hub, partition, sequenceNumber, ownerLevel FROM events"
[ownership]
store = "STORE"
[sink]
url = "TABLE"
table = "flights"
keys = ["tail"]
"""
TABLES = ("leasehold_presence", "leasehold_ownership")
STEPS = {
    "store:rebind_pipeline:1": False,  # nothing is moved, and nothing is said
    "store:update_checkpoints": True,
    "sink:set_watermarks": True,
    "store:rebind_pipeline:2": True,
    "store:relinquish_ownership": False,
}


class Files:
    """Stores and table in SQLite files."""

    def __init__(self, folder: Path) -> None:
        self.store, self.table = f"sqlite:///{folder}/stores.db", f"sqlite:///{folder}/entities.db"
        self._stores = folder / "stores.db"

    def expire(self) -> None:
        """Let the killed reset, which counts as an instance, have expired."""
        with closing(sqlite3.connect(self._stores)) as stores, stores:
            for table in TABLES:
                stores.execute(f"UPDATE {table} SET boot_id = 'an earlier one'")


class OnServer:
    """Both in a schema of a Postgres server."""

    def __init__(self, place: Place) -> None:
        self.store = self.table = place.url
        self._place = place

    def expire(self) -> None:
        """See `Files`."""
        self._place.run(*(f"UPDATE {table} SET last_modified = last_modified - interval '1 day'" for table in TABLES))


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Files | OnServer:
    """Where stores and table are."""
    return Files(tmp_path) if request.param == "sqlite" else OnServer(request.getfixturevalue("place"))


@pytest.mark.more(but=2)
@pytest.mark.parametrize("to", ["earliest", '{"0": 2}'])
@pytest.mark.parametrize(("step", "is_said"), STEPS.items())
def test_what_a_killed_reset_has_left_is_said_and_running_it_again_ends_it(
    databases: Files | OnServer, tmp_path: Path, step: str, is_said: bool, to: str
) -> None:
    file = tmp_path / "flights.toml"
    file.write_text(FILE.replace("STORE", databases.store).replace("TABLE", databases.table))
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in ("0", "1"):
        hub.send([Event(b"{}")] * 5, partition=partition)
    group = hub.consumer_group("$Default")
    store = open_store(databases.store)
    sink = open_sink(databases.table, TableSpec(name="flights", pipeline="flights", keys=("tail",)))
    sink.apply(batch([E(f"{p}{n}", partition=p, number=n, hub=hub.identity) for p in "01" for n in range(5)]))
    sink.set_watermarks(hub.identity, {p: Watermark(4, 1, whole=True) for p in "01"})
    store.raise_owner_level([Checkpoint(group, p, 4, 1) for p in "01"])
    store.bind_pipeline(group, PipelineBinding("flights", sink.identity()))

    def status() -> str | None:
        said = CliRunner().invoke(app, ["status", str(file), "--json"])
        assert said.exit_code == 0, said.stderr
        return json.loads(said.stdout)["reset"]  # type: ignore[no-any-return]

    def start() -> None:
        check_levels(group, store, lambda: sink.watermarks(hub.identity), str(file))

    assert status() is None
    killed = subprocess.run(
        [sys.executable, "-m", "tests.faults.killed_reset", step, str(file), "--to", to],
        cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PATH": ""}, capture_output=True, check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    if is_said:
        command = f"leasehold reset {file} --to {to if to == 'earliest' else repr(to)}"
        assert command in (status() or "")
        with pytest.raises(UsageError, match="has begun and not ended"):
            start()
        checks = CliRunner().invoke(app, ["check", str(file), "--no-spark", "--json"])
        [found] = [one["said"] for one in json.loads(checks.stdout)["checks"] if one["ok"] is False]
        assert command in found
        if to == "earliest":
            assert "run that again first" in reset(databases, file, '{"1": 3}')
    else:
        assert status() is None
        start()
    again = reset(databases, file, to)
    assert again == "", again
    assert status() is None
    start()
    left = {"0": -1, "1": -1} if to == "earliest" else {"0": 1, "1": 4}
    assert {name: mark.sequence_number for name, mark in sink.watermarks(hub.identity).items()} == left
    assert {one.partition: one.sequence_number for one in store.list_checkpoints(group)} == left
    hub.close()
    with closing(sink):
        pass


def reset(databases: Files | OnServer, file: Path, to: str) -> str:
    """Run it, once the killed one has expired; what it says."""
    databases.expire()
    return CliRunner().invoke(app, ["reset", str(file), "--to", to]).stderr
