"""Event Hubs and Kafka: what reading and sending through Leasehold costs beside the official client alone.

Servers are local and in processes of their own: `leasehold_testkit.emulators.event_hubs`, and librdkafka's mock
cluster. So is each side (`hub_sides.py`), and all take turns. A side's speed counts from its first event to its last.
Its CPU is that of all its processes (for Spark: driver, Java and Python workers) in a whole turn, connecting and taking
partitions included; of several turns the best counts, since what others do on the machine only adds to it. Spark's
session is open before, and warmed up by a turn that does not count. Java's processor takes Maven (`mvn`) and a
compiler; without them it is left out, and said so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent))

from tests.hubs.kafka_cluster import Cluster
from tests.peers.maven import EVENT_HUBS_PROCESSOR, java_program
from tests.stores.azurite import Azurite

from hub_sides import FEW_KEYS
from leasehold.hubs import open_hub
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.model import Event

Row = tuple[str, float, str, float | None, str]
PARTITIONS = 8
AWAY = 0.01
"""Seconds that an answer takes at least from where the service is far."""
OURS = ("processor", "arrow", "defaults", "spark", "stream")
_HERE = Path(__file__).parent
_LOST = "0.90 or more of the client alone"
_LESS = "less than the official processor"
_BESIDE = {"send-keys": "send-client-keys", "send-far": "send-client-far"}
"""Which sender another is compared with."""


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    turns = 2 if quick else 3
    with tempfile.TemporaryDirectory() as folder:
        return [*_event_hubs(Path(folder), turns, quick), *_kafka(Path(folder), turns, quick)]


@dataclass
class _Taken:
    """The best of a side's turns: events a second, and CPU in millionths of a second an event."""

    speed: float = 0.0
    cpu: float = float("inf")
    turns: int = 0

    def note(self, events: int, seconds: float, cpu: float) -> None:
        self.turns += 1
        if self.turns > 1:  # the first one warms up
            self.speed = max(self.speed, events / seconds)
            self.cpu = min(self.cpu, 1e6 * cpu / events)


class _Side:
    """A process that takes turns."""

    def __init__(self, command: Sequence[object], environment: Mapping[str, str]) -> None:
        self.taken = _Taken()
        self.process = _started(command, environment)
        assert _said(self.process) == "ready"

    @classmethod
    def of_python(
        cls, name: str, url: str, events: int, folder: Path, environment: Mapping[str, str] | None = None
    ) -> _Side:
        return cls([sys.executable, _HERE / "hub_sides.py", name, url, events, folder], environment or {})

    def turn(self) -> None:
        found = json.loads(_told(self.process))
        self.taken.note(found["events"], found["seconds"], found["cpu"])


def _event_hubs(folder: Path, turns: int, quick: bool) -> list[Row]:
    read, sent = (8_000, 4_000) if quick else (128_000, 8_000)
    with ExitStack() as stack:
        azurite = Azurite()
        azurite.start()
        stack.callback(azurite.stop)
        server = _started([sys.executable, _HERE / "hub_server.py", PARTITIONS, read], {})
        stack.callback(_end, server)
        connection = _said(server)
        namespace = _namespace(connection)
        link = _started([sys.executable, _HERE / "slow_link.py", namespace.rpartition(":")[2], AWAY / 2], {})
        stack.callback(_end, link)
        far = connection.replace(namespace, f"127.0.0.1:{_said(link)}")

        def side(name: str, hub: str, events: int, connection: str = connection) -> _Side:
            # Each has a consumer group of its own, so that no receiver that was kept is in another's way.
            url = f"eventhubs://{_namespace(connection)}/{hub}?consumer_group={name}"
            said = {
                VARIABLE: connection,
                "BENCH_CONNECTION": f"{connection};EntityPath={hub}",
                "BENCH_STORAGE": azurite.connection_string,
            }
            if name == "java":
                made = _Side([*java, name, PARTITIONS, events], said)
            else:
                made = _Side.of_python(name, url, events, folder, said)
            stack.callback(_end, made.process)
            return made

        java = _java()
        readers = {n: side(n, "read", read) for n in ("client", "official", *(["java"] if java else []), *OURS)}
        senders = {n: side(n, "written", sent) for n in ("send-client", "send", "send-client-keys", "send-keys")}
        senders |= {n: side(n, "written", FEW_KEYS * 4, far) for n in ("send-client-far", "send-far")}
        for _ in range(turns):
            for one in (*readers.values(), *senders.values()):
                one.turn()
                _told(server)  # what was written is forgotten
    return [*_rows("event hubs", readers, senders, alone="client", send_alone="send-client", official="official")]


