"""What is said of PySpark's releases, held to the one that is installed; `tests/versions` looks at the others."""

from __future__ import annotations

import datetime as dt
import importlib.util
import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.ml.functions import array_to_vector
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program
from pyspark.sql.types import StructType

import leasehold.spark
from leasehold.errors import ConfigError, SchemaMismatch, UsageError
from leasehold.spark.session import versions
from leasehold.spark.session.versions import (
    FIRST_WITH_SOURCE,
    NEWEST,
    OLDEST,
    Release,
    arrow_schema,
    check_release,
    has_source,
    newest_java,
    no_rows_of,
    parse_release,
    release,
    schema_from_ddl,
    session_defaults,
    to_arrow,
    types_named,
)
from leasehold.spark.stream import registration
from leasehold.spark.stream.registration import register
from tests.repository import ROOT


@pytest.fixture(autouse=True)
def _said_anew() -> Iterator[None]:
    check_release.cache_clear()
    yield
    check_release.cache_clear()


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.3.0", (4, 3)), ("3.5.9", (3, 5)), ("4.1.0.dev4", (4, 1)), ("3.5.0-amzn-1", (3, 5)), ("4.10.0", (4, 10))],
)
def test_a_release_is_read_from_a_version(version: str, expected: tuple[int, int]) -> None:
    assert parse_release(version) == expected


def test_the_range_is_that_of_the_extra_and_the_installed_one_is_its_newest() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'"pyspark>={OLDEST},<{NEWEST.major}.{NEWEST.minor + 1}"' in project
    assert OLDEST <= release() <= NEWEST
    check_release()


@pytest.mark.parametrize("found", [Release(3, 4), Release(2, 4)])
def test_an_older_one_is_refused_with_the_way_out(found: Release) -> None:
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"PySpark = '{found}': .* 3\.5 to 4\.3\. .*pip install 'pyspark>=3\.5,<4\.4'"
        ):
            check_release(found)


def test_a_later_one_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        check_release(Release(4, 4))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "PySpark 4.4 is later" in record.getMessage()
    assert "pip install 'pyspark>=3.5,<4.4'" in record.getMessage()


def test_what_is_no_version_is_named() -> None:
    with pytest.raises(ConfigError, match="PySpark = 'unknown': not a version"):
        parse_release("unknown")


def test_the_python_that_3_5_cannot_do_with_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"lacks.*pip install setuptools"):
        check_release(Release(3, 5))


def test_each_release_has_its_javas() -> None:
    found = [newest_java(each) for each in (Release(3, 5), Release(4, 0), Release(4, 1), Release(4, 2), Release(4, 3))]
    assert found == [17, 21, 21, None, None]


def test_settings_name_classes_that_are_there(spark: SparkSession) -> None:
    (name,) = (value for value in session_defaults(release()).values() if value.startswith("org.apache."))
    assert spark._jvm is not None
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    assert loader.loadClass(name).getName() == name
    for setting, value in session_defaults(release()).items():
        assert spark.conf.get(setting) == value


def test_what_is_not_there_is_left_out() -> None:
    assert [each.__name__ for each in types_named("StringType", "NoSuchType")] == ["StringType"]
    assert has_source() == (release() >= FIRST_WITH_SOURCE)


COLUMNS = {
    "id": ("id", pa.int64(), 2),
    "t": ("7Y", pa.int8(), 7),
    "o": ("true", pa.bool_(), True),
    "f": ("1.5F", pa.float32(), 1.5),
    "m": ("1.10BD", pa.decimal128(3, 2), Decimal("1.10")),
    "b": ("X'FF00'", pa.binary(), b"\xff\x00"),
    "s": ("'x'", pa.string(), "x"),
    "n": ("CAST(null AS STRING)", pa.string(), None),
    "day": ("DATE'2026-01-31'", pa.date32(), dt.date(2026, 1, 31)),
    "at": (
        "TIMESTAMP'2026-01-31 08:00:00.000005+09:00'",
        pa.timestamp("us", tz="UTC"),
        dt.datetime(2026, 1, 30, 23, 0, 0, 5, dt.UTC),
    ),
    "ntz": ("TIMESTAMP_NTZ'2026-01-31 08:00:00'", pa.timestamp("us"), dt.datetime(2026, 1, 31, 8)),
    "i": ("INTERVAL '1' DAY", pa.duration("us"), dt.timedelta(days=1)),
    "map": ("map('k', 'v')", pa.map_(pa.string(), pa.string()), [("k", "v")]),
    "st": ("named_struct('y', array(1.5D, null))", None, {"y": [1.5, None]}),
}
"""By name: an SQL expression, what it is in Arrow, and its value in the last row."""


