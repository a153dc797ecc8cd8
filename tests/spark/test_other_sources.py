"""Columns and options for Spark's own Kafka source and the Event Hubs connector; `tests/peers` has the former's JAR."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leasehold.errors import ConfigError, HubError, SchemaMismatch
from leasehold.hubs import open_hub
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.model import Event
from leasehold.runtime import Runtime
from leasehold.sinks.rules.fence import Watermark
from leasehold.spark import EntityTable, EventHubsConnector, RowRules, SparkKafkaSource
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.plan.reading import schema_of
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.hubs.kafka_cluster import Cluster
from tests.sinks.events import look, run

pytestmark = pytest.mark.usefixtures("patient_kafka")
KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
EVENT_HUBS = (
    "body BINARY, partition STRING, offset STRING, sequenceNumber BIGINT, enqueuedTime TIMESTAMP, publisher STRING, "
    "partitionKey STRING, properties MAP<STRING, STRING>, systemProperties MAP<STRING, STRING>"
)
AT = datetime(2026, 1, 31, 8, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> EntityTable:
    return EntityTable("sqlite:///t.db", "rows", mode="append", pipeline="p", runtime=Runtime(base=tmp_path))


def messages(spark: SparkSession, topic: str, *rows: Sequence[Any], headers: bool = False) -> DataFrame:
    """What Spark's Kafka source gives: key, value, partition, offset and, if asked for, headers."""
    made = [(key, value, topic, partition, offset, AT, 0, *more) for key, value, partition, offset, *more in rows]
    return spark.createDataFrame(made, f"{KAFKA}, {HEADERS}" if headers else KAFKA)


def test_rows_that_were_there_before_the_query_count_by_their_column(
    spark: SparkSession, tmp_path: Path, cluster: Cluster
) -> None:
    """As `ON CONFLICT … WHERE excluded.updated >= …` of the former program had them."""
    row = "('{}', 100, '2026-06-01T00:00:00.000000Z')"
    made = "CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER, updated TEXT)"
    run(tmp_path / "t.db", made, f"INSERT INTO t VALUES {row.format('a')}, {row.format('b')}")
    rules, runtime = RowRules(sequence_by="updated"), Runtime(base=tmp_path)
    table = EntityTable("sqlite:///t.db", "t", keys=["id"], pipeline="p", rules=rules, runtime=runtime)
    topic = cluster.topic(1)
    bodies = [
        b'{"id":"a","n":1,"updated":"2026-01-01T00:00:00Z"}',
        b'{"id":"b","n":2,"updated":"2026-07-01T00:00:00Z"}',
    ]
    batch = messages(spark, topic, *((b"k", body, 0, offset) for offset, body in enumerate(bodies)))
    events = SparkKafkaSource(cluster.url(topic)).events(batch)
    rows = events.selectExpr("from_json(cast(body AS STRING), 'id STRING, n BIGINT, updated TIMESTAMP') AS e", "*")
    table.apply_query_batch(rows.select("e.*", "hub", "partition", "sequenceNumber", "ownerLevel"), 0)
    assert look(tmp_path / "t.db", "SELECT id, n FROM t ORDER BY id") == [("a", 100), ("b", 2)]
    assert (table.totals.applied, table.totals.superseded) == (1, 1)


@pytest.mark.more
def test_the_columns_are_those_of_leaseholds_own_source(spark: SparkSession, cluster: Cluster) -> None:
    topic = cluster.topic(2)
    source = SparkKafkaSource(cluster.url(topic))
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    batch = messages(
        spark, topic, (b"k", b"v", 1, 7, headers), (None, None, 0, 8, None), (b"", b"", 0, 9, []), headers=True
    )
    events = source.events(batch)
    own = spark.createDataFrame([], schema_of(COLUMNS)).schema
    assert [(field.name, field.dataType) for field in events.schema] == [(field.name, field.dataType) for field in own]
    first, second, third = (row.asDict() for row in events.collect())
    assert first.pop("enqueuedTime").timestamp() == AT.timestamp()
    assert first == {
        "body": b"v",
        "partition": "1",
        "offset": "7",
        "sequenceNumber": 7,
        "publisher": None,
        "partitionKey": "k",
        "properties": {"a": "2", "b": None},
        "systemProperties": {},
        "hub": open_hub(cluster.url(topic)).identity,
        "ownerLevel": 1,
    }
    assert (second["body"], second["partitionKey"], second["properties"]) == (None, None, {})
    assert (third["body"], third["partitionKey"], third["properties"]) == (b"", "", {})
    without = source.events(messages(spark, topic, (b"k", b"v", 1, 7))).collect()
    assert [row["properties"] for row in without] == [None]