def _kafka(folder: Path, turns: int, quick: bool) -> list[Row]:
    events = 40_000 if quick else 400_000  # about what the mock cluster keeps
    cluster = Cluster()
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        full = cluster.url(cluster.topic(PARTITIONS))
        hub = open_hub(full)
        hub.send(Event(b"%080d" % number) for number in range(events))
        held = sum(place.end - place.begin for place in hub.partition_properties().values())
        hub.close()
        assert held == events, f"the mock cluster has kept {held:,} of {events:,} events"

        def side(name: str, url: str) -> _Side:
            made = _Side.of_python(name, url, events, folder)
            stack.callback(_end, made.process)
            return made

        readers = {name: side(name, full) for name in ("bare", "bare-tuned", "bare-events", *OURS)}
        target = cluster.url(cluster.topic(PARTITIONS))
        senders = {name: side(name, target) for name in ("send-bare", "send")}
        for _ in range(turns):
            for one in (*readers.values(), *senders.values()):
                one.turn()
    return [*_rows("kafka", readers, senders, alone="bare", send_alone="send-bare", official="")]


def _rows(
    hub: str, readers: Mapping[str, _Side], senders: Mapping[str, _Side], *, alone: str, send_alone: str, official: str
) -> Iterator[Row]:
    names = {
        "client": "the official client alone",
        "bare": "a bare consumer",
        "bare-tuned": "a bare consumer, its pauses taken away",
        "bare-events": "a bare consumer that makes an object of each event",
        "official": "the official processor, Blob store",
        "java": "Java's processor, Blob store",
        "processor": "plain processor, batches of 1,000",
        "arrow": "plain processor, batches of 1,000, as Arrow",
        "defaults": "plain processor, defaults (batches of 100)",
        "spark": "Spark source, a batch query",
        "stream": "Spark source, a running stream",
        "send-client": "the official producer",
        "send-bare": "a bare producer",
        "send": "Hub.send",
        "send-client-keys": "the official producer, a batch of each of 2,000 keys",
        "send-keys": "Hub.send, 2,000 keys",
        "send-client-far": f"the official producer, a batch of each of {FEW_KEYS} keys, 10 ms away",
        "send-far": f"Hub.send, {FEW_KEYS} keys, 10 ms away",
    }
    first = readers[alone].taken.speed
    for name, side in readers.items():
        goal = _LOST if name == "processor" else ""
        ratio = None if name == alone else side.taken.speed / first
        yield f"{hub}, received: {names[name]}", side.taken.speed, "events/s", ratio, goal
    beside = readers[official or alone].taken.cpu
    for name, side in readers.items():
        goal = _LESS if name == "stream" and official else ""
        ratio = None if side.taken.cpu == beside else side.taken.cpu / beside
        yield f"{hub}, received: {names[name]}", side.taken.cpu, "us of CPU an event", ratio, goal
    for name, side in senders.items():
        other = _BESIDE.get(name, send_alone)
        ratio = None if name in (send_alone, *_BESIDE.values()) else side.taken.speed / senders[other].taken.speed
        yield f"{hub}, sent: {names[name]}", side.taken.speed, "events/s", ratio, ""


def _namespace(connection: str) -> str:
    return connection.partition("sb://")[2].partition(";")[0]


def _java() -> list[str]:
    """The command of Java's side, as its virtual machine is by default; none where it cannot be had."""
    try:
        _, *_, path_option, path, name = java_program(
            "Java's event processor", "event-hubs-processor", EVENT_HUBS_PROCESSOR, _HERE / "JavaProcessor.java"
        )
    except (pytest.skip.Exception, pytest.fail.Exception) as left_out:
        print(left_out, file=sys.stderr)
        return []
    return ["java", path_option, path, name]


def _started(command: Sequence[object], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*map(str, command)],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _told(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return _said(process)


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, f"{process.args!r} has ended"
    return line


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    for line in run(quick="--quick" in sys.argv):
        print(line)
