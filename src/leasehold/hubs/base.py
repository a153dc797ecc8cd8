"""What a hub promises: a partitioned, ordered, append-only stream of events.

Within a partition events carry rising sequence numbers and are read in that order; a range is half-open,
`[start, end)`. Reading is exact: the same range gives the same events, however often and wherever it is
read. Every method may raise `HubUnavailable`.

A hub extends `Hub`. Its abstract methods are what every hub does. The others have a default, which says what a hub
does without that ability; a hub overrides those that it can do better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.errors import HubError, Verdict
from leasehold.hubs.chunks import ArrowChunk, EventChunk
from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EVENT_COLUMNS", "FirstEvent", "HeldBack", "Hub"]

EVENT_COLUMNS = (
    "body",
    "partition",
    "offset",
    "sequenceNumber",
    "enqueuedTime",
    "publisher",
    "partitionKey",
    "properties",
    "systemProperties",
    "hub",
)
"""The columns of an event as every hub reads it, in order. The Spark source adds `ownerLevel`."""


@dataclass(frozen=True, slots=True)
class FirstEvent:
    """What comes first from a place on: no event has a number below `sequence_number` there.

    `enqueued`: when the event with that number was enqueued, in seconds since the epoch; None where the hub has no
    event there (yet), or does not know.
    """

    sequence_number: int
    enqueued: float | None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What is written behind a partition's end, and may be read only when a transaction of another client has ended.

    `count` numbers are taken; the first of them was enqueued at `since`, in seconds since the epoch, if that is known.
    """

    count: int
    since: float | None


