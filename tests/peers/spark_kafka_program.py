"""A query of Spark's own Kafka source that keeps an entity table; `test_spark_kafka` runs it where there is the JAR.

`python spark_kafka_program.py FOLDER NAME URL JARS MAXIMUM [--endless]`: FOLDER gets `table.db` and, below `NAME`, the
query's checkpoints; a file `slow` in it makes each batch wait, after the table has it and before Spark knows.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, SparkKafkaSource, Writing, open_session
from tests.waiting import NEVER, until


def main(folder: Path, name: str, url: str, jars: str, maximum: str, *options: str) -> None:
    files = ",".join(str(jar) for jar in Path(jars).glob("*.jar"))
    conf = {"spark.jars": files, "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "1"}
    spark = open_session(name, conf, "local[1]")
    source = SparkKafkaSource(url)
    keep = ("partition", "sequenceNumber")
    runtime, writing = Runtime(base=folder), Writing(keep=keep)
    table = EntityTable("sqlite:///table.db", "entities", mode="append", pipeline="p", writing=writing, runtime=runtime)

    def apply(batch: DataFrame, batch_id: int) -> None:
        rows = source.events(batch).selectExpr(
            "CAST(body AS STRING) AS body", "partitionKey", "properties['h'] AS header", "hub", "partition",
            "sequenceNumber", "ownerLevel",
        )  # fmt: skip
        table.apply(rows, batch_id)
        until(lambda: not (folder / "slow").exists(), "the batch to go on", NEVER)

    reader = spark.readStream.format("kafka").options(**source.options(table)).option("includeHeaders", "true")
    events = reader.option("maxOffsetsPerTrigger", maximum).load()
    location = source.checkpoint_location(folder / name)
    writer = events.writeStream.foreachBatch(apply).option("checkpointLocation", location)
    if "--endless" not in options:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    print("account", table.totals.applied, table.totals.replayed, table.totals.batches, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
