"""A table that instances of a pipeline make of what Debezium captures.

Owns the hub, the pipeline's file and the instances' processes, and signals no others.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leasehold import Event
from leasehold.hubs.log import LogHub
from tests.peers.debezium_engine import Change, Engine

_FILE = """
name = "orders"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
load_balancing_interval = "300ms"
partition_expiration = "6s"
settle_delay = "100ms"
[transform]
format = "debezium"
schema = "id BIGINT, word STRING, long STRING, raw BINARY, price DECIMAL(12,2), day {day}, at TIMESTAMP, flag BOOLEAN"
sql = "SELECT id, word, long, raw, price, day, at, flag, __deleted, {fence} FROM events"
skipped_operations = ["m"]
{more}
[sink]
url = "sqlite:///table.db"
table = "orders"
keys = ["id"]
"""
_FENCE = "hub, partition, sequenceNumber, ownerLevel"
READABLE = {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}
"""Settings by which values without a schema beside them can be read."""


@dataclass
class Replica:
    """A hub with what Debezium writes, and the instances that make a table of it."""

    folder: Path
    engine: Engine
    day: str = "DATE"
    """The type of the column of that name."""
    transform: str = ""
    """What else `[transform]` says."""
    hub: LogHub = field(init=False)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hub = LogHub.create(self.folder / "hub.db", partitions=4)
        text = _FILE.format(day=self.day, more=self.transform, fence=_FENCE)
        (self.folder / "orders.toml").write_text(text)

    def start(self) -> None:
        """One more instance."""
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "leasehold", "run", str(self.folder / "orders.toml"), "--no-spark"]
            self.running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def kill(self) -> None:
        """End the first instance with no chance to say anything."""
        first = self.running.pop(0)
        first.kill()
        first.wait()

    def end(self) -> None:
        """End all instances."""
        while self.running:
            self.kill()

    def send(self, changes: Sequence[Change]) -> None:
        """Send changes of the table, those of a key to one partition, as Kafka Connect does.

        The embedded log holds no event without a body, as a tombstone is: those stay out.
        """
        partitions = len(self.hub.partition_ids())
        for one in changes:
            if one.topic.endswith(".orders") and one.value is not None:
                self.hub.send([Event(one.value)], partition=str(sum(one.key or b"") % partitions))

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """What the table has, in a form that both have."""
        try:
            with closing(sqlite3.connect(self.folder / "table.db")) as connection:
                found = connection.execute("SELECT id, word, long, raw, price, day, at, flag FROM orders").fetchall()
        except sqlite3.OperationalError:  # it is not made yet
            return {}
        return {key: tuple(rest) for key, *rest in found}

    def rejected(self) -> list[Any]:
        """Why events were set aside."""
        with closing(sqlite3.connect(self.folder / "table.db")) as connection:
            return connection.execute("SELECT sequence_number, reason FROM orders_rejected").fetchall()
