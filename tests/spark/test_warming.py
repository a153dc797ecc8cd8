"""The first worker of a session is started while the driver still checks, and nothing depends on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from leasehold.spark.loop import warming
from leasehold.spark.loop.warming import GROUP, WarmUp
from tests.waiting import until


def warmed(spark: SparkSession) -> list[str]:
    """How the jobs of a warm-up have ended."""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(GROUP))
    WarmUp(spark).wait(threading.Event())
    jobs = [tracker.getJobInfo(number) for number in {*tracker.getJobIdsForGroup(GROUP)} - before]
    return [job.status for job in jobs if job is not None]


def test_a_job_imports_in_a_worker_what_tasks_need(spark: SparkSession) -> None:
    assert warmed(spark) == ["SUCCEEDED"]


@pytest.mark.more
def test_one_that_fails_ends_nothing_else(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ImportError("no such module")

    monkeypatch.setattr(warming, "_import", fails)
    assert warmed(spark) == ["FAILED"]
    assert spark.range(3).count() == 3


def test_a_stop_ends_the_waiting(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        threading.Event().wait()
        yield from numbers

    monkeypatch.setattr(warming, "_import", never)
    stop, warm_up = threading.Event(), WarmUp(spark)
    stop.set()
    warm_up.wait(stop)
    until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds(), "the job to be there")
    spark.sparkContext.cancelJobGroup(GROUP)  # as the end of the session does
    warm_up.end()
    assert not [thread for thread in threading.enumerate() if thread.name == "leasehold warm-up"]
