"""Handlers of what `sql` or `python` has made of events: a pipeline file, run by the loop, and its rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from leasehold.cli.app import app
from leasehold.errors import ConfigError, PipelineFailed
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventRange
from leasehold.sinks.rules.batch import Batch
from leasehold.spark.handlers.lanes import lanes_of
from leasehold.spark.handlers.transformed import reader_of, rows_as_events, rows_of
from leasehold.spark.session.versions import to_arrow
from tests.handlers.orders import rows, totals
from tests.spark.handled_runs import Running, folder, send

__all__ = ["folder"]

PLACE = "hub, partition, sequenceNumber, ownerLevel, enqueuedTime"
MOVED = PLACE.replace("sequenceNumber", "sequenceNumber + 7 AS sequenceNumber")
SQL = f"SELECT lower(order_id) AS order_id, amount, {PLACE} FROM events WHERE amount IS NULL OR amount <> 99"


def write(folder: Path, transform: str, *changes: tuple[str, str]) -> None:
    """Put these lines into `[transform]` of the file, and change the file."""
    file = folder / "orders.toml"
    text = file.read_text().replace("[transform]", f"[transform]\n{transform}", 1)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file.write_text(text)


def run(folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, done: Callable[[], bool]) -> None:
    """An instance until `done`, or until it has ended by itself."""
    instance = Running(folder, spark, monkeypatch)
    try:
        instance.until(done, "the table to be past all events")
    finally:
        instance.end()


def watermarks(folder: Path) -> int:
    """How many events the table is past, in all partitions."""
    return sum(last + 1 for (last,) in rows(folder, "SELECT sequence_number FROM leasehold_watermark"))


def parked(folder: Path) -> list[tuple[Any, ...]]:
    return rows(folder, "SELECT body FROM leasehold_parked")


@pytest.mark.more
def test_a_handler_of_what_sql_makes_of_events(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, f'sql = """{SQL}"""')
    send(folder, [("A", 1), ("B", 13), ("B", 2), ("A", 99), ("C", None), ("A", 2), ("last", 99)])
    hub = LogHub(folder / "hub.db")
    hub.send([Event(b"no JSON")], partition="0")
    hub.close()
    first = Running(folder, spark, monkeypatch)
    try:
        first.until(lambda: watermarks(folder) == 8, "the table to be past all events")
        assert totals(folder) == {"a": 3}
        bodies = [json.loads(body) for (body,) in parked(folder)]
        assert bodies == [{"order_id": "b", "amount": 13.0}, {"order_id": "b", "amount": 2.0}]
        rejected = dict(rows(folder, "SELECT reason, CAST(body AS TEXT) FROM orders_rejected"))
        assert json.loads(rejected.pop("no amount")) == {"order_id": "c", "amount": None}
        assert list(rejected.values()) == ["no JSON"], "as it was sent, with the reason of the schema"
        (folder / "mended").touch()
        first.until(lambda: totals(folder) == {"a": 3, "b": 15} and not parked(folder), "the parked ones")
    finally:
        first.end()
    done = first.done.totals
    assert (done.used + done.retried, done.rejected, done.retried) == (6, 2, 2)


MODULE = """

from pyspark.sql import functions as F


def halves(events):
    return events.selectExpr(
        "order_id", "1 / amount AS amount", "hub", "partition", "sequenceNumber", "ownerLevel", "enqueuedTime"
    )


@entity(keys=["order_id"])
def inverse(state, event):
    return {"total": round(event.row["amount"], 2)}
