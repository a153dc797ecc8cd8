"""JavaScript's event processor and ours in one consumer group, on Azurite and the local server."""

from __future__ import annotations

import gc
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.faults.mixed_worker import HUB
from tests.left_out import failed
from tests.node_packages import install, node
from tests.peers.watched_fleet import PARTITIONS, TAKE_OVER, WatchedFleet, at_default_times, courses
from tests.stores.azurite import Azurite

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    LEAVES_SOCKETS,
]
PACKAGE = {
    "private": True,
    "dependencies": {
        "@azure/event-hubs": "6.0.4",
        "@azure/eventhubs-checkpointstore-blob": "2.0.0",
        "@azure/storage-blob": "12.29.1",
    },
}
PROGRAM = Path(__file__).with_name("official_processor.mjs")
HOST = "127.0.0.1"
"""What JavaScript calls the namespace of a server on this host, whatever its port."""


@pytest.fixture(scope="module")
def processor() -> list[str]:
    """The command of a member, but for its folder and name. A module finds its packages from where it is."""
    try:
        folder = install("javascript-event-hubs-processor", PACKAGE)
    except RuntimeError as error:
        failed(f"JavaScript's event processor is left out: {error}")
    return [str(node()), str(shutil.copy(PROGRAM, str(folder)))]


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite, processor: list[str]
) -> Iterator[WatchedFleet]:
    default_times: bool = getattr(request, "param", False)
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = WatchedFleet(tmp_path, server, azurite, namespace=HOST, default_times=default_times)
        told = {
            "connection": server.connection_string(),
            "hub": HUB,
            "storage": azurite.connection_string,
            "container": fleet.container,
            **({} if default_times else {"interval": 1.0, "expiration": TAKE_OVER}),
        }
        (tmp_path / "javascript.json").write_text(json.dumps(told))
        fleet.commands["javascript"] = [*processor, str(tmp_path)]
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "second", "ends"), courses("javascript"))
def test_one_joins_the_other_and_each_outlives_the_other(
    fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]
) -> None:
    fleet.take_turns(first, second, ends)


@pytest.mark.soak
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("fleet", [True], indirect=True, ids=[""])
@pytest.mark.parametrize(("first", "second", "ends"), at_default_times("javascript"))
def test_at_everybodys_default_times(fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]) -> None:
    fleet.take_turns_at_default_times(first, second, ends)
