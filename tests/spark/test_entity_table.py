"""`EntityTable` with real DataFrames. The rules of the sink are tested in `tests/sinks`, without Spark."""

from __future__ import annotations

import json
import pickle
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import ConfigError, OwnerLevelWentBack, SchemaMismatch
from leasehold.model import ConsumerGroup, Ownership, OwnershipListing
from leasehold.notices import Notices, TableApplied
from leasehold.runtime import Runtime
from leasehold.sinks.rules.fence import Watermark
from leasehold.spark import EntityTable, OwnershipRecords, RowRules, Writing
from leasehold.stores.base import StoreFeatures
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.waiting import until

FENCE = "hub STRING, partition STRING, sequenceNumber BIGINT, ownerLevel BIGINT"
NOT_NEGATIVE = RowRules(reject_by="IF(n < 0, concat('below zero: ', n), NULL)")


def table(folder: Path, **settings: Any) -> EntityTable:
    given = {"keys": ("tail",), "pipeline": "p", "runtime": Runtime(base=folder), **settings}
    return EntityTable("sqlite:///t.db", "flights", **given)


def events(spark: SparkSession, schema: str, *rows: Sequence[Any], level: int = 1, first: int = 0) -> DataFrame:
    """Rows of one partition, with the columns that the source adds."""
    fenced = [(*row, "h", "0", first + number, level) for number, row in enumerate(rows)]
    return spark.createDataFrame(fenced, f"{schema}, {FENCE}")


def look(folder: Path, query: str = "SELECT * FROM flights ORDER BY rowid") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.more
def test_types(spark: SparkSession, tmp_path: Path) -> None:
    one = events(spark, "tail STRING", ("a",)).select(
        "tail",
        F.expr("7Y AS t"),
        F.expr("7L AS l"),
        F.expr("true AS o"),
        F.expr("1.5F AS f"),
        F.expr("double('NaN') AS d"),
        F.expr("1.10BD AS m"),
        F.expr("X'FF00' AS b"),
        F.expr("DATE'2026-01-31' AS day"),
        F.expr("TIMESTAMP'2026-01-31 08:00:00.000005+09:00' AS at"),
        F.expr("TIMESTAMP_NTZ'2026-01-31 08:00:00' AS ntz"),
        F.expr("named_struct('x', 1, 'y', array(1.5D, null)) AS s"),
        F.expr("map('k', 'v') AS map"),
        F.expr("CAST(null AS STRING) AS n"),
        "hub",
        "partition",
        "sequenceNumber",
        "ownerLevel",
    )
    entities = table(tmp_path)
    entities.check(one)
    entities.apply_query_batch(one, 0)
    expected = (
        *("a", 7, 7, 1, 1.5, None, "1.10", b"\xff\x00", "2026-01-31", "2026-01-30T23:00:00.000005Z"),
        *("2026-01-31T08:00:00.000000", '{"x":1,"y":[1.5,null]}', '{"k":"v"}', None),
    )
    assert look(tmp_path) == [expected]
    odd = ["INTERVAL '1' DAY", "INTERVAL '1' YEAR", "make_interval(1)"]
    if hasattr(F, "parse_json"):
        odd += ["parse_json('{}')", "array(parse_json('{}'))"]
    for expression in odd:
        with pytest.raises(SchemaMismatch, match=r"(?i)(odd: |type of a column).*cast it to a string"):
            table(tmp_path, keys=("tail",)).apply_query_batch(one.withColumn("odd", F.expr(expression)), 1)


def test_explode_keeps_every_row_and_replays_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    entities = table(tmp_path, mode="append", keys=None, writing=Writing(keep=("partition", "sequenceNumber")))
    df = events(spark, "tails ARRAY<STRING>", (["b", "a", "b"],), ([],), (["c"],)).select(
        F.explode("tails").alias("tail"), "hub", "partition", "sequenceNumber", "ownerLevel"
    )
    entities.apply_query_batch(df, 0)
    entities.apply_query_batch(df, 0)
    assert look(tmp_path) == [("b", "0", 0), ("a", "0", 0), ("b", "0", 0), ("c", "0", 2)]
    assert (entities.totals.applied, entities.totals.replayed, entities.totals.batches) == (4, 2, 2)


