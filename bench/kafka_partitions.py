"""Many partitions of a topic in one process: the consumers, files and threads they cost, and how late events come.

librdkafka's mock cluster, in a process of its own, and a plain processor on a store in memory. A producer in another
process sends an event to each partition twice a second. An event's time is from before it is sent until its handler has
it. The ratio is deliveries to events: more than 1 would be events that came twice.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tests.hubs.kafka_cluster import Cluster

from leasehold.config import OwnershipSettings
from leasehold.hubs.kafka.hub import open_kafka_hub
from leasehold.processors.events import EventBatch, EventProcessor, PartitionContext

Row = tuple[str, float, str, float | None, str]

_SENDER = """
import sys, time
from confluent_kafka import Producer
servers, topic, partitions, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "log_level": 0})
begun = time.time()
for turn in range(rounds):
    time.sleep(max(0.0, begun + turn / 2 - time.time()))
    for partition in range(partitions):
        producer.produce(topic, b"%d %d %f" % (partition, turn, time.time()), partition=partition)
    producer.poll(0)
sys.exit(producer.flush(30))
"""


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    return [row for partitions in (96, 300) for row in _measured(partitions, 6 if quick else 24)]


def _measured(partitions: int, rounds: int) -> list[Row]:
    cluster = Cluster()
    topic = cluster.topic(partitions)
    hub = open_kafka_hub(cluster.url(topic), Path())
    seen: set[tuple[bytes, ...]] = set()
    late: list[float] = []
    lock = threading.Lock()

    def handle(events: EventBatch, context: PartitionContext) -> None:
        now = time.time()
        with lock:
            for event in events:
                *which, sent = event.body.split()
                seen.add((*which,))
                late.append(now - float(sent))

    before = _files()
    with EventProcessor(hub, f"memory://{topic}", handle, ownership=OwnershipSettings(settle_delay=0)) as processor:
        while len(processor.partitions) < partitions:
            time.sleep(0.05)
        command = [sys.executable, "-c", _SENDER, cluster.servers, topic, str(partitions), str(rounds)]
        sender = subprocess.Popen(command)
        files = 0
        while sender.poll() is None or (len(seen) < partitions * rounds and not sender.returncode):
            files = max(files, _files() - before)
            time.sleep(0.1)
        threads = len([*Path("/proc/self/task").iterdir()])
    hub.close()
    cluster.kill()
    late.sort()
    name = f"kafka, {partitions} partitions in a process"
    return [
        (f"{name}: 99th percentile of send to handler", late[len(late) * 99 // 100], "s", len(late) / len(seen), ""),
        (f"{name}: open files for them", files, "files", None, ""),
        (f"{name}: threads", threads, "threads", None, ""),
    ]


def _files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])
