"""A folder with a hub and a pipeline, and the commands `leasehold run`, `status` and `reset` in it, as processes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.faults.hub_kinds import HubKind
from tests.faults.instance import PATIENCE

PIPELINE = """\
name = "{name}"
[source]
hub = "{hub}"
max_events_per_trigger = 4
[ownership]
store = "sqlite:///stores.db"
load_balancing_interval = "400ms"
partition_expiration = "600s"
request_timeout = "5s"
[transform]
schema = "id STRING, n BIGINT"
sql = "SELECT id, n, {fence} FROM events"
on_error = "{on_error}"
[sink]
url = "sqlite:///table.db"
table = "entities"
keys = ["id"]
{order}
[spark]
master = "local[1]"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""
"""Nothing expires in it."""
FENCE = "hub, partition, sequenceNumber, ownerLevel"


class Place:
    """A folder with a hub and a pipeline, and the commands run in it."""

    def __init__(self, folder: Path, kind: HubKind) -> None:
        self.folder = folder
        self.kind = kind
        self.write()

    def write(self, name: str = "first", fence: str = FENCE, order: str = "", on_error: str = "reject") -> None:
        text = PIPELINE.format(hub=self.kind.url, name=name, fence=fence, order=order, on_error=on_error)
        (self.folder / "p.toml").write_text(text)

    def send(self, partition: str, *bodies: str) -> None:
        self.kind.send(partition, [body.encode() for body in bodies])

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "leasehold.cli.app", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, **self.kind.environment},
        )

    def run(self) -> dict[str, int]:
        """Run until all is consumed; the account."""
        done = self.command("run", "p.toml", "--available-now", "--json")
        assert done.returncode == 0, done.stderr
        account: dict[str, int] = json.loads(done.stdout)
        return account

    def refused(self, *words: str) -> str:
        done = self.command(*words)
        assert done.returncode == 1, done.stdout
        assert done.stdout == ""
        return done.stderr

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.folder / "table.db") as connection:
            rows: list[tuple[object, ...]] = connection.execute(sql).fetchall()
        connection.close()
        return rows
