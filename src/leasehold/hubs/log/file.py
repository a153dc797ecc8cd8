"""Every statement that reads or changes the tables of a log file.

Owns what is stored, in rows as `format.py` has them: the identity of the log, a row per partition (begin, end,
last enqueued time, bytes) and a row per stored batch (first and last sequence number, enqueued time, payload).
Each method is one short transaction, or for those that say so several with others' work in between. Promises
that the row of a partition always agrees with its batches, also after a crash, that enqueued times never go
back within a partition, and that nothing is given out of a damaged file but what is whole: a row that does not
agree with its checksum, and one that is missing, raise `HubError`. Refuses a log that took another's place.

Concurrency: that of `DatabaseFile`; nothing else is kept in memory.
"""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.database.sqlite import DatabaseFile, primary_code
from leasehold.errors import ConfigError, HubError, HubUnavailable, Verdict
from leasehold.hubs.log.format import (
    PRAGMAS,
    BatchRow,
    LogFormat,
    PartitionRow,
    check_format,
    damaged,
    damaged_events,
    is_empty,
    make_log,
    no_log,
)
from leasehold.model import PartitionProperties

if TYPE_CHECKING:
    import pyarrow as pa

MOST_PARTITIONS = 1_024

_READ_BYTES = 16 << 20
_READ_BATCHES = 1_000
_REMOVED_BATCHES = 64
_VACUUMED_PAGES = 1_024

StoredRow = tuple[int, int, int, bytes | None]
"""First and last sequence number, enqueued time in microseconds, and the payload if it was asked for."""


