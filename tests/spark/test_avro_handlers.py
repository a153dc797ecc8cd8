"""Events in Avro through a handler: on Spark and in a plain process, one file and one outcome."""

from __future__ import annotations

import json
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.avro_schemas import encoded
from tests.handlers.orders import rows, totals
from tests.spark.handled_runs import Running, folder

__all__ = ["folder"]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "order_id", "type": "string"},
    ],
}


def send(folder: Path, *sent: tuple[str, int | None]) -> None:
    hub = LogHub(folder / "hub.db")
    for key, amount in sent:
        body = encoded(ORDER, {"order_id": key, "amount": None if amount is None else Decimal(amount)})
        hub.send([Event(body, partition_key=key)])
    hub.send([Event(b"\x02\x02", partition_key="cut")])
    hub.close()


@pytest.mark.more
def test_a_handler_is_given_what_avro_holds_on_spark_and_without(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "orders.toml"
    file.write_text(
        file.read_text().replace("[sink]", f"format = 'avro'\nwriter_schema = '{json.dumps(ORDER)}'\n[sink]")
    )
    send(folder, ("a", 2), ("b", 3), ("a", 5), ("c", None), ("b", 0))
    first = Running(folder, spark, monkeypatch)
    try:
        first.until(lambda: totals(folder) == {"a": 7} and len(rejected(folder)) == 2, "the events to be handled")
    finally:
        first.end()
    send(folder, ("a", 1), ("d", 4))
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["read"] == 3
    assert totals(folder) == {"a": 8, "d": 4}
    assert rejected(folder) == 2 * ["the field amount is of 1 bytes, and the body has 0 more"] + ["no amount"]


@pytest.mark.more
def test_a_handler_is_given_what_schemas_of_a_registry_say(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(number: int, key: str, amount: int) -> None:
        body = encoded(ORDER, {"order_id": key, "amount": Decimal(amount)})
        hub = LogHub(folder / "hub.db")
        hub.send([Event(b"\0" + number.to_bytes(4, "big") + body, partition_key=key)])
        hub.close()

    file = folder / "orders.toml"
    with closing(RegistryServer()) as server:
        keys = f"format = 'avro'\nregistry = '{server.url}'\n[sink]"
        file.write_text(file.read_text().replace("[sink]", keys))
        numbers = [server.register("orders", json.dumps({**ORDER, "doc": name})) for name in ("one", "other")]
        sent(numbers[0], "a", 2)
        sent(99, "a", 2)
        first = Running(folder, spark, monkeypatch)
        try:
            first.until(lambda: totals(folder) == {"a": 2} and len(rejected(folder)) == 1, "the first event")
            sent(numbers[1], "a", 3)
            first.until(lambda: totals(folder) == {"a": 5}, "an event of a schema that came later")
        finally:
            first.end()
        sent(numbers[1], "b", 7)
        said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert totals(folder) == {"a": 5, "b": 7}
    assert rejected(folder) == ["its schema, 99, is not known to the registry"]


def rejected(folder: Path) -> list[str]:
    return sorted((reason for (reason,) in rows(folder, "SELECT reason FROM orders_rejected")), reverse=True)
