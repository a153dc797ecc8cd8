"""Java's event processor and ours in one consumer group, on Azurite and the local server: joining, killed, at rest.

What is asked of each: every event is delivered to somebody; at a join, at most two batches of a partition come twice;
no partition is without a receiver for longer than a take-over takes; and nothing moves once all have their share.
"""

from __future__ import annotations

import gc
import logging
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

from leasehold.testing.event_hubs import EventHubsServer, MemoryHub
from tests.faults.mixed_fleet import MixedFleet
from tests.faults.mixed_worker import HUB
from tests.peers.left_out import failed
from tests.peers.maven import jars
from tests.peers.reader_watch import ReaderWatch
from tests.stores.azurite import Azurite, started

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = [
    pytest.mark.peers,
    # The official client leaves its socket to the garbage collector when it reconnects.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]
JARS = (
    "com.azure:azure-messaging-eventhubs:5.21.3",
    "com.azure:azure-messaging-eventhubs-checkpointstore-blob:1.21.5",
)
PROGRAM = Path(__file__).with_name("OfficialProcessor.java")
HOST = "127.0.0.1"
"""What Java calls the namespace of a server on this host, whatever its port."""
PARTITIONS = 4
BATCH = 20
"""The largest that ours are given, as `mixed_worker` has it."""
TAKE_OVER = 5.0
"""Seconds after which Java takes what is not renewed, at short times. It looks every second."""


@pytest.fixture(scope="module")
def java() -> list[str]:
    """The command of a member, but for its folder and name."""
    libraries = jars("event-hubs-processor", JARS)
    if (compiler := shutil.which("javac")) is None:
        failed("Java's event processor is left out: there is no javac here")
    classes = libraries.parent / "classes"
    path = f"{libraries}/*"
    subprocess.run([compiler, "-cp", path, "-d", str(classes), str(PROGRAM)], check=True, timeout=300)
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{path}:{classes}", PROGRAM.stem]


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    server = started()
    yield server
    server.stop()


class JavaFleet(MixedFleet):
    """A mixed fleet with members of the kind `java`, and an eye on who receives."""

    def __init__(
        self, folder: Path, server: EventHubsServer, azurite: Azurite, java: list[str], *, default_times: bool
    ) -> None:
        super().__init__(folder, server, azurite, namespace=HOST, default_times=default_times)
        told = {
            "connection": f"Endpoint=sb://{server.namespace};SharedAccessKeyName=k;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true",
            "hub": HUB,
            "storage": azurite.connection_string,
            "container": self.official_store._container_client.container_name,
            "partitions": ",".join(self.hub.partition_ids()),
            **({} if default_times else {"interval": "PT1S", "expiration": f"PT{TAKE_OVER:g}S"}),
        }
        (folder / "java.properties").write_text("".join(f"{name}={value}\n" for name, value in told.items()))
        self.commands["java"] = [*java, str(folder)]
        self.watch = ReaderWatch(server, self.hub.partition_ids())
        self.patience = 400.0 if default_times else 90.0

    def alone(self, kind: str, name: str) -> None:
        """The first member, which has everything and has read everything."""
        self.send(20)
        self.launch(kind, name)
        self.wait_shared(PARTITIONS)
        self.wait_read()

    def send_until_shared(self, *counts: int) -> None:
        """Events come all the time until the partitions are shared so."""

        def shared() -> bool:
            self.send(1)
            return sorted(self.owned().values()) == sorted(counts)

        self.until(shared, f"shares of {counts}")

    def rest(self, seconds: float) -> None:
        """Events come, and nothing moves."""
        owners = {record.partition: record.owner_id for record in self.store.list_ownership(self.group).records}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(1)
            time.sleep(0.2)
            now = {record.partition: record.owner_id for record in self.store.list_ownership(self.group).records}
            assert now == owners, "something moves"

    def twice(self) -> int:
        """How many events of the partition that has the most of them came more than once, each time counted."""
        again: Counter[str] = Counter()
        for (partition, _), count in self.read().items():
            again[partition] += count - 1
        return max(again.values())

    def check_join(self, longest: float) -> None:
        """All is read, no partition was without a receiver for longer, and no more than two batches came twice."""
        self.wait_read()
        print(f"join: {self.twice()} twice in a partition, {self.watch.longest:.1f} s without a receiver")
        assert self.watch.longest <= longest
        assert self.twice() <= 2 * BATCH

    def close(self) -> None:
        self.watch.close()
        super().close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, azurite: Azurite, java: list[str]) -> Iterator[JavaFleet]:
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        fleet = JavaFleet(tmp_path, server, azurite, java, default_times=getattr(request, "param", False))
        yield fleet
        fleet.close()
    gc.collect()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("order", [("ours", "java"), ("java", "ours")], ids="-then-".join)
def test_one_joins_the_other_and_each_outlives_the_other(fleet: JavaFleet, order: tuple[str, str]) -> None:
    first, second = order
    fleet.alone(first, "a")
    fleet.watch.begin()
    fleet.launch(second, "b")
    fleet.send_until_shared(2, 2)
    fleet.rest(8.0)
    fleet.check_join(TAKE_OVER)

    fleet.kill("a")
    fleet.send_until_shared(PARTITIONS)
    fleet.wait_read()
    fleet.launch(first, "c")
    fleet.send_until_shared(2, 2)
    fleet.rest(4.0)
    fleet.kill("b")
    fleet.send_until_shared(PARTITIONS)
    fleet.wait_read()
    fleet.wait_recorded()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fleet", [True], indirect=True)
@pytest.mark.parametrize("order", [("ours", "java"), ("java", "ours")], ids="-then-".join)
def test_at_everybodys_default_times(fleet: JavaFleet, order: tuple[str, str]) -> None:
    first, second = order
    fleet.alone(first, "a")
    fleet.watch.begin()
    fleet.launch(second, "b")
    fleet.send_until_shared(2, 2)
    fleet.rest(600.0)
    fleet.check_join(10.0)
    fleet.kill("b")
    fleet.send_until_shared(PARTITIONS)
    fleet.wait_read()
