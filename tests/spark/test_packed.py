"""Rows that do not pass through the JVM: which transforms may, and that both ways give one table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventRange
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks.rules.batch import Batch
from leasehold.spark.loop import evaluation as evaluations
from leasehold.spark.loop import packing
from leasehold.spark.loop.evaluation import Evaluation
from leasehold.spark.loop.jobs import jobs_on
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.plan.batch import BatchTransform
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.plan.picking import picked
from leasehold.spark.session.versions import to_arrow
from leasehold.spark.table.of_file import table_of

FENCE = "hub, partition, sequenceNumber, ownerLevel"
BODIES = (
    "id STRING, n BIGINT, i INT, x DOUBLE, f FLOAT, ok BOOLEAN, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, "
    "cost DECIMAL(9, 2), raw BINARY, must STRING NOT NULL, tags ARRAY<STRING>"
)
GOOD = {
    "id": "ä",
    "n": 2**40,
    "i": -5,
    "x": 1.5,
    "f": 0.25,
    "ok": True,
    "at": "2026-02-03T04:05:06.123456Z",
    "local": "2026-02-03T04:05:06.5",
    "day": "2026-02-03",
    "cost": 12.34,
    "raw": "AAE=",
    "must": "m",
    "tags": ["a"],
}
ONLY_PICK = [
    f"SELECT id, n, {FENCE} FROM events",
    f"SELECT {FENCE}, n AS m, id FROM events",
    f"SELECT id AS a, id AS b, {FENCE} FROM events",
    f"SELECT i, x, f, ok, at, local, day, cost, raw, {FENCE} FROM events",
    f"SELECT body, offset, enqueuedTime, publisher, partitionKey, {FENCE} FROM events",
    f"SELECT e.b, {FENCE} FROM (SELECT id AS b, * FROM events WHERE true) e",
    f"SELECT id, {FENCE} FROM (SELECT n AS id, {FENCE} FROM (SELECT * FROM events))",
]
DO_MORE = [
    f"SELECT id, {FENCE} FROM events WHERE n > 1",
    f"SELECT upper(id) AS id, {FENCE} FROM events",
    f"SELECT CAST(n AS STRING) AS n, {FENCE} FROM events",
    f"SELECT CAST(i AS BIGINT) AS i, {FENCE} FROM events",
    f"SELECT id, 1 AS one, {FENCE} FROM events",
    f"SELECT /*+ REPARTITION(3) */ id, {FENCE} FROM events",
    f"SELECT id, tag, {FENCE} FROM events LATERAL VIEW OUTER explode(tags) AS tag",
    f"SELECT tags, {FENCE} FROM events",
    f"SELECT properties, {FENCE} FROM events",
    f"SELECT must, {FENCE} FROM events",
    f"SELECT id, {FENCE} FROM events WHERE false",
]


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    """Three events in each of two partitions: a good one, one of nulls, one that cannot be read."""
    made = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in "01":
        bodies = [json.dumps(GOOD).encode(), b'{"must": "x"}', b"nope"]
        made.send([Event(body) for body in bodies], partition=partition)
    return made


def evaluation(spark: SparkSession, folder: Path, sql: str, sink: str = 'mode = "append"') -> Evaluation:
    path = folder / "p.toml"
    path.write_text(
        'name = "p"\n[source]\nhub = "log:///hub.db"\n[ownership]\nstore = "sqlite:///s.db"\n'
        f'[sink]\nurl = "sqlite:///t.db"\ntable = "t"\n{sink}\n'
        f'[transform]\nschema = "{BODIES}"\nsql = "{sql}"\n'
    )
    file = read_pipeline_file(path)
    transform = BatchTransform(file, spark)
    spec = ReadSpec(file.hub_url, COLUMNS, 1000, None, transform.bodies())
    jobs = jobs_on(spark, spec, transform.read_schema(COLUMNS, inline=False))
    return Evaluation(jobs, transform, table_of(file), name="p", lasting=True)


def order(hub: LogHub, end: int = 3) -> Order:
    ranges = tuple(EventRange(hub.identity, partition, 7, 0, end) for partition in "01")
    tasks = tuple((ReadRange(one.partition, one.begin, one.end, 7),) for one in ranges)
    return Order(hub.identity, ranges, tasks)


class Collected:
    """Which DataFrames were collected, by their columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns: list[list[str]] = []
        monkeypatch.setattr(evaluations, "to_arrow", self)

    def __call__(self, df: DataFrame) -> pa.Table:
        self.columns.append(df.columns)
        return to_arrow(df)


