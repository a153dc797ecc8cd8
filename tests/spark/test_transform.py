"""Bodies to rows, the user's transform, and what is not row-wise, on real Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from leasehold.errors import ConfigError, UsageError
from leasehold.formats import BodyFormat
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.spark.plan.batch_transform import BatchTransform
from leasehold.spark.plan.bodies import read_bodies
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.plan.reading import schema_of
from leasehold.spark.plan.row_wise import check_row_wise, is_repeatable, used_columns
from leasehold.spark.session.versions import to_arrow

BODIES: list[tuple[bytes | None, object]] = [
    (b'{"id":"a","delay":1.5,"n":3}', ("a", 1.5, 3)),
    (b"{}", (None, None, None)),
    (b'{"id":5}', ("5", None, None)),
    (b'{"id":"x","delay":"1.5"}', "the field delay"),
    (b'{"id":"f"}{"id":"g"}', "the body is more than one JSON object"),
    (b"nope", "the body is not a JSON object"),
    (None, "the event has no body"),
]


def events(spark: SparkSession, bodies: list[bytes | None]) -> DataFrame:
    rows: list[tuple[object, ...]] = [
        (body, "0", str(n), n, None, None, None, {}, {}, "hub", 1) for n, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, schema_of(COLUMNS))


def test_bodies_of_any_dataframe_are_read_or_say_why_not(spark: SparkSession) -> None:
    read = read_bodies(events(spark, [body for body, _ in BODIES]), "id STRING, delay DOUBLE, n INT")
    assert read.columns == ["id", "delay", "n", *COLUMNS, "reason"]
    for row in read.collect():
        body, expected = BODIES[row.sequenceNumber]
        if isinstance(expected, str):
            assert str(row.reason).startswith(expected), (body, row.reason)
            assert (row.id, row.delay, row.n) == (None, None, None)
        else:
            assert ((row.id, row.delay, row.n), row.reason) == (expected, None), body
    with pytest.raises(ConfigError, match="schema = 'partition': these columns"):
        read_bodies(events(spark, []), "Partition STRING")


@pytest.mark.more
def test_a_field_that_a_body_lacks_is_null_whatever_the_schema_says(spark: SparkSession) -> None:
    strict = "id STRING NOT NULL, s STRUCT<x: INT NOT NULL> NOT NULL"
    read = read_bodies(events(spark, [b'{"id":"a","s":{"x":1}}', b'{"s":{}}', b"{}", b"nope"]), strict)
    assert [tuple(row)[:2] for row in read.collect()] == [("a", (1,)), (None, (None,)), (None, None), (None, None)]
    assert read.where("id IS NULL").count() == 3
    assert [row.x for row in read.selectExpr("coalesce(s.x, -1) AS x").collect()] == [1, -1, -1, -1]
    assert to_arrow(read.select("s")).column("s").to_pylist() == [{"x": 1}, {"x": None}, None, None]


def test_fields_that_the_schema_does_not_know_may_be_kept(spark: SparkSession) -> None:
    read = read_bodies(
        events(spark, [b'{"id":"a","new":{"x":1.0}}', b'{"id":"b"}']), "id STRING", BodyFormat(rescue="rest")
    )
    assert [(row.id, row.rest) for row in read.collect()] == [("a", '{"new":{"x":1.0}}'), ("b", None)]


def test_times_may_be_cut_to_microseconds(spark: SparkSession, tmp_path: Path) -> None:
    fine = b'{"at":"2026-02-03T04:05:06.123456789Z"}'
    (strict,) = read_bodies(events(spark, [fine]), "at TIMESTAMP").collect()
    assert 'timestamps = "truncate"' in strict.reason
    text = read_bodies(events(spark, [fine]), "at TIMESTAMP", BodyFormat(timestamps="truncate")).selectExpr(
        "CAST(at AS STRING) AS at"
    )
    assert [row["at"] for row in text.collect()] == ["2026-02-03 04:05:06.123456"]
    reader = BatchTransform(pipeline(tmp_path, 'schema = "at TIMESTAMP"\ntimestamps = "truncate"'), spark).bodies()
    assert reader is not None
    assert reader.read(pa.array([fine])).reasons is None


def pipeline(folder: Path, transform: str) -> PipelineFile:
    path = folder / "p.toml"
    path.write_text(
        'name = "p"\n[source]\nhub = "log:///h.db"\n[ownership]\nstore = "sqlite:///s.db"\n'
        f'[sink]\nurl = "sqlite:///t.db"\ntable = "t"\nmode = "append"\n[transform]\n{transform}\n'
    )
    return read_pipeline_file(path)


FENCE = "hub, partition, sequenceNumber, ownerLevel"


def test_only_the_columns_that_are_used_are_read(spark: SparkSession, tmp_path: Path) -> None:
    for transform, used in (
        (f"schema = 'id STRING'\nsql = 'SELECT id, {FENCE} FROM events'", set()),
        (f"sql = 'SELECT publisher p, {FENCE} FROM events WHERE partitionKey = \"k\"'", {"publisher", "partitionKey"}),
        (f"sql = 'SELECT explode(properties), {FENCE} FROM events'", {"properties"}),
        ("", set(COLUMNS)),
    ):
        transformed = BatchTransform(pipeline(tmp_path, transform), spark).dry_run()
        assert used_columns(transformed, COLUMNS) == used | {"hub", "partition", "sequenceNumber", "ownerLevel"}


@pytest.mark.parametrize(
    ("sql", "operator"),
    [
        (f"SELECT count(*) OVER (PARTITION BY partition), {FENCE} FROM events", "Window"),
        ("SELECT max(sequenceNumber) FROM events GROUP BY partition", "Aggregate"),
        (f"SELECT DISTINCT {FENCE} FROM events", "Distinct"),
        (f"SELECT {FENCE} FROM events ORDER BY partition", "Sort"),
        (f"SELECT {FENCE} FROM events LIMIT 3", "GlobalLimit"),
        ("SELECT e.* FROM events e JOIN events f USING (offset)", "Join"),
        (f"SELECT {FENCE} FROM events WHERE sequenceNumber > (SELECT avg(sequenceNumber) FROM events)", "subquery"),
    ],
)
def test_what_is_not_row_wise_is_refused_by_name(spark: SparkSession, tmp_path: Path, sql: str, operator: str) -> None:
    transform = BatchTransform(pipeline(tmp_path, f"sql = '{sql}'"), spark)
    with pytest.raises(UsageError, match=operator):
        transform.dry_run()


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ("schema = 'id STRINGY'", r"transform.schema = 'id STRINGY': not a schema"),
        (
            "schema = 'Partition STRING, id INT, ID INT'",
            "transform.schema = 'id, partition': these columns occur twice",
        ),
        ("sql = 'SELECT nothing FROM events'", "transform.sql: Spark refuses it.*nothing"),
        ("python = 'nowhere:f'", "transform.python = 'nowhere:f': cannot be imported"),
        ("python = 'nowhere'", "transform.python = 'nowhere': written as module:function"),
        ("python = 'json:nope'", "transform.python = 'json:nope': cannot be imported"),
    ],
)
def test_a_bad_transform_names_file_and_key(spark: SparkSession, tmp_path: Path, transform: str, said: str) -> None:
    file = pipeline(tmp_path, transform)
    with pytest.raises(ConfigError, match=rf"p\.toml: {said}"):
        BatchTransform(file, spark).dry_run()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(df): df.select('offset')", "the function has returned a NoneType, and not a DataFrame"),
        ("def f(df, more): return df", r"it raises TypeError: f\(\) missing 1 required"),
        ("def f(df): return df.selct('offset')", "(it raises AttributeError|Spark refuses it).*selct"),
        ("def f(df: return df", r"cannot be imported \(SyntaxError: "),
        ("nothing.at.all", "cannot be imported \\(NameError: name 'nothing'"),
    ],
)
def test_what_is_wrong_with_a_function_is_told(spark: SparkSession, tmp_path: Path, code: str, said: str) -> None:
    name = f"wrong_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    with pytest.raises(UsageError, match=rf"p\.toml: transform\.python.*{said}"):
        BatchTransform(pipeline(tmp_path, f"python = '{name}:f'"), spark).dry_run()


@pytest.mark.parametrize(
    ("columns", "repeatable"),
    [
        ("upper(offset) AS o", True),
        ("explode(map_keys(properties)) AS k", True),
        ("current_timestamp() AS t", False),
        ("date_add(current_date(), 1) AS t", False),
        ("now() AS t", False),
        ("uuid() AS u", False),
        ("sequenceNumber + rand() AS r", False),
    ],
)
def test_a_plan_that_gives_the_same_rows_another_time_is_known(
    spark: SparkSession, columns: str, repeatable: bool
) -> None:
    df = events(spark, []).selectExpr(columns, "partition")
    assert is_repeatable(df) == repeatable
    assert not is_repeatable(df.repartition(3)), "a shuffle keeps its files"
    check_row_wise(df.repartition(3, "partition"))


def test_columns_are_found_however_the_query_writes_them(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], schema_of(COLUMNS))
    assert used_columns(nothing.selectExpr("enqueuedtime", "upper(PARTITIONKEY) AS k"), COLUMNS) == {
        "enqueuedTime",
        "partitionKey",
    }