@pytest.mark.more
def test_several_topics_have_an_identity_each_and_no_other_topic_has(spark: SparkSession, cluster: Cluster) -> None:
    topics = [cluster.topic(1), cluster.topic(1)]
    source = SparkKafkaSource(*map(cluster.url, topics))
    both = messages(spark, topics[0], (b"k", b"a", 0, 0)).union(messages(spark, topics[1], (b"k", b"b", 0, 0)))
    found = {bytes(row["body"]): row["hub"] for row in source.events(both).collect()}
    assert found == {b"a": source.identities[topics[0]], b"b": source.identities[topics[1]]}
    assert len(set(found.values())) == 2
    with pytest.raises(PySparkException, match="no identity is known of the topic other"):
        source.events(messages(spark, "other", (b"k", b"a", 0, 0))).collect()
    with pytest.raises(SchemaMismatch, match=r'no column key, value.*format\("kafka"\)'):
        source.events(both.drop("key", "value"))


def test_a_query_starts_at_the_watermarks_of_the_table(
    spark: SparkSession, cluster: Cluster, table: EntityTable
) -> None:
    topic = cluster.topic(3)
    source = SparkKafkaSource(cluster.url(topic))
    options = source.options(table)
    assert options.keys() == {"kafka.bootstrap.servers", "subscribe", "startingOffsets"}
    assert (options["kafka.bootstrap.servers"], options["subscribe"]) == (cluster.servers, topic)
    assert json.loads(options["startingOffsets"]) == {topic: {"0": -2, "1": -2, "2": -2}}
    batch = messages(spark, topic, (b"k", b"a", 0, 4), (b"k", b"b", 0, 5), (b"k", b"c", 2, 0))
    wanted = ("body", "hub", "partition", "sequenceNumber", "ownerLevel")
    assert table.apply_batch(source.events(batch).select(*wanted)).applied == 3
    assert table.apply_batch(source.events(batch).select(*wanted)).replayed == 3
    assert json.loads(source.options(table)["startingOffsets"]) == {topic: {"0": 6, "1": -2, "2": 1}}


def test_a_query_of_several_tables_starts_at_the_lowest_watermark(
    tmp_path: Path, cluster: Cluster, table: EntityTable
) -> None:
    """One was killed between the commits of its tables: what the second one lacks is read again."""
    topic = cluster.topic(3)
    source = SparkKafkaSource(cluster.url(topic))
    (identity,) = source.identities.values()
    other = EntityTable(f"sqlite:///{tmp_path}/other.db", "other", keys=["key"], pipeline="p")
    table.set_watermarks(identity, {"0": Watermark(10, 1), "1": Watermark(7, 1), "2": Watermark(3, 1)})
    other.set_watermarks(identity, {"0": Watermark(8, 1), "1": Watermark(9, 1)})
    for tables in ((table, other), (other, table)):
        assert json.loads(source.options(*tables)["startingOffsets"]) == {topic: {"0": 9, "1": 8, "2": -2}}
    assert json.loads(source.options(other)["startingOffsets"]) == {topic: {"0": 9, "1": 10, "2": -2}}
    with pytest.raises(ConfigError, match="by its name, start="):
        source.options(table, "2026-01-31T08:00:00Z")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="known by the tables"):
        source.options()
    other.close()


@pytest.mark.parametrize(
    ("start", "words"), [("latest", "is lost"), ("17", "one number for all"), ("x", "a position is")]
)
def test_a_start_that_loses_events_is_refused(cluster: Cluster, table: EntityTable, start: str, words: str) -> None:
    source = SparkKafkaSource(cluster.url(cluster.topic(1)))
    with pytest.raises(ConfigError, match=f"start = '{start}'.*{words}"):
        source.options(table, start=start)


