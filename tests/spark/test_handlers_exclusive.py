"""Handlers on Spark that are called for an entity by one process at a time."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leasehold.errors import ConfigError
from leasehold.leases import EntityLeases
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark.handlers.leased import TaskLeases, batch_leases
from leasehold.spark.handlers.of_file import HandledOfFile
from tests.handlers.orders import rows
from tests.spark.handled_runs import both, folder, opened
from tests.spark.spread_runs import batch, file, seen
from tests.waiting import PATIENCE, until

__all__ = ["file", "folder"]

SLOW = """

from tests.waiting import take


@entity(keys=["order_id"])
def slow(state, event):
    with (Path(__file__).parent / "calls").open("a") as log:
        print(event.key, "begins", event.fence, file=log)
        log.flush()
        while event.row["n"] == 7 and not (Path(__file__).parent / "mended").exists():
            take(0.05)
        print(event.key, "ends", event.fence, file=log)
    return {"seen": f"{state['seen'] if state else ''}{event.partition}.{event.sequence_number} "}
"""


@pytest.fixture
def exclusive(file: Path, folder: Path) -> Path:
    """The file, with a handler that notes when it is called, and waits where it is told to."""
    module = folder / f"orders_of_{folder.name}.py"
    module.write_text(module.read_text() + SLOW.replace("Path(__file__).parent", f"Path({str(folder)!r})"))
    file.write_text(file.read_text().replace(':trail"', ':slow"') + "exclusive = true\n")
    return file


def scope_of(file: Path) -> str:
    read = read_pipeline_file(file)
    return f"{read.name}/{read.sink.table}"


def test_events_of_an_entity_that_another_holds_are_parked_uncalled_and_called_once_it_is_free(
    folder: Path, exclusive: Path, spark: SparkSession
) -> None:
    with (
        closing(opened(exclusive, spark)) as table,
        closing(EntityLeases(f"sqlite:////{folder}/stores.db", scope=scope_of(exclusive))) as others,
    ):
        lease = others.try_acquire("a")
        assert lease is not None
        table.write(both(batch("0", 0, ("a", 1), ("b", 1)), batch("1", 0, ("a", 2), ("b", 2))))
        assert seen(folder) == {"b": "0.1 1.1 "}
        assert len(rows(folder, "SELECT 1 FROM leasehold_parked")) == 2
        assert "a" not in (folder / "calls").read_text()
        lease.release()

        def tried() -> bool:
            table.try_parked("hub", {"0": 1, "1": 1})
            return seen(folder).get("a") == "0.0 1.0 "

        until(tried, "the parked ones to be called for")
        assert rows(folder, "SELECT 1 FROM leasehold_parked") == []
        assert others.try_acquire("b") is not None, "the batch has given its leases up"


@pytest.mark.more
def test_two_instances_never_call_for_one_entity_at_once(folder: Path, exclusive: Path, spark: SparkSession) -> None:
    with closing(opened(exclusive, spark)) as one, closing(opened(exclusive, spark)) as other:
        first = threading.Thread(target=lambda: one.write(batch("0", 0, ("a", 7), ("a", 8))))
        first.start()
        calls = folder / "calls"
        until(lambda: calls.exists() and "a begins" in calls.read_text(), "the first call")
        other.write(batch("1", 0, ("a", 9), ("b", 9)))
        assert seen(folder) == {"b": "1.1 "}
        (folder / "mended").touch()
        first.join(PATIENCE)

        def tried() -> bool:
            other.try_parked("hub", {"1": 1})
            return seen(folder).get("a") == "0.0 0.1 1.0 "

        until(tried, "the parked ones to be called for")
    said = [line.split() for line in calls.read_text().splitlines() if line.startswith("a ")]
    assert [(what, fence) for _, what, fence in said[::2]] == [("begins", fence) for _, _, fence in said[1::2]]
    assert [what for _, what, _ in said] == ["begins", "ends"] * 3
    fences = [int(fence) for _, _, fence in said]
    assert fences == sorted(fences)
    assert fences[0] == fences[2] < fences[4]


def test_a_task_that_is_tried_again_holds_what_it_held_and_one_that_comes_late_wins_nothing(folder: Path) -> None:
    with batch_leases(f"sqlite:////{folder}/stores.db", "s") as given:
        assert given is not None
        assert "stores.db" not in repr(given)
        for _ in range(2):
            task = TaskLeases(given)
            task.take([("a",), ("b",)])
            assert sorted(task._fences) == [("a",), ("b",)]
    late = TaskLeases(given)
    late.take([("a",), ("c",)])
    assert (late._fences, late._until) == ({}, 0.0)
    assert late._store.holders("s", ["a", "b", "c"]) == []


def test_leases_of_a_store_without_shared_sessions_are_refused(
    exclusive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.leases.blocking.EntityLeases.takes_many", property(lambda self: False))
    with pytest.raises(ConfigError, match=r"sink\.exclusive.*tasks take the leases"):
        HandledOfFile(read_pipeline_file(exclusive))


@pytest.mark.parametrize(
    ("url", "key"), [("sqlite:///entities.db", "sink.url"), ("postgresql://h/d", "ownership.store")]
)
def test_files_of_this_machine_are_none_for_the_tasks_of_a_cluster(
    exclusive: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, url: str, key: str
) -> None:
    with closing(HandledOfFile(read_pipeline_file(exclusive))) as table:
        monkeypatch.setattr(table, "_url", url)
        monkeypatch.setattr(spark.sparkContext, "master", "spark://host:7077")
        with pytest.raises(ConfigError, match=rf"{key}.*spark://host:7077 have no file of this machine"):
            table.check(spark.range(0))
