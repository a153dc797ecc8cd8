"""Streams of `format("leasehold")` over a log, as they are without a table, in the tests' own session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leasehold.hubs.log.hub import LogHub
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.programs import FAST


@dataclass
class Bench:
    """A log, a store and what streams have read."""

    spark: SparkSession
    folder: Path
    hub: LogHub
    seen: list[tuple[str, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    write: Callable[[DataFrame, int], object] = lambda batch, batch_id: None

    @property
    def store(self) -> SqliteStore:
        return SqliteStore(self.folder / "store.db")

    def send(self, partition: str, count: int) -> None:
        bodies = [b"%d" % number for number in range(count)]
        self.hub.append(pa.table({"body": pa.array(bodies, pa.binary())}), partition=partition)

    def batch(self, **options: str) -> DataFrame:
        return self.spark.read.format("leasehold").options(hub=self.hub.url, **options).load()

    def stream(
        self, name: str, *, available_now: bool = False, interval: str | None = None, **options: str
    ) -> StreamingQuery:
        """Start a stream that notes and writes what it reads; `name` is its owner id and its checkpoint folder."""

        def note(batch: DataFrame, batch_id: int) -> None:
            rows = batch.select("partition", "sequenceNumber").toArrow().to_pylist()
            self.batches.append(len(rows))
            self.seen += [(row["partition"], row["sequenceNumber"]) for row in rows]
            self.write(batch, batch_id)

        url = f"sqlite:///{self.folder}/store.db"
        stores = {} if "ownershipStore" in options else {"store": url}
        everything = {"hub": self.hub.url, "ownerId": name, **stores, **FAST, **options}
        writer = self.spark.readStream.format("leasehold").options(**everything).load().writeStream.foreachBatch(note)
        writer = writer.option("checkpointLocation", str(self.folder / name))
        if interval is not None:
            writer = writer.trigger(processingTime=interval)
        return writer.trigger(availableNow=True).start() if available_now else writer.start()

    def everything(self) -> list[tuple[str, int]]:
        places = self.hub.partition_properties().values()
        return [(place.partition, number) for place in places for number in range(place.end)]
