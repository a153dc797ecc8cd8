"""One Spark session for all tests: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from leasehold.spark.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("leasehold tests", {"spark.sql.shuffle.partitions": "2"}, "local[2]")
    yield session
    session.stop()
