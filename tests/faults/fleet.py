"""A hub, a pipeline and its instances, and what is done to them.

A gate stops an application in the middle of a batch: a function of the pipeline's transform, which the application's
tasks call for each event, waits as long as the gate's file exists.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from leasehold.hubs import Hub
from leasehold.model import Ask, Checkpoint, Ownership
from leasehold.stores import open_store
from tests.faults.databases import STORES, TABLE, Database, InFile
from tests.faults.hub_kinds import HubKind
from tests.faults.instance import PATIENCE, Instance, paused
from tests.waiting import NEVER, until

SHORT = 8.0
"""Seconds: a partition expiration that faults of a few seconds outlast."""

GATE = """\
import os, pathlib, time

from pyspark.sql import functions as F

HERE = pathlib.Path(__file__).parent
OWNER = os.environ["LEASEHOLD_OWNER"]


@F.udf("BIGINT")
def passed(n):
    (HERE / ("entered-" + OWNER)).touch()
    while (HERE / ("gate-" + OWNER)).exists():
        time.sleep(0.02)
    if n < 0 and (HERE / "poison").exists():
        raise RuntimeError("a poisonous event")
    return n


def transform(events):
    return events.select("id", passed("n").alias("n"), "hub", "partition", "sequenceNumber", "ownerLevel")
