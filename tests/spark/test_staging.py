"""Batches whose rows Spark's tasks bring into Postgres by themselves: rows, rejects, and what happens to tasks."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import ConfigError, StaleBatch
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventRange
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks.base import Stager
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table import BatchResult
from leasehold.sinks.staged import StagedBatch
from leasehold.spark import EntityTable, MicroBatches, RowRules, Writing, read_json
from leasehold.spark.loop.evaluation import Evaluation
from leasehold.spark.loop.jobs import jobs_on
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.plan.batch import BatchTransform
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.table.of_file import table_of
from tests.repository import ROOT
from tests.sinks.postgres import Place
from tests.sinks.postgres_writer import IN_TASK
from tests.spark.places import FENCE, QUICK
from tests.spark.programs import FAST
from tests.spark.stagers import CutOff, Killed, Twice, WithoutDriver
from tests.waiting import until

KEPT = [(f"{partition}-{key}", n) for partition in "01" for key, n in ((0, 9), (1, 7), (2, 8))]
LEFT = "SELECT count(*) FROM leasehold_staged"
STAGED = Writing(stage_from=1)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LogHub]:
    """Ten events and one that cannot be read in each of two partitions."""
    made = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in ("0", "1"):
        bodies = [json.dumps({"id": f"{partition}-{n % 3}", "n": n}).encode() for n in range(10)]
        made.send([Event(body) for body in (*bodies, b"?")], partition=partition)
    yield made
    made.close()


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were staged of each batch that was applied."""
    seen: list[int] = []
    apply_staged = PostgresSink.apply_staged

    def noted(self: PostgresSink, batch: StagedBatch, *others: Any) -> BatchResult:
        seen.append(batch.rows)
        return apply_staged(self, batch, *others)

    monkeypatch.setattr(PostgresSink, "apply_staged", noted)
    return seen


@contextmanager
def staging_by(monkeypatch: pytest.MonkeyPatch, made: Callable[[Stager], Stager]) -> Iterator[None]:
    """Tasks stage by what is made of the sink's own stager."""
    stager = PostgresSink.stager

    def other(self: PostgresSink) -> Stager | None:
        found = stager(self)
        return None if found is None else made(found)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresSink, "stager", other)
        yield


def applied(
    spark: SparkSession,
    place: Place,
    hub: LogHub,
    folder: Path,
    *,
    rules: RowRules | None = None,
    writing: Writing = STAGED,
    **more: Any,
) -> EntityTable:
    """The table, after a loop over all events; `more` are options of the loop."""
    table = EntityTable(place.url, "flights", keys=["id"], pipeline="flights", rules=rules, writing=writing)
    options = {**QUICK, "available_now": True, "pipeline": "flights", "schema": "id STRING, n BIGINT", **more}
    with MicroBatches(spark, hub.url, store=f"sqlite:///{folder}/stores.db", **options) as batches:
        for batch in batches:
            table.apply(batch.events.select("id", "n", *FENCE), batch)
    return table


def test_rows_and_rejects_come_from_tasks_and_a_small_batch_from_the_driver(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path, staged: list[int]
) -> None:
    rules = RowRules(reject_by="IF(n = 4, 'four', NULL)", delete_when="n = 9", sequence_by="n")
    applied(spark, place, hub, tmp_path, rules=rules).close()
    assert sum(staged) == 22
    assert place.look("SELECT id, n FROM flights ORDER BY id") == [one for one in KEPT if one[1] != 9]
    aside = "SELECT partition, sequence_number, body, reason FROM flights_rejected ORDER BY 1, 2"
    rejected = place.look(aside)
    assert [(one[0], one[1]) for one in rejected] == [("0", 4), ("0", 10), ("1", 4), ("1", 10)]
    assert [one[3] for one in rejected][::2] == ["four", "four"]
    assert json.loads(rejected[0][2]) == {"id": "0-1", "n": 4}
    assert bytes(rejected[1][2]) == b"?"
    assert place.look(LEFT) == [(0,)]
    hub.send([Event(b'{"id": "0-0", "n": 11}')], partition="0")
    applied(spark, place, hub, tmp_path, rules=rules, writing=Writing(stage_from=2)).close()
    assert sum(staged) == 22
    assert place.look("SELECT n FROM flights WHERE id = '0-0'") == [(11,)]


