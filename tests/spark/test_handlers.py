"""Handlers on Spark: a pipeline file with one, run by the loop, against the same in plain Python."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from conftest import place as postgres_place
from leasehold.cli.app import app
from leasehold.errors import ConfigError, HandlerUnavailable
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark.handlers.of_file import HandledOfFile
from tests.handlers.orders import rows, totals
from tests.sinks.postgres import Place
from tests.spark.handled_runs import Running, batch, both, folder, opened, send

__all__ = ["folder", "postgres_place"]

AMOUNTS = [("a", 1), ("b", 13), ("b", 2), ("gone", 4), ("c", 3), ("gone", 0), ("a", None), ("a", 5), ("c", 7)]


def in_plain_python(amounts: list[tuple[str, Any]]) -> dict[str, Decimal]:
    totals: dict[str, Decimal] = {}
    for key, amount in amounts:
        if amount == 0:
            del totals[key]
        elif amount is not None:
            totals[key] = totals.get(key, Decimal(0)) + amount
    return totals


def check_course(
    folder: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[], dict[str, Any]],
    parked: Callable[[], int],
) -> Running:
    """Events are handled, one is parked and tried again while nothing arrives, a second instance goes on."""
    send(folder, AMOUNTS)
    send(folder, [("d", n) for n in range(1, 4)])
    first = Running(folder, spark, monkeypatch)
    expected = in_plain_python([*AMOUNTS, *(("d", n) for n in range(1, 4))])
    try:
        without_b = {key: total for key, total in expected.items() if key != "b"}
        first.until(lambda: parked() == 2 and seen() == without_b, "all but what is parked to be handled")
        (folder / "mended").touch()
        first.until(lambda: seen() == expected and parked() == 0, "what was parked to be handled")
    finally:
        first.end()
    return first


@pytest.mark.more
def test_the_loop_and_plain_python_agree(folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def parked() -> int:
        return len(rows(folder, "SELECT 1 FROM leasehold_parked"))

    first = check_course(folder, spark, monkeypatch, lambda: totals(folder), parked)
    done = first.done.totals
    assert (done.used + done.retried, done.retried, done.rejected) == (12, done.parked, 1)
    assert done.read - done.replayed == done.used + done.parked == 12
    assert rows(folder, "SELECT reason FROM orders_rejected") == [("no amount",)]
    before = totals(folder)
    with closing(sqlite3.connect(folder / "stores.db")) as connection:  # events come again, and none counts twice
        connection.execute("UPDATE leasehold_checkpoint SET sequence_number = 0")
        connection.commit()
    send(folder, [("a", 10), ("e", 1)])
    second = Running(folder, spark, monkeypatch)
    try:
        after = before | {"a": before["a"] + 10, "e": Decimal(1)}
        second.until(lambda: totals(folder) == after, "the new events to be handled")
    finally:
        second.end()
    assert second.done.totals.replayed > 0


@pytest.fixture
def table(folder: Path, spark: SparkSession) -> Iterator[HandledOfFile]:
    """The table of the file, whose handler is called by tasks."""
    made = opened(folder / "orders.toml", spark)
    yield made
    made.close()


@pytest.mark.more
def test_what_tasks_computed_is_computed_again_where_an_operator_came_between(
    folder: Path, table: HandledOfFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.write(batch("0", 0, ("b", 13), ("a", 1)))
    called = table._called

    def dropped_meanwhile(pieces: Any, leases: Any) -> Any:
        (done,) = called(pieces, leases)
        assert [one.event.sequence_number for one in done.held] == [2]  # it waits behind the parked one
        file = str(folder / "orders.toml")
        said = CliRunner().invoke(app, ["parked", "drop", file, "--all", "--because", "a test", "--json"])
        assert said.exit_code == 0, said.output
        return [done]

    monkeypatch.setattr(table, "_called", dropped_meanwhile)
    table.write(batch("0", 2, ("b", 2)))
    assert totals(folder) == {"a": 1, "b": 2}
    assert rows(folder, "SELECT 1 FROM leasehold_parked") == []


def test_most_calls_that_fail_alike_stop_their_partition_and_no_other(folder: Path, table: HandledOfFile) -> None:
    away = batch("0", 0, *((f"k{n}", 13) for n in range(12)))
    with pytest.raises(HandlerUnavailable, match="ConnectionError: away"):
        table.write(both(away, batch("1", 0, ("a", 1), ("a", 2))))
    assert totals(folder) == {"a": 3}
    assert rows(folder, "SELECT 1 FROM leasehold_parked") == []
    (folder / "mended").touch()
    result = table.write(both(away, batch("1", 0, ("a", 1), ("a", 2))))
    assert (result.used, result.replayed, result.read) == (12, 2, 14)
    assert totals(folder) == {"a": 3, **{f"k{n}": 13 for n in range(12)}}


def test_a_former_owner_commits_nothing(folder: Path, table: HandledOfFile) -> None:
    table.write(batch("0", 0, ("a", 1)))
    later = HandledOfFile(read_pipeline_file(folder / "orders.toml"))
    later.level_of = lambda hub, partition: 2
    later.try_parked("hub", {"0": 2})  # it has begun
    table.write(batch("0", 1, ("a", 5)), level_of=lambda hub, partition: 2)
    assert totals(folder) == {"a": 1}
    later.close()


def test_the_traceback_of_a_task_is_kept_and_what_was_set_aside_before_is_an_event(
    folder: Path, table: HandledOfFile
) -> None:
    file = folder / "orders.toml"
    file.write_text(file.read_text() + 'on_failure = "discard"\n')
    discarding = HandledOfFile(read_pipeline_file(file))
    discarding._tasks = table._tasks
    whole = batch("0", 0, ("b", 13), ("a", 1))
    aside = whole.rows.slice(1).append_column("reason", pa.array(["unread"]))
    result = discarding.write(replace(whole, rows=whole.rows.slice(0, 1), rejected=aside))
    assert (result.applied, result.rejected) == (1, 1)
    assert totals(folder) == {"a": 1}
    ((reason, source),) = rows(folder, "SELECT reason, source FROM orders_rejected")
    assert reason == "ConnectionError: away"
    assert 'raise ConnectionError("away")' in json.loads(source)["traceback"]
    discarding.close()


HANGING = """

