"""`format("leasehold")` on an event hub in a mixed fleet: what an official processor makes of its checkpoints."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("azure.eventhub")

from leasehold.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.faults.mixed_fleet import MixedFleet
from tests.faults.mixed_worker import HUB, NAMESPACE
from tests.stores.azurite import Azurite
from tests.waiting import NEVER

MANY = 400


@pytest.fixture
def fleet(tmp_path: Path, azurite: Azurite) -> Iterator[MixedFleet]:
    with EventHubsServer({HUB: MemoryHub(2)}) as server:
        fleet = MixedFleet(tmp_path, server, azurite)
        yield fleet
        fleet.close()
    gc.collect()


def test_an_official_processor_goes_on_exactly_at_a_checkpoint_in_a_backlog(
    spark: SparkSession, fleet: MixedFleet, tmp_path: Path
) -> None:
    fleet.send(MANY)
    told = json.loads((tmp_path / "fleet.json").read_text())
    options = {
        "hub": told["hub"],
        "store": told["store"],
        "columns": "body",
        "maxEventsPerTrigger": "20",
        "loadBalancingInterval": "1s",
        "partitionExpiration": f"{NEVER:g}s",
    }

    def apply(batch: DataFrame, number: int) -> None:
        batch.count()

    stream = spark.readStream.format("leasehold").options(**options).load()
    query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "scratch")).start()
    fleet.until(
        lambda: query.exception() or [c.sequence_number > 0 for c in fleet.checkpoints().values()] == [True, True],
        "checkpoints in the middle of both partitions",
    )
    query.stop()
    places = {partition: found.sequence_number for partition, found in fleet.checkpoints().items()}
    assert all(0 < place < MANY - 1 for place in places.values()), f"in the middle: {places}"
    as_they_see = {
        one["partition_id"]: (one["sequence_number"], one["offset"])
        for one in fleet.official_store.list_checkpoints(NAMESPACE, HUB, "$Default")
    }
    offsets = {
        p: next(fleet.hub.read(p, at, at + 1, columns=["offset"])).column(0)[0].as_py() for p, at in places.items()
    }
    assert as_they_see == {partition: (place, offsets[partition]) for partition, place in places.items()}
    fleet.launch("official", "y")
    rest = {(partition, number) for partition, place in places.items() for number in range(place + 1, MANY)}
    fleet.until(lambda: len(fleet.read("y")) >= len(rest), "the rest to be delivered")
    fleet.stop("y")
    assert set(fleet.read("y")) == rest
