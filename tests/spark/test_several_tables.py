"""A file that fills several tables means the same on Spark and in a plain process, at each step of the way."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold import Event
from leasehold.cli.app import app
from leasehold.hubs.log import LogHub
from leasehold.operations.aside.contract import EntryFilter
from leasehold.operations.aside.rejected import RejectedAside
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks import open_sink
from leasehold.spark import PipelineRun
from leasehold.spark.checking import columns_of
from leasehold.spark.retrying import Retransform
from tests.formats.debezium_events import schema_of, with_schema
from tests.projected.shop import FILE, answer, bodies, contents, send, write
from tests.spark.handled_runs import opened_as

pytestmark = pytest.mark.more

IN_SPARK = FILE.replace("when = \"kind = 'order'\"", "when = \"kind LIKE 'ord%'\"").replace(
    'delete_when = "gone"', 'delete_when = "coalesce(gone, false)"'
)
"""Conditions that take Spark, and mean what those of FILE do."""


@pytest.fixture
def spark_of_tests(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    monkeypatch.setattr(spark, "stop", lambda: None)
    return spark


def on_spark(file: Path, spark: SparkSession) -> dict[str, int]:
    run = PipelineRun(read_pipeline_file(file), java=opened_as(spark), available_now=True)
    return run.run(threading.Event()).totals.named()


def plain(file: Path, spark: SparkSession) -> dict[str, int]:
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    account: dict[str, Any] = json.loads(said.stdout)
    return account


def test_the_same_in_all_tables_whoever_reads(tmp_path: Path, spark_of_tests: SparkSession) -> None:
    parts = [bodies(Random(number), 250) for number in range(2)]
    ways = {
        "plain": (plain, plain, FILE),
        "spark": (on_spark, on_spark, FILE),
        "more than columns": (on_spark, on_spark, IN_SPARK),
        "mixed": (on_spark, plain, FILE),
        "back": (plain, on_spark, FILE),
    }
    found, counts = {}, {}
    for name, (*way, text) in ways.items():
        folder = tmp_path / name
        folder.mkdir()
        hub, file = LogHub.create(folder / "hub.db", partitions=3), write(folder, text)
        told = []
        for part, run in zip(parts, way, strict=True):
            send(hub, part)
            account = run(file, spark_of_tests)
            told.append({word: account[word] for word in ("read", "used", "filtered", "applied", "rejected")})
        found[name], counts[name] = contents(folder), told
    expected = answer([body for part in parts for body in part])
    assert dict(found["plain"]["orders"]) == expected["orders"]
    assert dict(found["plain"]["customers"]) == expected["customers"]
    assert found["plain"]["log_rejected"]
    assert found == dict.fromkeys(ways, found["plain"])
    assert counts == dict.fromkeys(ways, counts["plain"])


def test_an_event_that_could_not_be_read_is_tried_again_by_each_table(
    tmp_path: Path, spark_of_tests: SparkSession
) -> None:
    hub, file = LogHub.create(tmp_path / "hub.db", partitions=1), write(tmp_path, FILE.replace("id BIGINT", "id INT"))
    sent = b'{"kind": "order", "id": 5000000000, "total": 1.5}', b'{"kind": "customer", "id": 1, "at": 1}'
    hub.send(list(map(Event, sent)))
    assert on_spark(file, spark_of_tests)["rejected"] == 3
    whole, tried = read_pipeline_file(write(tmp_path)), {}
    for view in whole.tables:
        sink = open_sink(view.sink_url, view.table_spec())
        aside = RejectedAside(view, sink, lambda file: Retransform(file, spark_of_tests))
        tried[view.sink.table] = aside.retry(EntryFilter(), None, lambda seen: None).counts
        sink.close()
    assert {name: (it["applied"], it["filtered"]) for name, it in tried.items()} == {
        "orders": (1, 0), "customers": (0, 1), "log": (1, 0),
    }  # fmt: skip
    found = contents(tmp_path)
    assert (found["orders"], found["customers"]) == ([(5000000000, 1.5)], [(1, None)])
    assert [row[1] for row in found["log"]] == [5000000000, 1]
    assert not any(found[f"{name}_rejected"] for name in ("orders", "customers", "log"))


def test_an_expression_is_of_the_rows_of_its_table_alone(tmp_path: Path, spark_of_tests: SparkSession) -> None:
    """The order of an order is no number in a customer, which is another table's, and stays."""
    text = FILE.replace('delete_when = "gone"', 'sequence_by = "CAST(name AS INT)"')
    hub, file = LogHub.create(tmp_path / "hub.db", partitions=1), write(tmp_path, text)
    rows = {"kind": "order", "id": 1, "name": "7"}, {"kind": "customer", "id": 1, "name": "Bob", "at": 1}
    hub.send([Event(json.dumps(row).encode()) for row in rows])
    assert on_spark(file, spark_of_tests)["rejected"] == 0
    found = contents(tmp_path)
    assert (found["orders"], found["customers"]) == ([(1, None)], [(1, "Bob")])


def test_what_a_first_start_makes_has_the_columns_of_each(tmp_path: Path, spark_of_tests: SparkSession) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1)
    file = write(tmp_path, IN_SPARK)
    assert "kind" in columns_of(read_pipeline_file(file), spark_of_tests).names
    said = CliRunner().invoke(app, ["init", str(file)])
    assert said.exit_code == 0, said.output
    assert on_spark(file, spark_of_tests)["read"] == 0
    assert contents(tmp_path)["orders"] == []


def test_columns_of_one_name_may_have_another_type_in_each_table(tmp_path: Path, spark_of_tests: SparkSession) -> None:
    """Changes of two tables of Debezium, of which one has numbers as `id`, and one has words."""
    sql = "SELECT try_cast(id AS BIGINT) AS order_id, id AS word, __source_table, __deleted, %s FROM events"
    fence = "hub, partition, sequenceNumber, ownerLevel"
    head, _, _ = FILE.partition("[transform]")
    text = f"""{head}[transform]
format = "debezium"
schema = "id STRING, __source_table STRING"
sql = "{sql % fence}"

[[sink]]
url = "sqlite:///entities.db"
table = "orders"
keys = ["order_id"]
when = "__source_table = 'orders'"
only_columns = ["order_id"]

[[sink]]
table = "words"
keys = ["word"]
when = "__source_table = 'words'"
only_columns = ["word"]
"""
    hub, file = LogHub.create(tmp_path / "hub.db", partitions=1), write(tmp_path, text)
    for op, table, id_ in (("c", "orders", 7), ("c", "orders", 8), ("c", "words", "a"), ("c", "words", "b")):
        hub.send([Event(_change(op, table, id_))])
    hub.send([Event(_change("d", "orders", 7)), Event(_change("d", "words", "b"))])
    assert on_spark(file, spark_of_tests)["rejected"] == 0
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection:
        assert connection.execute("SELECT order_id, typeof(order_id) FROM orders").fetchall() == [(8, "integer")]
        assert connection.execute("SELECT word FROM words").fetchall() == [("a",)]


def _change(op: str, table: str, id_: object) -> bytes:
    kind = "int64" if isinstance(id_, int) else "string"
    side = "before" if op == "d" else "after"
    source = {"connector": "postgresql", "table": table}
    return with_schema({"op": op, side: {"id": id_}, "source": source}, schema_of({"id": {"type": kind}}))