def test_delete_when(spark: SparkSession, tmp_path: Path) -> None:
    entities = table(tmp_path, rules=RowRules(delete_when="status = 'cancelled'"))
    rows = [("a", "x"), ("b", "cancelled"), ("a", "cancelled"), ("b", None), ("c", "y")]
    assert entities.apply_batch(events(spark, "tail STRING, status STRING", *rows)).applied == 5
    assert look(tmp_path) == [("b", None), ("c", "y")]


@pytest.mark.more
def test_sequence_by_decides_between_partitions(spark: SparkSession, tmp_path: Path) -> None:
    entities = table(tmp_path, rules=RowRules(sequence_by="at", delete_when="status = 'gone'"))
    df = events(spark, "tail STRING, status STRING, at TIMESTAMP_NTZ").limit(0)
    made = [
        ("a", "late", "2026-01-02", "0", 0),
        ("a", "early", "2026-01-01", "1", 0),
        ("b", "gone", "2026-01-03", "0", 1),
        ("b", "back?", "2026-01-02", "1", 1),
        ("c", "none", None, "1", 2),
    ]
    for tail, status, at, partition, number in made:
        row = [(tail, status, at, "h", partition, number, 1)]
        one = spark.createDataFrame(row, f"tail STRING, status STRING, at STRING, {FENCE}")
        df = df.union(one.withColumn("at", F.expr("CAST(at AS TIMESTAMP_NTZ)")))
    assert entities.apply_batch(df) == one_row_each(applied=2, superseded=2, rejected=1)
    assert [row[:2] for row in look(tmp_path)] == [("a", "late")]
    ((body, reason),) = look(tmp_path, "SELECT body, reason FROM flights_rejected")
    assert (json.loads(body), reason) == ({"tail": "c", "status": "none", "at": None}, "sequence_by is null or NaN")


def test_missing_columns_show_how_to_carry_them(spark: SparkSession, tmp_path: Path) -> None:
    df = events(spark, "tail STRING", ("a",)).drop("ownerLevel", "hub")
    with pytest.raises(SchemaMismatch, match=r'no column hub, ownerLevel.*\.select\("tail", "hub", "partition", '):
        table(tmp_path).apply_query_batch(df, 0)
    with pytest.raises(SchemaMismatch, match="tail twice"):
        table(tmp_path).apply_query_batch(
            events(spark, "tail STRING, other STRING", ("a", "b")).withColumnRenamed("other", "tail"), 0
        )


def test_expressions_that_do_not_fit_name_their_setting(spark: SparkSession, tmp_path: Path) -> None:
    df = events(spark, "tail STRING, n INT", ("a", 1))
    for rules, words in (
        (RowRules(sequence_by="nope + 1"), r"sequence_by = 'nope \+ 1': not an expression over the columns tail, n"),
        (RowRules(sequence_by="1 +"), "sequence_by = '1 \\+'"),
        (RowRules(delete_when="n"), "delete_when = 'n': not a condition"),
        (RowRules(when="n"), "when = 'n': not a condition"),
        (RowRules(sequence_by="n > 1"), "sequence_by: gives a bool"),
        (RowRules(sequence_by="INTERVAL '1' YEAR"), "gives a interval year"),
    ):
        for use in ("check", "apply_batch"):
            with pytest.raises(ConfigError, match=words):
                getattr(table(tmp_path, rules=rules), use)(df)


def test_names_of_helpers_do_not_collide(spark: SparkSession, tmp_path: Path) -> None:
    df = events(spark, "tail STRING, _leasehold_sequence_by INT, `_Leasehold_Delete_When` STRING", ("a", 7, "x"))
    rules = RowRules(sequence_by="_leasehold_sequence_by", delete_when="tail = 'z'")
    table(tmp_path, rules=rules).apply_query_batch(df, 0)
    assert look(tmp_path) == [("a", 7, "x")]


