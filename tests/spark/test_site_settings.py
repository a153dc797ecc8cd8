"""Settings that a site's Spark brings: the table is the same, or the start is refused by the setting's name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leasehold.errors import ConfigError
from tests.spark.site_tables import SCHEMA, WAYS, contents, make_log
from tests.waiting import PATIENCE

WHILE_IT_RUNS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
}
ALL = pytest.param(WHILE_IT_RUNS, id="all")
EACH = [pytest.param({name: value}, id=name, marks=pytest.mark.soak) for name, value in WHILE_IT_RUNS.items()]


@contextmanager
def changed(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """While the session has other settings."""
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, former in before.items():
            spark.conf.set(name, str(former))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    make_log(folder)
    return folder


@pytest.fixture(scope="module")
def by_default(spark: SparkSession, log: Path) -> dict[str, list[object]]:
    for fill in WAYS.values():
        fill(spark, log, log)
    return {way: contents(log, way) for way in WAYS}


@pytest.mark.more
@pytest.mark.parametrize("settings", [ALL, *EACH])
@pytest.mark.parametrize("way", WAYS)
def test_the_table_is_the_same(
    spark: SparkSession,
    log: Path,
    by_default: dict[str, list[object]],
    tmp_path: Path,
    way: str,
    settings: dict[str, str],
) -> None:
    with changed(spark, settings):
        WAYS[way](spark, log, tmp_path)
    assert contents(tmp_path, way) == by_default[way]


@pytest.mark.more
def test_a_time_without_a_zone_is_never_what_a_schema_means_by_timestamp(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    schema = SCHEMA.replace("_LTZ", "")
    for fill in WAYS.values():
        with (
            changed(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}),
            pytest.raises(ConfigError, match=r"spark\.sql\.timestampType.*TIMESTAMP_LTZ in schema"),
        ):
            fill(spark, log, tmp_path, schema)


@pytest.mark.more
def test_the_table_is_the_same_on_a_session_that_was_started_so(tmp_path: Path) -> None:
    """With more at once than the driver may take of its tasks: a loop plans less, and a query is told to."""
    make_log(tmp_path, weight=2000)
    program = [sys.executable, "-m", "tests.spark.site_tables", str(tmp_path)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert ran.returncode == 0, ran.stderr
    (_, by_loop, _), by_query = (contents(tmp_path, way) for way in WAYS)
    assert by_loop == by_query[1]
    assert len(by_loop) == 2004  # type: ignore[arg-type]
    assert contents(tmp_path / "killed", "query") == by_query
    assert len(list((tmp_path / "killed").glob("killed-*"))) >= 3, "a task of each batch was tried again"
