"""Batches that the driver reads itself: which they are, and what it leaves to the tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.sinks.rules.batch import Batch
from leasehold.spark.loop import driver_reads
from leasehold.spark.loop.driver_reads import FEW_BYTES, FEW_EVENTS, ReadCancelled, is_small
from leasehold.spark.loop.evaluation import Evaluation
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.settings import loop_settings
from leasehold.spark.loop.watch import CANCEL_PATIENCE, Watch
from leasehold.spark.plan.failures import sort_failure
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.table.of_loop import batch_id
from leasehold_testkit.clock import ManualClock
from tests.spark.evaluations import FENCE, Collected, evaluating, make_hub, order
from tests.waiting import PATIENCE, until

SQL = f"SELECT id, {FENCE} FROM events"
BY_TASKS = ["packed"]


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return make_hub(tmp_path)


def rows(evaluate: Evaluation, wanted: Order) -> int:
    batch = evaluate(wanted).batch
    assert isinstance(batch, Batch)
    return int(batch.rows.num_rows)


def test_the_driver_reads_what_is_one_task_of_few_and_light_events_whose_weight_is_known() -> None:
    def asked(events: int, mean: float, *, known: str = "01", tasks: int = 1) -> bool:
        pieces = ReadRange("0", 0, events - 1, 7), ReadRange("1", 5, 6, 7)
        given = (pieces,) if tasks == 1 else tuple((one,) for one in pieces)
        return is_small(Order("hub", (), given, mean=dict.fromkeys(known, mean)))

    assert asked(FEW_EVENTS, 100.0)
    assert not asked(FEW_EVENTS + 1, 100.0)
    assert not asked(FEW_EVENTS, 100.0, tasks=2)
    assert asked(2, FEW_BYTES / 2)
    assert not asked(2, FEW_BYTES / 2 + 1)
    assert not asked(2, 1.0, known="0")
    assert not asked(2, 1.0, known="")


def test_what_the_driver_cannot_read_fails_as_in_a_task_and_tasks_read_next(
    spark: SparkSession, hub: LogHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected(monkeypatch)
    evaluate, _ = evaluating(spark, tmp_path, SQL)
    weights = evaluate(order(hub)).weights
    hub.send([Event(b"{}")], partition="0")
    failures = []
    for mean in (None, weights):
        with pytest.raises(Exception, match="the hub ends at 3") as failed:
            evaluate(order(hub, 4, mean))
        failures.append(sort_failure(failed.value, computing=True))
    assert failures[0] == failures[1]
    for by_tasks in ([BY_TASKS], []):
        collected.columns.clear()
        assert rows(evaluate, order(hub, mean=weights)) == 4
        assert collected.columns == by_tasks


def test_events_that_are_heavier_than_those_before_them_are_left_to_tasks(
    spark: SparkSession, hub: LogHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected(monkeypatch)
    monkeypatch.setattr(driver_reads, "FEW_BYTES", 1)
    evaluate, _ = evaluating(spark, tmp_path, SQL)
    found = evaluate(order(hub, mean={"0": 0.1, "1": 0.1}))
    assert isinstance(found.batch, Batch)
    assert found.batch.rows.num_rows == 4
    assert found.batch.rejected is not None
    assert found.batch.rejected.num_rows == 2, "of the tasks, and not once more of the driver"
    assert collected.columns == [BY_TASKS]


def test_a_batch_can_be_cancelled_while_the_hub_does_not_answer_the_driver(
    spark: SparkSession, hub: LogHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected(monkeypatch)
    evaluate, jobs = evaluating(spark, tmp_path, SQL)
    few = order(hub, mean=evaluate(order(hub)).weights)
    asked, answers, read = [], threading.Event(), LogHub.read

    def silent(hub: LogHub, partition: str, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        asked.append(partition)
        answers.wait()
        yield from read(hub, partition, *args, **options)

    monkeypatch.setattr(LogHub, "read", silent)  # in this process: the workers have started before
    collected.columns.clear()
    with ThreadPoolExecutor(1) as pool:
        try:
            evaluated = pool.submit(evaluate, few)
            until(lambda: asked, "the driver to ask the hub")
            jobs.cancel(batch_id(few.ranges))
            with pytest.raises(ReadCancelled, match=r"partition 0 \[0, 3\), partition 1 \[0, 3\)"):
                evaluated.result(PATIENCE)
            assert rows(evaluate, few) == 4
            assert collected.columns == [BY_TASKS], "while the driver's own read goes on"
        finally:
            answers.set()

    def the_driver_reads() -> bool:
        collected.columns.clear()
        return rows(evaluate, few) == 4 and collected.columns == []

    until(the_driver_reads, "the driver to read again")
    assert asked == ["0", "0", "1"], "the read that was left has ended with its first answer"


def test_a_batch_that_begins_once_it_is_cancelled_is_cancelled_again(
    spark: SparkSession, hub: LogHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, jobs = evaluating(spark, tmp_path, SQL)
    few = order(hub, mean=evaluate(order(hub)).weights)
    asked, answers = threading.Event(), threading.Event()

    def silent(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        asked.set()
        answers.wait()
        yield from ()

    monkeypatch.setattr(LogHub, "read", silent)
    clock = ManualClock()
    watch = Watch(jobs, clock, loop_settings({"hub": hub.url, "store": "sqlite:///s.db"}), threading.Event())
    watched = watch.over(few.ranges)
    watch.cancel(watched)
    with ThreadPoolExecutor(1) as pool:
        try:
            evaluated = pool.submit(evaluate, few)
            assert asked.wait(PATIENCE), "nobody knows that it was cancelled"
            clock.advance(1.0)
            watch.look(watched)
            with pytest.raises(ReadCancelled):
                evaluated.result(PATIENCE)
        finally:
            answers.set()
    assert not watch.hangs(watched)
    clock.advance(CANCEL_PATIENCE)
    assert watch.hangs(watched), "counted from the first time on"


def test_no_job_begins_for_a_batch_that_is_cancelled(
    spark: SparkSession, hub: LogHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = Collected(monkeypatch)
    evaluate, jobs = evaluating(spark, tmp_path, SQL)
    few = order(hub, mean=evaluate(order(hub)).weights)
    read = LogHub.read

    def last(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(*args, **options)
        finally:
            jobs.cancel(batch_id(few.ranges))

    monkeypatch.setattr(LogHub, "read", last)
    monkeypatch.setattr(driver_reads, "FEW_BYTES", 1)
    collected.columns.clear()
    for wanted in (few, order(hub)):
        jobs.begin(wanted, batch_id(wanted.ranges), "")
        jobs.cancel(batch_id(wanted.ranges))
        with pytest.raises(ReadCancelled):
            jobs.read(wanted)
        jobs.end()
    with pytest.raises(ReadCancelled):
        evaluate(order(hub, mean={"0": 0.1, "1": 0.1}))
    assert collected.columns == []
