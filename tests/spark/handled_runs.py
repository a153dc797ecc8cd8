"""Pipeline files with a handler that run on the tests' own session: a folder with all they need, and an instance.

The handler adds up amounts by order. It raises at 13 until there is the file `mended`, and 0 deletes the order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, EventRange
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks.rules.batch import Batch
from leasehold.spark import PipelineRun
from leasehold.spark.handlers.lanes import COLUMNS
from leasehold.spark.handlers.of_file import HandledOfFile
from tests.handlers.orders import FILE, MODULE
from tests.waiting import NEVER, PATIENCE, until

OWNERSHIP = f"""[ownership]
partition_expiration = "{NEVER:g}s"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file, its handler's module under a name of its own, and a hub."""
    module = f"orders_of_{tmp_path.name}"
    (tmp_path / "orders.toml").write_text(FILE.replace("some_orders", module).replace("[ownership]", OWNERSHIP))
    (tmp_path / f"{module}.py").write_text(MODULE.replace("Path(__file__).parent", f"Path({str(tmp_path)!r})"))
    LogHub.create(tmp_path / "hub.db", partitions=2).close()
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def send(folder: Path, amounts: list[tuple[str, Any]]) -> None:
    hub = LogHub(folder / "hub.db")
    hub.send(Event(json.dumps({"order_id": key, "amount": n}).encode(), partition_key=key) for key, n in amounts)
    hub.close()


def opened_as(spark: SparkSession) -> Any:
    """The start of a session that is there already."""
    return SimpleNamespace(wait=lambda: None, open=lambda: spark)


class Running:
    """An instance of the pipeline, in a thread, with the tests' session."""

    def __init__(self, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stop, self.raised = threading.Event(), list[BaseException]()
        self._run = PipelineRun(read_pipeline_file(folder / "orders.toml"), java=opened_as(spark))
        monkeypatch.setattr(spark, "stop", lambda: None)  # it is that of all tests
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.done = self._run.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - told by `until`
            self.raised.append(error)

    def until(self, done: Callable[[], bool], what: str) -> None:
        until(lambda: bool(self.raised) or done(), what)
        assert not self.raised, self.raised

    def until_it_has_ended(self) -> None:
        """Wait for an end of its own."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def end(self) -> None:
        self.stop.set()
        self.until_it_has_ended()


def batch(partition: str, first: int, *values: tuple[str, Any], of: str = "amount") -> Batch:
    """A batch of one partition, as the loop has read it: entities, and what is in the column `of` of their events."""
    events = [
        {
            "body": json.dumps({"order_id": key, of: value}).encode(),
            "hub": "hub",
            "partition": partition,
            "sequenceNumber": first + place,
            "ownerLevel": 1,
            "enqueuedTime": datetime(2026, 1, 31, tzinfo=UTC),
        }
        for place, (key, value) in enumerate(values)
    ]
    its = EventRange("hub", partition, 1, first, first + len(events))
    return Batch(pa.Table.from_pylist(events), ranges=[its])


def both(one: Batch, other: Batch) -> Batch:
    return replace(one, rows=pa.concat_tables([one.rows, other.rows]), ranges=[*one.ranges, *other.ranges])  # type: ignore[misc]


def opened(file: Path, spark: SparkSession) -> HandledOfFile:
    """The table of the file, whose handler is called by tasks."""
    made = HandledOfFile(read_pipeline_file(file))
    made.check(spark.range(0).selectExpr(*(f"id AS {name}" for name in COLUMNS)))
    return made
