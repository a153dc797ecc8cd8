"""How fast Spark reads the source, beside Spark's own parquet reader on the same rows; and small micro-batches.

Both sides read all columns but the maps into the noop sink, in one session, in turns.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from leasehold.cli.demo.data import FlightEvents
from leasehold.hubs.log.hub import LogHub
from leasehold.spark import open_session

Row = tuple[str, float, str, float | None, str]
COLUMNS = "body,partition,offset,sequenceNumber,enqueuedTime,publisher,partitionKey,ownerLevel,hub"
PARTITIONS = 8


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        hub = _fill(path / "hub.db", 30_000 if quick else None)
        rows = sum(place.end for place in hub.partition_properties().values())
        spark = open_session("bench", {"spark.driver.memory": "2g"})
        return [*_reading(spark, path, rows, 2 if quick else 5), *_micro_batches(spark, path, hub, 5 if quick else 20)]


def _fill(path: Path, flights: int | None) -> LogHub:
    """The events of the demo, twice, spread evenly over the partitions: real bodies."""
    hub = LogHub.create(path, partitions=PARTITIONS)
    for number, table in enumerate([*FlightEvents(flights).tables(10_000)] * 2):
        hub.append(table, partition=str(number % PARTITIONS))
    return hub


def _reading(spark: SparkSession, path: Path, rows: int, turns: int) -> list[Row]:
    parquet = str(path / "parquet")

    def ours() -> DataFrame:
        options = {"hub": f"log:///{path}/hub.db", "columns": COLUMNS, "eventsPerTask": str(rows // 4)}
        return spark.read.format("leasehold").options(**options).load()

    ours().coalesce(PARTITIONS).write.parquet(parquet)
    sides: dict[str, Callable[[], DataFrame]] = {"parquet": lambda: spark.read.parquet(parquet), "source": ours}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, made in sides.items():
            frame = made()
            started = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if turn:  # the first one warms up
                taken[name].append(time.perf_counter() - started)
    speed = {name: rows / statistics.median(times) for name, times in taken.items()}
    return [
        ("read: spark.read.parquet", speed["parquet"], "rows/s", None, ""),
        ("read: leasehold source", speed["source"], "rows/s", speed["source"] / speed["parquet"], ">= 0.75"),
    ]


def _micro_batches(spark: SparkSession, path: Path, hub: LogHub, count: int) -> list[Row]:
    """From an append of ten events to the call of foreachBatch that has them, one after another."""
    came = threading.Event()
    options = {
        "hub": f"log:///{path}/hub.db",
        "store": f"sqlite:///{path}/store.db",
        "startingPosition": "latest",
        "columns": COLUMNS,
    }

    def take(batch: DataFrame, batch_id: int) -> None:
        if batch.toArrow().num_rows:
            came.set()

    stream = spark.readStream.format("leasehold").options(**options).load()
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(path / "scratch")).start()
    events = pa.table({"body": pa.array([b"x" * 200] * 10, pa.binary())})
    times = []
    try:
        deadline = time.perf_counter() + 60
        while not came.is_set() and time.perf_counter() < deadline:  # the first ones find the query starting
            hub.append(events, partition="0")
            came.wait(2)
        for _ in range(count):
            time.sleep(0.3)
            came.clear()
            started = time.perf_counter()
            hub.append(events, partition="0")
            came.wait(30)
            times.append(time.perf_counter() - started)
    finally:
        query.stop()
    return [("small micro-batch, append to foreachBatch", 1000 * statistics.median(times), "ms", None, "")]


if __name__ == "__main__":
    for line in run(quick=False):
        print(line)
