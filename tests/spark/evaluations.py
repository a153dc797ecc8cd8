"""Batches of a log evaluated one at a time, without a loop, and how their rows have come to the driver."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventRange
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark.loop import classic_jobs
from leasehold.spark.loop import evaluation as evaluations
from leasehold.spark.loop.evaluation import Evaluation
from leasehold.spark.loop.jobs import Jobs, jobs_on
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.plan.batch_transform import BatchTransform
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.session.versions import to_arrow
from leasehold.spark.table.of_file import table_of

FENCE = "hub, partition, sequenceNumber, ownerLevel"
BODIES = (
    "id STRING, n BIGINT, i INT, x DOUBLE, f FLOAT, ok BOOLEAN, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, "
    "cost DECIMAL(9, 2), raw BINARY, must STRING NOT NULL, tags ARRAY<STRING>"
)
GOOD = {
    "id": "ä",
    "n": 2**40,
    "i": -5,
    "x": 1.5,
    "f": 0.25,
    "ok": True,
    "at": "2026-02-03T04:05:06.123456Z",
    "local": "2026-02-03T04:05:06.5",
    "day": "2026-02-03",
    "cost": 12.34,
    "raw": "AAE=",
    "must": "m",
    "tags": ["a"],
}


def make_hub(folder: Path) -> LogHub:
    """Three events in each of two partitions: a good one, one of nulls, one that cannot be read."""
    made = LogHub.create(folder / "hub.db", partitions=2)
    for partition in "01":
        bodies = [json.dumps(GOOD).encode(), b'{"must": "x"}', b"nope"]
        made.send([Event(body) for body in bodies], partition=partition)
    return made


def evaluating(spark: SparkSession, folder: Path, sql: str, sink: str = 'mode = "append"') -> tuple[Evaluation, Jobs]:
    """How batches of the hub in this folder are evaluated by a pipeline of this SQL, and its jobs."""
    path = folder / "p.toml"
    path.write_text(
        'name = "p"\n[source]\nhub = "log:///hub.db"\n[ownership]\nstore = "sqlite:///s.db"\n'
        f'[sink]\nurl = "sqlite:///t.db"\ntable = "t"\n{sink}\n'
        f'[transform]\nschema = "{BODIES}"\nsql = "{sql}"\n'
    )
    file = read_pipeline_file(path)
    transform = BatchTransform(file, spark)
    spec = ReadSpec(file.hub_url, COLUMNS, 1000, None, transform.bodies())
    jobs = jobs_on(spark, spec, transform.read_schema(COLUMNS, inline=False))
    return Evaluation(jobs, transform, table_of(file), name="p", lasting=True), jobs


def order(hub: LogHub, end: int = 3, mean: dict[str, float] | None = None) -> Order:
    """The events of both partitions up to `end`: for two tasks, or for one where their `mean` weight is known."""
    ranges = tuple(EventRange(hub.identity, partition, 7, 0, end) for partition in "01")
    pieces = tuple(ReadRange(one.partition, one.begin, one.end, 7) for one in ranges)
    return Order(hub.identity, ranges, (pieces,) if mean else tuple((one,) for one in pieces), mean=mean or {})


class Collected:
    """Which DataFrames were collected, by their columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns: list[list[str]] = []
        for module in (evaluations, classic_jobs):
            monkeypatch.setattr(module, "to_arrow", self)

    def __call__(self, df: DataFrame) -> pa.Table:
        self.columns.append(df.columns)
        return to_arrow(df)
