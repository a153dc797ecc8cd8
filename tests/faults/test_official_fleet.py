"""Official event processors, ours and our Spark pipelines in one consumer group: one container, nobody told apart.

The official processor is `EventHubConsumerClient` with its blob store, on a local server and Azurite.
"""

from __future__ import annotations

import gc
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from azure.storage.blob import ContainerClient

from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.faults.mixed_fleet import MixedFleet
from tests.faults.mixed_worker import EXPIRATION, HUB, NAMESPACE
from tests.stores.azurite import Azurite
from tests.waiting import NEVER

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    pytest.mark.timeout(1200),
    LEAVES_SOCKETS,
]


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite) -> Iterator[MixedFleet]:
    partitions, expiration = request.param
    with EventHubsServer({HUB: MemoryHub(partitions)}) as server:
        fleet = MixedFleet(tmp_path, server, azurite, expiration=expiration)
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.soak  # `make peers` has each order of joining and each end, watched, in tests/peers/test_mixed_python.py
@pytest.mark.parametrize("fleet", [(4, EXPIRATION)], indirect=True)
def test_partitions_are_balanced_and_taken_over_both_ways(fleet: MixedFleet) -> None:
    fleet.send(30)
    fleet.launch("official", "x")
    fleet.launch("ours", "a")
    (x,) = set(fleet.wait_shared(2, 2)) - {"a"}
    fleet.send(30)
    fleet.kill("x")
    fleet.wait_shared(4, without=x)
    fleet.launch("official", "y")
    fleet.launch("ours", "b")
    fleet.wait_shared(1, 1, 2, without=x)
    fleet.send(30)
    fleet.kill("a")
    fleet.wait_shared(2, 2, without="a")
    fleet.send(30)
    fleet.wait_read()
    assert fleet.read("y"), "an official processor reads what ours had"
    assert fleet.read("b"), "and ours what an official one had"


@pytest.mark.more
@pytest.mark.parametrize("fleet", [(2, NEVER)], indirect=True)
def test_each_goes_on_exactly_at_the_others_checkpoint(fleet: MixedFleet) -> None:
    fleet.send(25)
    fleet.launch("official", "x")
    fleet.wait_read()
    fleet.wait_recorded()
    fleet.stop("x")
    fleet.send(25)
    fleet.launch("ours", "a")
    fleet.wait_read()
    fleet.wait_recorded()
    fleet.stop("a")
    as_they_see = {
        one["partition_id"]: (one["sequence_number"], one["offset"])
        for one in fleet.official_store.list_checkpoints(NAMESPACE, HUB, "$Default")
    }
    offsets = {
        partition: next(fleet.hub.read(partition, fleet.sent - 1, fleet.sent, columns=["offset"])).column(0)[0].as_py()
        for partition in fleet.hub.partition_ids()
    }
    assert as_they_see == {partition: (fleet.sent - 1, offset) for partition, offset in offsets.items()}
    assert str(fleet.sent - 1) not in offsets.values(), "an offset here is no sequence number"
    fleet.send(25)
    fleet.launch("official", "y")
    fleet.wait_read()
    fleet.stop("y")
    assert set(fleet.read().values()) == {1}, "nothing is delivered twice when a planned end comes between"
    assert {number for _, number in fleet.read("a")} == set(range(25, 50))
    assert {number for _, number in fleet.read("y")} == set(range(50, 75))


@pytest.mark.parametrize("fleet", [(1, NEVER)], indirect=True)
def test_a_checkpoint_of_another_sdk_with_an_offset_alone_is_read_from_the_beginning(
    fleet: MixedFleet, azurite: Azurite
) -> None:
    """Where an offset is among the events is not known without its sequence number. Nothing is skipped."""
    fleet.send(25)
    (tenth,) = next(fleet.hub.read("0", 10, 11, columns=["offset"])).column(0).to_pylist()
    with ContainerClient.from_connection_string(azurite.connection_string, fleet.container) as container:
        place = f"{NAMESPACE}/{HUB}/$Default/checkpoint/0".lower()
        container.upload_blob(place, b"", metadata={"offset": tenth})
    assert [checkpoint.offset for checkpoint in fleet.checkpoints().values()] == [tenth]
    fleet.launch("ours", "a")
    fleet.wait_read()
    fleet.wait_recorded()
    assert set(fleet.read("a").values()) == {1}


