"""The entity table behind Spark's own Kafka source, with its JAR and a real broker, on PySpark 4.2.

Each case ends with the same question: is every event that was sent in the table, once?
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from leasehold.cli.app import app
from leasehold.errors import HubError
from leasehold.hubs import open_hub
from leasehold.spark import SparkKafkaSource
from leasehold.spark.session.versions import FIRST_WITH_SOURCE
from tests.faults.instance import PATIENCE
from tests.peers.kafka_broker import Cluster
from tests.peers.maven import SPARK_KAFKA, jars
from tests.repository import ROOT
from tests.versions.conftest import Interpreter
from tests.versions.environments import python_with
from tests.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

PROGRAM = Path(__file__).with_name("spark_kafka_program.py")
PARTITIONS = 3
PIPELINE = """\
name = "p"

[source]
hub = "{hub}"

[ownership]
store = "sqlite:///store.db"

[transform]
sql = '''
SELECT CAST(body AS STRING) AS body, partitionKey, properties['h'] AS header, hub, partition, sequenceNumber, ownerLevel
FROM events
'''

[sink]
url = "sqlite:///moved.db"
table = "entities"
mode = "append"
keep = ["partition", "sequenceNumber"]
"""
"""What goes on where the query was stopped, with a table of its own."""

Row = tuple[str, str, str, str, int]


@dataclass
class Stream:
    """A topic, the queries that read it, and what was sent."""

    cluster: Cluster
    topic: str
    folder: Path
    interpreter: Interpreter
    libraries: Path
    sent: list[Row] = field(default_factory=list)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.cluster.url(self.topic)

    def send(self, each: int, what: str) -> None:
        """Append this many messages to each partition."""
        ends = {p: known.end for p, known in open_hub(self.url).partition_properties().items()}
        producer = Producer({"bootstrap.servers": self.cluster.servers, "log_level": 0})
        for partition, end in ends.items():
            for number in range(end, end + each):
                body = f"{what}-{partition}-{number}"
                headers: list[tuple[str, str | bytes | None]] = [("h", b"not this"), ("h", body[::-1].encode())]
                producer.produce(self.topic, body.encode(), f"k{number % 7}", partition=int(partition), headers=headers)
                self.sent.append((body, f"k{number % 7}", body[::-1], partition, number))
        assert producer.flush(PATIENCE) == 0

    def start(self, name: str, maximum: int, *options: str) -> subprocess.Popen[bytes]:
        """Start a query."""
        paths = self.interpreter.path, PROGRAM, self.folder
        command = [*map(str, paths), name, self.url, str(self.libraries), str(maximum)]
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = self.interpreter.environment()
            process = subprocess.Popen(
                [*command, *options], env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.running.append(process)
        return process

    def wait_reading(self, name: str, query: subprocess.Popen[bytes]) -> None:
        """Wait until a query has planned its first batch."""
        folder = self.folder / name
        until(lambda: any(folder.glob("*/offsets/0")) or query.poll() is not None, f"{name} to read", PATIENCE)
        assert query.poll() is None, self.said(name)

    def finish(self, name: str, maximum: int) -> tuple[int, int, int]:
        """Run a query until all is read: events applied and replayed, and batches."""
        return self.account(name, self.start(name, maximum))

    def account(self, name: str, process: subprocess.Popen[bytes]) -> tuple[int, int, int]:
        assert process.wait(timeout=PATIENCE) == 0, self.said(name)
        (*_, last) = [line for line in self.said(name).splitlines() if line.startswith("account")]
        applied, replayed, batches = map(int, last.split()[1:])
        return applied, replayed, batches

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def rows(self, file: str = "table.db") -> list[Row]:
        """What the table has."""
        with closing(sqlite3.connect(self.folder / file)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entities'").fetchall():
                return []
            assert not connection.execute("SELECT * FROM entities_rejected").fetchall()
            select = "SELECT body, partitionKey, header, partition, sequenceNumber FROM entities"
            return sorted(connection.execute(select).fetchall())

    def check(self) -> None:
        """Every event that was sent is in the table once, and nothing else."""
        assert self.rows() == sorted(self.sent)

    def kill(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def stream(one_broker: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stream]:
    libraries = jars("spark-kafka", SPARK_KAFKA, alone=True)
    interpreter = Interpreter(python_with(str(FIRST_WITH_SOURCE)), FIRST_WITH_SOURCE)
    topic = request.node.name.replace("_", "-")[:60]
    one_broker.create(topic, PARTITIONS)
    stream = Stream(one_broker, topic, tmp_path, interpreter, libraries)
    yield stream
    stream.kill()


def test_a_kill_between_the_commits_and_a_deleted_folder(stream: Stream) -> None:
    stream.send(200, "a")
    (stream.folder / "slow").touch()
    killed = stream.start("one", 90, "--endless")
    until(lambda: stream.rows() or killed.poll() is not None, "the first batch", PATIENCE)
    assert killed.poll() is None, stream.said("one")
    stream.kill()
    (stream.folder / "slow").unlink()
    applied_before = len(stream.rows())
    assert 0 < applied_before <= 90

    applied, replayed, _ = stream.finish("one", 90)
    assert (applied, replayed) == (3 * 200 - applied_before, applied_before)
    stream.check()

    shutil.rmtree(stream.folder / "one")
    stream.send(50, "b")
    applied, replayed, batches = stream.finish("one", 40)  # other bounds, and Spark counts its batches from 0
    assert (applied, replayed) == (3 * 50, 0)
    assert batches >= 3
    stream.check()


def test_two_queries_at_once_each_read_and_each_event_is_applied_once(stream: Stream) -> None:
    stream.send(300, "a")
    (stream.folder / "slow").touch()
    queries = {"one": stream.start("one", 110), "two": stream.start("two", 70)}
    for name, query in queries.items():
        stream.wait_reading(name, query)
    (stream.folder / "slow").unlink()
    accounts = [stream.account(name, query) for name, query in queries.items()]
    assert sum(applied for applied, _, _ in accounts) == 3 * 300
    assert sum(replayed for _, replayed, _ in accounts) >= 3 * 300 - 110 - 70
    stream.check()


def test_a_topic_that_is_made_anew_is_read_from_its_begin(stream: Stream) -> None:
    stream.send(100, "old")
    assert stream.finish("one", 1000)[:2] == (300, 0)
    old = SparkKafkaSource(stream.url)
    old.check()
    stream.cluster.delete(stream.topic)
    stream.cluster.create(stream.topic, PARTITIONS)
    stream.send(120, "new")  # more than the old one had: Spark would go on in the middle
    with pytest.raises(HubError, match="deleted and made anew"):
        old.check()
    new = SparkKafkaSource(stream.url)
    assert new.identities != old.identities
    assert new.checkpoint_location("x") != old.checkpoint_location("x")
    assert stream.finish("one", 1000)[:2] == (360, 0)
    stream.check()


def test_a_query_is_moved_over_by_its_checkpoint_folder(stream: Stream) -> None:
    """To leases, or to a table behind the same source.

    It is killed before a batch is committed: that comes again, what is committed does not, and all is there.
    """
    stream.send(200, "a")
    assert stream.finish("one", 90)[0] == 3 * 200
    stream.send(50, "b")
    (stream.folder / "slow").touch()
    killed = stream.start("one", 90, "--endless")
    until(lambda: len(stream.rows()) > 3 * 200 or killed.poll() is not None, "a batch that is not committed", PATIENCE)
    assert killed.poll() is None, stream.said("one")
    stream.kill()
    stream.send(20, "c")

    [folder] = (stream.folder / "one").iterdir()
    pipeline = stream.folder / "moved.toml"
    pipeline.write_text(PIPELINE.format(hub=stream.url))
    moved = ["checkpoints", "import", str(pipeline), "--from-spark-checkpoint", str(folder), "--json"]
    result = CliRunner().invoke(app, moved)
    assert result.exit_code == 0, result.stderr
    assert {row["after"] for row in json.loads(result.stdout)["partitions"]} == {199}
    run = subprocess.run(
        [sys.executable, "-m", "leasehold", "run", str(pipeline), "--available-now", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    assert stream.rows("moved.db") == sorted(row for row in stream.sent if row[-1] >= 200)

    (stream.folder / "slow").unlink()
    kept = stream.start("kept", 90, "--goes-on-in", str(folder))
    assert stream.account("kept", kept)[:2] == (3 * 70, 0)
    assert stream.rows("kept.db") == stream.rows("moved.db")
