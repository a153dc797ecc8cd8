"""Official event processors and ours as processes in one consumer group: one hub, one container, nobody told apart.

The official processor is `EventHubConsumerClient` with its blob store. Each process appends what it was given to a
file of its own before it writes a checkpoint for it, so the files say what was delivered, and to whom.
"""

from __future__ import annotations

import gc
import json
import logging
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

from leasehold.hubs import open_hub
from leasehold.model import Checkpoint, Event
from leasehold.stores import open_store
from leasehold.testing.event_hubs import EventHubsServer, MemoryHub
from tests.faults.mixed_worker import HUB, NAMESPACE
from tests.stores.azurite import Azurite, started

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = pytest.mark.filterwarnings(
    # The official client leaves its socket to the garbage collector when it reconnects.
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
CONNECTION = f"Endpoint=sb://{NAMESPACE};SharedAccessKeyName=k;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"


class MixedFleet:
    """A hub, a container, and the processes that share them."""

    def __init__(self, folder: Path, server: EventHubsServer, azurite: Azurite) -> None:
        self.folder = folder
        container = f"mixed-{secrets.token_hex(4)}"
        azurite.make_container(container)
        options = f"fleet=mixed&endpoint=127.0.0.1:{server.port}&connection_string={quote(CONNECTION, safe='')}"
        told = {
            "connection_string": CONNECTION,
            "endpoint": f"127.0.0.1:{server.port}",
            "hub": f"eventhubs://{NAMESPACE}/{HUB}?{options}",
            "storage": azurite.connection_string,
            "container": container,
            "store": azurite.url("azblob", container),
        }
        (folder / "fleet.json").write_text(json.dumps(told))
        self.hub = open_hub(told["hub"])
        self.group = self.hub.consumer_group("$Default")
        self.store = open_store(told["store"], timeout=20.0)
        self.official_store = BlobCheckpointStore.from_connection_string(azurite.connection_string, container)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent = 0

    def send(self, each: int) -> None:
        for partition in self.hub.partition_ids():
            self.hub.send([Event(b"event %d" % number) for number in range(each)], partition=partition)
        self.sent += each

    def launch(self, kind: str, name: str) -> None:
        command = [sys.executable, "-m", "tests.faults.mixed_worker", kind, str(self.folder), name]
        with (self.folder / f"log-{name}").open("ab") as said:
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)

    def kill(self, name: str) -> None:
        victim = self.processes.pop(name)
        victim.send_signal(signal.SIGKILL)
        victim.wait()

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(PATIENCE) == 0, (self.folder / f"log-{name}").read_text()

    def owned(self) -> dict[str, int]:
        """How many partitions each owner has on record: ours by name, official processors by their UUID."""
        records = self.store.list_ownership(self.group).records
        return Counter(record.owner_id.partition("/")[0] for record in records if record.owner_id)

    def wait_shared(self, *counts: int, without: str = "") -> dict[str, int]:
        """Wait until the partitions are shared so, and nobody of the name `without` has any."""

        def shared() -> bool:
            owned = self.owned()
            return sorted(owned.values()) == sorted(counts) and without not in owned

        self.until(shared, f"shares of {counts} without {without!r}")
        return self.owned()

    def wait_read(self) -> None:
        """Wait until every event was delivered to somebody."""
        self.until(lambda: set(self.read()) == self.all_events(), "every event to be delivered")

    def wait_recorded(self) -> None:
        """Wait until every partition's checkpoint is at its end."""
        self.until(
            lambda: (
                {p: c.next_sequence_number for p, c in self.checkpoints().items()}
                == dict.fromkeys(self.hub.partition_ids(), self.sent)
            ),
            "every checkpoint to be at the end",
        )

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                said = "\n".join(
                    f"{path.name}: {path.read_text(errors='replace')[-3_000:]}" for path in self.folder.glob("log-*")
                )
                missing = len(self.all_events() - set(self.read()))
                raise AssertionError(f"waited {PATIENCE:g} s for {what}: {self.owned()}, {missing} not read\n{said}")
            time.sleep(0.1)

    def read(self, *names: str) -> Counter[tuple[str, int]]:
        """What was delivered, to these or to all, and how often."""
        paths = [self.folder / f"read-{name}" for name in names] or list(self.folder.glob("read-*"))
        lines = [line.split() for path in paths if path.exists() for line in path.read_text().splitlines()]
        return Counter((partition, int(number)) for partition, number in lines if number)

    def all_events(self) -> set[tuple[str, int]]:
        return {(partition, number) for partition in self.hub.partition_ids() for number in range(self.sent)}

    def checkpoints(self) -> dict[str, Checkpoint]:
        return {checkpoint.partition: checkpoint for checkpoint in self.store.list_checkpoints(self.group)}

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.hub.close()
        self.official_store.close()


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    server = started()
    yield server
    server.stop()


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite) -> Iterator[MixedFleet]:
    with EventHubsServer({HUB: MemoryHub(request.param)}) as server:
        fleet = MixedFleet(tmp_path, server, azurite)
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.parametrize("fleet", [4], indirect=True)
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


@pytest.mark.parametrize("fleet", [2], indirect=True)
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
