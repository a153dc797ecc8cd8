"""Two runs of pipeline files at once on one session, which has one view of the name `events` for both."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import PipelineRun
from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import Log
from tests.spark.handled_runs import opened_as


def test_two_runs_in_one_session(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)  # it is that of all tests
    with closing(Fleet(tmp_path, "append", Log(tmp_path), limit=80)) as fleet:
        file = tmp_path / "pipeline.toml"
        sql = "SELECT id, n, hub, partition, sequenceNumber, ownerLevel FROM events"
        file.write_text(file.read_text().replace('python = "gate:transform"', f'sql = "{sql}"'))
        fleet.send(100)
        runs = [
            PipelineRun(read_pipeline_file(file), java=opened_as(spark), owner_name=name, available_now=True)
            for name in ("blue", "green")
        ]
        with ThreadPoolExecutor(len(runs)) as pool:
            accounts = list(pool.map(lambda run: run.run(threading.Event()), runs))
        assert sum(account.totals.applied for account in accounts) == 400
        fleet.check_table()
