"""The workers of a session are started while the driver still checks, and nothing depends on it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from leasehold.spark.loop import warming
from leasehold.spark.loop.warming import GROUP, warm_up
from tests.waiting import PATIENCE


def warmed(spark: SparkSession) -> list[str]:
    """How the jobs of a warm-up have ended."""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(GROUP))
    thread = warm_up(spark)
    assert thread is not None
    thread.join(PATIENCE)
    assert not thread.is_alive()
    jobs = [tracker.getJobInfo(number) for number in {*tracker.getJobIdsForGroup(GROUP)} - before]
    return [job.status for job in jobs if job is not None]


def test_a_job_imports_in_the_workers_what_tasks_need(spark: SparkSession) -> None:
    assert warmed(spark) == ["SUCCEEDED"]


def test_one_that_fails_ends_nothing_else(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ImportError("no such module")

    monkeypatch.setattr(warming, "_import", fails)
    assert warmed(spark) == ["FAILED"]
    assert spark.range(3).count() == 3
