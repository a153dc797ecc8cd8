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

from leasehold.errors import LeaseholdError
from leasehold.model import Event
from leasehold.spark import EntityTable, MicroBatches, Writing
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.spark.places import QUICK
from tests.spark.thieves import Thief

TIMES = [pytest.param(2), pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1500)])]


@pytest.mark.parametrize("times", TIMES)
def test_stolen_in_mid_batch(spark: SparkSession, tmp_path: Path, times: int) -> None:
    rng = Random(times)
    with EventHubsServer({"eh": MemoryHub(2)}) as server:
        url = f"eventhubs://127.0.0.1:{server.port}/eh?connection_string={quote(server.connection_string(), safe='')}"
        thief = Thief(url, tmp_path / "stores.db")
        writing = Writing(keep=("partition", "sequenceNumber"))
        table = EntityTable(f"sqlite:///{tmp_path}/t.db", "events", mode="append", pipeline="p", writing=writing)
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
