"""Handlers on Spark where an entity's events are in several partitions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conftest import place as postgres_place
from leasehold.handlers import handled_table
from leasehold.handlers.table import HandledTable
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark.handlers.of_file import HandledOfFile
from tests.handlers.orders import rows
from tests.sinks.postgres import Place
from tests.spark.handled_runs import Running, both, folder, opened
from tests.spark.spread_runs import batch, file, seen

__all__ = ["file", "folder", "postgres_place"]


@pytest.fixture
def table(file: Path, spark: SparkSession) -> Iterator[HandledOfFile]:
    made = opened(file, spark)
    yield made
    made.close()


def forbid_calls_in_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> Any:
        raise AssertionError("the driver computes")

    monkeypatch.setattr(HandledTable, "_compute", refused)


def test_what_partitions_of_a_batch_have_of_one_entity_is_computed_once_and_in_turn(
    folder: Path, table: HandledOfFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_calls_in_the_driver(monkeypatch)
    table.write(both(batch("0", 0, ("a", 1), ("b", 1), ("a", 4)), batch("1", 0, ("a", 3), ("a", 5), ("c", None))))
    assert seen(folder) == {"a": "0.0 0.2 1.0! 1.1", "b": "0.1"}
    table.write(both(batch("0", 3, ("a", 6)), batch("1", 3, ("b", 2), ("a", 7), ("b", 1))))
    assert seen(folder) == {"a": "0.0 0.2 1.0! 1.1 0.3 1.4", "b": "0.1 1.3 1.5!"}
    ((reason,),) = rows(folder, "SELECT reason FROM orders_rejected")
    assert "n is null" in reason


def test_an_entity_of_which_one_partition_has_parked_an_event_waits_in_the_others(
    folder: Path, table: HandledOfFile
) -> None:
    table.write(both(batch("0", 0, ("b", 13), ("a", 1)), batch("1", 0, ("b", 14), ("a", 2))))
    assert seen(folder) == {"a": "0.1 1.0"} or seen(folder) == {"a": "0.1 1.1"}
    assert rows(folder, "SELECT partition, sequence_number FROM leasehold_parked ORDER BY 1") == [("0", 0), ("1", 0)]


@pytest.mark.more
def test_what_another_process_has_changed_meanwhile_is_computed_again(
    folder: Path, file: Path, table: HandledOfFile, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = table._called

    def moved_meanwhile(pieces: Any, leases: Any) -> Any:
        done = called(pieces, leases)
        monkeypatch.setattr(table, "_called", called)
        with closing(opened(file, spark)) as other:
            other.write(batch("2", 0, ("a", 10)))
        return done

    monkeypatch.setattr(table, "_called", moved_meanwhile)
    forbid_calls_in_the_driver(monkeypatch)
    table.write(both(batch("0", 0, ("a", 1), ("b", 1)), batch("1", 0, ("a", 11), ("b", 2))))
    assert seen(folder) == {"a": "2.0 0.0! 1.0", "b": "0.1 1.1"}


def test_what_comes_behind_a_partition_that_is_not_committed_as_computed_is_computed_anew(
    folder: Path, file: Path, spark: SparkSession
) -> None:
    """The database refuses the rows of an event: its version is raised all the same, by another state."""
    file.write_text(file.read_text() + 'related = ["slots"]\n')
    with closing(sqlite3.connect(folder / "entities.db")) as connection:
        connection.execute("CREATE TABLE slots (slot INTEGER PRIMARY KEY CHECK (slot <> 99))")
    with closing(opened(file, spark)) as table:
        table.write(both(batch("0", 0, ("a", 99), ("b", 1)), batch("1", 0, ("a", 100), ("b", 2))))
    assert seen(folder) == {"b": "0.1 1.1"}
    assert rows(folder, "SELECT partition, sequence_number FROM leasehold_parked ORDER BY 1") == [("0", 0), ("1", 0)]


@pytest.mark.more
def test_behind_an_outage_of_one_partition_the_others_are_right(folder: Path, table: HandledOfFile) -> None:
    away = [(f"k{n}", 13) for n in range(12)]
    whole = both(batch("0", 0, *away, ("a", 1)), batch("1", 0, ("a", 2), ("k0", 1)))
    with pytest.raises(Exception, match="ConnectionError: away"):
        table.write(whole)
    assert seen(folder) == {"a": "1.0", "k0": "1.1"}
    (folder / "mended").touch()
    table.write(whole)
    assert seen(folder) == {"a": "1.0 0.12!", "k0": "1.1 0.0", **{f"k{n}": f"0.{n}" for n in range(1, 12)}}


def check_course(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seen: Callable[[], dict[str, str]]
) -> None:
    """Events of twenty entities in random partitions, one of them parked for a while: each once, each lane in order."""
    rng, sent = Random(1), dict[str, list[tuple[str, int]]]()
    hub, numbers = LogHub(folder / "hub.db"), {"0": 0, "1": 0}
    for n in range(400):
        key, partition = f"k{rng.randrange(20)}", rng.choice("01")
        body = {"order_id": key, "n": 13 if n == 50 else 1_000 + n}
        hub.send([Event(json.dumps(body).encode())], partition=partition)
        sent.setdefault(key, []).append((partition, numbers[partition]))
        numbers[partition] += 1
    hub.close()

    def found() -> dict[str, list[tuple[str, int]]]:
        pairs = {key: [one.strip("!").split(".") for one in trail.split()] for key, trail in seen().items()}
        return {key: sorted((partition, int(number)) for partition, number in its) for key, its in pairs.items()}

    running = Running(folder, spark, monkeypatch)
    expected = {key: sorted(its) for key, its in sent.items()}
    try:
        running.until(lambda: sum(len(its) for its in found().values()) > 300, "all but what is parked")
        (folder / "mended").touch()
        running.until(lambda: found() == expected, "the parked ones")
    finally:
        running.end()
    for trail in seen().values():
        for partition in "01":
            its = [int(one.strip("!")[2:]) for one in trail.split() if one.startswith(partition)]
            assert its == sorted(its)


def test_the_loop_with_a_table_in_sqlite(
    folder: Path, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_course(folder, spark, monkeypatch, lambda: seen(folder))


@pytest.mark.more
def test_the_loop_with_a_table_in_postgres(
    folder: Path, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, postgres_place: Place
) -> None:
    file.write_text(file.read_text().replace("sqlite:///entities.db", postgres_place.url))
    handled_table(file).close()  # makes the table
    query = f'SELECT order_id, seen FROM "{postgres_place.schema}".orders'
    check_course(folder, spark, monkeypatch, lambda: dict(postgres_place.look(query)))
