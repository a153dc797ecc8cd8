"""Events of a Kafka topic into a Postgres table: the loop of `leasehold run` beside what a program would write by hand.

All sides read the same topic of flights (8 partitions, about three events a key) from the same broker, in one session
on `local[2]` (`kafka_table_sides.py`, on the PySpark that the connector's JAR is for), in batches of the same size, and
bring the last state of each flight into a table of the same definition on the same server. By hand that is Spark's own
Kafka source with `maxOffsetsPerTrigger` and `availableNow`, `from_json`, and a function of `foreachBatch` that brings
the rows into an unlogged staging table and merges them into the table with one statement. Its tasks stage the rows by
Spark's JDBC writer, by a COPY row by row, or by a COPY of Arrow's CSV. The loop has its defaults.

The figures are events a second, and CPU seconds for 100,000 events of all processes but the broker: the driver, its
Java, Python workers, and the Postgres server. Neither counts the first batches and the last one: at both ends of what
is counted the loop, which reads a batch while it writes the one before, is one batch ahead. Sides take turns, each with
a database of its own, and a first round of all of them is not counted; the figure is the median of the turns. A round
in which the tables do not hold the same rows at the end is an error.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

sys.path.append(str(Path(__file__).parent.parent))

from confluent_kafka import Producer
from tests.node_packages import locked
from tests.peers.kafka_broker import Cluster
from tests.peers.maven import SPARK_KAFKA, jars
from tests.versions.conftest import Interpreter
from tests.versions.environments import python_with
from tests.versions.requirements import required

from kafka_table_sides import BY_HAND, OURS, Given, Size
from leasehold.cli.demo.command import PARTITIONS
from leasehold.cli.demo.data import SCHEMA, FlightEvents
from leasehold.spark.session.versions import FIRST_WITH_SOURCE
from postgres_sink import JDBC
from postgres_sink_sides import served

Row = tuple[str, float, str, float | None, str]
GOALS = {25_000: "ratio >= 2.2", 100_000: "ratio >= 1.5"}
WARM = 3
_PATIENCE = 3_600

Figures = Mapping[str, tuple[float, float]]
"""Events a second, and CPU seconds for 100,000 of them, of each side."""


@dataclass(frozen=True)
class Encoding:
    """How bodies are written, and read.

    `write` makes a body of a flight's JSON. `parsed` is the SQL by which a query by hand makes a struct of `value`,
    with the JARs of `libraries`; `stated` are lines of a pipeline file's `[transform]`.
    """

    write: Callable[[bytes], bytes]
    parsed: str
    stated: str = ""
    libraries: tuple[Path, ...] = ()


JSON = Encoding(lambda body: body, f"from_json(cast(value AS STRING), '{SCHEMA}')")


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    if shutil.which("mvn") is None:
        print("kafka_table is left out: there is no mvn here", file=sys.stderr)
        return []
    taken = measured(JSON, quick)
    return [row for size, goal in GOALS.items() for row in rows_of(size, taken[size], goal, goal)]


def measured(encoding: Encoding, quick: bool) -> dict[int, Figures]:
    """The figures of all sides, by the size of a batch."""
    counted = {25_000: 2, 100_000: 2} if quick else {25_000: 12, 100_000: 5}
    sizes = [Size(size, WARM, WARM + batches + 1, f"flights-{size}") for size, batches in counted.items()]
    turns = 1 if quick else len(BY_HAND) + 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # Postgres' own user must get in, where this one is root
        url = stack.enter_context(served(folder))
        cluster = Cluster(folder)
        stack.callback(cluster.kill)
        for size in sizes:
            fill(cluster.servers, cluster.create(size.topic, PARTITIONS), size.events, encoding.write)
        libraries = [jars("spark-kafka", SPARK_KAFKA, alone=True), jars("postgres-jdbc", [JDBC]), *encoding.libraries]
        files = [str(jar) for library in libraries for jar in library.glob("*.jar")]
        given = Given(
            cluster.servers, url, files, str(folder), turns, sizes, parsed=encoding.parsed, stated=encoding.stated
        )
        ran = _interpreter().run(
            Path(__file__).with_name("kafka_table_sides.py"), json.dumps(asdict(given)), timeout=_PATIENCE
        )
    print(ran.stderr[-20_000:], file=sys.stderr)  # each turn, and what went wrong
    assert ran.returncode == 0, "see above"
    return {int(size): figures for size, figures in json.loads(ran.stdout.splitlines()[-1]).items()}


def _interpreter() -> Interpreter:
    """One with the PySpark of the connector, and with what no test needs there."""
    python = python_with(str(FIRST_WITH_SOURCE))
    needed = "import confluent_kafka.schema_registry, psycopg, pyruhvro"
    with locked(python.parent / "lock"):
        if subprocess.run([python, "-c", needed], capture_output=True, check=False).returncode:
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            stated = map(str, required("postgres", "avro", "registry"))
            subprocess.run([*install, *stated], check=True, timeout=600)
    return Interpreter(python, FIRST_WITH_SOURCE)


def fill(servers: str, topic: str, events: int, write: Callable[[bytes], bytes]) -> None:
    """The first events of the demo, in their order; those of a tail number, and all without one, in one partition."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1 << 20, "log_level": 0})
    left = events
    for table in FlightEvents().tables():
        chosen = table.slice(0, left)
        for body, key in zip(chosen["body"].to_pylist(), chosen["partitionKey"].to_pylist(), strict=True):
            _produce(producer, topic, write(body), key)
        left -= chosen.num_rows
    assert left == 0, f"the demo has {left} events too few"
    assert producer.flush(120) == 0


def _produce(producer: Producer, topic: str, body: bytes, key: str | None) -> None:
    place = crc32((key or "").encode()) % PARTITIONS
    while True:
        try:
            producer.produce(topic, body, key=key, partition=place)
            return
        except BufferError:
            producer.poll(0.1)


def rows_of(size: int, taken: Figures, speed_goal: str, cpu_goal: str, unit: str = "a batch") -> list[Row]:
    """Speeds and CPU times, ours with their ratio to the best of the others. `unit` is said behind the size."""
    speeds, costs = ({side: figures[part] for side, figures in taken.items()} for part in (0, 1))
    what = f"{size:,} {unit}"
    rows: list[Row] = [(f"{side}, {what}", speeds[side], "events/s", None, "") for side in BY_HAND]
    ratio = speeds[OURS] / max(speeds[side] for side in BY_HAND)
    rows.append((f"{OURS}, {what}", speeds[OURS], "events/s", ratio, speed_goal))
    rows += [(f"CPU of {side}, {what}", costs[side], "s/100,000", None, "") for side in BY_HAND]
    ratio = min(costs[side] for side in BY_HAND) / costs[OURS]
    rows.append((f"CPU of {OURS}, {what}", costs[OURS], "s/100,000", ratio, cpu_goal))
    return rows


if __name__ == "__main__":
    try:
        for line in run("--quick" in sys.argv):
            print(line)
    except subprocess.TimeoutExpired as error:
        sys.exit(f"no end after {_PATIENCE} s: {error}")
