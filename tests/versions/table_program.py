"""A streaming query over Parquet files of events that keeps an entity table; run by `test_table` on any Spark.

`python table_program.py FOLDER CHECKPOINT [--available-now]`: FOLDER has `events`, gets `table.db`, and a file
`slow` in it makes each batch wait while it is there, after the table has it and before Spark knows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, RowRules, open_session
from tests.waiting import take


def main(folder: Path, checkpoint: str, *options: str) -> None:
    spark = open_session("table", {"spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "1"}, "local[1]")
    rules, runtime = RowRules(delete_when="n % 10 = 3"), Runtime(base=folder)
    table = EntityTable("sqlite:///table.db", "entities", keys=["id"], pipeline="p", rules=rules, runtime=runtime)

    def apply(batch: DataFrame, batch_id: int) -> None:
        table.apply_query_batch(batch, batch_id)
        while (folder / "slow").exists():
            take(0.05)

    schema = "id STRING, n BIGINT, hub STRING, partition STRING, sequenceNumber BIGINT, ownerLevel BIGINT"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    writer = events.writeStream.foreachBatch(apply).option("checkpointLocation", str(folder / checkpoint))
    if "--available-now" in options:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    print(table.totals.applied, table.totals.replayed, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
