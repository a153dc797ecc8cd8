"""Changes of Debezium through a handler, on Spark and in a plain process: one file and one outcome, parked ones too."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.formats.debezium_events import envelope, schema_of, with_schema
from tests.handlers.orders import rows, totals
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_messages import produced
from tests.spark.handled_runs import Running, folder

__all__ = ["folder"]

_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}
_SCHEMA = schema_of({"order_id": {"type": "string"}, "amount": _DECIMAL})
_OF = {0: "AA==", 2: "Ag==", 3: "Aw==", 5: "BQ==", 13: "DQ=="}


def change(op: str, key: str, amount: int) -> bytes:
    row = {"order_id": key, "amount": _OF[amount]}
    return with_schema(envelope(op, **({"before": row} if op == "d" else {"after": row})), _SCHEMA)


def send(folder: Path, *bodies: bytes) -> None:
    with closing(LogHub(folder / "hub.db")) as hub:
        hub.send([Event(one) for one in bodies], partition="0")


@pytest.mark.more
def test_a_handler_is_given_changes_on_spark_and_without(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "orders.toml"
    how = 'format = "debezium"\nskipped_operations = ["m"]\ndecimal_handling_mode = "string"\n[sink]'
    file.write_text(file.read_text().replace("[sink]", how))
    send(folder, change("c", "a", 2), change("m", "a", 2), change("u", "a", 3), change("r", "b", 5), b"{}")
    send(folder, change("c", "waits", 13), change("u", "waits", 5), change("d", "b", 5))
    first = Running(folder, spark, monkeypatch)
    try:
        parked = "SELECT sequence_number FROM leasehold_parked ORDER BY 1"
        first.until(lambda: rows(folder, parked) == [(5,), (6,)], "two to be parked")
        first.until(lambda: totals(folder) == {"a": 5, "b": 10}, "the others to be handled")
        (folder / "mended").touch()
        first.until(lambda: rows(folder, parked) == [], "these to be tried again")
    finally:
        first.end()
    assert totals(folder) == {"a": 5, "b": 10, "waits": 18}
    assert rows(folder, "SELECT sequence_number FROM orders_rejected") == [(4,)]
    send(folder, change("m", "a", 2), change("d", "a", 0))
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    account = json.loads(said.stdout)
    assert (account["read"], account["used"], account["filtered"]) == (2, 1, 1)
    assert totals(folder) == {"b": 10, "waits": 18}


@pytest.mark.more
@pytest.mark.usefixtures("patient_kafka")
def test_a_tombstone_is_passed_over_on_spark(
    folder: Path, cluster: Cluster, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, file = cluster.topic(1), folder / "orders.toml"
    text = file.read_text().replace("log:///hub.db", cluster.url(topic))
    file.write_text(text.replace("[sink]", 'format = "debezium"\n[sink]'))
    changes = [change("c", "a", 2), None, change("u", "a", 5), change("d", "a", 0), None, change("r", "b", 3), None]
    sent: list[dict[str, object]] = [{"key": b"k", "value": one} for one in changes]
    produced(cluster, topic, *sent)
    running = Running(folder, spark, monkeypatch)
    try:
        running.until(lambda: totals(folder) == {"b": 3}, "all changes to be handled")
    finally:
        running.end()
    counts = running.done.totals.named()
    assert (counts["read"], counts["used"], counts["filtered"]) == (7, 4, 3)
    assert rows(folder, "SELECT * FROM orders_rejected") == []


@pytest.mark.more
def test_a_handler_is_given_what_sql_makes_of_changes(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "orders.toml"
    columns = "lower(order_id) AS order_id, IF(__deleted, CAST(0 AS DECIMAL(12,2)), amount) AS amount"
    place = "hub, partition, sequenceNumber, ownerLevel, enqueuedTime"
    how = f'format = "debezium"\nskipped_operations = ["m"]\nsql = "SELECT {columns}, {place} FROM events"\n[sink]'
    file.write_text(file.read_text().replace("[sink]", how))
    send(folder, change("c", "A", 2), change("m", "A", 2), change("u", "A", 3), change("r", "B", 5), b"{}")
    send(folder, change("d", "B", 5))
    running = Running(folder, spark, monkeypatch)
    try:
        running.until(lambda: totals(folder) == {"a": 5}, "the changes to be handled")
    finally:
        running.end()
    counts = running.done.totals.named()
    assert (counts["read"], counts["used"], counts["filtered"], counts["rejected"]) == (6, 5, 1, 1)
