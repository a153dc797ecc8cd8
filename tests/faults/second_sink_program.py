"""A program with two outputs, an entity table and a folder of Parquet files, as docs/extending.md has it.

    python second_sink_program.py loop|query NAME MOST_EVENTS DIES_AT

It runs until all is consumed, or is killed by SIGKILL between the two writes of its DIES_AT-th batch (0: never).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from leasehold.spark import EntityTable, MicroBatch, MicroBatches, open_session

FENCE = ("hub", "partition", "sequenceNumber", "ownerLevel")
HUB, STORE = "log:///hub.db", "sqlite:///stores.db"


def main() -> None:
    how, name, most, dies_at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    spark = open_session("two sinks")
    table = EntityTable("sqlite:///table.db", "numbers", mode="append", pipeline="p")
    batches_seen = 0

    def both(events: DataFrame, batch: MicroBatch | int) -> None:
        nonlocal batches_seen
        batches_seen += 1
        rows = events.selectExpr("int(string(body)) AS n", *FENCE).where("n % 7 <> 0")
        part = table.unseen(rows, batch)
        for piece in part:
            file = Path("files") / f"{piece.name}.parquet"
            part_file = file.with_suffix(f".{name}")
            pq.write_table(piece.rows, part_file)
            part_file.replace(file)  # whole or not there
        if batches_seen == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        part.apply()

    quick = {"loadBalancingInterval": "500ms", "partitionExpiration": "8s", "requestTimeout": "5s", "margin": "200ms"}
    if how == "query":
        reader = spark.readStream.format("leasehold").options(hub=HUB, store=STORE, ownerId=name, **quick)
        reader = reader.options(maxEventsPerTrigger=most, settleDelay="0s", **table.stream_options())
        writer = reader.load().writeStream.foreachBatch(both).option("checkpointLocation", f"scratch-{name}")
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    with MicroBatches(
        spark,
        HUB,
        store=STORE,
        pipeline="p",
        owner_id=name,
        available_now=True,
        max_events_per_trigger=most,
        load_balancing_interval=0.5,
        partition_expiration=8.0,
        request_timeout=5.0,
        margin=0.2,
        settle_delay=0,
    ) as batches:
        for batch in batches:
            both(batch.events, batch)


if __name__ == "__main__":
    main()
