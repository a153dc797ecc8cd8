"""A query of Spark's own Kafka source that keeps an entity table; `test_spark_kafka` runs it where there is the JAR.

`python spark_kafka_program.py FOLDER NAME URL JARS MAXIMUM [--endless | --goes-on-in CHECKPOINTS]`: FOLDER gets
`table.db` and, below `NAME`, the query's checkpoints; a file `slow` in it makes each batch wait, after the table has it
and before Spark knows. With `--goes-on-in` the query uses the folder of another one, and a table of its own, `NAME.db`.
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
    database, location = "sqlite:///table.db", source.checkpoint_location(folder / name)
    if "--goes-on-in" in options:
        database, location = f"sqlite:///{name}.db", options[-1]
    table = EntityTable(database, "entities", mode="append", pipeline="p", writing=writing, runtime=runtime)

    def apply(batch: DataFrame, batch_id: int) -> None:
        rows = source.events(batch).selectExpr(
            "CAST(body AS STRING) AS body", "partitionKey", "properties['h'] AS header", "hub", "partition",
            "sequenceNumber", "ownerLevel",
        )  # fmt: skip
        table.apply_query_batch(rows, batch_id)
        until(lambda: not (folder / "slow").exists(), "the batch to go on", NEVER)

    reader = spark.readStream.format("kafka").options(**source.options(table)).option("includeHeaders", "true")
    events = reader.option("maxOffsetsPerTrigger", maximum).load()
    writer = events.writeStream.foreachBatch(apply).option("checkpointLocation", location)
    if "--endless" not in options:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    print("account", table.totals.applied, table.totals.replayed, table.totals.batches, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
