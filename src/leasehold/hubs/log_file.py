"""The tables of a log file, and every statement that reads or changes them.

Owns what is stored: the identity of the log, a row per partition (begin, end, last enqueued time, bytes) and
a row per stored batch (first and last sequence number, enqueued time, payload). Each method is one short
transaction, or for those that say so several with others' work in between. Promises that the row of a
partition always agrees with its batches, also after a crash, and that enqueued times never go back within
a partition. Refuses files that are not logs, logs of a newer format and a log that took another's place.

Concurrency: that of `DatabaseFile`; nothing else is kept in memory.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote
from uuid import UUID

from leasehold.embedded import DatabaseFile
from leasehold.errors import ConfigError, HubError, HubUnavailable
from leasehold.model import PartitionProperties

MOST_PARTITIONS = 1_024

_FORMAT = 1
_APPLICATION_ID = 0x4C48_4C47  # "LHLG", where file(1) looks for it
_PRAGMAS = (
    "page_size = 16384",  # a payload is read a third faster than from the usual 4096
    "auto_vacuum = INCREMENTAL",
    "secure_delete = OFF",  # else removing old batches writes zeros over every page of them
    "journal_size_limit = 67108864",
)
_SCHEMA = (
    "CREATE TABLE log (identity TEXT NOT NULL)",
    """CREATE TABLE partitions (
        partition INTEGER PRIMARY KEY,
        begin_sequence INTEGER NOT NULL DEFAULT 0,
        end_sequence INTEGER NOT NULL DEFAULT 0,
        last_enqueued INTEGER NOT NULL DEFAULT 0,
        stored_bytes INTEGER NOT NULL DEFAULT 0
    )""",
    # The number of a batch rises in the order of appends, over all partitions.
    """CREATE TABLE batches (
        batch INTEGER PRIMARY KEY,
        partition INTEGER NOT NULL,
        first_sequence INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        enqueued INTEGER NOT NULL,
        payload BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX batches_by_sequence ON batches (partition, first_sequence)",
    "CREATE INDEX batches_by_time ON batches (partition, enqueued, first_sequence)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_FORMAT}",
)
_TELLS_TIME = 7
"""The version of a UUID that begins with a time. Logs of earlier releases have random ones."""
_READ_BYTES = 16 << 20
_READ_BATCHES = 1_000
_REMOVED_BATCHES = 64
_VACUUMED_PAGES = 1_024

StoredRow = tuple[int, int, int, bytes | None]
"""First and last sequence number, enqueued time in microseconds, and the payload if it was asked for."""


class Payload(Protocol):
    """What SQLite stores as a BLOB: anything that shows its bytes, such as an Arrow buffer."""

    @property
    def size(self) -> int: ...


