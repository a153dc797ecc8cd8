"""One Spark session for all tests of a worker, since it takes seconds to start; and what many of them work on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from leasehold.spark.session.opening import open_session
from tests.class_archive import QUICK

if TYPE_CHECKING:
    from tests.spark.programs import Program
    from tests.spark.streams import Bench

NOTHING_COMPILED: dict[str, Any] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of what a test asks of Spark, compiling would take longer than doing it."""
SETTINGS = {
    **NOTHING_COMPILED,
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.python.daemon.module": "tests.spark.quick_daemon",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("leasehold tests", SETTINGS, "local[2]")
    yield session
    session.stop()


@pytest.fixture
def program(spark: SparkSession, tmp_path: Path) -> Program:
    """A streaming program on a log of two partitions."""
    from tests.spark.programs import Program

    return Program(spark, tmp_path)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    """Streams on a log of three partitions."""
    from leasehold.hubs.log.hub import LogHub
    from tests.spark.streams import Bench

    return Bench(spark, tmp_path, LogHub.create(tmp_path / "hub.db", partitions=3))
