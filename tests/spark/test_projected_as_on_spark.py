"""A file means the same on Spark and in a plain process: each continues where the other has stopped."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.hubs.log import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import PipelineRun
from tests.projected.flights import avro_bodies, avro_start, bodies, contents_of, json_start, send, write, write_avro
from tests.spark.handled_runs import opened_as

pytestmark = pytest.mark.more


@pytest.mark.parametrize("order", ["delete_when", "sequence_by", "avro"])
def test_the_same_rows_and_rejects_whoever_reads(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    changes = {"delete_when": 'sequence_by = "at"'} if order == "sequence_by" else {}
    made, start, make = (avro_bodies, avro_start, write_avro) if order == "avro" else (bodies, json_start, write)
    parts = [made(Random(order), 400), made(Random(f"{order} again"), 400)]
    ways = {
        "plain": (plain, plain),
        "spark": (on_spark, on_spark),
        "mixed": (on_spark, plain),
        "back": (plain, on_spark),
    }
    found = {}
    for name, way in ways.items():
        folder = tmp_path / name
        folder.mkdir()
        hub, file = LogHub.create(folder / "hub.db", partitions=3), make(folder, **changes)
        for part, run in zip(parts, way, strict=True):
            send(hub, part, start)
            run(file, spark)
        found[name] = contents_of(folder)
    assert found["plain"][1]
    assert found["plain"][2]
    assert found["spark"] == found["plain"] == found["mixed"] == found["back"]


def plain(file: Path, spark: SparkSession) -> None:
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["read"] == 400


def on_spark(file: Path, spark: SparkSession) -> None:
    run = PipelineRun(read_pipeline_file(file), java=opened_as(spark), available_now=True)
    run.run(threading.Event())
