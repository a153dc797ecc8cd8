"""What processes do that write to a table in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from leasehold.sinks.beside import identities, watermarks
from leasehold.sinks.beside.set_aside import rejected
from leasehold.sinks.rules.row_by_row import RowWriter
from leasehold.sinks.set_aside import EventId
from leasehold.sinks.sqlite import inserts, memory
from leasehold.sinks.sqlite import sink as sqlite_sink
from leasehold.sinks.sqlite.session import prepare
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.duplicates import Sent, known_by
from leasehold_testkit.contracts.sinks.fixtures import APPEND, Row, retried
from leasehold_testkit.contracts.sinks.fixtures import batch as batch_of
from leasehold_testkit.contracts.sinks.fixtures import read as read_whole
from tests.sinks.events import E, batch, last_of_keys, sink
from tests.sinks.processes import behind, die, killed_in
from tests.sinks.ranges import of, read
from tests.waiting import PATIENCE

POINTS: dict[str, tuple[Any, str]] = {
    "before the rows": (watermarks, "read"),
    "rows": (RowWriter, "write"),
    "rejected rows": (rejected, "insert"),
    "memory of keys": (memory, "remember"),
    "identities remembered": (identities, "remember"),
    "identities forgotten": (identities, "forget"),
}
"""Where a process can be killed: behind the function that is named, and before COMMIT."""

UNCHANGING = ("SELECT", "PRAGMA", "BEGIN", "SAVEPOINT", "RELEASE")
"""How statements begin that leave a file as it is."""


def die_at(point: str, act: Callable[[Path], object], path: Path) -> None:
    """Do this, and be killed at the point; `committed` is behind all of it."""
    if point != "committed":
        behind(*POINTS[point], die)
    act(path)
    die()


def killed(point: str, act: Callable[[Path], object], path: Path) -> None:
    """Have a process do this, in which it is killed at the point."""
    assert killed_in(die_at, point, act, path)


# many batches

PARTITIONS = 3
NUMBERS = 240
WIDTH = 12


def event(partition: int, number: int) -> E:
    """One of those that all of these processes apply."""
    status = "bad" if number % 17 == 3 else f"{number}"
    return E(f"{partition}-{number % 7}", status, None, str(partition), number, gone=number % 11 == 5)


def apply_all(path: Path, mode: str, level: int, at_work: Connection | Barrier | None = None) -> None:
    """All batches from the start, since a process knows nothing of the others. It tells the number behind each."""
    table = sink(path, mode, timeout=PATIENCE)
    if isinstance(at_work, Barrier):
        at_work.wait(PATIENCE)
    for first in range(0, NUMBERS, WIDTH):
        events = [event(p, n)._replace(level=level) for p in range(PARTITIONS) for n in range(first, first + WIDTH)]
        table.apply(batch(events, deletes=mode == "upsert"))
        if isinstance(at_work, Connection):
            at_work.send(first + WIDTH)


# what is tried again

TRIED = range(1, 60, 2)
"""The numbers of the events that were rejected."""
TRIED_EVENTS = [EventId("h", "0", number) for number in TRIED]


def mended(level: int = 1) -> list[E]:
    """Their rows."""
    return [E(f"k{number % 10}", f"retried {number}", number=number, level=level) for number in TRIED]


def retry_all(path: Path) -> None:
    """All at once."""
    retried(sink(path), batch(mended()), TRIED_EVENTS)


def retry_one_by_one(path: Path, at_work: Barrier, told: Connection) -> None:
    """One event at a time, until none is rejected: others may do so as well. Tells what came of them."""
    table = sink(path, timeout=PATIENCE)
    counts = []
    at_work.wait(PATIENCE)
    for tried, row in zip(TRIED_EVENTS, mended(), strict=True):
        result = retried(table, batch([row]), [tried])
        assert result.rejected == result.unread == result.filtered == 0
        counts.append((result.applied, result.superseded, result.gone))
    told.send(counts)


def apply_more(path: Path, at_work: Barrier) -> None:
    """An instance that runs beside: more events of the same keys."""
    table = sink(path, timeout=PATIENCE)
    at_work.wait(PATIENCE)
    for number in range(60, 120):
        key = f"k{number % 10}"
        assert table.apply(of([read(number, number + 1)], [E(key, f"{number}", number=number)])).applied == 1


# single batches


def apply_one(path: Path) -> None:
    """One row in place of that which is there."""
    sink(path).apply(batch([E("a", "lost", number=1)]))


def apply_until(path: Path, step: int, by_version: bool) -> None:
    """Apply the last rows of some keys, and be killed before this step: a statement that changes something, or COMMIT.

    From 0 on. What `executemany` is given is a step for each statement.
    """
    left = count()

    def look(statement: str) -> None:
        if not statement.startswith(UNCHANGING) and next(left) == step:
            die()

    def opened(connection: sqlite3.Connection) -> None:
        prepare(connection)
        connection.set_trace_callback(look)

    setattr(sqlite_sink, prepare.__name__, opened)
    inserts.VALUES_A_STATEMENT = 6  # two rows of the table
    sink(path, sequence_by="version" if by_version else None).apply(last_of_keys(by_version=by_version))


def apply_two(path: Path) -> tuple[int, int]:
    """Two events of one identity; how many were applied, and how many dropped."""
    rows = batch_of(Row("a", 1, 0), Row("a", 2, 1), ranges=[read_whole(0, 2)])
    result = SqliteSink(path, APPEND, timeout=PATIENCE).apply(known_by(rows, Sent("x", 0), Sent("x", 1)))
    return result.applied, result.duplicates
