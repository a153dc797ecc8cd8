"""Two streams in one Spark session share a hub and keep one table: the smallest complete program.

    python examples/two_streams.py

Each stream would usually be a program of its own; the code is the same.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leasehold import Event
from leasehold.hubs.log import LogHub
from leasehold.spark import EntityTable, open_session


def main() -> None:
    """Send a thousand readings of ten sensors, and keep the last one of each."""
    with tempfile.TemporaryDirectory() as folder:
        hub = LogHub.create(Path(folder) / "readings.db", partitions=4)
        readings = ({"sensor": f"s{n % 10}", "value": n} for n in range(1000))
        hub.send(Event(json.dumps(r).encode(), partition_key=str(r["sensor"])) for r in readings)
        spark = open_session("two streams")
        for query in [start(spark, folder, name) for name in ("left", "right")]:
            query.awaitTermination()
        with closing(sqlite3.connect(Path(folder) / "entities.db")) as table:
            for sensor, value in table.execute("SELECT sensor, value FROM sensors ORDER BY sensor"):
                print(sensor, value)
        spark.stop()


def start(spark: SparkSession, folder: str, name: str) -> StreamingQuery:
    """Start one of the streams; it ends when both together have read all that there is."""
    table = EntityTable(f"sqlite:///{folder}/entities.db", "sensors", keys=["sensor"], pipeline="sensors")
    return (
        spark.readStream.format("leasehold")
        .option("hub", f"log:///{folder}/readings.db")
        .option("store", f"sqlite:///{folder}/leasehold.db")
        .option("ownerId", name)
        .option("loadBalancingInterval", "1s")
        .options(**table.stream_options())
        .load()
        .selectExpr("from_json(cast(body AS STRING), 'sensor STRING, value BIGINT') AS reading", "*")
        .select("reading.*", "hub", "partition", "sequenceNumber", "ownerLevel")
        .writeStream.foreachBatch(table.apply_query_batch)
        .option("checkpointLocation", f"{folder}/scratch-{name}")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main()
