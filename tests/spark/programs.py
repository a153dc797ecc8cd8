"""A streaming query of `format("leasehold")` with entity tables, as programs have it, in the tests' own session."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event, Ownership
from leasehold.spark import EntityTable, Writing
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.places import FENCE
from tests.waiting import NEVER

FAST = {
    "loadBalancingInterval": "200ms",
    "partitionExpiration": f"{NEVER:g}s",
    "requestTimeout": "30s",
    "margin": "200ms",
    "settleDelay": "0s",
}
"""A query that holds its partitions at once, and loses none however long anything takes."""


class Program:
    """A log of some partitions, a store and a database in one folder."""

    def __init__(self, spark: SparkSession, folder: Path, partitions: int = 2) -> None:
        self.spark, self.folder = spark, folder
        self.hub = LogHub.create(folder / "hub.db", partitions=partitions)
        self.group = self.hub.consumer_group("$Default")
        self.sent = 0

    @property
    def store(self) -> SqliteStore:
        return SqliteStore(self.folder / "stores.db")

    def send(self, count: int, partition: str, size: int = 0) -> None:
        """Send numbers, each once over all calls, as text; `size` bytes follow each after a blank."""
        bodies = [f"{number} {'x' * size}".strip().encode() for number in range(self.sent, self.sent + count)]
        self.sent += count
        self.hub.send([Event(body) for body in bodies], partition=partition)

    def table(self, name: str = "numbers", **settings: Any) -> EntityTable:
        given = {"mode": "append", "pipeline": "p", "writing": Writing(keep=FENCE[1:3]), **settings}
        return EntityTable(f"sqlite:///{self.folder}/table.db", name, **given)

    def events(self, *tables: EntityTable, **options: str) -> DataFrame:
        told = tables[0].stream_options(*tables[1:]) if tables else {}
        stores = {"hub": self.hub.url, "store": f"sqlite:///{self.folder}/stores.db"}
        return self.spark.readStream.format("leasehold").options(**{**stores, **FAST, **told, **options}).load()

    def rows(self, events: DataFrame) -> DataFrame:
        return events.selectExpr("int(split(string(body), ' ')[0]) AS n", *FENCE)

    def start(
        self,
        rows: DataFrame,
        function: Callable[[DataFrame, int], None],
        *,
        scratch: str = "scratch",
        interval: str | None = None,
        available_now: bool = True,
    ) -> StreamingQuery:
        writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", str(self.folder / scratch))
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif interval is not None:
            writer = writer.trigger(processingTime=interval)
        return writer.start()

    def numbers(self, table: str = "numbers") -> list[int]:
        connection = sqlite3.connect(self.folder / "table.db")
        found = connection.execute(f"SELECT n FROM {table} ORDER BY n").fetchall()
        connection.close()
        return [n for (n,) in found]

    def checkpoints(self) -> dict[str, int]:
        return {one.partition: one.next_sequence_number for one in self.store.list_checkpoints(self.group)}

    def record(self) -> Ownership:
        """The one ownership record of the group."""
        (record,) = self.store.list_ownership(self.group).records
        return record
