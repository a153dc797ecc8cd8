"""Appending to the embedded log, and reading it back, each beside the plain limit in the same run.

The plain limit of an append is an INSERT of an equal blob into a table of the same page size and pragmas,
one transaction each; that of a read is a SELECT of those blobs. The runs take turns, so that both meet the
same disk.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from leasehold.hubs import EVENT_COLUMNS
from leasehold.hubs.log.hub import LogHub
from leasehold.hubs.log.payload import payloads

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its share of the plain limit, and the goal."""

BODY_BYTES = 200
PLAIN_COLUMNS = [column for column in EVENT_COLUMNS if column not in ("properties", "systemProperties")]


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes about two seconds."""
    batches, rounds = (100, 2) if quick else (500, 4)
    data = {rows: _events(rows) for rows in (1_000, 10_000)}
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-", dir=Path.cwd()) as folder:
        log = LogHub.create(Path(folder) / "hub.db", partitions=2)
        plain = _plain(Path(folder) / "plain.db")
        ((_, blob),) = payloads(pa.Table.from_batches([data[1_000]]))
        appended, inserted = [], []
        for _ in range(rounds):
            inserted.append(_seconds(lambda: _insert(plain, blob, batches)))
            appended.append(_seconds(lambda: [log.append(data[1_000], partition="0") for _ in range(batches)]))
        limit = batches * 1_000 / min(inserted)
        rate = batches * 1_000 / min(appended)
        results: list[Row] = [
            ("append, 1,000 events of 200 bytes a batch", rate, "events/s", rate / limit, ">= 500,000"),
            ("plain INSERT of equal blobs", limit, "events/s", None, ""),
        ]
        for _ in range(batches * rounds // 10):
            log.append(data[10_000], partition="1")
        total = batches * 1_000 * rounds
        limit = total / min(_seconds(lambda: _select(plain)) for _ in range(3))
        for name, partition in (("1,000", "0"), ("10,000", "1")):
            taken = min(_seconds(lambda p=partition: _read(log, p, total)) for _ in range(3))  # type: ignore[misc]
            rate = total / taken
            results.append((f"read, from batches of {name}", rate, "events/s", rate / limit, ""))
        results.append(("plain SELECT of equal blobs", limit, "events/s", None, ""))
        plain.close()
        log.close()
    return results


def _events(rows: int) -> pa.RecordBatch:
    chance = random.Random(7)
    return pa.record_batch(
        {
            "body": pa.array([chance.randbytes(BODY_BYTES) for _ in range(rows)], pa.binary()),
            "partitionKey": pa.array([f"N{chance.randrange(4_000):05}" for _ in range(rows)], pa.string()),
        }
    )


def _plain(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("page_size = 16384", "auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE blobs (blob INTEGER PRIMARY KEY, payload BLOB)")
    return connection


def _insert(connection: sqlite3.Connection, blob: object, times: int) -> None:
    for _ in range(times):
        connection.execute("INSERT INTO blobs (payload) VALUES (?)", (blob,))


def _select(connection: sqlite3.Connection) -> None:
    for _ in connection.execute("SELECT payload FROM blobs"):
        pass


def _read(log: LogHub, partition: str, total: int) -> None:
    read: Iterator[pa.RecordBatch] = log.read(partition, 0, total, columns=PLAIN_COLUMNS)
    if sum(batch.num_rows for batch in read) != total:
        raise RuntimeError("not all that was appended was read")


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run(quick=False):
        share = f"{ratio:6.2f} of the plain limit" if ratio is not None else ""
        print(f"{name:45} {figure:14,.0f} {unit:10} {share:26} {goal}")
