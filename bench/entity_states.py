"""The handler of `entities.py` as a user of Spark would write it: `applyInPandasWithState`, and an upsert.

    python entity_states.py FOLDER URL

`FOLDER/events` has a file of JSON lines for each micro-batch. States are in Spark's store, in a checkpoint folder, and
each batch's are upserted from `foreachBatch` into the table `spark_states`. Prints the seconds that all batches but the
first took, in which Spark compiles and starts its workers.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import psycopg
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from leasehold.spark import open_session

TABLE = "CREATE TABLE IF NOT EXISTS spark_states (order_id TEXT PRIMARY KEY, total BIGINT, events BIGINT)"
UPSERT = (
    "INSERT INTO spark_states VALUES ({}) ON CONFLICT (order_id) DO UPDATE SET total = excluded.total, "
    "events = excluded.events"
)
COLUMNS = "order_id STRING, total LONG, events LONG"


def updated(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Add up the events of one entity, in order, and count them: one after the other, as a handler is called."""
    total, events = state.get if state.exists else (0, 0)
    for _, amount in sorted(pair for frame in frames for pair in zip(frame["version"], frame["amount"], strict=True)):
        total, events = total + int(amount), events + 1
    state.update((total, events))
    yield pd.DataFrame({"order_id": [key[0]], "total": [total], "events": [events]})


def main(folder: Path, url: str) -> None:
    """Run the query to the end of what there is."""
    spark = open_session("states", {"spark.sql.shuffle.partitions": "2"}, "local[2]")
    ended: list[float] = []

    def upsert(batch: DataFrame, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
                connection.execute(TABLE)
                connection.executemany(UPSERT.format("?, ?, ?"), rows)
        else:
            with psycopg.connect(url) as server, server.cursor() as cursor:
                cursor.execute(TABLE)
                cursor.executemany(UPSERT.format("%s, %s, %s"), rows)
        ended.append(time.perf_counter())

    events = spark.readStream.schema("order_id STRING, amount LONG, version LONG").option("maxFilesPerTrigger", 1)
    states = (
        events.json(f"{folder}/events")
        .groupBy("order_id")
        .applyInPandasWithState(updated, COLUMNS, "total LONG, events LONG", "update", GroupStateTimeout.NoTimeout)
    )
    query = states.writeStream.outputMode("update").foreachBatch(upsert).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    print(ended[-1] - ended[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