def test_a_second_attempt_of_each_task_changes_nothing(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path, staged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with staging_by(monkeypatch, Twice):
        applied(spark, place, hub, tmp_path).close()
    assert sum(staged) == 22
    assert place.look("SELECT id, n FROM flights ORDER BY id") == KEPT
    assert place.look(LEFT) == [(0,)]


def test_a_worker_that_is_killed_behind_its_copy_leaves_nothing(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path, staged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with staging_by(monkeypatch, lambda stager: Killed(stager, tmp_path / "killed")):
        applied(spark, place, hub, tmp_path).close()
    assert (tmp_path / "killed").exists()
    assert sum(staged) == 22
    assert place.look("SELECT id, n FROM flights ORDER BY id") == KEPT
    assert place.look(LEFT) == [(0,)]


def test_no_more_tasks_stage_at_a_time_than_connections_are_allowed(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []
    apply_staged = PostgresSink.apply_staged

    def noted(self: PostgresSink, batch: StagedBatch, *others: Any) -> BatchResult:
        attempts.append(sum(bool(one.rows and not one.set_aside) for one in batch.receipts))
        return apply_staged(self, batch, *others)

    monkeypatch.setattr(PostgresSink, "apply_staged", noted)
    kept = f"SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%{place.schema}%leasehold_staged%'"
    writing = Writing(stage_from=1, stage_connections=1)
    applied(spark, place, hub, tmp_path, writing=writing, min_partitions=2).close()
    assert set(attempts) == {1}
    until(lambda: place.look(kept) == [(0,)], "the server to end what a task has closed")
    assert place.look("SELECT id, n FROM flights ORDER BY id") == KEPT


def test_what_was_sent_twice_is_dropped_of_what_tasks_have_staged(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path, staged: list[int]
) -> None:
    rules = RowRules(deduplicate_by="id", deduplicate_for="1h", reject_by="IF(n IN (1, 4), 'odd', NULL)")
    table = applied(spark, place, hub, tmp_path, rules=rules)
    assert sum(staged) == 22
    assert (table.totals.applied, table.totals.duplicates, table.totals.rejected) == (4, 14, 4)
    assert place.look("SELECT id, n FROM flights ORDER BY id") == [("0-0", 0), ("0-2", 2), ("1-0", 0), ("1-2", 2)]
    aside = "SELECT sequence_number FROM flights_rejected ORDER BY partition, sequence_number"
    assert place.look(aside) == [(1,), (10,), (1,), (10,)]
    assert place.look(LEFT) == [(0,)]
    table.close()


def test_a_batch_of_a_query_is_staged_if_its_rows_are_the_querys(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path, staged: list[int]
) -> None:
    rules, writing = RowRules(reject_by="reason"), Writing(stage_from=20)
    table = EntityTable(place.url, "flights", keys=["id"], pipeline="flights", rules=rules, writing=writing)
    source = spark.readStream.format("leasehold").option("hub", hub.url)
    source = source.option("store", f"sqlite:///{tmp_path}/stores.db")
    events = source.options(**FAST, **table.stream_options()).load()
    refused: list[str] = []

    def apply(df: DataFrame, batch: int) -> None:
        rows = read_json(df, "id STRING, n BIGINT").select("id", "n", "reason", *FENCE)
        with pytest.raises(StaleBatch, match="other events than this batch of the query") as raised:
            table.apply(rows.withColumn("sequenceNumber", F.col("sequenceNumber") + 1000), batch)
        refused.append(str(raised.value))
        table.apply(rows, batch)

    query = events.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "scratch"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sum(staged) == 22
    assert refused
    assert table.totals.rejected == 2
    assert place.look("SELECT id, n FROM flights ORDER BY id") == KEPT
    assert place.look(LEFT) == [(0,)]
    table.close()


@pytest.mark.parametrize(("name", "value"), [("stage_from", -1), ("stage_connections", 0), ("stage_connections", True)])
def test_what_is_no_number_is_refused_by_name(name: str, value: int) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=rf"^{name} = {value}: .* or more, or None"):
        Writing(**given)


@pytest.mark.parametrize("kind", [CutOff, WithoutDriver])
def test_where_tasks_do_not_reach_the_database_rows_pass_through_the_driver(
    spark: SparkSession,
    place: Place,
    hub: LogHub,
    tmp_path: Path,
    staged: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: Callable[[Stager], Stager],
) -> None:
    with staging_by(monkeypatch, kind), caplog.at_level(logging.WARNING):
        applied(spark, place, hub, tmp_path).close()
    assert not staged
    assert "could not stage their rows, which pass through the driver" in caplog.text
    assert "no route to the database" in caplog.text
    assert place.look("SELECT id, n FROM flights ORDER BY id") == KEPT


PIPELINE = """
name = "flights"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
[transform]
schema = "id STRING, n BIGINT"
sql = "SELECT id, 100 DIV (n - 5) AS n, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "{url}"
table = "flights"
keys = ["id"]
stage_from = 1
"""


def test_a_batch_of_a_pipeline_file_is_staged_unless_it_is_to_be_looked_into(
    spark: SparkSession, place: Place, hub: LogHub, tmp_path: Path
) -> None:
    path = tmp_path / "flights.toml"
    path.write_text(PIPELINE.format(url=place.url))
    file = read_pipeline_file(path)
    table, transform = table_of(file), BatchTransform(file, spark)
    spec = ReadSpec(file.hub_url, FENCE, 1000, None, transform.bodies())
    jobs = jobs_on(spark, spec, transform.read_schema(FENCE, inline=False))
    evaluation = Evaluation(jobs, transform, table, name="flights", lasting=True)

    def order(begin: int, end: int, **settings: Any) -> Order:
        ranges = tuple(EventRange(hub.identity, partition, 1, begin, end) for partition in "01")
        tasks = tuple((ReadRange(one.partition, begin, end, 1),) for one in ranges)
        return Order(hub.identity, ranges, tasks, **settings)

    first = evaluation(order(0, 5)).batch
    assert isinstance(first, StagedBatch)
    assert first.rows == 10
    assert table.write(first) == BatchResult(applied=10)
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        evaluation(order(5, 6))
    assert place.look(LEFT) == [(0,)]
    nothing = evaluation(order(5, 5, may_stage=False)).batch
    assert isinstance(nothing, Batch)
    table.write(replace(nothing, ranges=order(5, 6).ranges))
    last = evaluation(order(6, 11)).batch
    assert isinstance(last, StagedBatch)
    assert table.write(last) == BatchResult(applied=8, rejected=2)
    assert place.look(LEFT) == [(0,)]
    assert place.look("SELECT id, n FROM flights ORDER BY id") == [(key, 100 // (n - 5)) for key, n in KEPT]
    table.close()


def a_worker_is_killed_at_each(place: Place, folder: Path, points: Sequence[str]) -> None:
    """One in each batch, on a session that tries tasks again: no batch fails, and each event is there once."""
    each, partitions = 40, ("0", "1")
    numbers = range((len(points) + 2) * each // len(partitions))
    made = LogHub.create(folder / "events.db", partitions=len(partitions))
    for partition in partitions:
        bodies = [json.dumps({"id": partition, "n": n}).encode() for n in numbers]
        made.send([Event(body) for body in bodies], partition=partition)
    program = [sys.executable, "-m", "tests.spark.retried_program", place.url, made.url, str(folder), str(each)]
    made.close()
    ended = subprocess.run([*program, *points], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == 0
    assert set(ended.stdout.splitlines()) == {"failure: None"}
    assert sorted(mark.read_text() for mark in folder.glob("killed-*")) == sorted(points)
    assert [mark.read_text() for mark in folder.glob("survived-*")] == []
    found = place.look('SELECT id, n, partition, "sequenceNumber" FROM flights ORDER BY 1, 2')
    assert found == [(partition, n, partition, n) for partition in partitions for n in numbers]
    assert place.look(LEFT) == [(0,)]


@pytest.mark.soak
def test_a_worker_killed_at_any_point_of_its_staging_is_no_failure_of_the_batch(place: Place, tmp_path: Path) -> None:
    a_worker_is_killed_at_each(place, tmp_path, list(IN_TASK))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", IN_TASK)
def test_twenty_times(place: Place, tmp_path: Path, point: str) -> None:
    a_worker_is_killed_at_each(place, tmp_path, [point] * 20)