@pytest.mark.more(but=5)
@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_a_data_frame_as_an_arrow_table(spark: SparkSession, rows: int, partitions: int, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.range(0, 3, 1, partitions).where(f"id < {rows}")
        table = to_arrow(df.selectExpr(*(f"{expression} AS {name}" for name, (expression, _, _) in COLUMNS.items())))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert table.num_rows == rows
    assert table.column_names == list(COLUMNS)
    for name, (_, type_, value) in COLUMNS.items():
        assert type_ is None or table.schema.field(name).type == type_, name
        assert not rows or table.column(name)[-1].as_py() == value, name


BELOW_NULLS = {
    "IF(id % 2 = 0, named_struct('a', array(id)), NULL)": [{"a": [0]}, None, {"a": [2]}],
    "IF(id % 2 = 0, named_struct('a', named_struct('b', id)), NULL)": [{"a": {"b": 0}}, None, {"a": {"b": 2}}],
    "IF(id % 2 = 0, named_struct('a', map('k', id)), NULL)": [{"a": [("k", 0)]}, None, {"a": [("k", 2)]}],
    "array(named_struct('a', id), NULL, named_struct('a', id))": [[{"a": n}, None, {"a": n}] for n in range(3)],
    "map('k', IF(id > 0, named_struct('a', id), NULL))": [[("k", None)], [("k", {"a": 1})], [("k", {"a": 2})]],
    "array()": [[]] * 3,
    "map()": [[]] * 3,
    "IF(id > 0, array(array()), NULL)": [None, [[]], [[]]],
    "array(NULL, NULL)": [[None, None]] * 3,
    "named_struct('a', map())": [{"a": []}] * 3,
}
"""SQL expressions, and their values in three rows: what is never null stands below a null, or has no type."""


@pytest.mark.more(but=5)
@pytest.mark.parametrize("expression", BELOW_NULLS)
def test_a_null_may_stand_above_what_is_never_null(spark: SparkSession, expression: str) -> None:
    df = spark.range(0, 3, 1, 2).selectExpr(f"{expression} AS x")
    table = to_arrow(df)
    table.validate(full=True)
    assert table.column("x").to_pylist() == BELOW_NULLS[expression]
    assert table.schema.equals(no_rows_of(df).schema)
    assert table.schema.equals(to_arrow(df.where("false")).schema)


def test_a_type_of_a_users_own_may_be_null(spark: SparkSession) -> None:
    vector = array_to_vector(F.array(F.lit(1.5)))
    df = spark.range(0, 2, 1, 1).select(F.when(F.col("id") > 0, vector).alias("x"))
    first, second = to_arrow(df).column("x").to_pylist()
    assert first is None
    assert second["values"] == [1.5]


def test_a_data_frame_without_tasks_has_its_schema(spark: SparkSession) -> None:
    table = to_arrow(spark.createDataFrame([], "a STRING, b ARRAY<BIGINT>"))
    assert (table.num_rows, [str(each.type) for each in table.schema]) == (0, ["string", "list<element: int64>"])


@pytest.mark.parametrize("expression", ["{0}", "array({0})", "map('k', {0})", "named_struct('y', {0})"])
def test_two_fields_of_one_name_are_refused(spark: SparkSession, expression: str) -> None:
    df = spark.range(1).select(F.expr(expression.format("named_struct('x', 1, 'x', 2)")).alias("s"))
    with pytest.raises(
        (SchemaMismatch, PySparkException), match=r"(?i)duplicated field names|two fields of the name x"
    ):
        to_arrow(df)


def test_a_schema_as_it_is_written(spark: SparkSession) -> None:
    schema = schema_from_ddl("id STRING, at TIMESTAMP, m DECIMAL(3, 2)")
    assert isinstance(schema, StructType)
    assert schema.simpleString() == "struct<id:string,at:timestamp,m:decimal(3,2)>"
    assert [each.type for each in arrow_schema(schema)] == [pa.string(), pa.timestamp("us", "UTC"), pa.decimal128(3, 2)]
    with pytest.raises(PySparkException):
        schema_from_ddl("id STRINGS, at")


def test_spark_connect_without_arrow_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"Spark Connect in PySpark .* PySpark 4\.0 or newer"):
        to_arrow(object())  # type: ignore[arg-type]


def test_an_error_in_a_module_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import json\n\njson.of_a_later_release\n")
    monkeypatch.setattr(leasehold.spark, "__path__", [*leasehold.spark.__path__, str(tmp_path)])
    monkeypatch.setitem(leasehold.spark._HOMES, "Broken", "leasehold.spark.broken")
    with pytest.raises(ImportError, match=r"leasehold\.spark\.broken cannot be imported: .*of_a_later_release"):
        from leasehold.spark import Broken  # noqa: F401 -- it is the import that fails


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = leasehold.spark.nothing


without_source = pytest.mark.skipif(not has_source(), reason="this Spark cannot have the source")


@without_source
def test_the_source_may_be_registered_before_and_after_spark_has_found_it(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(AnalysisException, match="hub: is missing"):
        spark.read.format("leasehold").load()
    register(spark)
    register(spark)


def test_where_there_is_no_source_registering_it_names_what_there_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "has_source", lambda: False)
    with pytest.raises(ConfigError, match=r'format\("leasehold"\): needs PySpark 4\.2 or newer.*MicroBatches'):
        register(spark)
    if release() < (4, 0):
        return  # where Spark looks for no source in Python
    refused_source = importlib.import_module("leasehold.spark.stream.refused_source")
    assert registration.found_by_spark() is refused_source.RefusedDataSource
    assert refused_source.RefusedDataSource.name() == "leasehold"
    with pytest.raises(ConfigError, match="MicroBatches"):
        refused_source.RefusedDataSource({})


def test_what_a_module_of_the_package_lacks_is_said_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_home.py").write_text("import types\n\ntypes.TypeOfALaterSpark\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(leasehold.spark._HOMES, "EntityTable", "broken_home")
    with pytest.raises(ImportError, match=r"broken_home cannot be imported: .*no attribute 'TypeOfALaterSpark'"):
        from leasehold.spark import EntityTable  # noqa: F401