"""

PIPELINE = """\
name = "faults"
[source]
hub = "{hub}"
starting_position = "{start}"
max_events_per_trigger = {limit}
{source}
[ownership]
store = "{stores}"
{ownership}
[transform]
schema = "id STRING, n BIGINT"
python = "gate:transform"
[sink]
url = "{table}"
table = "entities"
{sink}
[spark]
master = "{master}"
"spark.driver.memory" = "600m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.sql.shuffle.partitions" = 1
{spark}
"""


OWNERSHIP = f"""\
load_balancing_interval = "400ms"
partition_expiration = "{{}}s"
request_timeout = "5s"
margin = "300ms"
stall_timeout = "{2 * NEVER}s"
hand_over_timeout = "{NEVER}s"
"""
"""Of a partition expiration. Nothing else ends by itself."""


BAD = (b"not JSON", b'{"id": "bad", "n": "a text"}', b'{"id": "\xff", "n": 1}', b'{"id": "bad", "n": 1e400}', b"")
"""Bodies that nobody can read: after nine events that are sent comes one of these."""
POISON = b'{"id": "poison", "n": -1}'
"""A body that can be read, and fails every batch it is in."""


SINKS = {
    "append": 'mode = "append"\nkeep = ["partition", "sequenceNumber"]',
    "upsert": 'keys = ["id"]',
    "merge": 'keys = ["id"]\nsequence_by = "n"\ndelete_when = "n % 10 = 3"',
}
"""What the table is, by the mode of a fleet. With `merge`, the events of an entity come from all partitions."""


@dataclass
class Fleet:
    """A hub, a pipeline and the instances of it."""

    folder: Path
    mode: str
    kind: HubKind
    start: str = "earliest"
    limit: int = 400
    master: str = "local[1]"
    source: str = ""
    """More lines of the section `[source]`; `spark` likewise."""
    spark: str = ""
    ownership: str = OWNERSHIP
    expiration: float = NEVER
    """Seconds: the partition expiration. `expire` lets it pass."""
    stores: str = "sqlite:///stores.db"
    databases: tuple[Database, Database] | None = None
    """Those of the stores and of the table; without them they are files, or the stores are at `stores`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What instances have beside what the hub needs."""
    gate: str = GATE
    """The module with the pipeline's transform."""
    python: str = sys.executable
    """What runs the instances: it may have another PySpark than the tests."""
    bad: bool = True
    """Whether every tenth event is one that nobody can read: each has to be among the rejected, exactly once."""
    instances: list[Instance] = field(default_factory=list)
    _sent: dict[str, list[tuple[str, int] | None]] = field(default_factory=dict)
    _counter: int = 0

    def __post_init__(self) -> None:
        files = (InFile(self.folder, "stores.db"), InFile(self.folder, "table.db"))
        self.stores_database, self.table = self.databases or files
        if self.databases is not None:
            self.stores = self.stores_database.url
        self.store = open_store(self.stores, base=self.folder, timeout=PATIENCE)
        self.group = self.hub.consumer_group("$Default")
        self._sent = {partition: [] for partition in self.hub.partition_ids()}
        text = PIPELINE.format(
            hub=self.kind.url,
            start=self.start,
            stores=self.stores,
            limit=self.limit,
            source=self.source,
            ownership=self.ownership.format(self.expiration),
            table=self.table.url,
            sink=SINKS[self.mode],
            master=self.master,
            spark=self.spark,
        )
        (self.folder / "pipeline.toml").write_text(text)
        (self.folder / "gate.py").write_text(self.gate)

    @property
    def hub(self) -> Hub:
        """The test's own client of the hub."""
        return self.kind.hub

    def until(self, condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
        """Wait as a fleet needs it."""
        until(condition, what, patience)

    def send(self, each: int, *partitions: str) -> None:
        """Append this many events to each of these partitions, or to all: a few entities each, with rising numbers.

        Bad ones, if there are to be some, come between them and do not count.
        """
        for partition in partitions or self._sent:
            rows: list[tuple[str, int] | None] = []
            bodies = []
            for place in range(1, each + 1):
                self._counter += 1
                key = str(self._counter % 7)
                row = (key if self.mode == "merge" else f"{partition}-{key}", self._counter)
                rows.append(row)
                bodies.append(json.dumps({"id": row[0], "n": row[1]}).encode())
                if self.bad and place % 9 == 0:
                    rows.append(None)
                    bodies.append(BAD[self._counter % len(BAD)])
            self.kind.send(partition, bodies)
            self._sent[partition] += rows

    def poison(self, partition: str) -> None:
        """Append an event that fails every batch it is in."""
        (self.folder / "poison").touch()
        self._sent[partition].append(("poison", -1))
        self.kind.send(partition, [POISON])

    def forget_sent(self) -> None:
        """What was sent so far is not to be expected in the table."""
        self._skipped = {partition: len(rows) for partition, rows in self._sent.items()}

    _skipped: dict[str, int] = field(default_factory=dict)

    def launch(self, name: str, *options: str) -> Instance:
        """Start an instance."""
        log = self.folder / f"{name}-{len(self.instances)}.log"
        command = [self.python, "-m", "leasehold.cli.app", "run", "pipeline.toml", "--json", "--owner-id", name]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, *options],
                cwd=self.folder,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self.kind.environment, **self.environment, "LEASEHOLD_OWNER": name},
            )
        instance = Instance(name, process, log)
        self.instances.append(instance)
        return instance

    def records(self) -> dict[str, Ownership]:
        """The ownership records by partition."""
        return {record.partition: record for record in self.store.list_ownership(self.group).records}

    def checkpoints(self) -> dict[str, Checkpoint]:
        """The checkpoints by partition."""
        return {checkpoint.partition: checkpoint for checkpoint in self.store.list_checkpoints(self.group)}

    def asks(self) -> list[Ask]:
        """Who asks for what."""
        return list(self.store.list_ownership(self.group).asks)

    def status(self) -> dict[str, Any]:
        """What `leasehold status` says."""
        command = [sys.executable, "-m", "leasehold.cli.app", "status", "pipeline.toml", "--json"]
        environment = {**os.environ, **self.kind.environment}
        said = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=True, timeout=PATIENCE, env=environment
        )
        told: dict[str, Any] = json.loads(said.stdout)
        return told

    def owned_by(self, name: str) -> set[str]:
        """The partitions whose record names this instance."""
        return {p for p, record in self.records().items() if record.owner_id.startswith(f"{name}/")}

    def wait_owned(self, **shares: int) -> None:
        """Wait until the instances own this many partitions each."""
        self.check_alive()
        self.until(lambda: all(len(self.owned_by(n)) == share for n, share in shares.items()), f"shares {shares}")

    def expire(self, name: str) -> None:
        """Let so much time pass for what an instance has written that it counts as gone: it is dead, or paused."""
        self.stores_database.age(f"{name}/%", 2 * self.expiration)

    def wait_renewed(self, name: str) -> None:
        """Wait until an instance has renewed what it owns, from now on."""
        before = {p: record.last_modified for p, record in self.records().items()}
        self.until(
            lambda: all(self.records()[p].last_modified > before[p] for p in self.owned_by(name)), f"{name} to renew"
        )

    @contextlib.contextmanager
    def paused(self, *processes: psutil.Process) -> Iterator[None]:
        """A block in which processes are stopped, while they have no lock on the stores."""
        with contextlib.ExitStack() as stack:
            with self.stores_locked():
                stack.enter_context(paused(*processes))
            yield

    def wait_consumed(self) -> None:
        """Wait until every checkpoint is at the end."""

        def consumed() -> bool:
            self.check_alive()
            reached = self.checkpoints()
            ends = self.hub.partition_properties()
            return all(p in reached and reached[p].next_sequence_number == known.end for p, known in ends.items())

        self.until(consumed, "all to be consumed")

    def check_alive(self) -> None:
        """An instance that ended by itself with an error fails the test with its words."""
        for instance in self.instances:
            code = instance.process.poll()
            assert code in (None, 0, -signal.SIGKILL) or instance.expected_to_fail, instance.said()

    def close_gate(self, name: str) -> None:
        """Stop the instance at the start of its next batch."""
        (self.folder / f"entered-{name}").unlink(missing_ok=True)
        (self.folder / f"gate-{name}").touch()

    def wait_in_batch(self, name: str) -> None:
        """Wait until the instance is stopped in a batch."""
        self.until((self.folder / f"entered-{name}").exists, f"{name} to be in a batch")

    def open_gate(self, name: str) -> None:
        """Let the instance go on."""
        (self.folder / f"gate-{name}").unlink()

    def stores_locked(self) -> contextlib.AbstractContextManager[None]:
        """A block in which nobody writes the stores."""
        return self.stores_database.locked(*STORES)

    def table_locked(self) -> contextlib.AbstractContextManager[None]:
        """A block in which nobody writes the table."""
        return self.table.locked(*TABLE)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database of the table."""
        return self.table.query(sql, *values)

    def watermark(self, partition: str) -> object:
        """The last sequence number that the table has of a partition."""
        rows = self.query(f"SELECT sequence_number FROM leasehold_watermark WHERE partition = '{partition}'")
        return rows[0][0] if rows else None

    def check_table(self, poison: int = 0) -> None:
        """The table is exactly what the events say, and `poison` that fail, with all bad ones, are set aside once."""
        expected = [
            (partition, place, row)
            for partition, rows in self._sent.items()
            for place, row in enumerate(rows)
            if place >= self._skipped.get(partition, 0)
        ]
        bad = [(partition, place) for partition, place, row in expected if row is None]
        aside = self.query("SELECT partition, sequence_number, body FROM entities_rejected")
        assert sorted(tuple(place) for *place, body in aside if body != POISON) == sorted(bad)
        assert sum(body == POISON for _, _, body in aside) == poison
        sent = [(*row, partition, place) for partition, place, row in expected if row is not None and row[1] >= 0]
        if self.mode == "append":
            assert sorted(self.query('SELECT id, n, partition, "sequenceNumber" FROM entities')) == sorted(sent)
            return
        last = dict(sorted(((key, n) for key, n, _, _ in sent), key=lambda row: row[1]))
        if self.mode == "merge":
            last = {key: n for key, n in last.items() if n % 10 != 3}
        assert sorted(self.query("SELECT id, n FROM entities")) == sorted(last.items())

    def close(self) -> None:
        """Leave no process behind."""
        for instance in self.instances:
            instance.kill()
        self.kind.close()
