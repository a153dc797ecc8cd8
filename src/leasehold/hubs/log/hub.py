"""The embedded log: a hub in one SQLite file, for the processes of one machine.

Owns the `log:` scheme and what the log adds to a hub: Arrow in, partitioning, growth and retention; the
tables are `file.py`'s. A batch that is appended is one transaction: one row (more for a very large batch)
that holds an Arrow IPC payload. Promises that sequence numbers start at 0 in each partition and have no
gaps, that an append which returned is on disk, and that one which was interrupted left the whole batch or
nothing of it. Refuses to make a file unless asked with `LogHub.create`, and to remove partitions.

Enqueued times are the producer's wall clock in microseconds, and at least the last one of the partition:
they never go back, so that a start by time is one place. A clock that ran ahead pins them until it is
overtaken, and retention by age waits as long.

Concurrency: any number of processes and threads append and read at once. Appends take turns (SQLite has one
writer); a reader sees the batches committed before it looked, and holds no lock between the batches it
gives, however slowly they are consumed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from leasehold.backends import local_file_of
from leasehold.clock import Clock, SystemClock
from leasehold.config import check_number, check_seconds
from leasehold.errors import ConfigError, HubError
from leasehold.hubs.arrow import event_schema
from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.hubs.log.batches import EventBatches, StoredBatch
from leasehold.hubs.log.file import LogFile, StoredRow, no_partition
from leasehold.hubs.log.format import created, damaged_events
from leasehold.hubs.log.once import Prepared, append_once
from leasehold.hubs.log.partitioning import Keyless, assigned, split
from leasehold.hubs.log.payload import STORED_COLUMNS, STORED_ROWS, checked, decoded, from_events, payloads, pieces
from leasehold.hubs.resolving import resolved
from leasehold.hubs.trace_context import sent_in_span
from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties

__all__ = ["Keyless", "LogHub", "open_log_hub"]

NAMESPACE = "log"
DEFAULT_PARTITIONS = 4


def open_log_hub(url: str, base: Path) -> LogHub:
    """The log at `log:///PATH`, which must exist; a relative PATH is relative to `base`."""
    return LogHub(local_file_of(url, base, "hub"))


class LogHub(Hub):
    """A log file as a hub: all that `Hub` promises, and the making, growing and trimming of the log.

    `LogHub(path)` opens a log that exists; `LogHub.create(path)` makes one where there is none. `timeout`
    is how long to wait, in seconds, for a file that another process keeps locked. `clock` tells enqueued times.
    """

    def __init__(self, path: Path | str, *, clock: Clock | None = None, timeout: float = 3.0) -> None:
        self._file = LogFile(Path(path).absolute(), timeout)
        self._clock = clock or SystemClock()
        self._turn: int | None = None
        self._turn_lock = threading.Lock()

    @classmethod
    def create(
        cls, path: Path | str, *, partitions: int | None = None, clock: Clock | None = None, timeout: float = 3.0
    ) -> LogHub:
        """Make a log with this many partitions (4 if not said), or open the one that is there.

        A log that is there grows to `partitions`; asking for fewer than it has raises `ConfigError`.
        """
        now = (clock or SystemClock()).wall
        LogFile.create(Path(path).absolute(), timeout, partitions, DEFAULT_PARTITIONS, now).close()
        return cls(path, clock=clock, timeout=timeout)

    @property
    def url(self) -> str:
        """The URL of the file, absolute, so that it opens the same log from any folder."""
        return f"log:///{quote(str(self._file.path))}"

    @property
    def identity(self) -> str:
        """The UUID inside the file."""
        return self._file.identity

    @property
    def created(self) -> float:
        """When the log was made, in seconds since the epoch."""
        return created(self._file.identity)

    def consumer_group(self, name: str) -> ConsumerGroup:
        """The key of a group's records. It holds the UUID, so that a log made anew has none of the old one's."""
        return ConsumerGroup(NAMESPACE, self.identity, name)

    def partition_ids(self) -> tuple[str, ...]:
        """`"0"` to one less than the number of partitions."""
        return tuple(self.partition_properties())

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        """Begin and end of the given partitions, or of all, as they are at one moment."""
        found = {place.partition: place for place in self._file.properties()}
        for partition in partitions or ():
            if partition not in found:
                raise no_partition(partition, len(found))
        return found if partitions is None else {partition: found[partition] for partition in partitions}

    def resolve(self, partition: str, position: EventPosition) -> int:
        """The sequence number of the first event to read from `position`; see `Hub.resolve`."""
        place = self.partition_properties([partition])[partition]

        def since(time: float) -> int:
            first = self._file.first_since(int(partition), round(time * 1e6))
            return place.end if first is None else first

        return resolved(place, position, self.url, since)

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        """See `Hub.enqueued_times`. The file's own time-out bounds the wait."""
        with contextlib.suppress(HubError):
            found = self._file.enqueued_from({int(partition): start for partition, start in starts.items()})
            return {str(number): enqueued / 1e6 for number, enqueued in found.items()}
        return {}

    def retention(self, timeout: float) -> float | None:
        """Infinity: a log removes nothing by itself, only when somebody calls `retain`."""
        return math.inf

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """The events `[start, end)`, or those of them that there are; see `Hub.read`.

        What is asked is checked at once; the file is read as batches are taken.
        """
        event_schema(columns)
        check_number("batch_rows", batch_rows, least=1, remedy="Ask for larger batches")
        self.partition_properties([partition])
        with_payload = any(column in STORED_COLUMNS for column in columns)
        rows = self._file.stored(int(partition), start, end, with_payload=with_payload)
        return EventBatches(columns, partition, self.identity).joined(
            (self._stored(partition, row).cut(start, end) for row in rows), batch_rows
        )

    def append(self, batch: pa.RecordBatch | pa.Table, *, partition: str) -> range:
        """Append Arrow data to one partition as one transaction; return the sequence numbers it got.

        Columns: `body` (binary, required, no nulls), and if wanted `partitionKey` and `publisher` (string)
        and `properties` (map<string, string>). Raises `SchemaMismatch`.
        """
        encoded = list(payloads(checked(batch)))  # before the lock is taken: nobody waits for it
        return range(*self._file.append(partition, encoded, self._clock.wall))

    def send_table(
        self,
        table: pa.RecordBatch | pa.Table,
        *,
        partition: str | None = None,
        keyless: Keyless = Keyless.IN_TURN,
        appended: Callable[[int], object] = lambda count: None,
    ) -> int:
        """Append Arrow data durably and return how many events. Columns as for `append`.

        All go to `partition` if given; else an event with a partition key goes where its key's hash says,
        and one without where `keyless` says. Events of one key keep their order. Each partition gets one
        transaction for about 10,000 events; an error leaves appended what was before it. `appended` is called after
        each transaction with the number of its events. With several partitions these are not the first of the table.
        """
        events = checked(table)
        for place, part in self._parts(events, partition, keyless):
            appended(len(self.append(part, partition=place)))
        return int(events.num_rows)

    def send(self, events: Iterable[Event], *, partition: str | None = None, keyless: Keyless = Keyless.IN_TURN) -> int:
        """As `send_table`, for events: they are taken 10,000 at a time, one transaction for each partition."""
        remaining = iter(sent_in_span(events))
        sent = 0
        while chunk := list(itertools.islice(remaining, STORED_ROWS)):
            sent += self.send_table(from_events(chunk), partition=partition, keyless=keyless)
        return sent

    def send_once(self, source: str, events: Sequence[tuple[str, Event]], *, remember: float) -> int:
        """Append events under names that their source gives them, each name once; see `Hub.send_once`."""
        check_seconds("remember", remember, or_zero=True)

        def prepare(new: list[Event]) -> Prepared:
            table = checked(from_events(new))
            parts = split(table, self._assigned(table, len(self.partition_ids()), Keyless.ONE_PARTITION))
            return {str(number): list(payloads(part)) for number, part in parts}

        return append_once(self._file, source, events, prepare, self._clock.wall, remember)

    def grow(self, partitions: int) -> None:
        """Add partitions until there are this many; fewer than there are raises `ConfigError`.

        The hash of a key is taken modulo their number: most keys go to another partition from then on.
        """
        self._file.grow(partitions)

    def retain(self, *, max_age: float | None = None, max_bytes: int | None = None) -> int:
        """Remove the oldest events, give their space back to the file system, and return how many they were.

        Stored batches go as a whole: those older than `max_age` seconds, and the oldest of the log until
        payloads take up at most `max_bytes`. Begins follow; ends stay, also of a partition that is empty
        then. It works in short transactions: producers and readers go on in between.
        """
        for field, value in (("max_age", max_age), ("max_bytes", max_bytes)):
            if value is not None:
                check_number(field, value, least=0, rule="0 or more", remedy="Say how much to keep")
        if max_age is None and max_bytes is None:
            raise ConfigError("max_age", None, "neither max_age nor max_bytes is given", "Say how much to keep")
        removed = 0
        if max_age is not None:
            removed += self._file.remove_older(round((self._clock.wall() - max_age) * 1e6))
        if max_bytes is not None:
            removed += self._file.remove_beyond(max_bytes)
        self._file.give_space_back()
        return removed

    def close(self) -> None:
        """Close this thread's connection; those of other threads close when their threads have ended."""
        self._file.close()

    def _parts(self, events: pa.Table, partition: str | None, keyless: Keyless) -> Iterator[tuple[str, pa.Table]]:
        """What is appended in one transaction each, with its partition."""
        if partition is not None:
            yield from ((partition, part) for part in pieces(events, STORED_ROWS))
            return
        count = len(self.partition_ids())
        for chunk in pieces(events, STORED_ROWS * count):
            yield from ((str(number), part) for number, part in split(chunk, self._assigned(chunk, count, keyless)))

    def _assigned(self, table: pa.Table, count: int, keyless: Keyless) -> pa.Array:
        """The partition of each row, moving on the turn of events without a key."""
        has_keys = "partitionKey" in table.column_names
        keys = pa.concat_arrays(table.column("partitionKey").chunks) if has_keys else pa.nulls(len(table), pa.string())
        with self._turn_lock:
            if self._turn is None:
                # Go on where all producers together have come to: short-lived ones would all begin at 0.
                self._turn = sum(place.end for place in self.partition_properties().values())
            turn = self._turn
            self._turn += keys.null_count
        return assigned(keys, count, keyless, turn)

    def _stored(self, partition: str, row: StoredRow) -> StoredBatch:
        first, last, enqueued, payload = row
        rows = last + 1 - first
        if payload is None:
            return StoredBatch(first, rows, enqueued, 0, None)
        try:
            return StoredBatch(first, rows, enqueued, len(payload), decoded(payload, rows))
        except ValueError as error:
            how = f"cannot be taken from their payload ({error})"
            raise damaged_events(self._file.path, partition, first, last + 1, how) from error