def test_rejected_events_are_set_aside_in_the_same_transaction(spark: SparkSession, tmp_path: Path) -> None:
    entities = table(tmp_path)
    df = events(spark, "tail STRING, body BINARY", ("a", b"1"), (None, b"{"), ("b", b"2")).cache()
    good = df.where("tail IS NOT NULL").drop("body")
    bad = df.where("tail IS NULL").select(*good.columns[1:], "body", F.lit("not JSON").alias("reason"))
    assert entities.apply_batch(good, bad) == one_row_each(applied=2, rejected=1)
    assert entities.apply_batch(good, bad) == one_row_each(replayed=3)
    assert entities.apply_batch(good) == one_row_each(replayed=2)
    query = "SELECT hub, partition, sequence_number, body, reason FROM flights_rejected"
    assert look(tmp_path, query) == [("h", "0", 1, b"{", "not JSON")]
    assert entities.watermarks("h") == {"0": Watermark(2, 1)}
    df.unpersist()


def test_rows_with_a_reason_are_rejected_in_the_one_action(spark: SparkSession, tmp_path: Path) -> None:
    entities = table(tmp_path, rules=NOT_NEGATIVE)
    df = events(spark, "tail STRING, n INT", ("a", 1), ("b", -2), ("c", 3), ("d", -4))
    told: list[TableApplied] = []
    entities.notices.subscribe(told.append, TableApplied)
    assert entities.apply_batch(df) == one_row_each(applied=2, rejected=2)
    assert [(one.table, one.counts.applied, one.counts.rejected) for one in told] == [("flights", 2, 2)]
    assert sum(told[0].parts.values()) < told[0].seconds
    assert look(tmp_path) == [("a", 1), ("c", 3)]
    query = "SELECT sequence_number, body, reason FROM flights_rejected ORDER BY 1"
    assert look(tmp_path, query) == [
        (1, '{"tail":"b","n":-2}', "below zero: -2"),
        (3, '{"tail":"d","n":-4}', "below zero: -4"),
    ]
    with pytest.raises(ConfigError, match="reject_by = 'n': gives a int"):
        table(tmp_path, rules=RowRules(reject_by="n")).apply_batch(df)


def test_a_batch_of_rejects_alone_is_said_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entities = table(tmp_path, rules=NOT_NEGATIVE)
    df = events(spark, "tail STRING, n INT", ("a", -1), ("b", -2), ("c", 3), ("d", -4))
    for number, said in enumerate((1, 1, 1, 2)):
        entities.apply_batch(df.where(f"sequenceNumber = {number}"))
        assert len(caplog.messages) == said, number
    assert "all 1 rows of a batch were rejected" in caplog.messages[0]
    assert "(the first: below zero: -1)" in caplog.messages[0]


def test_text_that_is_not_utf8_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    df = events(spark, "tail STRING, raw BINARY", ("a", b"fine"), ("b", b"\xff")).withColumn(
        "raw", F.expr("CAST(raw AS STRING)")
    )
    assert table(tmp_path).apply_batch(df) == one_row_each(applied=1, rejected=1)
    assert look(tmp_path, "SELECT reason FROM flights_rejected") == [("raw is not UTF-8 text",)]


class Records:
    """An ownership store of which only the listing counts here."""

    features = StoreFeatures(shared=False)

    def __init__(self, level: int | None) -> None:
        self.level = level

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        records = () if self.level is None else (Ownership(group, "0", "me/1", self.level, "e"),)
        return OwnershipListing(records, 0.0)

    def _unexpected(self, *arguments: object) -> Any:
        raise NotImplementedError

    claim_ownership = renew_ownership = relinquish_ownership = _unexpected
    withdraw_presence = ask = withdraw_asks = _unexpected


GROUP = ConsumerGroup("n", "h")


@pytest.mark.more
def test_the_store_tells_a_zombie_from_a_wiped_store(spark: SparkSession, tmp_path: Path) -> None:
    store = Records(3)
    entities = table(tmp_path, ownership=OwnershipRecords(store, GROUP))
    entities.apply_query_batch(events(spark, "tail STRING", ("a",), level=3), 0)
    late = events(spark, "tail STRING", ("late",), level=2, first=1)
    assert entities.apply_batch(late).refused == 1
    for level in (None, 1, 2):
        store.level = level
        with pytest.raises(OwnerLevelWentBack, match="partition 0"):
            entities.apply_query_batch(late, 1)
    assert (entities.totals.batches, entities.totals.refused) == (2, 1)
    both = late.union(late.withColumn("hub", F.lit("g")))
    with pytest.raises(ConfigError, match="rows of 2 hubs"):
        entities.apply_query_batch(both, 1)