"""


def test_an_event_that_the_transform_cannot_compute_is_rejected_as_it_was_sent(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = folder / f"orders_of_{folder.name}.py"
    module.write_text(module.read_text() + MODULE)
    write(folder, f'python = "{module.stem}:halves"', (':order"', ':inverse"'))
    send(folder, [("a", 2), ("b", 0), ("c", 4)])
    run(folder, spark, monkeypatch, lambda: len(totals(folder)) == 2 and watermarks(folder) == 3)
    assert totals(folder) == {"a": Decimal("0.5"), "c": Decimal("0.25")}
    [(reason, body)] = rows(folder, "SELECT reason, CAST(body AS TEXT) FROM orders_rejected")
    assert "cannot be computed" in reason
    assert json.loads(body) == {"order_id": "b", "amount": 0}


@pytest.mark.more
def test_what_a_hub_that_was_made_anew_has_left_parked_is_tried_by_the_instances(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`parked retry` says so, since it has no Spark for the transform."""
    monkeypatch.setattr("leasehold.handlers.parking.left_behind.UNTOUCHED", 0.2)
    monkeypatch.setattr("leasehold.handlers.parking.trying.SELDOM", 0.1)
    monkeypatch.setattr("leasehold.handlers.parking.trying._LOOK", 0.1)
    sql = f"SELECT lower(order_id) AS order_id, amount, version, {PLACE} FROM events"
    spread = ("[sink]", '[sink]\nspread = true\nsequence_by = "version"')
    write(folder, f'sql = "{sql}"', spread, ("amount DECIMAL(12,2)", "amount DECIMAL(12,2), version BIGINT"))

    def numbered(*events: tuple[str, int, int]) -> None:
        with closing(LogHub(folder / "hub.db")) as hub:
            for key, amount, version in events:
                body = json.dumps({"order_id": key, "amount": amount, "version": version}).encode()
                hub.send([Event(body, partition_key=key)])

    numbered(("A", 1, 1), ("B", 13, 1), ("B", 2, 2))
    run(folder, spark, monkeypatch, lambda: len(parked(folder)) == 2 and totals(folder) == {"a": 1})
    for one in folder.glob("hub.db*"):
        one.unlink()
    LogHub.create(folder / "hub.db", partitions=2).close()
    numbered(("B", 5, 3))
    (folder / "mended").touch()
    said = CliRunner().invoke(app, ["parked", "retry", str(folder / "orders.toml"), "--all", "--json"])
    assert (said.exit_code, json.loads(said.stdout)["leftToInstances"]) == (0, 2), said.output
    run(folder, spark, monkeypatch, lambda: totals(folder) == {"a": 1, "b": 20} and not parked(folder))


@pytest.mark.more
def test_a_spread_table(folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = f"SELECT order_id, amount, sequenceNumber * 2 AS version, {PLACE} FROM events"
    write(folder, f'sql = "{sql}"', ("[sink]", '[sink]\nspread = true\nsequence_by = "version"'))
    hub = LogHub(folder / "hub.db")
    for number in range(10):
        body = json.dumps({"order_id": f"o{number % 3}", "amount": 1}).encode()
        hub.send([Event(body)], partition=str(number % 2))
    hub.close()
    run(folder, spark, monkeypatch, lambda: watermarks(folder) == 10)
    assert totals(folder) == {"o0": 4, "o1": 3, "o2": 3}


ALL_TYPES = """
  'ä "x" \\\\ \\n\\u0000' AS text, CAST(-128 AS TINYINT) AS tiny, 9223372036854775807L AS big, true AS yes,
  CAST(0.1 AS FLOAT) AS f, 1e300D AS d, -0.0D AS minus, 12345678901234567890.123456789012345678BD AS exact,
  0.0000001BD AS small, X'00ff10' AS bytes, DATE'0001-01-02' AS day, TIMESTAMP'1880-01-01 12:34:56.123456 UTC' AS old,
  TIMESTAMP'2026-07-01 00:00:00.000001+02:00' AS at, TIMESTAMP_NTZ'2026-07-01 00:00:00.5' AS there,
  array(1, null, 3) AS several, named_struct('a', 1, 'b', array('x', null)) AS inner,
  map('k', 1.50BD, 'l', null) AS pairs,
  CAST(null AS INT) AS nothing, array(CAST(null AS TIMESTAMP), TIMESTAMP'2026-01-01 00:00:00Z') AS times,
  array(named_struct('z', array(1)), null) AS few, array() AS none, map() AS no_pairs
"""


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_comes_back_to_the_last_digit(zone: str, spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    place = "'h' AS hub, '0' AS partition, 1L AS sequenceNumber, 1L AS ownerLevel, now() AS enqueuedTime"
    try:
        spark.conf.set("spark.sql.session.timeZone", zone)
        made = spark.sql(f"SELECT {ALL_TYPES}, {place}")
        events = to_arrow(rows_as_events(made))
        read = reader_of(made, "transform.sql").read(events["body"])
        rows = to_arrow(made).drop_columns(["hub", "partition", "sequenceNumber", "ownerLevel", "enqueuedTime"])
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert read.reasons is None
    found, expected = read.columns.to_pylist()[0], rows.to_pylist()[0]
    assert {name: found[name] for name in expected} == expected
    assert [type(found[name]) for name in expected] == [type(value) for value in expected.values()]
    assert events["sequenceNumber"].to_pylist() == [1]


def test_a_column_is_of_the_schemas_type_also_where_it_is_never_null(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT named_struct('a', 1) AS s, array(2) AS l, 'h' AS hub, '0' AS partition, 1L AS sequenceNumber, "
        "1L AS ownerLevel, now() AS enqueuedTime"
    )
    schema = pa.schema([("s", pa.struct([("a", pa.int32())])), ("l", pa.list_(pa.field("element", pa.int32())))])
    assert to_arrow(rows_of(rows, schema, "transform.sql")).column("body").to_pylist() == [b'{"s":{"a":1},"l":[2]}']


@pytest.mark.more(but=3)
@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("order_id, amount, hub, partition", "transform: its rows have no sequenceNumber, ownerLevel, enqueuedTime"),
        (f"amount, {PLACE}", "transform: its columns are amount, and the key order_id is not in it"),
        (f"order_id, INTERVAL '1' DAY AS amount, {PLACE}", "transform: a handler cannot be given its rows"),
        (f"order_id, map(1, 2) AS amount, {PLACE}", "transform: a handler cannot be given its rows.*amount"),
        (f"order_id, 1 AS a, 2 AS a, {PLACE}", "transform: a handler cannot be given its rows.*twice: a"),
    ],
)
def test_rows_that_a_handler_cannot_be_given_are_refused_at_the_start(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, select: str, said: str
) -> None:
    write(folder, f'sql = """SELECT {select} FROM events"""')
    instance = Running(folder, spark, monkeypatch)
    instance.until_it_has_ended()
    [error] = instance.raised
    assert isinstance(error, ConfigError)
    with pytest.raises(ConfigError, match=said):
        raise error


