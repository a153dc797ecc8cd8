"""A dashboard as a process, and a pipeline for it: a real log, a SQLite store, records that tests write."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Checkpoint, Event, EventRange, Ownership, Presence
from leasehold.sinks.beside.parking.contract import ParkedRow
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.parking import ParkedEvent, Parking
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import DroppedRow, Selection
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold.stores.sqlite.store import SqliteStore
from tests.waiting import PATIENCE

FENCE = {"hub": pa.string(), "partition": pa.string(), "sequenceNumber": pa.int64(), "ownerLevel": pa.int64()}
PIPELINE = """\
name = "{name}"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///store.db"
load_balancing_interval = "500ms"
partition_expiration = "{expiration}"
request_timeout = "{timeout}"
margin = "200ms"
[transform]
schema = "id STRING"
sql = "SELECT id, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///table.db"
table = "entities"
keys = ["id"]
[spark]
master = "local[1]"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


class Place:
    """A folder with a log, a store and a pipeline file. What owns a partition on record expires after `expiration`."""

    def __init__(
        self,
        folder: Path,
        partitions: int = 2,
        name: str = "flights",
        *,
        expiration: str = "600s",
        timeout: str = "60s",
    ) -> None:
        self.folder = folder
        self.name = name
        self.file = folder / "p.toml"
        self.file.write_text(PIPELINE.format(name=name, expiration=expiration, timeout=timeout))
        self.hub = LogHub.create(folder / "hub.db", partitions=partitions)
        self.store = SqliteStore(folder / "store.db")
        self.group = self.hub.consumer_group("$Default")

    def send(self, partition: str, *bodies: bytes) -> None:
        self.hub.send([Event(body) for body in bodies], partition=partition)

    def own(self, partition: str, owner: str, **more: Any) -> None:
        """Make `owner` the owner on record, as a claim by it would, and let it be present."""
        found = {one.partition: one for one in self.store.list_ownership(self.group).records}
        before = found.get(partition)
        level, etag = (before.owner_level + 1, before.etag) if before else (1, None)
        assert self.store.claim_ownership([Ownership(self.group, partition, owner, level, etag, **more)])
        self.store.renew_ownership([], Presence(self.group, owner, pipeline="flights"))

    def reach(self, partition: str, number: int) -> None:
        """Record that events up to `number` are processed."""
        levels = {one.partition: one.owner_level for one in self.store.list_ownership(self.group).records}
        assert not self.store.update_checkpoints([Checkpoint(self.group, partition, number, levels[partition])])

    def reject(self, partition: str, number: int, body: bytes, reason: str) -> None:
        """Set an event aside, as a batch with nothing else in it does."""
        sink = self._sink()
        fence = {
            "hub": pa.array([self.hub.identity]),
            "partition": pa.array([partition]),
            "sequenceNumber": pa.array([number], pa.int64()),
            "ownerLevel": pa.array([1], pa.int64()),
        }
        none = pa.table({"id": pa.array(["x"]), **fence}).slice(0, 0)
        sink.apply(Batch(none, pa.table({**fence, "body": [body], "reason": [reason]})))
        sink.close()

    def park(self, partition: str, number: int, body: bytes, error: str, next_at: float) -> None:
        """Park an event, as a batch does whose handler has raised for it."""
        sink = self._sink()
        sink.check_parked()
        waiting = ParkedEvent(("x",), body, number, 1.0, 1, next_at, error)
        none = pa.table({"id": pa.array([], pa.string()), **{n: pa.array([], t) for n, t in FENCE.items()}})
        its = EventRange(self.hub.identity, partition, 1, number, number + 1)
        sink.apply(Batch(none, ranges=[its], parking=Parking(self.hub.identity, partition, [waiting])))
        sink.close()

    def parked(self) -> list[ParkedRow]:
        """The parked events."""
        sink = self._sink()
        found = sink.parked_rows(Selection(), 10)
        sink.close()
        return found

    def dropped(self) -> list[DroppedRow]:
        """The rows that were dropped."""
        sink = self._sink()
        found = sink.rejected_rows.dropped(10)
        sink.close()
        return found

    def rows(self) -> list[tuple[object, ...]]:
        """The ids in the table."""
        with closing(sqlite3.connect(self.folder / "table.db")) as connection:
            return connection.execute("SELECT id FROM entities").fetchall()

    def _sink(self) -> SqliteSink:
        return SqliteSink(self.folder / "table.db", TableSpec(name="entities", pipeline=self.name, keys=("id",)))

    def close(self) -> None:
        self.hub.close()


class Served:
    """A dashboard that runs."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process
        self.at = urlsplit(url).netloc

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """Status, headers (lower case) and body of an answer."""
        connection = http.client.HTTPConnection(self.at, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read().decode()
        finally:
            connection.close()

    def now(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("/now")[2])
        return found

    @contextmanager
    def stream(self) -> Iterator[Iterator[dict[str, Any]]]:
        """What the stream tells of pipelines, as it comes."""
        connection = http.client.HTTPConnection(self.at, timeout=PATIENCE)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")

        def told() -> Iterator[dict[str, Any]]:
            for line in iter(answer.readline, b""):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

        try:
            yield told()
        finally:
            answer.close()
            connection.close()


@contextmanager
def serving(place: Place, *words: str, **environment: str) -> Iterator[Served]:
    """`leasehold dashboard` of this pipeline, at a free port; it has to end by SIGINT."""
    state = {"XDG_STATE_HOME": str(place.folder / "state"), "PYTHONWARNINGS": "error", **environment}
    command = [sys.executable, "-m", "leasehold", "dashboard", str(place.file), "--json", "--every", "200ms"]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *words],
        env={**os.environ, **state},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, process.communicate()[1]
        yield Served(json.loads(said)["url"], process)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE)
        assert (rest, errors, process.returncode) == ("", "leasehold: interrupted\n", 130)
    finally:
        process.kill()
        process.communicate()
