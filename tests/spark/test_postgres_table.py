"""The entity table in Postgres, from a hub through Spark, and the commands on its pipeline file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import EntityTable, MicroBatch, MicroBatches
from tests.sinks.postgres import Place
from tests.spark import places
from tests.spark.places import QUICK

PIPELINE = """
name = "flights"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
[transform]
schema = "id STRING, n BIGINT"
[sink]
url = "{url}"
table = "flights"
keys = ["id"]
"""


def test_rows_come_through_spark_and_the_commands_know_them(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "flights.toml"
    file.write_text(PIPELINE.format(url=place.url))

    def said(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    assert '"entity tables"' in said("init", str(file))
    assert place.look(
        "SELECT tablename FROM pg_tables WHERE tablename LIKE 'leasehold%' AND schemaname = "
        f"'{place.schema}' ORDER BY 1"
    ) == [
        (f"leasehold_{name}",)
        for name in (
            *(
                "cleared",
                "dropped",
                "entity",
                "key_flights",
                "message",
                "message_entity",
                "message_parked",
                "message_sent",
            ),
            *("outbox", "parked", "place", "skip", "table", "watermark"),
        )
    ]
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in ("0", "1"):
        bodies = [json.dumps({"id": f"{partition}-{n % 3}", "n": n}).encode() for n in range(10)]
        hub.send([Event(body) for body in (*bodies, b"?")], partition=partition)
    table = EntityTable(place.url, "flights", keys=["id"], pipeline="flights")
    options = {**QUICK, "available_now": True, "pipeline": "flights", "schema": "id STRING, n BIGINT"}
    with MicroBatches(spark, hub.url, store=f"sqlite:///{tmp_path}/stores.db", **options) as batches:
        for batch in batches:
            rows = batch.events.select("id", "n", "hub", "partition", "sequenceNumber", "ownerLevel")
            table.apply(rows, batch)
    kept = [(f"{partition}-{key}", n) for partition in "01" for key, n in ((0, 9), (1, 7), (2, 8))]
    assert place.look("SELECT id, n FROM flights ORDER BY id") == kept
    assert place.look("SELECT partition, sequence_number FROM flights_rejected ORDER BY 1") == [("0", 10), ("1", 10)]
    status = json.loads(said("status", str(file)))
    assert [one["lag"] for one in status["partitions"]] == [0, 0]
    said("reset", str(file), "--to", "sink")
    said("reset", str(file), "--to", "earliest")
    assert [mark.sequence_number for mark in table.watermarks(hub.identity).values()] == [-1, -1]
    with MicroBatches(spark, hub.url, store=f"sqlite:///{tmp_path}/stores.db", **options) as batches:
        for batch in batches:
            rows = batch.events.select("id", "n", "hub", "partition", "sequenceNumber", "ownerLevel")
            table.apply(rows, batch)
    assert place.look("SELECT id, n FROM flights ORDER BY id") == kept
    assert place.look("SELECT count(*) FROM flights_rejected") == [(2,)]
    assert read_pipeline_file(file).sink_url == place.url
    table.close()
    hub.close()


@pytest.mark.more
def test_rows_with_nulls_above_nested_values_are_right_rows(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    """In both databases, where events that cannot be computed would be rejected."""
    loop = places.Place(spark, tmp_path)
    loop.send(5)
    tables = loop.table(), EntityTable(place.url, "events", mode="append", pipeline="p")

    def body(batch: MicroBatch) -> None:
        rows = places.plain(batch.events).selectExpr(
            "*",
            "IF(n % 2 = 0, named_struct('a', array(n)), NULL) AS s",
            "array(named_struct('a', n), NULL) AS l",
            "map('k', IF(n % 2 = 0, named_struct('a', n), NULL)) AS m",
            "array() AS e",
            "IF(n % 2 = 0, array(NULL, NULL), NULL) AS v",
        )
        for table in tables:
            table.apply(rows, batch)

    places.each(loop.batches(on_error="reject"), body)
    assert [(table.totals.applied, table.totals.rejected) for table in tables] == [(10, 0)] * 2
    expected: list[tuple[Any, ...]] = [
        (n, {"a": [n]}, [{"a": n}, None], {"k": {"a": n}}, [], [None, None])
        if n % 2 == 0
        else (n, None, [{"a": n}, None], {"k": None}, [], None)
        for n in range(10)
    ]
    assert place.look("SELECT n, s, l, m, e, v FROM events ORDER BY n") == expected
    in_file = loop.rows("SELECT n, s, l, m, e, v FROM events ORDER BY n")
    assert [(n, *(json.loads(text or "null") for text in rest)) for n, *rest in in_file] == expected
    tables[1].close()
