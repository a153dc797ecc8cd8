"""A log, stores and a table in one folder, and a loop of `MicroBatches` over them in the tests' own session."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import EntityTable, MicroBatch, MicroBatches, Writing
from leasehold.stores.sqlite.store import SqliteStore
from tests.waiting import NEVER

FENCE = ("hub", "partition", "sequenceNumber", "ownerLevel")
QUICK: dict[str, Any] = {
    "load_balancing_interval": 0.2,
    "partition_expiration": NEVER,
    "request_timeout": 30.0,
    "margin": 0.2,
    "settle_delay": 0.0,
}
"""A loop that holds its partitions at once, and loses none however long anything takes."""


class Place:
    """A log of two partitions, a store and a database in one folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.hub = LogHub.create(folder / "hub.db", partitions=2)
        self.sent = 0

    def send(self, count: int, partition: str | None = None, size: int = 0) -> None:
        for name in (partition,) if partition else ("0", "1"):
            bodies = []
            for _ in range(count):
                bodies.append(json.dumps({"id": f"{name}-{self.sent}", "n": self.sent, "pad": "x" * size}).encode())
                self.sent += 1
            self.hub.send([Event(body) for body in bodies], partition=name)

    def batches(self, **options: Any) -> MicroBatches:
        given = {**QUICK, "available_now": True, "pipeline": "p", "schema": "id STRING, n BIGINT", **options}
        return MicroBatches(self.spark, self.hub.url, store=f"sqlite:///{self.folder}/stores.db", **given)

    def table(self, **settings: Any) -> EntityTable:
        given = {"mode": "append", "pipeline": "p", "writing": Writing(keep=FENCE[1:3]), **settings}
        url = f"sqlite:///{self.folder}/{given.pop('file', 'table.db')}"
        return EntityTable(url, given.pop("table", "events"), **given)

    def rows(self, sql: str = "SELECT n FROM events ORDER BY n") -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.folder / "table.db") as connection:
            found = connection.execute(sql).fetchall()
        connection.close()
        return found

    def checkpoints(self) -> dict[str, int]:
        listed = SqliteStore(self.folder / "stores.db").list_checkpoints(self.hub.consumer_group("$Default"))
        return {one.partition: one.next_sequence_number for one in listed}


def plain(events: DataFrame) -> DataFrame:
    """The rows of `Place.table`."""
    return events.select("id", "n", *FENCE)


def each(batches: MicroBatches, body: Callable[[MicroBatch], object]) -> None:
    """Run a loop with this body to its end."""
    with batches:
        for batch in batches:
            body(batch)


def let_expire(stores: Path, owner: str = "") -> None:
    """Let long ago be the last that an instance, killed just now, has written to its store; without a name, all."""
    with closing(sqlite3.connect(stores)) as connection, connection:
        for table in ("leasehold_ownership", "leasehold_presence"):
            aged = f"UPDATE {table} SET last_modified = last_modified - ? WHERE owner_id LIKE ?"
            connection.execute(aged, (10 * NEVER, f"{owner}%"))
