"""Rust's event processor and ours in one consumer group, on Azurite and the local server: names as they are spelled."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.faults.mixed_worker import HUB
from tests.peers.rust_programs import built
from tests.peers.watched_fleet import PARTITIONS, TAKE_OVER, WatchedFleet, at_default_times, courses
from tests.stores.azurite import ACCOUNT, KEY, Azurite

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    pytest.mark.xdist_group("rust"),
    LEAVES_SOCKETS,
]
SOURCE = Path(__file__).with_name("rust")
HOST = "127.0.0.1"
"""What Rust calls the namespace of a server on this host, whatever its port."""


@pytest.fixture(scope="module")
def processor() -> Path:
    return built("Rust's event processor", SOURCE, "rust-event-hubs-processor")


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite, processor: Path) -> Iterator[WatchedFleet]:
    default_times: bool = getattr(request, "param", False)
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = WatchedFleet(
            tmp_path,
            server,
            azurite,
            namespace=HOST,
            default_times=default_times,
            store_options="&names=as-spelled",
            level=None,  # asked for 0, `azure_core_amqp` leaves the properties out of its attach
            again_after_a_theft=True,
        )
        told = {
            "namespace": HOST,
            "endpoint": f"amqp://{HOST}:{server.port}",
            "hub": HUB,
            "container": f"{azurite.endpoint('blob')}/{fleet.container}?{_signature(fleet.container)}",
            **({} if default_times else {"interval": 1.0, "expiration": TAKE_OVER}),
        }
        (tmp_path / "rust.json").write_text(json.dumps(told))
        fleet.commands["rust"] = [str(processor), str(tmp_path)]
        yield fleet
        fleet.close()
    gc.collect()


def _signature(container: str) -> str:
    """What lets a client without a key into the container: Rust's takes a token, which Azurite has not, or this."""
    rights = ContainerSasPermissions(read=True, add=True, create=True, write=True, delete=True, list=True)
    until = datetime.now(UTC) + timedelta(hours=2)
    signature: str = generate_container_sas(ACCOUNT, container, account_key=KEY, permission=rights, expiry=until)
    return signature


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("first", "second", "ends"), courses("rust"))
def test_one_joins_the_other_and_each_outlives_the_other(
    fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]
) -> None:
    fleet.take_turns(first, second, ends)


@pytest.mark.soak
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("fleet", [True], indirect=True, ids=[""])
@pytest.mark.parametrize(("first", "second", "ends"), at_default_times("rust"))
def test_at_everybodys_default_times(fleet: WatchedFleet, first: str, second: str, ends: list[tuple[str, str]]) -> None:
    fleet.take_turns_at_default_times(first, second, ends)


@pytest.mark.peers
@pytest.mark.timeout(1800)
def test_what_ours_gave_up_is_an_owners_to_rust_beyond_its_share(fleet: WatchedFleet) -> None:
    """It takes an empty owner for one more member: it has its half at once, and the rest when the records expire."""
    told = json.loads((fleet.folder / "rust.json").read_text())
    (fleet.folder / "rust.json").write_text(json.dumps({**told, "expiration": 300.0}))
    fleet.alone("ours", "a")
    fleet.leave("a")
    fleet.launch("rust", "b")
    fleet.wait_shared(PARTITIONS // 2)
    for _ in range(3):
        fleet.until(partial(_renewed, fleet, _etags(fleet)), "a renewal of both")
    assert fleet.owned() == {"b": PARTITIONS // 2}


def _etags(fleet: WatchedFleet) -> dict[str, str | None]:
    """The etag of each record of Rust's."""
    return {record.partition: record.etag for record in fleet.records() if record.owner_id == "b"}


def _renewed(fleet: WatchedFleet, before: dict[str, str | None]) -> bool:
    now = _etags(fleet)
    return all(now.get(partition) != etag for partition, etag in before.items())
