"""`EntityTable` and `MicroBatches` over Spark Connect, with the server that is in PySpark's package."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.sinks.postgres import Place
from tests.spark.connect_programs import said_by

PROGRAM = """
import pathlib
import sys
from pyspark.sql import SparkSession
from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, RowRules, Writing
from leasehold.spark.session.java import use_java
from leasehold.spark.session.versions import to_arrow

use_java()
spark = SparkSession.builder.remote("local[1]").getOrCreate()
df = spark.sql(
    "SELECT 'a' AS id, TIMESTAMP'2026-01-31 09:00:00+01:00' AS at, 'h' AS hub, '0' AS partition, 0L AS sequenceNumber, "
    "1L AS ownerLevel"
)
table = to_arrow(df)
print("said", type(df).__module__, table.schema.field("at").type, table["at"][0].as_py().isoformat())
print("said", to_arrow(df.where("id = 'b'")).schema.equals(table.schema))
by_time, here = RowRules(sequence_by="at"), pathlib.Path.cwd()
entities = EntityTable("sqlite:///t.db", "t", keys=["id"], pipeline="p", rules=by_time, runtime=Runtime(base=here))
entities.check(df)
for _ in range(2):
    result = entities.apply_batch(df)
    print("said", result.applied, result.replayed)

from leasehold.errors import ConfigError
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import MicroBatches, read_json

hub = LogHub.create(here / "hub.db", partitions=2)
for partition in ("0", "1"):
    hub.send([Event(b'{"n":%d}' % n if n % 7 else b"oops") for n in range(20)], partition=partition)
given = dict(store=f"sqlite:///{here}/s.db", pipeline="q", max_events_per_trigger=8, available_now=True)
rules = RowRules(reject_by="reason")
numbers = EntityTable(f"sqlite:///{here}/t.db", "numbers", mode="append", pipeline="q", rules=rules)
sizes = []
with MicroBatches(spark, hub.url, **given) as batches:
    for batch in batches:
        read = read_json(batch.events, "n INT")
        fence = ("hub", "partition", "sequenceNumber", "ownerLevel")
        numbers.apply(read.select("n", "reason", *fence), batch)
        sizes.append(len(batch))
print("said", sizes, numbers.totals.applied, numbers.totals.rejected)

try:
    MicroBatches(spark, hub.url, on_error="reject", **given)
except ConfigError as error:
    print("said", error.field, error.value)

writing = Writing(stage_from=1)
staged = EntityTable(sys.argv[1], "numbers", mode="append", pipeline="q", rules=rules, writing=writing)
written, apply_staged = [], staged._sink.apply_staged


def noted(rows, *others):
    written.append(rows.rows)
    return apply_staged(rows, *others)


staged._sink.apply_staged = noted
given["store"] = f"sqlite:///{here}/others.db"
with MicroBatches(spark, hub.url, **given) as batches:
    for batch in batches:
        staged.apply(read_json(batch.events, "n INT").select("n", "reason", *fence), batch)
print("said", sum(written), staged.totals.applied, staged.totals.rejected)
staged.close()

from leasehold.notices import Notices, TableApplied

# Spark Connect sends the function to its server, the table with it: what the table is, and no subscriber.
notices, told = Notices(), []
notices.subscribe(told.append, TableApplied)
elsewhere = here / "elsewhere"
elsewhere.mkdir()
df.write.parquet(f"{here}/events")
streamed = EntityTable(
    "sqlite:///t.db", "t", keys=["id"], pipeline="p", rules=by_time, runtime=Runtime(base=elsewhere, notices=notices)
)
writer = spark.readStream.schema(df.schema).parquet(f"{here}/events").writeStream.trigger(availableNow=True)
writer = writer.foreachBatch(streamed.apply_query_batch).option("checkpointLocation", f"{here}/scratch")
writer.start().awaitTermination()
print("said", streamed.row_count(), len(told), streamed.totals.batches)
streamed.close()
spark.stop()
"""


def test_the_table_over_spark_connect(tmp_path: Path, place: Place) -> None:
    said = said_by("-c", textwrap.dedent(PROGRAM), place.url, folder=tmp_path)
    assert said == [
        "pyspark.sql.connect.dataframe timestamp[us, tz=UTC] 2026-01-31T08:00:00+00:00",
        "True",
        "1 0",
        "0 1",
        "[8, 8, 8, 8, 8] 34 6",
        "on_error reject",
        "40 34 6",
        "1 0 0",
    ]
    assert place.look("SELECT count(*), sum(n), (SELECT count(*) FROM leasehold_staged) FROM numbers") == [(34, 338, 0)]
