"""`EntityTable` and `MicroBatches` over Spark Connect, in a folder: prints what comes of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from leasehold.errors import ConfigError
from leasehold.formats import BodyFormat
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.notices import Notices, TableApplied
from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, MicroBatches, RowRules, read_bodies
from leasehold.spark.session.versions import to_arrow
from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.registered import headed, schema
from tests.spark.places import FENCE


def fill(spark: SparkSession, here: Path, url: str) -> None:
    """Tables in files of the folder, and one in the Postgres at `url`."""
    df = spark.sql(
        "SELECT 'a' AS id, TIMESTAMP'2026-01-31 09:00:00+01:00' AS at, 'h' AS hub, '0' AS partition, "
        "0L AS sequenceNumber, 1L AS ownerLevel"
    )
    table = to_arrow(df)
    print("said", type(df).__module__, table.schema.field("at").type, table["at"][0].as_py().isoformat())
    print("said", to_arrow(df.where("id = 'b'")).schema.equals(table.schema))
    nested = spark.range(2).selectExpr("IF(id > 0, named_struct('a', array(id)), NULL) AS s", "array() AS e")
    print("said", to_arrow(nested).to_pylist())
    by_time = RowRules(sequence_by="at")
    entities = EntityTable("sqlite:///t.db", "t", keys=["id"], pipeline="p", rules=by_time, runtime=Runtime(base=here))
    entities.check(df)
    for _ in range(2):
        result = entities.apply_batch(df)
        print("said", result.applied, result.replayed)

    hub = LogHub.create(here / "numbers.db", partitions=2)
    for partition in ("0", "1"):
        hub.send([Event(b'{"n":%d}' % n if n % 7 else b"oops") for n in range(20)], partition=partition)
    store = f"sqlite:///{here}/numbers-stores.db"
    given: dict[str, Any] = {"store": store, "pipeline": "q", "max_events_per_trigger": 8, "available_now": True}
    rules = RowRules(reject_by="reason")
    numbers = EntityTable(f"sqlite:///{here}/t.db", "numbers", mode="append", pipeline="q", rules=rules)
    sizes = []
    with MicroBatches(spark, hub.url, **given) as batches:
        for batch in batches:
            numbers.apply(read_bodies(batch.events, "n INT").select("n", "reason", *FENCE), batch)
            sizes.append(len(batch))
    print("said", sizes, numbers.totals.applied, numbers.totals.rejected)

    try:
        MicroBatches(spark, hub.url, on_error="reject", **given)
    except ConfigError as error:
        print("said", error.field, error.value)

    _fill_in_postgres(spark, hub, url, {**given, "store": f"sqlite:///{here}/others.db"}, rules)
    hub.close()
    _registered(spark)
    _stream(spark, here, by_time, df)


def _fill_in_postgres(spark: SparkSession, hub: LogHub, url: str, given: dict[str, Any], rules: RowRules) -> None:
    numbers = EntityTable(url, "numbers", mode="append", pipeline="q", rules=rules)
    with MicroBatches(spark, hub.url, **given) as batches:
        for batch in batches:
            numbers.apply(read_bodies(batch.events, "n INT").select("n", "reason", *FENCE), batch)
    print("said", numbers.totals.applied, numbers.totals.rejected)
    numbers.close()


def _registered(spark: SparkSession) -> None:
    """Bodies by the schemas of a registry, which this process asks: it is gone when tasks read."""
    with closing(RegistryServer()) as server:
        number = server.register("flights-value", schema(id="string"))
        df = spark.createDataFrame([(headed(number, b"\x02a"),), (headed(9, b"\x02a"),)], "body BINARY")
        how = BodyFormat(format="avro", registry=server.url)
        read = read_bodies(df, "id STRING", how, subjects=["flights-value"])
    print("said", [row["id"] or row["reason"][:16] for row in read.collect()])


def _stream(spark: SparkSession, here: Path, by_time: RowRules, df: Any) -> None:
    """A query: Connect sends the function to its server, the table with it: what the table is, and no subscriber."""
    notices, told = Notices(), list[TableApplied]()
    notices.subscribe(told.append, TableApplied)
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    df.write.parquet(f"{here}/events")
    runtime = Runtime(base=elsewhere, notices=notices)
    streamed = EntityTable("sqlite:///t.db", "t", keys=["id"], pipeline="p", rules=by_time, runtime=runtime)
    writer = spark.readStream.schema(df.schema).parquet(f"{here}/events").writeStream.trigger(availableNow=True)
    writer = writer.foreachBatch(streamed.apply_query_batch).option("checkpointLocation", f"{here}/scratch")
    writer.start().awaitTermination()
    print("said", streamed.row_count(), len(told), streamed.totals.batches)
    streamed.close()
