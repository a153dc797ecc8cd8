"""Rows that do not pass through the JVM: which transforms may, and that all three ways give one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from leasehold.errors import StaleBatch
from leasehold.hubs.log.hub import LogHub
from leasehold.sinks.rules.batch import Batch
from leasehold.spark import MicroBatch
from leasehold.spark.loop import evaluation as evaluations
from leasehold.spark.loop import packing
from leasehold.spark.plan.picking import EXACT_CASTS, picked
from leasehold.spark.session.versions import arrow_schema, schema_of, to_arrow
from tests.spark.evaluations import FENCE, Collected, evaluating, make_hub, order
from tests.spark.places import Place, each, plain

ONLY_PICK = [
    f"SELECT id, n, {FENCE} FROM events",
    f"SELECT {FENCE}, n AS m, id FROM events",
    f"SELECT id AS a, id AS b, {FENCE} FROM events",
    f"SELECT i, x, f, ok, at, local, day, cost, raw, {FENCE} FROM events",
    f"SELECT body, offset, enqueuedTime, publisher, partitionKey, {FENCE} FROM events",
    f"SELECT e.b, {FENCE} FROM (SELECT id AS b, * FROM events WHERE true) e",
    f"SELECT id, {FENCE} FROM (SELECT n AS id, {FENCE} FROM (SELECT * FROM events))",
    f"SELECT CAST(n AS STRING) AS n, CAST(ok AS STRING) AS ok, {FENCE} FROM events",
    f"SELECT must, {FENCE} FROM events",
    f"SELECT CAST(i AS BIGINT) AS i, CAST(f AS DOUBLE) AS f, DOUBLE(i) AS d, {FENCE} FROM events",
]
DO_MORE = [
    f"SELECT id, {FENCE} FROM events WHERE n > 1",
    f"SELECT upper(id) AS id, {FENCE} FROM events",
    f"SELECT CAST(x AS STRING) AS x, {FENCE} FROM events",
    f"SELECT CAST(n AS DOUBLE) AS n, {FENCE} FROM events",
    f"SELECT CAST(at AS STRING) AS at, {FENCE} FROM events",
    f"SELECT CAST(CAST(f AS DOUBLE) AS STRING) AS f, {FENCE} FROM events",
    f"SELECT id, 1 AS one, {FENCE} FROM events",
    f"SELECT /*+ REPARTITION(3) */ id, {FENCE} FROM events",
    f"SELECT id, tag, {FENCE} FROM events LATERAL VIEW OUTER explode(tags) AS tag",
    f"SELECT tags, {FENCE} FROM events",
    f"SELECT properties, {FENCE} FROM events",
    f"SELECT id, {FENCE} FROM events WHERE false",
]


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return make_hub(tmp_path)


def set_aside(batch: Batch) -> pa.Table:
    """The rejected events of a batch: tasks tell of theirs in any order."""
    assert batch.rejected is not None
    return batch.rejected.sort_by("partition").drop_columns("properties")


def in_order(batch: Batch) -> pa.Table:
    """The rows of a batch, of whose partitions tasks tell in any order where Spark has distributed them."""
    return batch.rows.sort_by([("partition", "ascending"), ("sequenceNumber", "ascending")])


@pytest.mark.more(but=1)
@pytest.mark.parametrize("sql", [*ONLY_PICK, *DO_MORE])
def test_all_ways_give_the_same_rows_and_types(
    spark: SparkSession, hub: LogHub, tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected(monkeypatch)
    found = evaluating(spark, tmp_path, sql)[0](order(hub))
    assert (collected.columns.pop() == ["packed"]) is (sql in ONLY_PICK)
    few = evaluating(spark, tmp_path, sql)[0](order(hub, mean=found.weights))
    assert (collected.columns == []) is (sql in ONLY_PICK)
    monkeypatch.setattr(evaluations, "picked", lambda df, events: None)
    usual = evaluating(spark, tmp_path, sql)[0](order(hub))
    assert collected.columns[-1] != ["packed"]
    assert isinstance(usual.batch, Batch)
    for one in (found, few):
        assert isinstance(one.batch, Batch)
        assert one.batch.rows.schema.equals(usual.batch.rows.schema, check_metadata=True)
        assert in_order(one.batch).equals(in_order(usual.batch))
        assert set_aside(one.batch).equals(set_aside(usual.batch))
        assert one.batch.ranges == usual.batch.ranges
        assert (one.weights, one.times) == (usual.weights, usual.times)


@pytest.mark.parametrize("mean", [{}, {"0": 100.0, "1": 100.0}])
def test_a_batch_of_nothing_has_its_columns(
    spark: SparkSession, hub: LogHub, tmp_path: Path, mean: dict[str, float]
) -> None:
    evaluate, _ = evaluating(spark, tmp_path, f"SELECT id, at AS moment, {FENCE} FROM events")
    found = evaluate(order(hub, 0, mean)).batch
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
    found = evaluating(spark, tmp_path, sql, settings)[0](order(hub)).batch
    assert isinstance(found, Batch)
    assert (collected.columns[0] == ["packed"]) is only_picks
    assert found.sequence_by is not None
    assert found.sequence_by.to_pylist() == [2**40 + (not only_picks), None] * 2
    assert found.rows.schema.names == ["id", "n", *FENCE.split(", ")]


@pytest.mark.more(but=1)
@pytest.mark.parametrize("only_picks", [True, False])
def test_a_loop_of_your_own_hands_them_on_the_same_way(
    spark: SparkSession, tmp_path: Path, only_picks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected, place = Collected(monkeypatch), Place(spark, tmp_path)
    place.send(6)
    table = place.table()

    def body(batch: MicroBatch) -> None:
        table.apply(plain(batch.events) if only_picks else plain(batch.events).where("n >= 0"), batch)

    each(place.batches(max_events_per_trigger=4), body)
    assert place.rows() == [(n,) for n in range(12)]
    assert place.checkpoints() == {"0": 6, "1": 6}
    fetched = ["id", "n", "hub", "partition", "sequenceNumber", "ownerLevel"]
    # The first batch by a job, since nobody knows what its events weigh; those after it by the driver.
    assert collected.columns == ([["packed"]] if only_picks else [fetched] * 3)


@pytest.mark.more
def test_a_batch_that_is_not_at_hand_is_not_read_by_the_driver_either(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows are refused, as they are where tasks read."""
    place, earlier, refused = Place(spark, tmp_path), list[MicroBatch](), []
    place.send(6)
    table, other = place.table(), place.table(table="others")

    def body(batch: MicroBatch) -> None:
        for old in earlier:
            with pytest.raises(StaleBatch):
                other.apply(plain(batch.events), old)
            refused.append(old.id)
        table.apply(plain(batch.events), batch)
        earlier.append(batch)

    each(place.batches(max_events_per_trigger=4), body)
    assert len(refused) == 3
    assert place.rows() == [(n,) for n in range(12)]


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


def given_by(table: pa.Table) -> Any:
    return lambda batches: iter(table.to_batches())


def test_a_cast_that_may_be_left_to_arrow_gives_what_spark_gives(spark: SparkSession) -> None:
    extremes: dict[str, list[Any]] = {
        "boolean": [True, False, None],
        "float": [0.1, -0.0, 3.4e38, 1e-45, float("inf"), float("-inf"), float("nan"), 16777217.0, None],
    }
    for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)):
        extremes[name] = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -1, 0, None]
    for given, wanted in sorted(EXACT_CASTS):
        values = arrow_schema(schema_of(spark.sql(f"SELECT CAST(NULL AS {given}) AS a"))).field("a").type
        table = pa.table({"a": pa.array(extremes[given], values)})
        events = spark.range(0, 1, 1, 1).mapInArrow(given_by(table), f"a {given}")
        df = events.select(events.a.cast(wanted).alias("b"))
        found, usual = picked(df, events), to_arrow(df)
        assert found is not None, (given, wanted)
        assert found.of(table).schema.equals(usual.schema)
        assert repr(found.of(table).to_pydict()) == repr(usual.to_pydict()), (given, wanted)


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