class LogFile:
    """An existing log file. `timeout` is how long to wait, in seconds, while it is locked."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self.identity = ""
        self._format = LogFormat(path)
        self._file = _database(path, timeout, create=False, check=self._recognise)
        if not path.exists():
            raise HubUnavailable(no_log(path))
        with self.reading() as connection:
            self.identity = self._format.identity(connection)

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
            if not is_empty(connection):
                check_format(connection, path)

        file = _database(path, timeout, create=True, check=check)
        with _told(path), file.writing() as connection:
            if is_empty(connection):
                make_log(connection, now())
                partitions = partitions or otherwise
            if partitions is not None:
                _grow(connection, LogFormat(path), partitions)
        file.close()
        return cls(path, timeout)

    def grow(self, partitions: int) -> None:
        """Add empty partitions until there are this many. Raises `ConfigError` if there are more."""
        _check_partitions(partitions)
        with self.writing() as connection:
            _grow(connection, self._format, partitions)

    def properties(self) -> list[PartitionProperties]:
        """All partitions in order, as they are at one moment."""
        with self.reading() as connection:
            rows = self._format.partitions(connection)
        return [PartitionProperties(str(row.partition), row.begin, row.end) for row in rows]

    def first_since(self, partition: int, enqueued: int) -> int | None:
        """The first sequence number enqueued at or after a time in microseconds, if there is one."""
        query = (
            "SELECT first_sequence FROM batches WHERE partition = ? AND enqueued >= ? "
            "ORDER BY enqueued, first_sequence LIMIT 1"
        )
        with self.reading() as connection:
            place = self._partition(connection, partition)
            found = connection.execute(query, (partition, enqueued)).fetchone()
            # The index is not what a checksum is of: the rows around the place say whether it is right.
            first = place.end if found is None or type(found[0]) is not int else found[0]
            row = self._batch_before(connection, partition, first)
            before = self._batch_before(connection, partition, first - 1)
        if found is None:
            whole = place.begin == place.end or place.last_enqueued < enqueued
        else:
            whole = row is not None and row.first == first and row.enqueued >= enqueued
        if not whole or (before is not None and before.enqueued >= enqueued):
            raise damaged(self.path, f"the times of partition {partition} are damaged")
        return None if found is None else first

    def enqueued_from(self, starts: Mapping[int, int]) -> dict[int, int]:
        """By partition, the time in microseconds of its first event at or after a sequence number, if there is one."""
        # Through the index: the batch that the number lies in, or the one after it.
        query = (
            f"SELECT {self._format.batch_columns} FROM batches WHERE partition = :partition "
            "AND last_sequence >= :start AND first_sequence >= (SELECT coalesce(max(first_sequence), 0) FROM batches "
            "WHERE partition = :partition AND first_sequence <= :start) ORDER BY first_sequence LIMIT 1"
        )
        with self.reading() as connection:
            asked = (
                (number, connection.execute(query, {"partition": number, "start": start}).fetchone())
                for number, start in starts.items()
            )
            return {number: self._format.batch(row).enqueued for number, row in asked if row is not None}

    def append(
        self, partition: str, payloads: Sequence[tuple[int, pa.Buffer]], now: Callable[[], float]
    ) -> tuple[int, int]:
        """Append payloads, each with the number of its events, as one transaction; return `[first, end)`.

        `now` gives the enqueued time in seconds. It is asked inside the transaction, so that times follow
        the order of sequence numbers.
        """
        with self.writing() as connection:
            return self.append_in(connection, partition, payloads, now)

    def append_in(
        self,
        connection: sqlite3.Connection,
        partition: str,
        payloads: Sequence[tuple[int, pa.Buffer]],
        now: Callable[[], float],
    ) -> tuple[int, int]:
        """As `append`, within a transaction of the caller's."""
        number = _number(partition)
        place = self._partition(connection, number, partition)
        end, enqueued = place.end, max(place.last_enqueued, round(now() * 1e6))
        for rows, payload in payloads:
            row = BatchRow(number, end, end + rows - 1, enqueued, zlib.crc32(payload))
            self._format.add_batch(connection, row, payload)
            end += rows
        if end > place.end:
            stored = place.stored_bytes + sum(payload.size for _, payload in payloads)
            self._format.set_partition(connection, PartitionRow(number, place.begin, end, enqueued, stored))
        return place.end, end

    def stored(self, partition: int, start: int, end: int, *, with_payload: bool) -> Iterator[StoredRow]:
        """The stored batches that overlap `[start, end)`, in order.

        They are read about 16 MB at a time, and no transaction is open while the caller has one of them:
        a reader that pauses holds up nobody, and keeps the WAL from growing no longer than a chunk takes.
        """
        # `max` finds, through the index, the batch that `start` lies in; retention may have removed it.
        query = f"""
            SELECT {self._format.batch_columns}, {"payload" if with_payload else "NULL"} FROM batches
            WHERE partition = :partition AND first_sequence < :end AND last_sequence >= :start
                AND first_sequence >= (
                    SELECT coalesce(max(first_sequence), 0) FROM batches
                    WHERE partition = :partition AND first_sequence <= :start)
            ORDER BY first_sequence LIMIT {_READ_BATCHES}
        """
        while start < end:
            rows, start, damage = self._chunk(query, partition, start, end)
            rows.reverse()
            while rows:
                row, payload = rows.pop()
                if with_payload:
                    self._check(row, payload)
                yield row.first, row.last, row.enqueued, payload
            if damage is not None:
                raise damage
            if start < 0:
                return

    def _chunk(
        self, query: str, partition: int, start: int, end: int
    ) -> tuple[list[tuple[BatchRow, bytes | None]], int, HubError | None]:
        """Rows from `start` on, where the next chunk begins (-1 after the last one), and what is wrong behind them."""
        found: list[tuple[BatchRow, bytes | None]] = []
        size = 0
        try:
            with self.reading() as connection:
                place = self._partition(connection, partition)
                start, end = max(start, place.begin), min(end, place.end)
                if start >= end:
                    return [], -1, None
                for values in connection.execute(query, {"partition": partition, "start": start, "end": end}):
                    row = self._format.batch(values)
                    if not row.first <= start <= row.last or (found and row.first < start):
                        return found, start, self._missing(partition, start, row.first)
                    found.append((row, values[-1]))
                    start = row.last + 1
                    size += len(values[-1] or b"")
                    if size >= _READ_BYTES:
                        return found, start, None
        except HubUnavailable:
            raise
        except HubError as error:  # what was found before it is whole
            if error.__cause__ is None:
                return found, start, error
            what = f"events from {start} on of partition {partition} cannot be read ({error.__cause__})"
            return found, start, damaged(self.path, what)
        if len(found) < _READ_BATCHES and start < end:
            return found, start, self._missing(partition, start, end)
        return found, start, None

    def remove_older(self, enqueued: int) -> int:
        """Remove all batches from before a time in microseconds, some at a time; return how many events."""
        # Partition by partition: their producers' clocks differ, so that no order by time holds across them.
        query = (
            f"SELECT {self._format.of_batches('b')}, b.batch, length(b.payload) "
            "FROM partitions AS p CROSS JOIN batches AS b ON b.partition = p.partition "
            "WHERE b.enqueued < ? ORDER BY p.partition, b.enqueued, b.first_sequence LIMIT ?"
        )
        return self._remove(lambda connection: connection.execute(query, (enqueued, _REMOVED_BATCHES)).fetchall())

    def remove_beyond(self, stored_bytes: int) -> int:
        """Remove the oldest batches until payloads take up at most so much; return how many events."""
        query = f"SELECT {self._format.batch_columns}, batch, length(payload) FROM batches ORDER BY batch LIMIT ?"

        def oldest(connection: sqlite3.Connection) -> list[tuple[int, ...]]:
            total = sum(place.stored_bytes for place in self._format.partitions(connection))
            found = []
            for row in connection.execute(query, (_REMOVED_BATCHES,)):
                if total <= stored_bytes:
                    break
                found.append(row)
                total -= row[-1]
            return found

        return self._remove(oldest)

    def give_space_back(self) -> None:
        """Return free pages to the file system, in steps; the file gets smaller once no reader needs them."""
        while self._has_free_pages():
            with self.writing(durable=False) as connection:
                connection.execute(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})").fetchall()
        self._file.checkpoint()

    def close(self) -> None:
        """Close this thread's connection."""
        self._file.close()

    def _has_free_pages(self) -> bool:
        with self.reading() as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        return bool(free)

    def _remove(self, oldest: Callable[[sqlite3.Connection], list[tuple[int, ...]]]) -> int:
        removed = 0
        while True:
            with self.writing() as connection:
                batches = oldest(connection)
                for *values, batch, size in batches:
                    row = self._format.batch(values)
                    place = self._partition(connection, row.partition)
                    if row.first != place.begin:
                        raise self._missing(row.partition, place.begin, row.first)
                    connection.execute("DELETE FROM batches WHERE batch = ?", (batch,))
                    shorter = place._replace(begin=row.last + 1, stored_bytes=place.stored_bytes - size)
                    self._format.set_partition(connection, shorter)
                    removed += row.last + 1 - row.first
            if not batches:
                return removed

    def _partition(self, connection: sqlite3.Connection, number: int, name: str = "") -> PartitionRow:
        """The row of a partition. `name` is the partition as it was named; one that is not there is an error."""
        query = f"SELECT {self._format.partition_columns} FROM partitions WHERE partition = ?"
        values = connection.execute(query, (number,)).fetchone()
        if values is None:
            count = self._format.count(connection)
            if 0 <= number < count:
                raise damaged(self.path, f"the row of partition {number} is missing")
            raise no_partition(name or str(number), count)
        return self._format.partition(values)

    def _batch_before(self, connection: sqlite3.Connection, partition: int, first: int) -> BatchRow | None:
        """The last stored batch of a partition that begins at `first` or before."""
        query = (
            f"SELECT {self._format.batch_columns} FROM batches WHERE partition = ? AND first_sequence <= ? "
            "ORDER BY first_sequence DESC LIMIT 1"
        )
        values = connection.execute(query, (partition, first)).fetchone()
        return None if values is None else self._format.batch(values)

    def _check(self, row: BatchRow, payload: object) -> None:
        if not isinstance(payload, bytes) or zlib.crc32(payload) != row.payload_checksum:
            raise damaged_events(self.path, row.partition, row.first, row.last + 1, "are damaged")

    def _missing(self, partition: int, start: int, end: int) -> HubError:
        return damaged_events(self.path, partition, start, end, "are missing")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A view of the file at one moment."""
        with _told(self.path), self._file.reading() as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with _told(self.path), self._file.writing(durable=durable) as connection:
            yield connection

    def _recognise(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not the log which this object was opened on."""
        if is_empty(connection):
            raise HubUnavailable(no_log(self.path))
        check_format(connection, self.path)
        if self.identity and (found := self._format.identity(connection)) != self.identity:
            raise HubError(
                f"{self.path} was replaced by another log: it is {found} now and was {self.identity}. Open it "
                "again; consumer groups start without checkpoints on the new one",
                verdict=Verdict.RESTART,
            )


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What SQLite says of tables that were sound when they were made, in the hub's words."""
    try:
        yield
    except HubUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, sqlite3.OperationalError) and primary_code(cause) == sqlite3.SQLITE_ERROR:
            raise damaged(path, f"SQLite says: {cause}") from cause
        raise
    except sqlite3.DatabaseError as error:
        raise damaged(path, f"SQLite says: {error}") from error


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
        pragmas=PRAGMAS,
        check=check,
    )


def _grow(connection: sqlite3.Connection, form: LogFormat, partitions: int) -> None:
    count = form.count(connection)
    if partitions < count:
        raise ConfigError(
            "partitions", partitions, f"the log has {count}, and partitions are never removed", f"Use {count} or more"
        )
    form.add_partitions(connection, partitions)


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise ConfigError("partitions", partitions, f"a log has 1 to {MOST_PARTITIONS:,} partitions", "Choose another")


def _number(partition: str) -> int:
    """The number of a partition, and -1, which no partition has, for a text that no partition is written as."""
    return int(partition) if re.fullmatch(r"0|[1-9][0-9]{0,8}", partition) else -1
