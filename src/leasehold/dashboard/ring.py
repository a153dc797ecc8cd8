"""The last day of each pipeline, in a SQLite file that does not grow.

Owns two rings for each pipeline: the last half hour, a sample every 2 seconds, and the last day, one a minute. A sample
takes the place of the one of a lap ago. Where the clock was set back, those of later times are dropped: else the page
would show them as its past when that time comes. A sample names the owner and the lag of each partition; moves are kept
for a day, the latest thousand. Names and errors come cut (`GroupProgress.bounded`), which keeps a sample small. What is
written here is of no use but to be looked at: it may be lost with the power, and the file may be removed at any time.
What cannot be read in it is passed over.

Format 1: the number is in `PRAGMA user_version`. A file with another number is refused by name, and so is one that is
no file of ours.

Concurrency: several dashboards may share a file; of one pipeline both write the same. A paused one overwrites nothing
newer, since it samples anew when it wakes. For many threads.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import StoreError, StoreUnavailable, UsageError
from leasehold.operations.moves import Move, MoveKind
from leasehold.operations.progress import GroupProgress

FORMAT = 1
DAY = 86_400
KEPT_MOVES = 1_000
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS samples (pipeline TEXT NOT NULL, step INTEGER NOT NULL, slot INTEGER NOT NULL, "
    "number INTEGER NOT NULL, sample TEXT NOT NULL, PRIMARY KEY (pipeline, step, slot)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS moves (id INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, at REAL NOT NULL, "
    "kind TEXT NOT NULL, partition TEXT NOT NULL, owner TEXT NOT NULL, before TEXT NOT NULL, reason TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS moves_of ON moves (pipeline, id)",
    f"PRAGMA user_version = {FORMAT}",
)


@dataclass(frozen=True, slots=True)
class Lap:
    """A ring: a sample every `step` seconds, `slots` of them."""

    step: int
    slots: int


LAPS = (Lap(2, 900), Lap(60, 1440))


@dataclass(frozen=True, slots=True)
class Sample:
    """A group at a time, in seconds since the epoch: for each partition its owner (`""`: nobody alive) and its lag."""

    at: int
    partitions: Mapping[str, tuple[str, int]]


def sample(at: float, progress: GroupProgress) -> Sample:
    """What is kept of a look."""
    return Sample(int(at), {row.partition: (row.owner if row.alive else "", row.lag) for row in progress.partitions})


class Ring:
    """The file at `path`, which is made if it is missing. Raises `UsageError` for one of another format."""

    def __init__(self, path: Path) -> None:
        self._file = DatabaseFile(
            path,
            schema=_SCHEMA,
            unavailable=StoreUnavailable,
            broken=StoreError,
            create=True,
            check=lambda connection: _check(connection, path),
        )
        self._last: dict[tuple[str, int], int] = {}
        with self._file.reading():
            pass  # a file of another format is refused before anything is served

    def add(self, pipeline: str, sample: Sample, happened: Sequence[Move] = ()) -> None:
        """Keep a sample, unless there is one in its place, and these moves."""
        due = [lap for lap in LAPS if self._last.get((pipeline, lap.step)) != sample.at // lap.step]
        if not due and not happened:
            return
        with self._file.writing(durable=False) as connection:
            for lap in due:
                number, last = sample.at // lap.step, self._last.get((pipeline, lap.step))
                if last is None or last > number:
                    later = "DELETE FROM samples WHERE pipeline = ? AND step = ? AND number > ?"
                    connection.execute(later, (pipeline, lap.step, number))
                connection.execute(
                    "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?)",
                    (pipeline, lap.step, number % lap.slots, number, _packed(sample)),
                )
                self._last[pipeline, lap.step] = number
            connection.executemany(
                "INSERT INTO moves (pipeline, at, kind, partition, owner, before, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(pipeline, m.at, m.kind.value, m.partition, m.owner, m.before, m.reason) for m in happened],
            )
            if happened:
                connection.execute(
                    "DELETE FROM moves WHERE pipeline = ? AND (at < ? OR id <= (SELECT id FROM moves WHERE "
                    "pipeline = ? ORDER BY id DESC LIMIT 1 OFFSET ?))",
                    (pipeline, sample.at - DAY, pipeline, KEPT_MOVES),
                )

    def samples(self, pipeline: str, seconds: int, most: int = 300, now: float | None = None) -> list[Sample]:
        """The samples of the last this many seconds, the earliest first, thinned out to `most`. None of later times."""
        now = time.time() if now is None else now
        lap = next((lap for lap in LAPS if lap.step * lap.slots >= seconds), LAPS[-1])
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT number, sample FROM samples WHERE pipeline = ? AND step = ? AND number BETWEEN ? AND ? "
                "ORDER BY number",
                (pipeline, lap.step, int(now - seconds) // lap.step, int(now) // lap.step),
            ).fetchall()
        thinned = rows[:: -(-len(rows) // most)] if len(rows) > most else rows
        read = (_unpacked(number * lap.step, text) for number, text in thinned)
        return [one for one in read if one is not None]

    def moves(self, pipeline: str, most: int) -> list[Move]:
        """The latest moves, the latest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT at, kind, partition, owner, before, reason FROM moves WHERE pipeline = ? "
                "ORDER BY id DESC LIMIT ?",
                (pipeline, most),
            ).fetchall()
        return [Move(row[0], MoveKind(row[1]), *row[2:]) for row in rows if _is_move(row)]

    def close(self) -> None:
        """Close this thread's connection."""
        self._file.close()


def _packed(sample: Sample) -> str:
    owners = sorted({owner for owner, _ in sample.partitions.values()})
    index = {owner: number for number, owner in enumerate(owners)}
    return json.dumps({"o": owners, "p": {p: [index[owner], lag] for p, (owner, lag) in sample.partitions.items()}})


def _unpacked(at: int, packed: object) -> Sample | None:
    try:
        read = json.loads(str(packed))
        partitions = {partition: (read["o"][owner], lag) for partition, (owner, lag) in read["p"].items()}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    sound = all(isinstance(owner, str) and type(lag) is int for owner, lag in partitions.values())
    return Sample(at, partitions) if sound else None


def _is_move(row: Sequence[object]) -> bool:
    at, kind, *texts = row
    return isinstance(at, float) and kind in list(MoveKind) and all(isinstance(text, str) for text in texts)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version == FORMAT and "samples" in tables:
        return
    if version or tables:
        raise UsageError(
            f"{path} is no history of this release's dashboard (format {FORMAT}; it says {version}). Name another file "
            "with --history, or remove this one: it holds nothing but the last day's picture"
        )