class LogFile:
    """An existing log file. `timeout` is how long to wait, in seconds, while it is locked."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.identity = ""
        self._file = _database(path, timeout, create=False, check=self._recognise)
        if not path.exists():
            raise HubUnavailable(_no_log(path))
        with self._file.reading() as connection:
            self.identity = _identity(connection)

    @classmethod
    def create(
        cls, path: Path, timeout: float, partitions: int | None, otherwise: int, now: Callable[[], float]
    ) -> LogFile:
        """Make the log, or grow the one that is there; with `None` a new one gets `otherwise` partitions.

        `now` gives the time in seconds, for the identity of a new one.
        """
        if partitions is not None:
            _check_partitions(partitions)

        def check(connection: sqlite3.Connection) -> None:
            if not _is_empty(connection):
                _check_format(connection, path)

        file = _database(path, timeout, create=True, check=check)
        with file.writing() as connection:
            if _is_empty(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO log VALUES (?)", (str(_new_identity(now())),))
                partitions = partitions or otherwise
            if partitions is not None:
                _grow(connection, partitions)
        file.close()
        return cls(path, timeout)

    def grow(self, partitions: int) -> None:
        """Add empty partitions until there are so many. Raises `ConfigError` if there are more."""
        _check_partitions(partitions)
        with self._file.writing() as connection:
            _grow(connection, partitions)

    def properties(self) -> list[PartitionProperties]:
        """All partitions in order, as they are at one moment."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT partition, begin_sequence, end_sequence FROM partitions ORDER BY partition"
            ).fetchall()
        return [PartitionProperties(str(number), begin, end) for number, begin, end in rows]

    def first_since(self, partition: int, enqueued: int) -> int | None:
        """The first sequence number enqueued at or after a time in microseconds, if there is one."""
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT first_sequence FROM batches WHERE partition = ? AND enqueued >= ? "
                "ORDER BY enqueued, first_sequence LIMIT 1",
                (partition, enqueued),
            ).fetchone()
        return None if found is None else int(found[0])

    def enqueued_from(self, starts: Mapping[int, int]) -> dict[int, int]:
        """By partition, the time in microseconds of its first event at or after a sequence number, if there is one."""
        # Through the index: the batch that the number lies in, or the one after it.
        query = (
            "SELECT enqueued FROM batches WHERE partition = :partition AND last_sequence >= :start "
            "AND first_sequence >= (SELECT coalesce(max(first_sequence), 0) FROM batches "
            "WHERE partition = :partition AND first_sequence <= :start) ORDER BY first_sequence LIMIT 1"
        )
        with self._file.reading() as connection:
            asked = (
                (number, connection.execute(query, {"partition": number, "start": start}).fetchone())
                for number, start in starts.items()
            )
            return {number: int(row[0]) for number, row in asked if row is not None}

    def append(
        self, partition: str, payloads: Sequence[tuple[int, Payload]], now: Callable[[], float]
    ) -> tuple[int, int]:
        """Append payloads, each with the number of its events, as one transaction; return `[first, end)`.

        `now` gives the enqueued time in seconds. It is asked inside the transaction, so that times follow
        the order of sequence numbers.
        """
        number = _number(partition)
        with self._file.writing() as connection:
            found = connection.execute(
                "SELECT end_sequence, last_enqueued FROM partitions WHERE partition = ?", (number,)
            ).fetchone()
            if found is None:
                raise no_partition(partition, _count(connection))
            begin, latest = found
            end, enqueued = begin, max(latest, round(now() * 1e6))
            for rows, payload in payloads:
                connection.execute(
                    "INSERT INTO batches (partition, first_sequence, last_sequence, enqueued, payload) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (number, end, end + rows - 1, enqueued, payload),
                )
                end += rows
            if end > begin:
                connection.execute(
                    "UPDATE partitions SET end_sequence = ?, last_enqueued = ?, stored_bytes = stored_bytes + ? "
                    "WHERE partition = ?",
                    (end, enqueued, sum(payload.size for _, payload in payloads), number),
                )
        return begin, end

    def stored(self, partition: int, start: int, end: int, *, with_payload: bool) -> Iterator[StoredRow]:
        """The stored batches that overlap `[start, end)`, in order.

        They are read about 16 MB at a time, and no transaction is open while the caller has one of them:
        a reader that pauses holds up nobody, and keeps the WAL from growing no longer than a chunk takes.
        """
        # `max` finds, through the index, the batch that `start` lies in; retention may have removed it.
        query = f"""
            SELECT first_sequence, last_sequence, enqueued, {"payload" if with_payload else "NULL"} FROM batches
            WHERE partition = :partition AND first_sequence < :end AND last_sequence >= :start
                AND first_sequence >= (
                    SELECT coalesce(max(first_sequence), 0) FROM batches
                    WHERE partition = :partition AND first_sequence <= :start)
            ORDER BY first_sequence LIMIT {_READ_BATCHES}
        """
        while start < end:
            chunk: list[StoredRow] = []
            size = 0
            with self._file.reading() as connection:
                for row in connection.execute(query, {"partition": partition, "start": start, "end": end}):
                    chunk.append(row)
                    size += len(row[3] or b"")
                    if size >= _READ_BYTES:
                        break
            if not chunk:
                return
            start = max(start, chunk[-1][1] + 1)
            chunk.reverse()
            while chunk:
                yield chunk.pop()

    def remove_older(self, enqueued: int) -> int:
        """Remove all batches from before a time in microseconds, some at a time; return how many events."""
        # Partition by partition: their producers' clocks differ, so that no order by time holds across them.
        query = (
            "SELECT b.batch, b.partition, b.first_sequence, b.last_sequence, length(b.payload) "
            "FROM partitions AS p CROSS JOIN batches AS b ON b.partition = p.partition "
            "WHERE b.enqueued < ? ORDER BY p.partition, b.enqueued, b.first_sequence LIMIT ?"
        )
        return self._remove(lambda connection: connection.execute(query, (enqueued, _REMOVED_BATCHES)).fetchall())

    def remove_beyond(self, stored_bytes: int) -> int:
        """Remove the oldest batches until payloads take up at most so much; return how many events."""
        query = (
            "SELECT batch, partition, first_sequence, last_sequence, length(payload) FROM batches "
            "ORDER BY batch LIMIT ?"
        )

        def oldest(connection: sqlite3.Connection) -> list[tuple[int, ...]]:
            (total,) = connection.execute("SELECT sum(stored_bytes) FROM partitions").fetchone()
            found = []
            for row in connection.execute(query, (_REMOVED_BATCHES,)):
                if total <= stored_bytes:
                    break
                found.append(row)
                total -= row[4]
            return found

        return self._remove(oldest)

    def give_space_back(self) -> None:
        """Return free pages to the file system, in steps; the file gets smaller once no reader needs them."""
        while self._has_free_pages():
            with self._file.writing(durable=False) as connection:
                connection.execute(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})").fetchall()
        self._file.checkpoint()

    def close(self) -> None:
        """Close this thread's connection."""
        self._file.close()

    def _has_free_pages(self) -> bool:
        with self._file.reading() as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        return bool(free)

    def _remove(self, oldest: Callable[[sqlite3.Connection], list[tuple[int, ...]]]) -> int:
        removed = 0
        while True:
            with self._file.writing() as connection:
                batches = oldest(connection)
                for batch, partition, first, last, size in batches:
                    connection.execute("DELETE FROM batches WHERE batch = ?", (batch,))
                    connection.execute(
                        "UPDATE partitions SET begin_sequence = ?, stored_bytes = stored_bytes - ? WHERE partition = ?",
                        (last + 1, size, partition),
                    )
                    removed += last + 1 - first
            if not batches:
                return removed

    def _recognise(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not the log which this object was opened on."""
        if _is_empty(connection):
            raise HubUnavailable(_no_log(self.path))
        _check_format(connection, self.path)
        if self.identity and (found := _identity(connection)) != self.identity:
            raise HubError(
                f"{self.path} was replaced by another log: it is {found} now and was {self.identity}. Open it "
                "again; consumer groups start without checkpoints on the new one"
            )


def no_partition(partition: str, count: int) -> ConfigError:
    """The error for a partition that the log does not have."""
    return ConfigError("partition", partition, f"the log has partitions 0 to {count - 1}", "Name one, or grow the log")


def _database(path: Path, timeout: float, *, create: bool, check: Callable[[sqlite3.Connection], None]) -> DatabaseFile:
    return DatabaseFile(
        path,
        schema=(),
        unavailable=HubUnavailable,
        broken=HubError,
        create=create,
        timeout=timeout,
        pragmas=_PRAGMAS,
        check=check,
    )


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Whether nothing has been made in the file yet."""
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    return bool(version == 0)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if kind != _APPLICATION_ID:
        raise HubError(f"{path} is a SQLite file, but not a log of Leasehold. Name another file for the hub")
    if version > _FORMAT:
        raise HubError(
            f"{path} is a log of format {version}, and this release knows formats up to {_FORMAT}: "
            "pip install --upgrade leasehold"
        )


def created(identity: str) -> float | None:
    """When the log of this identity was made, in seconds since the epoch; None for one whose identity does not tell."""
    known = UUID(identity)
    return (known.int >> 80) / 1_000 if known.version == _TELLS_TIME else None


def _new_identity(now: float) -> UUID:
    """A UUID of version 7: the time in milliseconds, then chance."""
    stamped = round(now * 1_000) << 80 | secrets.randbits(80)
    return UUID(int=stamped & ~(0xF << 76 | 0x3 << 62) | _TELLS_TIME << 76 | 0b10 << 62)


def _identity(connection: sqlite3.Connection) -> str:
    (identity,) = connection.execute("SELECT identity FROM log").fetchone()
    return str(identity)


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM partitions").fetchone()
    return int(count)


def _grow(connection: sqlite3.Connection, partitions: int) -> None:
    count = _count(connection)
    if partitions < count:
        raise ConfigError(
            "partitions", partitions, f"the log has {count}, and partitions are never removed", f"Use {count} or more"
        )
    connection.executemany("INSERT INTO partitions (partition) VALUES (?)", [(n,) for n in range(count, partitions)])


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise ConfigError("partitions", partitions, f"a log has 1 to {MOST_PARTITIONS:,} partitions", "Choose another")


def _number(partition: str) -> int:
    """The number of a partition, and -1, which no partition has, for a text that no partition is written as."""
    return int(partition) if partition.isascii() and partition.isdecimal() and str(int(partition)) == partition else -1


def _no_log(path: Path) -> str:
    return (
        f"there is no log at {path}. Make one: `leasehold send log:///{quote(str(path))} FILE --partition-key COLUMN`, "
        f"or LogHub.create({str(path)!r}, partitions=4)"
    )
