"""Python's official event processor and ours in one consumer group, on Azurite and the local server, watched."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.faults.mixed_worker import HUB, NAMESPACE
from tests.peers.watched_fleet import PARTITIONS, WatchedFleet, at_default_times, courses
from tests.stores.azurite import Azurite

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    LEAVES_SOCKETS,
]


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite) -> Iterator[WatchedFleet]:
    default_times: bool = getattr(request, "param", False)
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = WatchedFleet(tmp_path, server, azurite, namespace=NAMESPACE, default_times=default_times)
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "second", "ends"), courses("official"))
def test_one_joins_the_other_and_each_outlives_the_other(
    fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]
) -> None:
    fleet.take_turns(first, second, ends)


@pytest.mark.soak
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("fleet", [True], indirect=True, ids=[""])
@pytest.mark.parametrize(("first", "second", "ends"), at_default_times("official"))
def test_at_everybodys_default_times(fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]) -> None:
    fleet.take_turns_at_default_times(first, second, ends)
