"""Handlers on Spark whose answers have effects beside the state: related rows, and events that are sent."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conftest import place as postgres_place
from leasehold.hubs.log.hub import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import PipelineRun
from tests.handlers.orders import rows, totals
from tests.sinks.postgres import Place
from tests.spark.handled_runs import Running, batch, both, folder, opened, opened_as, send

__all__ = ["folder", "postgres_place"]

EFFECTS = """

from leasehold.handlers.answers import Effects, Emit, Gone, Row


@entity(keys=["order_id"])
def with_effects(state, event):
    total = event.row["amount"] + (state["total"] if state else 0)
    if event.row["amount"] == 13 and not (Path(__file__).parent / "mended").exists():
        raise ConnectionError("away")
    if event.row["amount"] == 0:
        return Effects(Delete(), [Gone("order_lines", {"order_id": event.key, "line": n}) for n in range(1, 4)])
    values = {"order_id": event.key, "line": event.row["amount"], "slot": total}
    line = Row("order_lines", values, keys=["order_id", "line"])
    return Effects({"total": total}, [line, Emit({"order_id": event.key, "total": total}, key=event.key)])
"""
LINES = """CREATE TABLE order_lines (
    order_id {text} NOT NULL, line INTEGER NOT NULL, slot INTEGER UNIQUE, PRIMARY KEY (order_id, line))"""


@pytest.fixture
def file(folder: Path) -> Path:
    """The file, with a handler that writes related rows and emits."""
    module = folder / f"orders_of_{folder.name}.py"
    module.write_text(module.read_text() + EFFECTS.replace("Path(__file__).parent", f"Path({str(folder)!r})"))
    made = folder / "orders.toml"
    text = made.read_text().replace(':order"', ':with_effects"') + 'related = ["order_lines"]\n'
    made.write_text(f'{text}[outbox]\nhub = "log:///sent.db"\n')
    LogHub.create(folder / "sent.db", partitions=1).close()
    return made


def sent(folder: Path) -> list[tuple[str, str]]:
    """What has arrived: each entity and its total, in order."""
    with closing(LogHub(folder / "sent.db")) as hub:
        end = hub.partition_properties()["0"].end
        read = [body for part in hub.read("0", 0, end, columns=["body"]) for body in part.column(0).to_pylist()]
    return [(one["order_id"], one["total"]) for one in map(json.loads, read)]


def check(
    folder: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[], dict[str, Any]],
    lines: Callable[[], list[tuple[str, int]]],
) -> None:
    """Rows and events of all that took effect are there once, those of what was parked behind them in order."""
    send(folder, [("a", 1), ("b", 20), ("b", 13), ("a", 2), ("b", 1), ("gone", 2), ("gone", 0)])
    first = Running(folder, spark, monkeypatch)
    try:
        first.until(lambda: seen() == {"a": 3, "b": 20} and len(sent(folder)) >= 4, "all but what is parked")
        (folder / "mended").touch()
        first.until(lambda: seen() == {"a": 3, "b": 34} and len(sent(folder)) >= 6, "what was parked")
    finally:
        first.end()
    assert lines() == [("a", 1), ("a", 2), ("b", 1), ("b", 13), ("b", 20)]
    of = {key: [Decimal(total) for one, total in sent(folder) if one == key] for key in "ab"}
    assert of == {"a": [1, 3], "b": [20, 33, 34]}


def test_related_rows_and_emitted_events_of_a_table_in_sqlite(
    folder: Path, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(folder / "entities.db")) as connection:
        connection.execute(LINES.format(text="TEXT"))
    check(
        folder,
        spark,
        monkeypatch,
        lambda: totals(folder),
        lambda: rows(folder, "SELECT order_id, line FROM order_lines ORDER BY 1, 2"),
    )
    assert rows(folder, "SELECT 1 FROM leasehold_outbox") == []


@pytest.mark.more
def test_related_rows_and_emitted_events_of_a_table_in_postgres(
    folder: Path, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, postgres_place: Place
) -> None:
    file.write_text(file.read_text().replace("sqlite:///entities.db", postgres_place.url))
    postgres_place.connection.execute(LINES.format(text="text").encode())
    schema = f'"{postgres_place.schema}"'
    check(
        folder,
        spark,
        monkeypatch,
        lambda: dict(postgres_place.look(f"SELECT order_id, total FROM {schema}.orders")),
        lambda: postgres_place.look(f"SELECT order_id, line FROM {schema}.order_lines ORDER BY 1, 2"),
    )


def test_what_is_emitted_last_is_sent_before_the_end(
    folder: Path, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(folder / "entities.db")) as connection:
        connection.execute(LINES.format(text="TEXT"))
    send(folder, [("a", n) for n in range(1, 6)])
    run = PipelineRun(read_pipeline_file(file), java=opened_as(spark), available_now=True)
    monkeypatch.setattr(spark, "stop", lambda: None)  # it is that of all tests
    run.run(threading.Event())
    assert sent(folder) == [("a", "1.00"), ("a", "3.00"), ("a", "6.00"), ("a", "10.00"), ("a", "15.00")]


def test_an_event_whose_rows_the_database_refuses_waits_and_all_others_go_through(
    folder: Path, file: Path, spark: SparkSession
) -> None:
    with closing(sqlite3.connect(folder / "entities.db")) as connection:
        connection.execute(LINES.format(text="TEXT"))
    with closing(opened(file, spark)) as table:
        taken = ("c", 5)  # the slot that the total of b, 2 + 3, wants
        table.write(both(batch("0", 0, ("a", 1), ("b", 2), taken, ("b", 3), ("b", 10)), batch("1", 0, ("d", 7))))
    assert totals(folder) == {"a": 1, "b": 2, "c": 5, "d": 7}
    ((number, error),) = rows(folder, "SELECT sequence_number, error FROM leasehold_parked WHERE error <> ''")
    assert (number, error.startswith("RowsRefused: ")) == (3, True)
    assert rows(folder, "SELECT sequence_number FROM leasehold_parked WHERE error = ''") == [(4,)]
