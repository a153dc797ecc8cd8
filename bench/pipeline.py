"""End to end: events a second from the hub to the table, by one `leasehold run` as a user would start it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from leasehold.cli.demo.command import PARTITIONS, PIPELINE
from leasehold.cli.demo.data import FlightEvents
from leasehold.hubs.log.hub import Keyless, LogHub
from leasehold.operations.progress import group_progress
from leasehold.stores.sqlite.store import SqliteStore

Row = tuple[str, float, str, float | None, str]


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        events = FlightEvents(20_000 if quick else 200_000)
        hub = LogHub.create(path / "flights-hub.db", partitions=PARTITIONS)
        for table in events.tables():
            hub.send_table(table, keyless=Keyless.ONE_PARTITION)
        (path / "flights.toml").write_text(PIPELINE)
        command = [sys.executable, "-m", "leasehold.cli.app", "run", "flights.toml", "--available-now"]
        with subprocess.Popen(command, cwd=path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            first = first_checkpoint(path, hub, process)
            process.wait(timeout=600)
        done = time.perf_counter()
        if process.returncode:
            raise RuntimeError(f"leasehold run ended with code {process.returncode}")
    later = len(events) - first[1]
    return [("hub to table, one instance, without start-up", later / (done - first[0]), "events/s", None, "")]


def first_checkpoint(path: Path, hub: LogHub, process: subprocess.Popen[bytes]) -> tuple[float, int]:
    """When the first batch was done, and how many events it had."""
    store, group = SqliteStore(path / "leasehold.db"), hub.consumer_group("$Default")
    while process.poll() is None:
        done = sum(row.checkpoint or 0 for row in group_progress(hub, group, store, store, 60.0).partitions)
        if done:
            return time.perf_counter(), done
        time.sleep(0.05)
    return time.perf_counter(), 0


if __name__ == "__main__":
    for line in run(quick=False):
        print(line)