class Hub(ABC):
    """One partitioned event stream."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that opens this hub, without secrets."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Names the stream for good: two paths to one stream agree, and a stream made anew differs."""

    @abstractmethod
    def consumer_group(self, name: str) -> ConsumerGroup:
        """The key under which stores keep the records of the group `name` of this hub."""

    @abstractmethod
    def partition_ids(self) -> tuple[str, ...]:
        """All partitions there are now. The list may grow and never shrinks."""

    @abstractmethod
    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        """Begin and end of the given partitions, or of all."""

    @abstractmethod
    def resolve(self, partition: str, position: EventPosition) -> int:
        """The sequence number that `position` stands for: that of the first event to read.

        `earliest` gives the begin and `latest` the end. A sequence number stands for itself; one above the
        end raises `ConfigError`. An enqueued time gives the first event at or after it, or the end; an offset the
        event that has it, or the first one behind it that is left. A position that is not inclusive gives the first
        event behind that place. `committed` is not the hub's to resolve and raises `ValueError`.
        """

    @abstractmethod
    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """The events `[start, end)` of a partition, in order, as Arrow batches of at most `batch_rows` rows.

        Columns come in the order asked for, from `EVENT_COLUMNS`. Events that retention has removed are not
        there: the caller compares with `partition_properties` first where that matters. No batch reaches across events
        that are removed while it is read: they are missing between two batches, where the caller sees it.
        """

    @abstractmethod
    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        """Append events durably and return how many.

        All go to `partition` if given; else an event with a partition key goes where its key's hash says,
        and one without follows in turn. Where OpenTelemetry records a span around the call, events that carry no trace
        context get that span's (`leasehold.hubs.trace_context`).
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what this object holds. Closing twice is fine."""

    # What a hub may do beside

    def read_chunks(self, partition: str, start: int, end: int, *, batch_rows: int = 10_000) -> Iterator[EventChunk]:
        """As `read` of all columns, and whether the events become objects or Arrow is left open.

        For the plain processor, where the hub's own form is neither. Not asked for a group in which the hub is read as
        owner. Without an override the events are read as Arrow, and objects are made from that.
        """
        return map(ArrowChunk, self.read(partition, start, end, batch_rows=batch_rows))

    def read_sample(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """As `read`, made for few events: none of the next range is fetched ahead.

        For a reader that looks at what events are like before it reads them. Without an override it is `read`, which
        does for a hub that fetches nothing ahead.
        """
        return self.read(partition, start, end, columns=columns, batch_rows=max(1, end - start))

    def one_reader_per_partition(self, group_name: str) -> bool:
        """Whether readers for this consumer group are to say their owner level: then a partition has one at a time.

        Without an override any number of readers read a partition, and `read_as_owner` is not asked.
        """
        return False

    def read_as_owner(
        self,
        partition: str,
        start: int,
        end: int,
        owner_level: int,
        *,
        columns: Sequence[str] = EVENT_COLUMNS,
        batch_rows: int = 10_000,
    ) -> Iterator[pa.RecordBatch]:
        """As `read`; any other reader of the partition at this level or below is disconnected.

        Raises `ReaderDisconnected` as soon as that happens to this read, also in the middle of it: the batches given
        before reach to the error's `position`. Without an override it raises `HubError`.
        """
        raise HubError(
            f"{self.url}: partition {partition} was to be read as owner at level {owner_level}, and this hub keeps no "
            "other reader out. Use read, or a hub that overrides read_as_owner",
            verdict=Verdict.RESTART,
        )

    def attach(self, group_name: str, places: Mapping[str, int], timeout: float) -> None:
        """Attach to partitions as their owner, by the sequence number that comes next, and stay.

        For an owner that has just claimed, before it reads the checkpoint: from then on their former owner receives
        nothing more, and what it has recorded by then is where to begin. Takes at most `timeout` seconds; what could
        not be attached to by then is attached to by the next read. Does nothing where owners need not be shut out so,
        and without an override.
        """

    def stay(self, partition: str) -> None:
        """Keep the receiver of a partition until `detach`, events or none. Without it, it is closed after a while.

        Without an override the hub has no receivers, and this does nothing.
        """

    def detach(self, partition: str) -> None:
        """The work on a partition has ended here: its receiver is closed. Waits for nothing.

        Without an override the hub has no receivers, and this does nothing.
        """

    def offset_of(self, partition: str, sequence_number: int) -> str | None:
        """The hub's own opaque text for the event with this number, as checkpoints keep it for other readers.

        None where it is not known without asking, or there is none; without an override always. Never a guess: other
        SDKs' processors go on after a checkpoint's offset, whatever its sequence number says.
        """
        return None

    def learn_offsets(self, places: Mapping[str, int]) -> None:
        """Ask the service what `offset_of` does not know of these events, a sequence number for each partition.

        For a partition's owner, before its checkpoint, between two reads. It does so only where others go by offsets,
        since it costs a connection an event, and takes as long as one. What cannot be learned stays unknown; without
        an override all of it.
        """

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        """By partition, when the first event at or after its sequence number was enqueued: seconds since the epoch.

        By the clock that the column `enqueuedTime` goes by. All partitions are asked about at once, each with a few
        requests at most, whatever the number of events. Without those that have no such event, or are not known:
        without an override without all.

        Does not raise for a fault of the hub, or wait much longer than `timeout` seconds: what could not be found out
        by then, for whatever reason, is not known. Disturbs no reader. So do `first_events`, `held_back` and
        `retention`.
        """
        return {}

    def retention(self, timeout: float) -> float | None:
        """For how many seconds an event is kept at least; infinity where none is removed by its age.

        None where that is not known, and without an override. Limits by size are not told: they may remove an event
        earlier.
        """
        return None

    @property
    def has_gaps(self) -> bool:
        """Whether numbers below the end may have no event, and those behind it may wait for a transaction to end.

        Then `first_events` and `held_back` tell what there is. Without an override there are no gaps.
        """
        return False

    def first_events(self, starts: Mapping[str, int], timeout: float) -> dict[str, FirstEvent]:
        """By partition, the first event at or after its sequence number. What could not be found out is left out.

        Without an override each number has its event, and `enqueued_times` says when it came.
        """
        times = self.enqueued_times(starts, timeout)
        return {partition: FirstEvent(starts[partition], enqueued) for partition, enqueued in times.items()}

    def held_back(self, partitions: Sequence[str], timeout: float) -> dict[str, HeldBack]:
        """What readers do not get to see yet, of those partitions where there is such a thing.

        What could not be found out is left out; without an override all of it.
        """
        return {}

    def send_once(self, source: str, events: Sequence[tuple[str, Event]], *, remember: float) -> int:
        """Append durably those events whose names `source` has not brought before, all or none; return how many.

        Events without a key go to one partition. A name is remembered for at least `remember` seconds. Without an
        override the hub remembers no names, and this is `send`: what a source brings again is there again.
        """
        return self.send(event for _, event in events)

    def mirror(self, group_name: str, next_sequence_numbers: Mapping[str, int]) -> None:
        """Note in the service's own bookkeeping, for its own tools, that the group goes on from these sequence numbers.

        By partition, soon and if possible, after a checkpoint was written. Leasehold never reads the copy: checkpoints
        are the authority. Never waits for the service and never raises for its faults. Does nothing where the hub was
        not told to do so, and without an override.
        """
