"""`format("leasehold")` on a Kafka topic: batch, streaming, and the exactly-once table behind it."""

from __future__ import annotations

import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from leasehold.hubs import open_hub
from leasehold.model import Event
from leasehold.spark import EntityTable, RowRules
from leasehold.spark.plan.transform import sql_transform
from tests.doc_blocks.fences import block
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_messages import check_odd_headers, produce_odd_headers, produced
from tests.waiting import PATIENCE

KEYS = 50
PATIENT = f"request_timeout={PATIENCE:g}s&transfer_timeout={PATIENCE:g}s"
"""No call has to hurry. It is in the URL since Spark's workers do not have the test's environment."""


def send(url: str, first: int, count: int) -> None:
    hub = open_hub(url)
    sent = range(first, first + count)
    hub.send(Event(str(number).encode(), str(number % KEYS), {"n": str(number)}) for number in sent)
    hub.close()


def test_a_batch_read(spark: SparkSession, cluster: Cluster) -> None:
    url = cluster.url(cluster.topic(3), f"client_id=spark&{PATIENT}")
    send(url, 0, 2_000)
    read = spark.read.format("leasehold").option("hub", url).option("eventsPerTask", "100").load()
    rows = read.selectExpr("int(string(body)) AS n", "partitionKey", "properties['n'] AS header", "partition", "hub")
    found = {row["n"]: row for row in rows.collect()}
    assert sorted(found) == list(range(2_000))
    assert all((row["partitionKey"], row["header"]) == (str(n % KEYS), str(n)) for n, row in found.items())
    assert len({row["partition"] for row in found.values()}) == 3
    assert {row["hub"] for row in found.values()} == {open_hub(url).identity}
    assert read.where("partition = '1' AND enqueuedTime > '2020-01-01'").count() > 0


@pytest.mark.more
def test_whatever_a_producer_puts_into_a_record_is_a_row(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic(1)
    produce_odd_headers(cluster, topic)
    headers = [("n", b"1"), ("n", b"\xff"), ("none", None)]
    produced(cluster, topic, {"value": None, "key": b"\xff", "headers": headers})
    read = spark.read.format("leasehold").option("hub", cluster.url(topic, PATIENT)).option("eventsPerTask", "3").load()
    *odd, last = read.orderBy("sequenceNumber").collect()
    check_odd_headers([(row["properties"], row["systemProperties"]) for row in odd])
    assert (last["body"], last["partitionKey"], last["properties"]) == (None, "\\xff", {"n": "\\xff", "none": None})
    exact = "from_json(systemProperties['headersBase64'], 'array<array<string>>')"
    shown = read.where("sequenceNumber = 8").selectExpr(f"transform({exact}, one -> unbase64(one[1])) AS found").first()
    assert shown is not None
    assert [None if value is None else bytes(value) for value in shown["found"]] == [value for _, value in headers]


def test_a_tombstone_deletes_by_the_recipe_of_the_page(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    stated = tomllib.loads(block("kafka.md", "body IS NULL AS deleted").text)
    topic = cluster.topic(1)
    sent = [(b"a", b'{"delay": 3}'), (b"b", b'{"delay": 4}'), (b"a", None), (b"c", None), (b"b", b'{"delay": 5}')]
    for key, value in sent:
        produced(cluster, topic, {"key": key, "value": value})
    rules = RowRules(delete_when=stated["sink"]["delete_when"])
    flights = EntityTable(
        f"sqlite:///{tmp_path}/e.db", "flights", keys=stated["sink"]["keys"], pipeline="p", rules=rules
    )
    options = {
        "hub": cluster.url(topic, PATIENT),
        "store": f"sqlite:///{tmp_path}/store.db",
        **flights.stream_options(),
    }
    transform = sql_transform(stated["transform"]["sql"])
    rows = transform(spark.readStream.format("leasehold").options(**options).load())
    writer = rows.writeStream.foreachBatch(flights.apply_query_batch).option(
        "checkpointLocation", str(tmp_path / "scratch")
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    with closing(sqlite3.connect(tmp_path / "e.db")) as connection:
        assert connection.execute("SELECT id, delay, deleted FROM flights").fetchall() == [("b", 5.0, 0)]
    produced(cluster, topic, {"key": b"d", "value": b"no JSON"})
    with pytest.raises(Py4JJavaError, match="MALFORMED_RECORD_IN_PARSING"):
        transform(spark.read.format("leasehold").option("hub", options["hub"]).load()).collect()


@pytest.mark.more
def test_a_stream_that_starts_again_applies_each_event_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    url = cluster.url(cluster.topic(3), PATIENT)
    table = tmp_path / "entities.db"
    for first in (0, 1_000):
        send(url, first, 1_000)
        entities = EntityTable(f"sqlite:///{table}", "numbers", pipeline="numbers", mode="append")
        options = {
            "hub": url,
            "store": f"sqlite:///{tmp_path}/store.db",
            "ownerId": "one",
            "loadBalancingInterval": "1s",
        }
        reader = spark.readStream.format("leasehold").options(**options, **entities.stream_options())
        events = reader.option("maxEventsPerTrigger", "300").load()
        rows = events.selectExpr("int(string(body)) AS n", "hub", "partition", "sequenceNumber", "ownerLevel")
        # The checkpoint folder is scratch: a new one each time, and nothing is applied again.
        writer = rows.writeStream.foreachBatch(entities.apply_query_batch).option(
            "checkpointLocation", str(tmp_path / str(first))
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        connection = sqlite3.connect(table)
        counted = connection.execute("SELECT count(*), count(DISTINCT n), max(n) FROM numbers").fetchone()
        connection.close()
        assert counted == (first + 1_000, first + 1_000, first + 999)