def test_a_start_at_a_time_is_the_same_whenever_it_is_asked_for(cluster: Cluster, table: EntityTable) -> None:
    topic = cluster.topic(1)
    open_hub(cluster.url(topic)).send([Event(b"x")] * 5)
    source = SparkKafkaSource(cluster.url(topic))
    at = {start: json.loads(source.options(table, start=start)["startingOffsets"])[topic]["0"] for start in (
        "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z",
    )}  # fmt: skip
    assert list(at.values()) == [0, 5]


def test_a_table_of_instances_with_leases_is_refused(cluster: Cluster, table: EntityTable) -> None:
    source = SparkKafkaSource(cluster.url(cluster.topic(1)))
    (identity,) = source.identities.values()
    table.set_watermarks(identity, {"0": Watermark(10, 2)})
    with pytest.raises(ConfigError, match=r"owner levels above 1.*leasehold run"):
        source.options(table)


def test_topics_of_two_clusters_and_none_are_refused(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    url = cluster.url(topic)
    for urls in ((), (url, url), (url, f"kafka://{cluster.servers},127.0.0.1:1/{topic}")):
        with pytest.raises(ConfigError, match="urls"):
            SparkKafkaSource(*urls)
    with pytest.raises(ConfigError, match="tells no topic id"):
        SparkKafkaSource(cluster.url(topic, "topic_identity=name"))


def test_checkpoints_belong_to_the_topics(cluster: Cluster) -> None:
    urls = [cluster.url(cluster.topic(1)) for _ in range(2)]
    both, again = SparkKafkaSource(*urls), SparkKafkaSource(*reversed(urls))
    assert both.checkpoint_location("s3://b/x/") == again.checkpoint_location(Path("s3://b/x")).replace(
        "s3:/b", "s3://b"
    )
    assert both.checkpoint_location("x").startswith("x/")
    assert both.checkpoint_location("x") != SparkKafkaSource(urls[0]).checkpoint_location("x")


class TestEventHubs:
    """The connector's rows and options, without its JAR."""

    pytestmark = LEAVES_SOCKETS

    @pytest.fixture(autouse=True)
    def collected(self) -> Iterator[None]:
        """Let the client's sockets go while the filter above is in force."""
        yield
        gc.collect()

    def test_columns_and_positions(
        self, spark: SparkSession, table: EntityTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EventHubsServer({"flights": MemoryHub(2)}) as server:
            monkeypatch.setenv(VARIABLE, server.connection_string())
            source = EventHubsConnector(f"eventhubs://{server.namespace}/flights")
            rows: list[Any] = [
                (b"x", "1", "800", 3, AT, None, "k", {"a": "b"}, {}),
                (b"y", "1", "900", 4, AT, None, "k", {}, {}),
            ]
            events = source.events(spark.createDataFrame(rows, EVENT_HUBS))
            own = spark.createDataFrame([], schema_of(COLUMNS)).schema
            found = [(field.name, field.dataType) for field in events.schema]
            assert found == [(field.name, field.dataType) for field in own]
            (identity,) = source.identities.values()
            assert {(row["hub"], row["ownerLevel"]) for row in events.collect()} == {(identity, 1)}
            table.apply_query_batch(events.select("body", "hub", "partition", "sequenceNumber", "ownerLevel"), 0)
            positions = json.loads(source.options(table)["eventhubs.startingPositions"])
            assert positions == {
                '{"ehName":"flights","partitionId":0}': {
                    "offset": "-1", "seqNo": -1, "enqueuedTime": None, "isInclusive": True,
                },
                '{"ehName":"flights","partitionId":1}': {
                    "offset": None, "seqNo": 5, "enqueuedTime": None, "isInclusive": True,
                },
            }  # fmt: skip
            source.close()

    def test_an_event_hub_that_was_made_anew_is_noticed(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EventHubsServer({"flights": MemoryHub(2)}) as server:
            monkeypatch.setenv(VARIABLE, server.connection_string())
            url = f"eventhubs://{server.namespace}/flights"
            source = EventHubsConnector(url)
            source.check()
            port = server.port
        with EventHubsServer({"flights": MemoryHub(2)}, port=port):
            with pytest.raises(HubError, match="deleted and made anew"):
                source.events(spark.createDataFrame([], EVENT_HUBS))
            again = EventHubsConnector(url)
            assert again.checkpoint_location("x") != source.checkpoint_location("x")
            again.close()
            source.close()
