"""A streaming query that tells each batch on its standard output, for ever, as many programs do."""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame

from leasehold.spark import EntityTable, open_session

FENCE = ("hub", "partition", "sequenceNumber", "ownerLevel")


def main() -> None:
    spark = open_session("talking")
    table = EntityTable("sqlite:///table.db", "numbers", mode="append", pipeline="p")

    def tell(events: DataFrame, batch: int) -> None:
        table.apply_query_batch(events.selectExpr("int(string(body)) AS n", *FENCE), batch)
        print("batch", batch, flush=True)
        print("batch", batch, file=sys.stderr, flush=True)

    reader = spark.readStream.format("leasehold").options(hub="log:///hub.db", store="sqlite:///stores.db")
    reader = reader.options(maxEventsPerTrigger="10", settleDelay="0s", ownerId="talking", **table.stream_options())
    writer = reader.load().writeStream.foreachBatch(tell).option("checkpointLocation", "scratch")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
