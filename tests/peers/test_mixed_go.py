"""Go's event processor and ours in one consumer group, on Azurite and the local server: names as they are spelled."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.faults.mixed_worker import HUB
from tests.peers.go_programs import built
from tests.peers.watched_fleet import PARTITIONS, TAKE_OVER, WatchedFleet, at_default_times, courses
from tests.stores.azurite import Azurite

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    pytest.mark.xdist_group("go"),
    LEAVES_SOCKETS,
]
SOURCE = Path(__file__).with_name("go")


@pytest.fixture(scope="module")
def processor() -> Path:
    return built("Go's event processor", SOURCE, "go-event-hubs-processor")


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite, processor: Path) -> Iterator[WatchedFleet]:
    default_times: bool = getattr(request, "param", False)
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = WatchedFleet(
            tmp_path,
            server,
            azurite,
            namespace=server.namespace,
            default_times=default_times,
            store_options="&names=as-spelled",
        )
        told = {
            "Connection": server.connection_string(),
            "Hub": HUB,
            "Storage": azurite.connection_string,
            "Container": fleet.container,
            "Interval": 0.0 if default_times else 1.0,
            "Expiration": 0.0 if default_times else TAKE_OVER,
        }
        (tmp_path / "go.json").write_text(json.dumps(told))
        fleet.commands["go"] = [str(processor), str(tmp_path)]
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "second", "ends"), courses("go"))
def test_one_joins_the_other_and_each_outlives_the_other(
    fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]
) -> None:
    fleet.take_turns(first, second, ends)


@pytest.mark.soak
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("fleet", [True], indirect=True, ids=[""])
@pytest.mark.parametrize(("first", "second", "ends"), at_default_times("go"))
def test_at_everybodys_default_times(fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]) -> None:
    fleet.take_turns_at_default_times(first, second, ends)
