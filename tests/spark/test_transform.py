"""Bodies to rows, the user's transform, and what is not row-wise, on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from leasehold.errors import ConfigError, UsageError
from leasehold.spark.batch import BatchTransform
from leasehold.spark.options import COLUMNS
from leasehold.spark.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.spark.reading import schema_of
from leasehold.spark.transform import has_bad_rows, parse_json, used_columns

SCHEMA = "id STRING, delay DOUBLE, n INT"
NOT_AN_OBJECT, NO_FIT = "the body is not a JSON object", "the body does not fit the schema"
BODIES: list[tuple[bytes | None, object]] = [
    (b'{"id":"a","delay":1.5,"n":3}', ("a", 1.5, 3)),
    (b' \n{"id":"b"}\t\r\n', ("b", None, None)),
    (b"{}", (None, None, None)),
    (b" { } ", (None, None, None)),
    (b'{"id":null,"delay":1,"unknown":[{}]}', (None, 1.0, None)),
    (b'{"id":"}{","n":1}', ("}{", None, 1)),
    ('{"id":"grün \\u00e9 \U0001f600"}'.encode(), ("grün é \U0001f600", None, None)),
    (b'{"id":5}', ("5", None, None)),
    (b'{"id":"x","delay":"1.5"}', NO_FIT),
    (b'{"id":"x","n":99999999999}', NO_FIT),
    (b'{"id":"x","n":1.5}', NO_FIT),
    (b'{"id":"x","delay":true}', NO_FIT),
    (b'{"id":"e"} trailing', NOT_AN_OBJECT),
    (b'{"id":"f"}{"id":"g"}', "the body is more than one JSON object"),
    (b'{"id":"f"}}', "the body is more than one JSON object"),
    (b'{"id":"f"}]}', "the body is more than one JSON object"),
    (b'[{"id":"c"}]', NOT_AN_OBJECT),
    (b"nope", NOT_AN_OBJECT),
    (b"5", NOT_AN_OBJECT),
    (b"null", NOT_AN_OBJECT),
    (b"", NOT_AN_OBJECT),
    (b'{"id":"x"', NOT_AN_OBJECT),
    (b'{"id":"x",}', NOT_AN_OBJECT),
    (b"{'id':'x'}", NOT_AN_OBJECT),
    (b'{"delay":NaN}', NOT_AN_OBJECT),
    (b'{"id":"\xff"}', "the body is not valid UTF-8"),
    (None, "the event has no body"),
]
HUGE = "a number in the body has an exponent of four digits or more, which no DECIMAL holds"


def events(spark: SparkSession, bodies: list[bytes | None]) -> DataFrame:
    rows: list[tuple[object, ...]] = [
        (body, "0", str(n), n, None, None, None, {}, {}, "hub", 1) for n, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, schema_of(COLUMNS))


def test_every_body_is_read_or_rejected_with_its_reason(spark: SparkSession) -> None:
    schema = StructType.fromDDL(SCHEMA)
    assert isinstance(schema, StructType)
    parsed = parse_json(events(spark, [body for body, _ in BODIES]), schema)
    good = {row.sequenceNumber: (row.id, row.delay, row.n) for row in parsed.good.collect()}
    bad = {row.sequenceNumber: (row.body, row.reason) for row in parsed.bad.collect()}
    assert good.keys() | bad.keys() == set(range(len(BODIES)))
    for number, (body, expected) in enumerate(BODIES):
        if isinstance(expected, str):
            said = bad[number]
            assert said[1].startswith(expected), (body, said)
            assert (None if said[0] is None else bytes(said[0])) == body
        else:
            assert good[number] == expected, body


def pipeline(folder: Path, transform: str) -> PipelineFile:
    path = folder / "p.toml"
    path.write_text(
        'name = "p"\n[source]\nhub = "log:///h.db"\n[ownership]\nstore = "sqlite:///s.db"\n'
        f'[sink]\nurl = "sqlite:///t.db"\ntable = "t"\nmode = "append"\n[transform]\n{transform}\n'
    )
    return read_pipeline_file(path)


FENCE = "hub, partition, sequenceNumber, ownerLevel"


def test_rejected_events_are_noticed_while_the_others_are_computed(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"schema = 'id STRING'\nsql = 'SELECT id, {FENCE} FROM events WHERE id <> \"skip\"'"
    transform = BatchTransform(pipeline(tmp_path, sql), list(COLUMNS))
    for bodies, rows, rejected in (
        ([b'{"id":"a"}', b'{"id":"skip"}'], 1, 0),
        ([b'{"id":"skip"}', b"oops"], 0, 1),
        ([b"oops", b"oops", b'{"id":"a"}'], 1, 2),
    ):
        batch = transform(events(spark, list(bodies)))
        assert batch.good.toArrow().num_rows == rows
        assert has_bad_rows(batch.good) == bool(rejected)
        bad = batch.rejected(batch.good)
        assert (0 if bad is None else bad.count()) == rejected


def test_only_the_columns_that_are_used_are_read(spark: SparkSession, tmp_path: Path) -> None:
    for transform, used in (
        (f"schema = 'id STRING'\nsql = 'SELECT id, {FENCE} FROM events'", {"body"}),
        (f"sql = 'SELECT publisher p, {FENCE} FROM events WHERE partitionKey = \"k\"'", {"publisher", "partitionKey"}),
        (f"sql = 'SELECT explode(properties), {FENCE} FROM events'", {"properties"}),
        ("", set(COLUMNS)),
    ):
        nothing = spark.createDataFrame([], schema_of(COLUMNS))
        transformed = BatchTransform(pipeline(tmp_path, transform), list(COLUMNS)).dry_run(nothing)
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
    transform = BatchTransform(pipeline(tmp_path, f"sql = '{sql}'"), list(COLUMNS))
    with pytest.raises(UsageError, match=operator):
        transform.dry_run(spark.createDataFrame([], schema_of(COLUMNS)))


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
        BatchTransform(file, list(COLUMNS)).dry_run(spark.createDataFrame([], schema_of(COLUMNS)))


@pytest.mark.timeout(60)
def test_an_exponent_that_would_keep_spark_busy_for_hours_is_rejected(spark: SparkSession) -> None:
    schema = StructType.fromDDL("id STRING, some ARRAY<STRUCT<m: DECIMAL(20,2)>>")
    assert isinstance(schema, StructType)
    bodies = [b'{"id":"a","some":[{"m":1e400000000}]}', b'{"some":[{"m": -1.5E-0999999999 }]}']
    bodies += [b'{"id":"1e400000000","some":[{"m":12e3}]}', b'{"id":",1e99999"}']
    parsed = parse_json(events(spark, list(bodies)), schema)
    assert [row.id for row in parsed.good.collect()] == ["1e400000000", ",1e99999"]
    assert [row.reason for row in parsed.bad.collect()] == [HUGE, HUGE]


def test_columns_are_found_however_the_query_writes_them(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], schema_of(COLUMNS))
    assert used_columns(nothing.selectExpr("enqueuedtime", "upper(PARTITIONKEY) AS k"), COLUMNS) == {
        "enqueuedTime",
        "partitionKey",
    }
