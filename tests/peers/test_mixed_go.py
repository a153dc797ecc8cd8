"""Go's event processor and ours in one consumer group, on Azurite and the local server: names as they are spelled."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from leasehold.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.faults.mixed_worker import HUB
from tests.node_packages import locked
from tests.peers.left_out import failed
from tests.peers.watched_fleet import PARTITIONS, TAKE_OVER, WatchedFleet
from tests.stores.azurite import Azurite, started

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    pytest.mark.peers,
    # The official client leaves its socket to the garbage collector when it reconnects.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]
SOURCE = Path(__file__).with_name("go")


@pytest.fixture(scope="module")
def processor() -> Path:
    """The program, built beside the interpreter, from modules as `go` is configured for them."""
    if (go := shutil.which("go")) is None:
        pytest.skip("Go's event processor is left out: there is no go here")
    parent = Path(sys.prefix) / "share" / "leasehold-tests"
    parent.mkdir(parents=True, exist_ok=True)
    with locked(parent / "lock"):
        folder = parent / "go-event-hubs-processor"
        folder.mkdir(exist_ok=True)
        for name in ("go.mod", "go.sum", "main.go"):
            shutil.copyfile(SOURCE / name, folder / name)
        command = [go, "build", "-o", "official_processor", "."]
        environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode:
            failed(f"Go's event processor is left out: go says {done.stderr.strip()[:500]}")
    return folder / "official_processor"


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    server = started()
    yield server
    server.stop()


@pytest.fixture
def fleet(tmp_path: Path, azurite: Azurite, processor: Path) -> Iterator[WatchedFleet]:
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = WatchedFleet(tmp_path, server, azurite, namespace=server.namespace, store_options="&names=as-spelled")
        told = {
            "Connection": server.connection_string(),
            "Hub": HUB,
            "Storage": azurite.connection_string,
            "Container": fleet.container,
            "Interval": 1.0,
            "Expiration": TAKE_OVER,
        }
        (tmp_path / "go.json").write_text(json.dumps(told))
        fleet.commands["go"] = [str(processor), str(tmp_path)]
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", [("ours", "go"), ("go", "ours")], ids="-then-".join)
def test_one_joins_the_other_and_each_outlives_the_other(fleet: WatchedFleet, order: tuple[str, str]) -> None:
    fleet.join_and_outlive(*order)
