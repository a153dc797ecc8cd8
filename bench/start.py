"""The start of `leasehold run`: from starting the process to its first batch in the table, beside bare PySpark.

The bare PySpark program makes a session on `local[2]` and gets the first rows of a Python function through the SQL of
the pipeline, as a user would write it, so that it too waits for a JVM, Spark's SQL and Python workers. Both run on the
same Java with Spark's default memory and without Spark's web interface; they are started in turns, and the figures are
medians. The log holds about 2,000 events: one batch.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from cpu_times import CpuTimes
from leasehold.cli.demo.command import PIPELINE
from leasehold.cli.demo.data import FIELDS, SCHEMA
from leasehold.spark.session.java import use_java
from loop import Row, fill

FLIGHTS = 700
RUN = [sys.executable, "-m", "leasehold.cli.app", "run", "flights.toml"]
COLUMNS = f"{SCHEMA}, hub STRING, partition STRING, sequenceNumber BIGINT, ownerLevel BIGINT"
BARE = f"""
import pyarrow as pa
from pyspark.sql import SparkSession

fields = [one.split() for one in "{COLUMNS}".split(", ")]
types = {{"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}}

def rows(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({{name: pa.nulls(batch.num_rows, types[kind]) for name, kind in fields}})

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(0, 2_000, 1, 2).mapInArrow(rows, "{COLUMNS}").createOrReplaceTempView("events")
sql = "SELECT {", ".join(FIELDS)}, hub, partition, sequenceNumber, ownerLevel FROM events"
print(spark.sql(sql).toArrow().num_rows, flush=True)
input()
"""


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(3 if quick else 5):
            place = Path(folder, str(turn))
            place.mkdir()
            fill(place, FLIGHTS)
            (place / "flights.toml").write_text(PIPELINE)
            ours.append(_measured(RUN, place, partial(_applied, place)))
            bare.append(_measured([sys.executable, "-c", BARE], place, _said))
    (wall, cpu), (bare_wall, bare_cpu) = (map(median, zip(*side, strict=True)) for side in (ours, bare))
    return [
        ("bare PySpark: from start to first rows", bare_wall, "s", None, ""),
        ("leasehold run: from start to first batch", wall, "s", wall / bare_wall, "<= 1.15"),
        ("bare PySpark: CPU until then", bare_cpu, "s", None, ""),
        ("leasehold run: CPU until then", cpu, "s", cpu / bare_cpu, ""),
    ]


def _measured(command: list[str], place: Path, wait: Callable[[subprocess.Popen[bytes]], None]) -> tuple[float, float]:
    """Seconds until `wait` returns, and CPU seconds of all processes until then."""
    environ = dict(os.environ, PYSPARK_PYTHON=sys.executable)
    use_java(environ)
    begun = time.perf_counter()
    with subprocess.Popen(
        command, cwd=place, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait(process)
            return time.perf_counter() - begun, CpuTimes(process.pid).total()
        finally:
            process.terminate()


def _said(process: subprocess.Popen[bytes]) -> None:
    """Wait for a line of the process."""
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError("the bare program ended before its first rows")


def _applied(place: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait for the first batch in the table; asked without a lock that would hold up its writer."""
    table = place / "entities.db"
    while process.poll() is None:
        if table.exists():
            connection = sqlite3.connect(f"file:{table}?mode=ro", uri=True)
            with contextlib.closing(connection), contextlib.suppress(sqlite3.OperationalError):
                if connection.execute("SELECT 1 FROM leasehold_watermark LIMIT 1").fetchone():
                    return
        time.sleep(0.005)
    raise RuntimeError(f"leasehold run ended with code {process.returncode}")


if __name__ == "__main__":
    for line in run("--quick" in sys.argv):
        print(line)
