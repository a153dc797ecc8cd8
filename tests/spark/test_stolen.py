"""A partition of an event hub is stolen while a batch of it is read: nothing is lost, and nothing is applied twice."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("azure.eventhub")

from leasehold.emulators.event_hubs import EventHubsServer, MemoryHub
from leasehold.errors import LeaseholdError
from leasehold.hubs import open_hub
from leasehold.hubs.base import owner_reads
from leasehold.model import Checkpoint, Event, Ownership
from leasehold.spark import EntityTable, MicroBatches
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.places import QUICK

TIMES = [pytest.param(2), pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1500)])]


class Thief:
    """Takes partition 0 as another owner would, in the store and at the hub, and gives it up again at once."""

    def __init__(self, url: str, store: Path) -> None:
        self.hub = open_hub(url)
        self.group = self.hub.consumer_group("$Default")
        self.store = SqliteStore(store)
        self.steals = 0

    def steal(self) -> None:
        record = {one.partition: one for one in self.store.list_ownership(self.group).records}.get("0")
        if record is None or not record.owner_id:
            return
        level = record.owner_level + 1
        won = self.store.claim_ownership([Ownership(self.group, "0", "thief/1", level, record.etag)])
        if not won:
            return
        (before,) = [one for one in self.store.list_checkpoints(self.group) if one.partition == "0"]
        self.store.update_checkpoints([Checkpoint(self.group, "0", before.sequence_number, level, before.offset)])
        owner = owner_reads(self.hub, "$Default")
        assert owner is not None, "the hub tells owners apart"
        next(owner.read_as_owner("0", 0, 1, level), None)
        self.store.relinquish_ownership(won)
        self.steals += 1


@pytest.mark.parametrize("times", TIMES)
def test_stolen_in_mid_batch(spark: SparkSession, tmp_path: Path, times: int) -> None:
    rng = Random(times)
    with EventHubsServer({"eh": MemoryHub(2)}) as server:
        url = f"eventhubs://127.0.0.1:{server.port}/eh?connection_string={quote(server.connection_string(), safe='')}"
        thief = Thief(url, tmp_path / "stores.db")
        table = EntityTable(
            f"sqlite:///{tmp_path}/t.db", "events", mode="append", pipeline="p", keep=("partition", "sequenceNumber")
        )
        sent = 0
        batches = MicroBatches(
            spark,
            url,
            store=f"sqlite:///{tmp_path}/stores.db",
            pipeline="p",
            columns=("hub", "partition", "sequenceNumber", "ownerLevel"),
            **QUICK,
        )
        with batches:
            for partition in ("0", "1"):
                thief.hub.send([Event(b"x")] * 300, partition=partition)
            sent += 600
            for batch in batches:
                if thief.steals < times and any(one.partition == "0" for one in batch.ranges):
                    stealing = threading.Timer(rng.choice((0.0, 0.05, 0.15, 0.3)), _quietly(thief))
                    stealing.start()
                    table.apply(batch.events, batch)
                    stealing.join()
                    thief.hub.send([Event(b"x")] * 200, partition="0")
                    sent += 200
                else:
                    table.apply(batch.events, batch)
                if thief.steals >= times and table.row_count() == sent:
                    batches.stop()
        thief.hub.close()
        table.close()
    with sqlite3.connect(tmp_path / "t.db") as connection:
        counts = connection.execute("SELECT count(*), count(DISTINCT partition || '/' || sequenceNumber) FROM events")
        assert counts.fetchone() == (sent, sent)
    connection.close()
    gc.collect()


def _quietly(thief: Thief) -> Callable[[], None]:
    def steal() -> None:
        try:
            thief.steal()
        except LeaseholdError:
            return  # another turn

    return steal
