"""Changes of Debezium in programs on Spark: the column that the format adds comes there, and need not be stored."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 -- its name in every Spark program

from leasehold import Event
from leasehold.formats import BodyFormat
from leasehold.spark import RowRules, Writing, read_bodies
from tests.formats.debezium_events import UNAVAILABLE, envelope, schema_of, with_schema, written
from tests.spark.places import FENCE, Place, each

_SCHEMA = schema_of({"id": {"type": "string"}, "n": {"type": "int64"}, "word": {"type": "string"}})
CHANGES = [
    with_schema(envelope("c", after={"id": "a", "n": 1, "word": "x"}), _SCHEMA),
    with_schema(envelope("c", after={"id": "b", "n": 1, "word": "y"}), _SCHEMA),
    with_schema(envelope("u", after={"id": "a", "n": 2, "word": UNAVAILABLE}), _SCHEMA),
    with_schema(envelope("d", before={"id": "b", "n": None, "word": None}), _SCHEMA),
    written(envelope("t")),
]


def test_a_loop_writes_the_rows_and_deletes_them(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(spark, tmp_path)
    place.hub.send([Event(body) for body in CHANGES], partition="0")
    table = place.table(
        mode="upsert",
        keys=["id"],
        rules=RowRules(delete_when="__deleted"),
        writing=Writing(except_columns=["__deleted"], unavailable_value=UNAVAILABLE),
    )
    batches = place.batches(format="debezium", schema="id STRING, n BIGINT, word STRING")
    each(batches, lambda batch: table.apply(batch.events.select("id", "n", "word", "__deleted", *FENCE), batch))
    assert place.rows("SELECT * FROM events") == [("a", 2, "x")]
    [(reason,)] = place.rows("SELECT reason FROM events_rejected")
    assert "a truncation" in reason


def test_any_dataframe_is_read_without_what_is_passed_over(spark: SparkSession) -> None:
    schema = T.StructType([T.StructField("body", T.BinaryType()), T.StructField("n", T.IntegerType())])
    events = spark.createDataFrame([(body, n) for n, body in enumerate([*CHANGES, None])], schema)
    read = read_bodies(events, "id STRING, word STRING", BodyFormat(format="debezium")).orderBy("n").collect()
    assert [(row.n, row.id, row.word, row["__deleted"], row.reason is None) for row in read] == [
        (0, "a", "x", False, True),
        (1, "b", "y", False, True),
        (2, "a", UNAVAILABLE, False, True),
        (3, "b", None, True, True),
        (4, None, None, None, False),
    ]
