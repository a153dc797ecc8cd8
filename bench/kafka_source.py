"""The Spark source on Kafka beside Spark's own, on a real broker of one node: the same topic, in one session, in turns.

Four jobs, each side in turn (ours with its defaults, and as an application that is alone may tune it), the first turn
not counted: a batch read of the bodies into Spark's noop sink, the same aggregate of them, an AvailableNow query of
several micro-batches, and the time from `send` to the function of `foreachBatch` of a running query, one event at a
time. All run on `local[2]` in a process of its own (`kafka_source_side.py`), on the PySpark that the connector's JAR is
for; broker and producer share the machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from confluent_kafka import Producer
from tests.peers.kafka_broker import Cluster
from tests.peers.maven import SPARK_KAFKA, jars
from tests.versions.conftest import Interpreter
from tests.versions.environments import python_with

from leasehold.spark.session.versions import FIRST_WITH_SOURCE

Row = tuple[str, float, str, float | None, str]
PARTITIONS, SIZE = 8, 200
JOBS = {
    "batch": ("a batch read", "1.5"),
    "aggregate": ("an aggregate", "2"),
    "available now": ("AvailableNow, batches of 250,000", "1.2"),
}
_PATIENCE = 1_200


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    if shutil.which("mvn") is None:
        print("kafka_source is left out: there is no mvn here", file=sys.stderr)
        return []
    events, turns = (100_000, 2) if quick else (1_000_000, 4)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            full, live = cluster.create("full", PARTITIONS), cluster.create("live", PARTITIONS)
            _fill(cluster.servers, full, events)
            interpreter = Interpreter(python_with(str(FIRST_WITH_SOURCE)), FIRST_WITH_SOURCE)
            libraries = jars("spark-kafka", SPARK_KAFKA, alone=True)
            side = Path(__file__).with_name("kafka_source_side.py")
            given = [cluster.servers, full, live, str(events), str(turns), str(libraries), folder]
            ran = interpreter.run(side, *given, timeout=_PATIENCE)
        finally:
            cluster.kill()
    assert ran.returncode == 0, ran.stderr[-3_000:]
    taken: dict[str, dict[str, float]] = json.loads(ran.stdout.splitlines()[-1])
    rows: list[Row] = []
    theirs, *ours = taken.items()
    for job, (what, goal) in JOBS.items():
        rows.append((f"kafka: {what}: Spark's own source", events / theirs[1][job], "events/s", None, ""))
        rows += [
            (f"kafka: {what}: {side}", events / times[job], "events/s", theirs[1][job] / times[job], f">= {goal}")
            for side, times in ours
        ]
    what = "from send to foreachBatch"
    rows.append((f"kafka: {what}: Spark's own source", 1000 * theirs[1]["latency"], "ms", None, ""))
    rows += [
        (f"kafka: {what}: {side}", 1000 * times["latency"], "ms", times["latency"] / theirs[1]["latency"], "<= 0.7")
        for side, times in ours
    ]
    return rows


def _fill(servers: str, topic: str, events: int) -> None:
    """As many events for each partition, of equal size."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1 << 20, "log_level": 0})
    for number in range(events):
        body = b"%0*d" % (SIZE, number)
        while True:
            try:
                producer.produce(topic, body, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


if __name__ == "__main__":
    try:
        for line in run("--quick" in sys.argv):
            print(line)
    except subprocess.TimeoutExpired as error:
        sys.exit(f"no end after {_PATIENCE} s: {error}")
