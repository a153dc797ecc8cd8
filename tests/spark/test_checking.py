"""`leasehold check` with Spark: transform, table, a task's view and a sample of events."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.operations.checking import TASK, Finding
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks import TableSpec, open_sink
from leasehold.spark.checking import columns_of, look_with_spark
from tests.sinks.events import run

PIPELINE = """
name = "flights"
[source]
hub = "log:///hub.db"
[ownership]
store = "{store}"
[transform]
schema = "id STRING, n BIGINT"
sql = "SELECT {id} AS id, {n} AS n, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///entities.db"
table = "flights"
keys = {keys}
"""
GOOD = [b'{"id": "a", "n": 1}', b'{"id": "b", "n": 2}', b'{"id": "c", "n": 3}']


def checked(spark: SparkSession, folder: Path, timeout: float = 60.0, **change: str) -> list[Finding]:
    given = {"store": "sqlite:///stores.db", "id": "id", "n": "n", "keys": '["id"]', **change}
    (folder / "flights.toml").write_text(PIPELINE.format(**given))
    file = read_pipeline_file(folder / "flights.toml")
    return look_with_spark(file, timeout=timeout, spark_timeout=100.0, sample=10, spark=spark)


def to_do(found: list[Finding]) -> list[str]:
    return [f"{one.part} from the {one.place}: {one.said}" for one in found if not one.ok]


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return LogHub.create(tmp_path / "hub.db", partitions=2)


def test_all_is_ready_and_nothing_is_made(spark: SparkSession, tmp_path: Path, hub: LogHub) -> None:
    hub.send([Event(body) for body in [*GOOD, b"not JSON"]], partition="1")
    (tmp_path / "flights.toml").touch()
    before = sorted(one.name for one in tmp_path.iterdir())
    found = checked(spark, tmp_path)
    assert to_do(found) == []
    said = [one.said for one in found]
    assert any(one.startswith("PySpark ") for one in said)
    assert "it gives the columns id, n, hub, partition, sequenceNumber, ownerLevel" in said
    assert "the table flights can be made of these columns" in said
    assert any(
        one.startswith(
            "1 of the last 4 events cannot be read, and would be rejected; the first: the body is not a JSON"
        )
        for one in said
    )
    assert "3 events give 3 rows" in said
    assert {one.part for one in found if one.place == TASK} == {"task", "hub", "ownership store", "checkpoint store"}
    assert sorted(one.name for one in tmp_path.iterdir()) == before


@pytest.mark.more
def test_what_does_not_fit_is_named(spark: SparkSession, tmp_path: Path, hub: LogHub) -> None:
    hub.send([Event(body) for body in GOOD], partition="0")
    run(tmp_path / "entities.db", "CREATE TABLE flights (id TEXT PRIMARY KEY, other TEXT)")
    (problem,) = to_do(checked(spark, tmp_path))
    assert "table flights" in problem
    assert "n: is not in the table" in problem
    said = [one.said for one in checked(spark, tmp_path, keys='["id"]\nschema_evolution = "add"')]
    assert 'the first start adds the columns "n" INTEGER' in said
    found = checked(spark, tmp_path, n="nothing")
    assert "transform from the driver" in to_do(found)[0]
    assert open_sink("sqlite:///entities.db", TableSpec(name="flights", pipeline="flights", keys=("id",)),
                     base=tmp_path).row_count() == 0  # fmt: skip


@pytest.mark.more
def test_rows_that_were_there_before_count_or_are_counted(spark: SparkSession, tmp_path: Path, hub: LogHub) -> None:
    hub.send([Event(body) for body in GOOD], partition="0")
    run(
        tmp_path / "entities.db", "CREATE TABLE flights (id TEXT PRIMARY KEY, n)", "INSERT INTO flights VALUES ('a', 5)"
    )
    uncounted = "flights has rows of whose keys no event is known yet (1), and sequence_by (n + 0) names no column"
    by_other, by_column = (
        checked(spark, tmp_path, keys=f'["id"]\nsequence_by = "{order}"') for order in ("n + 0", "n")
    )
    assert (to_do(by_other), to_do(by_column)) == ([], [])
    assert [one.said.startswith(uncounted) for one in by_other].count(True) == 1
    assert not any("no event is known" in one.said for one in by_column)
    run(tmp_path / "entities.db", "UPDATE flights SET n = 'five'")
    (problem,) = to_do(checked(spark, tmp_path, keys='["id"]\nsequence_by = "n"'))
    assert "the table flights has a row with 'five' in n" in problem


def test_a_sample_that_nothing_comes_of_is_something_to_do(spark: SparkSession, tmp_path: Path, hub: LogHub) -> None:
    hub.send([Event(b"not JSON")] * 2, partition="0")
    (problem,) = to_do(checked(spark, tmp_path))
    assert problem.startswith("sample from the driver: 2 of the last 2 events cannot be read, and would be")
    hub.send([Event(body) for body in GOOD], partition="1")
    assert to_do(checked(spark, tmp_path, id="CAST(NULL AS STRING)")) == [
        "sample from the driver: the key id is null in 3 of 3 rows, which would be rejected"
    ]
    (problem,) = to_do(checked(spark, tmp_path, n="CAST(raise_error('odd') AS BIGINT)"))
    assert problem.startswith("sample from the driver: ")
    assert "odd" in problem


def test_a_store_that_is_away_is_away_from_a_task_too(spark: SparkSession, tmp_path: Path, hub: LogHub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = checked(spark, tmp_path, 2.0, store=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
    away = {one.split(":")[0] for one in to_do(found)}
    assert away >= {"ownership store from the task", "checkpoint store from the task"}


def test_what_init_makes_a_table_of_is_what_the_transform_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Where nothing transforms events, Spark is not asked: the columns are the same."""
    given = {"store": "sqlite:///stores.db", "id": "id", "n": "n", "keys": '["id"]'}
    text = PIPELINE.format(**given)
    file = tmp_path / "flights.toml"
    file.write_text(text)
    columns = columns_of(read_pipeline_file(file), spark)
    assert [*columns.names[:2], *sorted(columns.names[2:])] == [
        *("id", "n", "hub", "ownerLevel", "partition", "sequenceNumber"),
    ]  # fmt: skip
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("sql")))
    assert CliRunner().invoke(app, ["init", str(file)]).exit_code == 0
    sink = open_sink("sqlite:///entities.db", read_pipeline_file(file).table_spec(), base=tmp_path)
    plain = columns_of(read_pipeline_file(file), spark)
    with closing(sqlite3.connect(tmp_path / "entities.db")) as table:
        made = [name for (name,) in table.execute("SELECT name FROM pragma_table_info('flights')")]
        assert table.execute("SELECT count(*) FROM leasehold_table").fetchone() == (0,)
    assert made == [name for name in plain.names if name not in ("hub", "partition", "sequenceNumber", "ownerLevel")]
    sink.check(plain)
    sink.close()
