"""Java's event processor and ours in one consumer group, on Azurite and the local server."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.faults.mixed_worker import HUB
from tests.peers.maven import EVENT_HUBS_PROCESSOR, java_program
from tests.peers.watched_fleet import PARTITIONS, TAKE_OVER, WatchedFleet, at_default_times, courses
from tests.stores.azurite import Azurite

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    pytest.mark.xdist_group("java"),
    LEAVES_SOCKETS,
]
PROGRAM = Path(__file__).with_name("OfficialProcessor.java")
HOST = "127.0.0.1"
"""What Java calls the namespace of a server on this host, whatever its port."""


@pytest.fixture(scope="module")
def java() -> list[str]:
    """The command of a member, but for its folder and name."""
    return java_program("Java's event processor", "event-hubs-processor", EVENT_HUBS_PROCESSOR, PROGRAM)


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite, java: list[str]) -> Iterator[WatchedFleet]:
    default_times: bool = getattr(request, "param", False)
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = WatchedFleet(tmp_path, server, azurite, namespace=HOST, default_times=default_times)
        told = {
            "connection": f"Endpoint=sb://{server.namespace};SharedAccessKeyName=k;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true",
            "hub": HUB,
            "storage": azurite.connection_string,
            "container": fleet.container,
            "partitions": ",".join(fleet.hub.partition_ids()),
            **({} if default_times else {"interval": "PT1S", "expiration": f"PT{TAKE_OVER:g}S"}),
        }
        (tmp_path / "java.properties").write_text("".join(f"{name}={value}\n" for name, value in told.items()))
        fleet.commands["java"] = [*java, str(tmp_path)]
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "second", "ends"), courses("java"))
def test_one_joins_the_other_and_each_outlives_the_other(
    fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]
) -> None:
    fleet.take_turns(first, second, ends)


@pytest.mark.soak
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("fleet", [True], indirect=True, ids=[""])
@pytest.mark.parametrize(("first", "second", "ends"), at_default_times("java"))
def test_at_everybodys_default_times(fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]) -> None:
    fleet.take_turns_at_default_times(first, second, ends)