def test_a_store_is_named_by_its_url(tmp_path: Path) -> None:
    table(tmp_path, ownership=OwnershipRecords("memory://entity-table", GROUP))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"mode": "merge"}, "mode"),
        ({"keys": None}, "keys"),
        ({"keys": None, "mode": "append", "rules": RowRules(delete_when="true")}, "delete_when"),
        ({"keys": None, "mode": "append", "rules": RowRules(sequence_by="at")}, "sequence_by"),
        ({"pipeline": ""}, "pipeline"),
        ({"writing": Writing(schema_evolution="drop")}, "schema_evolution"),
        ({"writing": Writing(keep=("body",))}, "keep"),
        ({"ownership": OwnershipRecords("memory://x", GROUP), "consumer_group": "other"}, "group"),
    ],
)
def test_settings_are_checked_when_they_are_made(tmp_path: Path, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        table(tmp_path, **settings)
    assert error.value.field == field
    with pytest.raises(ConfigError, match="://"):
        EntityTable("/just/a/path", "flights", keys=("tail",), pipeline="p")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: RowRules(sequence_by=" "), "sequence_by"),
        (lambda: RowRules(delete_when=""), "delete_when"),
        (lambda: RowRules(reject_by=" "), "reject_by"),
        (lambda: Writing(timeout=0), "timeout"),
        (lambda: Writing(timeout=float("nan")), "timeout"),
        (lambda: OwnershipRecords("memory://x", None), "group"),  # type: ignore[arg-type]
        (lambda: OwnershipRecords(None, GROUP), "store"),  # type: ignore[arg-type]
    ],
)
def test_a_value_refuses_what_it_can_tell_by_itself(make: Callable[[], object], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert error.value.field == field


def test_it_can_be_sent_elsewhere_and_says_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """Without what has locks: a subscriber's list, and the clock of whoever made it."""
    notices, told = Notices(), list[TableApplied]()
    notices.subscribe(told.append, TableApplied)
    rules, writing = RowRules(reject_by="IF(tail = 'c', 'not here', NULL)"), Writing(keep=("partition",))
    entities = table(tmp_path, rules=rules, writing=writing, runtime=Runtime(base=tmp_path, notices=notices))
    assert entities.notices is notices
    assert entities.row_count() == 0
    identity = entities.sink_identity()
    entities.apply_query_batch(events(spark, "tail STRING", ("a",), ("b",)), 0)
    copy = pickle.loads(pickle.dumps(entities))  # noqa: S301 -- of our own making
    assert (copy.sink_identity(), copy.row_count(), copy.totals.batches) == (identity, 2, 0)
    again = copy.apply_batch(events(spark, "tail STRING", ("c",), ("d",), first=2))
    assert again == one_row_each(applied=1, rejected=1)
    assert look(tmp_path) == [("a", "0"), ("b", "0"), ("d", "0")]
    assert len(told) == 1
    copy.set_watermarks("h", {"0": Watermark(7, 3)})
    assert entities.watermarks("h") == {"0": Watermark(7, 3)}
    entities.close()


def test_foreach_batch_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    entities = table(tmp_path)
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 1).load()
    stream = rates.selectExpr(
        "concat('N', value % 3) AS tail", "value", "'h' AS hub", "'0' AS partition",
        "value AS sequenceNumber", "1L AS ownerLevel",
    )  # fmt: skip
    entities.check(stream)
    three = threading.Event()

    def apply(batch: DataFrame, batch_id: int) -> None:
        if batch_id < 3:
            entities.apply_query_batch(batch, batch_id)
        three.set() if batch_id == 2 else None

    query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", f"{tmp_path}/c").start()
    until(lambda: three.is_set() or not query.isActive, "three batches")
    assert query.exception() is None
    query.stop()  # where Spark 3.5 is in a batch then, it calls that an exception of the query
    last = entities.watermarks("h")["0"].sequence_number
    assert last >= 14
    assert sorted(value for _, value in look(tmp_path)) == [last - 2, last - 1, last]