@pytest.mark.more
def test_the_address_that_the_local_server_prints_is_one_name_to_both(tmp_path: Path, azurite: Azurite) -> None:
    """A mixed fleet can be tried with nothing but the connection string: records are found by the same name."""
    with EventHubsServer({HUB: MemoryHub(2)}) as server:
        fleet = MixedFleet(tmp_path, server, azurite, namespace=server.namespace, expiration=NEVER)
        told = json.loads((tmp_path / "fleet.json").read_text())
        printed = server.connection_string()
        hub = f"eventhubs://{server.namespace}/{HUB}?fleet=mixed&connection_string={quote(printed, safe='')}"
        (tmp_path / "fleet.json").write_text(json.dumps({**told, "connection_string": printed, "hub": hub}))
        try:
            fleet.send(10)
            fleet.launch("official", "x")
            fleet.wait_shared(2)
            fleet.launch("ours", "a")
            assert "a" in fleet.wait_shared(1, 1)
            fleet.wait_read()
        finally:
            fleet.close()
    gc.collect()


@pytest.mark.more
@pytest.mark.parametrize("fleet", [(5, EXPIRATION)], indirect=True)
def test_a_pipeline_beside_official_processors_and_ours_is_killed(fleet: MixedFleet) -> None:
    _kill_a_pipeline_beside_the_others(fleet)


def _kill_a_pipeline_beside_the_others(fleet: MixedFleet) -> None:
    """Three kinds of members, balanced. The pipeline dies in a batch; the others go on exactly at its checkpoints."""
    fleet.send(20)
    fleet.launch("spark", "s")
    fleet.wait_recorded()
    assert fleet.table() == Counter(fleet.all_events())
    fleet.launch("official", "x")
    fleet.launch("ours", "a")
    fleet.send(20)
    assert set(fleet.wait_shared(1, 2, 2)) > {"a", "s"}
    fleet.send(20)
    fleet.wait_read()
    fleet.wait_recorded()

    recorded, read = fleet.sent, fleet.read("x", "a")
    fleet.close_gate("s")
    fleet.send(20)
    fleet.wait_entered("s")
    lost = fleet.owned_by("s")
    assert lost
    fleet.kill("s")
    fleet.open_gate("s")
    fleet.wait_shared(2, 3, without="s")
    fleet.wait_read()
    again = fleet.read("x", "a") - read
    since = set(range(recorded, fleet.sent))
    assert {p: {number for q, number in again if p == q} for p in lost} == dict.fromkeys(lost, since)
    assert not {(p, number) for p in lost for number in since} & set(fleet.table())
    fleet.wait_recorded()
    assert set(fleet.table().values()) == {1}


@pytest.mark.soak
@pytest.mark.parametrize("fleet", [(5, EXPIRATION)], indirect=True)
def test_a_pipeline_and_official_processors_take_over_from_each_other(fleet: MixedFleet) -> None:
    """What is delivered twice is what had no checkpoint, and in the table it is once."""
    _kill_a_pipeline_beside_the_others(fleet)

    # It comes back, also to the batch that it died in, and ours leaves.
    fleet.launch("spark", "s")
    fleet.wait_shared(1, 2, 2)
    fleet.stop("a")
    (x,) = set(fleet.wait_shared(2, 3, without="a")) - {"s"}
    fleet.send(20)
    fleet.wait_read()
    fleet.wait_recorded()

    # The official one is killed between events and checkpoint: the pipeline goes on exactly at its checkpoints.
    recorded, table = fleet.sent, fleet.table()
    fleet.close_gate("x")
    fleet.send(20)
    fleet.wait_entered("x")
    fleet.kill("x")
    fleet.wait_shared(5, without=x)
    fleet.wait_recorded()
    assert fleet.table() - table == Counter(event for event in fleet.all_events() if event[1] >= recorded)

    # Another official one joins, and goes on exactly where the pipeline is.
    recorded = fleet.sent
    fleet.launch("official", "y")
    fleet.wait_shared(2, 3)
    fleet.send(20)
    fleet.wait_read()
    assert min(number for _, number in fleet.read("y")) == recorded
    fleet.stop("s")
    assert set(fleet.table().values()) == {1}
    assert set(fleet.read()) == fleet.all_events()
