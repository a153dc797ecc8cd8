"""The times of events in the records that a program of `format("leasehold")` leaves: lag in seconds without the hub."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import PartitionProperties
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.stream.scales import Scales
from tests.spark.programs import Program

PIPELINE = """
name = "p"
[source]
hub = "{hub}"
[ownership]
store = "sqlite:///stores.db"
[transform]
schema = "n INT"
sql = "SELECT n, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///table.db"
table = "numbers"
mode = "append"
keep = ["partition", "sequenceNumber"]
"""


def hub_time(program: Program, partition: str, number: int) -> float:
    [read] = program.hub.read(partition, number, number + 1, columns=["enqueuedTime"])
    micros: int = read.column("enqueuedTime").cast("int64")[0].as_py()
    return micros / 1e6


@pytest.mark.more
def test_the_commands_tell_lag_in_seconds_where_the_hub_tells_no_time(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.send(3, "0")
    table = program.table()
    program.start(program.rows(program.events(table)), table.apply_query_batch).awaitTermination()
    program.send(2, "0")
    monkeypatch.setattr(LogHub, "enqueued_times", lambda *_: {})  # as Event Hubs, beside a fleet with owner levels
    file = program.folder / "p.toml"
    file.write_text(PIPELINE.format(hub=program.hub.url))

    def told(*command: str) -> dict[str, Any]:
        said = CliRunner().invoke(app, [command[0], str(file), *command[1:]])
        assert said.stdout.startswith("{"), said.output
        page: dict[str, Any] = json.loads(said.stdout.splitlines()[0])
        return next(one for one in page["partitions"] if one["partition"] == "0")

    at = hub_time(program, "0", 2)
    for command in (("metrics", "--once", "--json"), ("status", "--json")):
        before = time.time() - at
        lag = told(*command)["lagSeconds"]
        assert before - 0.1 <= lag <= time.time() - at + 0.1


def test_a_hub_that_is_read_by_its_owner_alone_is_not_asked_and_may_tell_the_end(program: Program) -> None:
    program.send(30, "0")
    ranges = [ReadRange("0", 0, 30, 1), ReadRange("1", 0, 0, 1)]
    scales = Scales(program.hub, ["body"], one_reader=True)
    silent = {"0": PartitionProperties("0", 0, 30)}
    assert [one.enqueued for one in scales.timed(ranges, 0.0, silent)] == [None, None]
    telling = {"0": PartitionProperties("0", 0, 30, 17.5)}
    assert [one.enqueued for one in scales.timed(ranges, 0.0, telling)] == [17.5, None]
    (behind,) = scales.timed([ReadRange("0", 0, 20, 1)], 0.0, telling)
    assert behind.enqueued is None