import contextlib

from tests.waiting import hang


@entity(keys=["order_id"])
def hanging(state, event):
    if event.row["amount"] == 14:
        hang()
    while event.row["amount"] == 15:
        with contextlib.suppress(BaseException):
            hang()
    return {"total": event.row["amount"] + (state["total"] if state else 0)}
"""


@pytest.mark.more
def test_calls_that_hang_are_interrupted_and_what_ignores_that_ends_its_worker_alone(
    folder: Path, spark: SparkSession
) -> None:
    (file, module) = folder / "orders.toml", folder / f"orders_of_{folder.name}.py"
    module.write_text(module.read_text() + HANGING)
    file.write_text(file.read_text().replace(':order"', ':hanging"') + 'handler_timeout = "5s"\n')
    hanging = both(
        batch("0", 0, ("a", 1), ("b", 14), ("c", 1), ("b", 1), ("a", 1)), batch("1", 0, ("e", 1), ("d", 15), ("e", 1))
    )
    with closing(opened(file, spark)) as table:
        table.write(hanging)
        assert totals(folder) == {"a": 2, "c": 1, "e": 2}
        no_answer = "HandlerTimeout: no answer within 5 s"
        parked = "SELECT partition, sequence_number, deliveries, error FROM leasehold_parked ORDER BY 1, 2"
        assert rows(folder, parked) == [("0", 1, 1, no_answer), ("0", 3, 0, ""), ("1", 1, 1, no_answer)]
        table.write(batch("1", 3, ("e", 1)))
        assert totals(folder) == {"a": 2, "c": 1, "e": 3}


def test_a_table_in_postgres(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, postgres_place: Place
) -> None:
    file = folder / "orders.toml"
    file.write_text(file.read_text().replace("sqlite:///entities.db", postgres_place.url))
    check_course(
        folder,
        spark,
        monkeypatch,
        lambda: dict(postgres_place.look(f'SELECT order_id, total FROM "{postgres_place.schema}".orders')),
        lambda: len(postgres_place.look(f'SELECT 1 FROM "{postgres_place.schema}".leasehold_parked')),
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('table = "orders"', 'table = "orders"\non_failure = "wait"', "sink.on_failure.*--no-spark"),
        (
            "[ownership]",
            'deduplicate_by = "id"\ndeduplicate_for = "1h"\n[ownership]',
            "deduplicate_by.*no handler fills",
        ),
    ],
)
def test_what_handlers_on_spark_have_not_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    file = folder / "orders.toml"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=said):
        HandledOfFile(read_pipeline_file(file))


@pytest.mark.more
def test_a_worker_opens_once_what_its_calls_are_given(folder: Path, spark: SparkSession) -> None:
    """A job brings the handler anew, and finds open what an earlier one has opened in the same worker."""
    file = folder / "orders.toml"
    [module] = folder.glob("orders_of_*.py")
    module.write_text(
        f"""
import os
from contextlib import contextmanager
from leasehold.handlers import entity

@contextmanager
def opens():
    with open({str(folder / "opened")!r}, "a") as noted:
        noted.write(f"{{os.getpid()}}\\n")
    yield os.getpid()

@entity(keys=["order_id"], opens=opens)
def order(state, event, opened):
    assert opened == os.getpid()
    return {{"total": event.row["amount"] + (state["total"] if state else 0)}}
"""
    )
    table = opened(file, spark)
    for first in range(3):
        table.write(both(batch("0", first, ("a", 1)), batch("1", first, ("b", 2))))
    table.close()
    assert totals(folder) == {"a": 3, "b": 6}
    workers = (folder / "opened").read_text().split()
    assert len(workers) == len(set(workers))
    assert str(os.getpid()) not in workers
