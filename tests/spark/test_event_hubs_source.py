"""`format("leasehold")` on an event hub in a mixed fleet: what an official processor makes of its checkpoints."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("azure.eventhub")

from leasehold.errors import HubUnavailable
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.faults.mixed_fleet import MixedFleet
from tests.faults.mixed_worker import HUB, NAMESPACE
from tests.stores.azurite import Azurite
from tests.waiting import NEVER, PATIENCE, until

MANY = 400


@pytest.fixture
def fleet(tmp_path: Path, azurite: Azurite) -> Iterator[MixedFleet]:
    with EventHubsServer({HUB: MemoryHub(2)}) as server:
        fleet = MixedFleet(tmp_path, server, azurite)
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.more  # test_event_hubs_bodies.py reads from there
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
        "requestTimeout": "60s",
    }

    inside, go_on = threading.Event(), threading.Event()

    def apply(batch: DataFrame, number: int) -> None:
        """Hold the query in the first batch until it has both partitions, and in one where both have a checkpoint."""
        batch.count()
        if number == 0:
            fleet.until(lambda: sum(fleet.owned().values()) == 2, "both partitions to be held")
        if [found.sequence_number > 0 for found in fleet.checkpoints().values()] == [True, True]:
            inside.set()
            assert go_on.wait(PATIENCE)

    stream = spark.readStream.format("leasehold").options(**options).load()
    query = stream.writeStream.foreachBatch(apply).option("checkpointLocation", str(tmp_path / "scratch")).start()
    fleet.until(lambda: query.exception() or inside.is_set(), "checkpoints in the middle of both partitions")
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    until(lambda: not query.isActive, "the stop to be asked for")
    go_on.set()
    stopping.join()
    places = {partition: found.sequence_number for partition, found in fleet.checkpoints().items()}
    assert all(0 < place < MANY - 1 for place in places.values()), f"in the middle: {places}"
    as_they_see = {
        one["partition_id"]: (one["sequence_number"], one["offset"])
        for one in fleet.official_store.list_checkpoints(NAMESPACE, HUB, "$Default")
    }
    offsets: dict[str, str] = {}

    def has_offsets() -> bool:
        """Not as long as a worker of the query has a receiver with an owner level: one without is refused then."""
        with suppress(HubUnavailable):
            for p, at in places.items():
                offsets[p] = next(fleet.hub.read(p, at, at + 1, columns=["offset"])).column(0)[0].as_py()
        return len(offsets) == len(places)

    fleet.until(has_offsets, "the receivers of the query to be gone")
    assert as_they_see == {partition: (place, offsets[partition]) for partition, place in places.items()}
    fleet.launch("official", "y")
    rest = {(partition, number) for partition, place in places.items() for number in range(place + 1, MANY)}
    fleet.until(lambda: len(fleet.read("y")) >= len(rest), "the rest to be delivered")
    fleet.stop("y")
    assert set(fleet.read("y")) == rest
