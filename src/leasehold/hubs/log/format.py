"""What a log file is made of: its rows, and how a damaged one is told from a whole one.

Owns the tables, the recognising of a file, and the checksums. Every row carries the CRC-32 of all that it says, a
stored batch another one of its payload; the log counts its partitions, so that none can go missing unnoticed.

Promises that a row which does not agree with its checksum, or holds other types than it was given, raises
`HubError`, which names it. Refuses files that are not logs, and logs of another format.

Checksums find what failing disks and stray writes do to a file. They are no seal against somebody who means to
change it, for whom `payload.py` has bounds. SQLite drops the newest transactions when the file beside the log that
ends in -wal is damaged: that part is not ours to see.
"""

from __future__ import annotations

import secrets
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from leasehold.errors import HubError, Verdict
from leasehold.stored_formats import refusal

FORMAT = 2
PRAGMAS = (
    "page_size = 16384",  # a payload is read a third faster than from the usual 4096
    "auto_vacuum = INCREMENTAL",
    "secure_delete = OFF",  # else removing old batches writes zeros over every page of them
    "journal_size_limit = 67108864",
    "cell_size_check = ON",  # a damaged page is noticed where it is read first
)
_APPLICATION_ID = 0x4C48_4C47  # "LHLG", where file(1) looks for it
_TABLES = (
    # `partitions` is their number.
    "CREATE TABLE log (identity TEXT NOT NULL, partitions INTEGER NOT NULL, checksum INTEGER NOT NULL)",
    """CREATE TABLE partitions (
        partition INTEGER PRIMARY KEY,
        begin_sequence INTEGER NOT NULL,
        end_sequence INTEGER NOT NULL,
        last_enqueued INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        checksum INTEGER NOT NULL
    )""",
    # The number of a batch rises in the order of appends, over all partitions. The payload comes last: what lies
    # behind a large one is found by way of all its pages.
    """CREATE TABLE batches (
        batch INTEGER PRIMARY KEY,
        partition INTEGER NOT NULL,
        first_sequence INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        enqueued INTEGER NOT NULL,
        payload_checksum INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        payload BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX batches_by_sequence ON batches (partition, first_sequence)",
    "CREATE INDEX batches_by_time ON batches (partition, enqueued, first_sequence)",
)
_TELLS_TIME = 7
"""The version of a UUID that begins with a time."""


class PartitionRow(NamedTuple):
    """A partition: events `[begin, end)`, the last enqueued time in microseconds, the bytes of its payloads."""

    partition: int
    begin: int
    end: int
    last_enqueued: int
    stored_bytes: int

    @property
    def checksum(self) -> int:
        """Of all of it."""
        return zlib.crc32(struct.pack("<5q", *self))


class BatchRow(NamedTuple):
    """A stored batch: events `[first, last]` of a partition, enqueued in microseconds, its payload's checksum."""

    partition: int
    first: int
    last: int
    enqueued: int
    payload_checksum: int

    @property
    def checksum(self) -> int:
        """Of all of it."""
        return zlib.crc32(struct.pack("<5q", *self))


class LogFormat:
    """The rows of the log in the file at `path`."""

    partition_columns = "partition, begin_sequence, end_sequence, last_enqueued, stored_bytes, checksum"
    batch_columns = "partition, first_sequence, last_sequence, enqueued, payload_checksum, checksum"

    def __init__(self, path: Path) -> None:
        self._path = path

    def of_batches(self, alias: str) -> str:
        """The `batch_columns` of a table that a query calls by another name."""
        return ", ".join(f"{alias}.{name}" for name in self.batch_columns.split(", "))

    def partition(self, values: Sequence[object]) -> PartitionRow:
        """The row whose `partition_columns` these are."""
        row = PartitionRow(*values[:5])  # type: ignore[arg-type]  # looked at in the next line
        if not _whole(row) or row.checksum != values[5] or row.begin > row.end:
            raise damaged(self._path, f"the row of partition {values[0]!r} (its begin and end) is damaged")
        return row

    def batch(self, values: Sequence[object]) -> BatchRow:
        """The row whose `batch_columns` these are."""
        row = BatchRow(*values[:5])  # type: ignore[arg-type]  # looked at in the next line
        if not _whole(row) or row.checksum != values[5] or row.first > row.last:
            raise damaged(
                self._path, f"the row of the events from {values[1]!r} on of partition {values[0]!r} is damaged"
            )
        return row

    def identity(self, connection: sqlite3.Connection) -> str:
        """The identity of the log, and that its number of partitions can be trusted."""
        return self._log(connection)[0]

    def count(self, connection: sqlite3.Connection) -> int:
        """How many partitions there are."""
        return self._log(connection)[1]

    def partitions(self, connection: sqlite3.Connection) -> list[PartitionRow]:
        """All partitions in order."""
        found = connection.execute(f"SELECT {self.partition_columns} FROM partitions ORDER BY partition").fetchall()
        rows = [self.partition(values) for values in found]
        count = self.count(connection)
        if [row.partition for row in rows] != list(range(max(1, count))):
            raise damaged(self._path, f"{len(rows)} of its {count} partitions are there")
        return rows

    def set_partition(self, connection: sqlite3.Connection, row: PartitionRow) -> None:
        """Write a partition that is there."""
        connection.execute(
            "UPDATE partitions SET begin_sequence = ?, end_sequence = ?, last_enqueued = ?, stored_bytes = ?, "
            "checksum = ? WHERE partition = ?",
            (*row[1:], row.checksum, row.partition),
        )

    def add_partitions(self, connection: sqlite3.Connection, count: int) -> None:
        """Add empty partitions until there are this many."""
        identity, known = self._log(connection)
        rows = [PartitionRow(number, 0, 0, 0, 0) for number in range(known, count)]
        connection.executemany(
            f"INSERT INTO partitions ({self.partition_columns}) VALUES (?, ?, ?, ?, ?, ?)",
            [(*row, row.checksum) for row in rows],
        )
        connection.execute("UPDATE log SET partitions = ?, checksum = ?", (count, _checksum(identity, count)))

    def add_batch(self, connection: sqlite3.Connection, row: BatchRow, payload: object) -> None:
        """Append a stored batch."""
        connection.execute(
            f"INSERT INTO batches ({self.batch_columns}, payload) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*row, row.checksum, payload),
        )

    def _log(self, connection: sqlite3.Connection) -> tuple[str, int]:
        rows = connection.execute("SELECT identity, partitions, checksum FROM log").fetchall()
        if len(rows) != 1 or rows[0][2] != _checksum(*rows[0][:2]):
            raise damaged(self._path, "its identity is damaged")
        return str(rows[0][0]), int(rows[0][1])


def make_log(connection: sqlite3.Connection, now: float) -> None:
    """Lay out an empty file, without partitions. `now` is in seconds, for the identity."""
    for statement in _TABLES:
        connection.execute(statement)
    identity = str(_new_identity(now))
    connection.execute("INSERT INTO log VALUES (?, 0, ?)", (identity, _checksum(identity, 0)))
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing has been made in the file yet."""
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    return version == 0 and _number(connection, "application_id") == _number(connection, "user_version") == 0


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not empty and no log of this format: `HubError`, also for a damaged one."""
    connection.text_factory = _text
    version = _number(connection, "user_version")
    if _number(connection, "application_id") != _APPLICATION_ID:
        raise HubError(f"{path} is a SQLite file, but not a log of Leasehold. Name another file for the hub")
    remedy = "Move the file away or name another one for the hub, and send its events again"
    if refused := refusal(f"{path}: the log has", version or None, FORMAT, remedy):
        raise HubError(refused, verdict=Verdict.RESTART)
    laid_out = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")}
    if not laid_out.issuperset(_TABLES):
        raise damaged(path, "its tables are not those of a log")


def damaged(path: Path, what: str, remedy: str = "") -> HubError:
    """The error for a file that something else has written to."""
    return HubError(
        f"{path}: {what}: something else has written to the file, or its disk is failing. Restore it from a copy"
        f"{remedy and ', or '}{remedy}"
    )


def damaged_events(path: Path, partition: int | str, start: int, end: int, how: str) -> HubError:
    """The error for events `[start, end)` of a partition that cannot be given as they were appended."""
    return damaged(
        path,
        f"events [{start}, {end}) of partition {partition} {how}",
        f"have readers go on without them, at sequence number {end}",
    )


def created(identity: str) -> float:
    """When the log of this identity was made, in seconds since the epoch."""
    return (UUID(identity).int >> 80) / 1_000


def _whole(values: Sequence[object]) -> bool:
    """Whether these are whole numbers, as all of them were when they were written: a flip may change their type."""
    return all(type(value) is int for value in values)


def _checksum(identity: object, partitions: object) -> int:
    return zlib.crc32(f"{identity} {partitions}".encode())


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (found,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(found)


def _text(stored: bytes) -> str:
    """Text as it is stored, or what can be shown of it: a checksum tells the difference, not an error of SQLite's."""
    return stored.decode(errors="replace")


def _new_identity(now: float) -> UUID:
    """A UUID of version 7: the time in milliseconds, then chance."""
    stamped = round(now * 1_000) << 80 | secrets.randbits(80)
    return UUID(int=stamped & ~(0xF << 76 | 0x3 << 62) | _TELLS_TIME << 76 | 0b10 << 62)


def no_log(path: Path) -> str:
    """What to say where there is no log."""
    return (
        f"there is no log at {path}. Make one: `leasehold init log:///{quote(str(path))} --partitions 4`, "
        "or `leasehold send` with the same URL, a file and --partition-key"
    )
