"""`leasehold reset`: what a place may be, and which partitions are set. More of what it does is in `tests/faults`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.hubs import open_hub
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Checkpoint
from leasehold.sinks import open_sink
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.stores import open_store
from leasehold_testkit.contracts.hubs.fixtures import numbered
from tests.cli.set_aside import PIPELINE
from tests.hubs.kafka_cluster import Cluster
from tests.sinks.events import E, batch


@pytest.mark.parametrize("to", ["erliest", "committed", '{"0": "committed"}', '{"0": 1, "*": "sink"}'])
def test_a_place_that_is_none_is_answered_with_those_there_are(tmp_path: Path, to: str) -> None:
    (tmp_path / "flights.toml").write_text(PIPELINE)
    said = CliRunner().invoke(app, ["reset", str(tmp_path / "flights.toml"), "--to", to])
    assert said.exit_code == 1
    assert "a position is earliest, latest, a sequence number or an ISO 8601 timestamp" in said.stderr
    assert "Or sink, alone" in said.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["flights.toml"]


@pytest.mark.usefixtures("patient_kafka")
@pytest.mark.parametrize("kind", ["log", "kafka"])
def test_partitions_that_are_not_named_stay(tmp_path: Path, cluster: Cluster, kind: str) -> None:
    if kind == "log":
        LogHub.create(tmp_path / "hub.db", partitions=3).close()
    url = f"log:///{tmp_path}/hub.db" if kind == "log" else cluster.url(cluster.topic(3))
    (tmp_path / "flights.toml").write_text(PIPELINE.replace("log:///hub.db", url).replace('"id"', '"tail"'))
    spec = TableSpec(name="flights", pipeline="flights", keys=("tail",))
    with closing(open_hub(url)) as hub:
        for partition in ("0", "1", "2"):
            hub.send(numbered(10), partition=partition)
        identity, group = hub.identity, hub.consumer_group("$Default")
    table = open_sink(f"sqlite:///{tmp_path}/entities.db", spec)
    events = [E(f"{p}/{number}", partition=p, number=number, hub=identity) for p in "012" for number in range(10)]
    assert table.apply(batch(events)).applied == 30
    store = open_store(f"sqlite:///{tmp_path}/leasehold.db")
    store.raise_owner_level([Checkpoint(group, partition, 9, 1) for partition in "012"])

    def reset(to: str) -> list[tuple[str, int, int]]:
        said = CliRunner().invoke(app, ["reset", str(tmp_path / "flights.toml"), "--to", to, "--json"])
        assert said.exit_code == 0, said.stderr
        return [tuple(row.values()) for row in json.loads(said.stdout)["partitions"]]

    def places() -> dict[str, tuple[int, int]]:
        """By partition: the checkpoint, and the table's watermark."""
        checkpoints = {one.partition: one.sequence_number for one in store.list_checkpoints(group)}
        return {
            partition: (checkpoints[partition], mark.sequence_number)
            for partition, mark in table.watermarks(identity).items()
        }

    assert reset('{"1": 4}') == [("1", 10, 4)]
    assert places() == {"0": (9, 9), "1": (3, 3), "2": (9, 9)}
    assert reset('{"1": 6, "*": "earliest"}') == [("0", 10, 0), ("1", 4, 6), ("2", 10, 0)]
    assert places() == {"0": (-1, -1), "1": (5, 5), "2": (-1, -1)}
    said = CliRunner().invoke(app, ["reset", str(tmp_path / "flights.toml"), "--to", '{"2": "latest"}'])
    assert "partitions that are not named stay where they are" in said.stdout
    assert places() == {"0": (-1, -1), "1": (5, 5), "2": (9, 9)}
    table.close()