def set_aside(batch: Batch) -> pa.Table:
    """The rejected events of a batch: tasks tell of theirs in any order."""
    assert batch.rejected is not None
    return batch.rejected.sort_by("partition").drop_columns("properties")


@pytest.mark.parametrize("sql", [*ONLY_PICK, *DO_MORE])
def test_both_ways_give_the_same_rows_and_types(
    spark: SparkSession, hub: LogHub, tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected(monkeypatch)
    found = evaluation(spark, tmp_path, sql)(order(hub))
    monkeypatch.setattr(evaluations, "picked", lambda df, events: None)
    usual = evaluation(spark, tmp_path, sql)(order(hub))
    assert (collected.columns[0] == ["packed"]) is (sql in ONLY_PICK)
    assert collected.columns[-1] != ["packed"]
    assert isinstance(found.batch, Batch)
    assert isinstance(usual.batch, Batch)
    assert found.batch.rows.schema.equals(usual.batch.rows.schema, check_metadata=True)
    assert found.batch.rows.equals(usual.batch.rows)
    assert set_aside(found.batch).equals(set_aside(usual.batch))
    assert found.batch.ranges == usual.batch.ranges
    assert (found.weights, found.times) == (usual.weights, usual.times)


def test_a_batch_of_nothing_has_its_columns(spark: SparkSession, hub: LogHub, tmp_path: Path) -> None:
    found = evaluation(spark, tmp_path, f"SELECT id, at AS moment, {FENCE} FROM events")(order(hub, 0)).batch
    assert isinstance(found, Batch)
    assert found.rows.num_rows == 0
    assert found.rows.schema.field("moment").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(("expression", "only_picks"), [("n", True), ("n + 1", False)])
def test_the_expressions_of_the_table_count_too(
    spark: SparkSession,
    hub: LogHub,
    tmp_path: Path,
    expression: str,
    only_picks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected = Collected(monkeypatch)
    sql = f"SELECT id, n, {FENCE} FROM events"
    settings = f'keys = ["id"]\nsequence_by = "{expression}"'
    found = evaluation(spark, tmp_path, sql, settings)(order(hub)).batch
    assert isinstance(found, Batch)
    assert (collected.columns[0] == ["packed"]) is only_picks
    assert found.sequence_by is not None
    assert found.sequence_by.to_pylist() == [2**40 + (not only_picks), None] * 2
    assert found.rows.schema.names == ["id", "n", *FENCE.split(", ")]


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(3).mapInArrow(lambda batches: batches, "a BIGINT, b STRING")


def test_what_is_not_of_these_very_events_or_is_kept_is_not_picked(spark: SparkSession) -> None:
    events, others = numbers(spark), numbers(spark)
    found = picked(events.select("b", events.a.alias("c")), events)
    assert found is not None
    assert (found.places, found.schema.names) == ((1, 0), ["b", "c"])
    assert picked(events, events) is not None
    kept = events.select("a")
    kept.persist()
    try:
        refused = [
            others,
            events.union(others),
            events.union(events),
            events.limit(3),
            events.distinct(),
            events.sort("a"),
            events.sample(0.5),
            events.coalesce(1),
            events.crossJoin(others.select("a")),
            events.mapInArrow(lambda batches: batches, "a BIGINT, b STRING"),
            events.withColumn("b", events.b.cast("binary")),
            kept,
            spark.range(3),
        ]
        assert [df for df in refused if picked(df, events) is not None] == []
    finally:
        kept.unpersist()


def test_events_are_packed_in_chunks_and_come_out_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHUNK_BYTES", 100)
    batches = [pa.record_batch({"n": pa.array(range(size), pa.int64())}) for size in (1, 0, 20, 3, 3)]
    values = list(packing.packed(batches))
    assert [value.num_rows for value in values] == [1, 1]
    found = packing.unpacked(pa.Table.from_batches(values).column(0))
    assert found is not None
    assert found.equals(pa.Table.from_batches(batches))
    assert list(packing.packed([])) == []
    assert packing.unpacked(pa.chunked_array([], pa.binary())) is None
