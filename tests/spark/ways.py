"""The two ways in which a pipeline file is run to the end of what its hub has: in a plain process, and on Spark."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import PipelineRun
from tests.spark.handled_runs import opened_as


def plain(file: Path, spark: SparkSession) -> None:
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["read"] in (2, 3, 400)


def on_spark(file: Path, spark: SparkSession) -> None:
    run = PipelineRun(read_pipeline_file(file), java=opened_as(spark), available_now=True)
    run.run(threading.Event())
