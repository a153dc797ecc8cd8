"""A loop over micro-batches that keeps an appended table; run by `test_run` on any Spark.

`python loop_program.py FOLDER`: FOLDER has the hub `hub.db` and gets `table.db`. A file `slow` in it makes each batch
wait while it is there, after the table has it and before its checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, MicroBatches, Writing, open_session
from tests.waiting import NEVER, take


def main(folder: Path) -> None:
    spark = open_session("loop", {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2"}, "local[1]")
    writing, runtime = Writing(keep=["partition", "sequenceNumber"]), Runtime(base=folder)
    table = EntityTable("sqlite:///table.db", "entities", mode="append", pipeline="p", writing=writing, runtime=runtime)
    with MicroBatches(
        spark,
        f"log:///{folder}/hub.db",
        store=f"sqlite:///{folder}/stores.db",
        pipeline="p",
        schema="id STRING, n BIGINT",
        available_now=True,
        max_events_per_trigger=60,
        load_balancing_interval=0.4,
        partition_expiration=NEVER,
    ) as batches:
        for batch in batches:
            rows = batch.events.repartition(2, "id").withColumn("at", F.current_timestamp())
            table.apply(rows.where("n % 10 != 9"), batch)  # the last events of a range may be those left out
            while (folder / "slow").exists():
                take(0.05)
    print(table.totals.applied, table.totals.replayed, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