@pytest.mark.more(but=1)
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            f"SELECT order_id, explode(array(amount, amount)) AS amount, {PLACE} FROM events",
            r"makes 2 rows of the event \d:0",
        ),
        (
            f"SELECT order_id, amount, {MOVED} FROM events",
            "has changed hub, partition, sequenceNumber or ownerLevel of a row",
        ),
    ],
)
def test_a_transform_that_makes_other_events_is_refused_and_nothing_is_applied(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, sql: str, said: str
) -> None:
    write(folder, f'sql = """{sql}"""')
    send(folder, [("a", 1)])
    instance = Running(folder, spark, monkeypatch)
    instance.until_it_has_ended()
    instance.end()
    [error] = instance.raised
    assert isinstance(error, PipelineFailed)
    with pytest.raises(PipelineFailed, match=said):
        raise error
    assert totals(folder) == {}
    assert watermarks(folder) == 0


def test_without_spark_it_is_refused_by_name_and_check_looks_at_the_handler(folder: Path) -> None:
    write(folder, f'sql = "{SQL}"')
    file = folder / "orders.toml"
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark"])
    assert said.exit_code == 1
    assert "transform.sql" in said.output
    assert "Run it on Spark" in said.output
    found = CliRunner().invoke(app, ["check", str(file), "--json"])
    [handler] = [one for one in json.loads(found.output)["checks"] if one["part"] == "handler"]
    assert handler["ok"]
    assert "whether the transform's columns do is seen at the start" in handler["said"]


def test_an_event_without_a_time_is_an_event() -> None:
    """As of a Kafka topic whose messages have none."""
    event = {"body": b"{}", "hub": "h", "partition": "0", "sequenceNumber": 3, "ownerLevel": 1, "enqueuedTime": None}
    types = {"enqueuedTime": pa.timestamp("us", "UTC"), "body": pa.binary()}
    schema = pa.schema([(name, types.get(name, pa.array([value]).type)) for name, value in event.items()])
    batch = Batch(pa.Table.from_pylist([event], schema), ranges=[EventRange("h", "0", 1, 3, 4)])
    assert [one.enqueued_time for lane in lanes_of(batch) for one in lane] == [0.0]
