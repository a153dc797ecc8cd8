"""What a hub promises: a partitioned, ordered, append-only stream of events.

Within a partition events carry rising sequence numbers and are read in that order; a range is half-open,
`[start, end)`. Reading is exact: the same range gives the same events, however often and wherever it is
read. Every method may raise `HubUnavailable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "EVENT_COLUMNS",
    "EventChunk",
    "FirstEvent",
    "HasGaps",
    "HeldBack",
    "Hub",
    "KeepsReceivers",
    "KnowsOffsets",
    "ProgressMirror",
    "ReadsAsOwner",
    "ReadsChunks",
    "ReadsSamples",
    "SendsOnce",
    "TellsTimes",
]

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


class Hub(Protocol):
    """One partitioned event stream."""

    @property
    def url(self) -> str:
        """The URL that opens this hub, without secrets."""
        ...

    @property
    def identity(self) -> str:
        """Names the stream for good: two paths to one stream agree, and a stream made anew differs."""
        ...

    def consumer_group(self, name: str) -> ConsumerGroup:
        """The key under which stores keep the records of the group `name` of this hub."""
        ...

    def partition_ids(self) -> tuple[str, ...]:
        """All partitions there are now. The list may grow and never shrinks."""
        ...

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        """Begin and end of the given partitions, or of all."""
        ...

    def resolve(self, partition: str, position: EventPosition) -> int:
        """The sequence number that `position` stands for: that of the first event to read.

        `earliest` gives the begin and `latest` the end. A sequence number stands for itself; one above the
        end raises `ConfigError`. An enqueued time gives the first event at or after it, or the end; an offset the
        event that has it, or the first one behind it that is left. A position that is not inclusive gives the first
        event behind that place. `committed` is not the hub's to resolve and raises `ValueError`.
        """
        ...

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """The events `[start, end)` of a partition, in order, as Arrow batches of at most `batch_rows` rows.

        Columns come in the order asked for, from `EVENT_COLUMNS`. Events that retention has removed are not
        there: the caller compares with `partition_properties` first where that matters. No batch reaches across events
        that are removed while it is read: they are missing between two batches, where the caller sees it.
        """
        ...

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        """Append events durably and return how many.

        All go to `partition` if given; else an event with a partition key goes where its key's hash says,
        and one without follows in turn. Where OpenTelemetry records a span around the call, events that carry no trace
        context get that span's (`leasehold.hubs.trace_context`).
        """
        ...

    def close(self) -> None:
        """Give back what this object holds. Closing twice is fine."""
        ...


class EventChunk(Protocol):
    """Some events of one partition in order, at least one, in the form in which the hub has them. It never changes."""

    @property
    def first(self) -> int:
        """The sequence number of the first event."""
        ...

    @property
    def last(self) -> int:
        """The sequence number of the last event."""
        ...

    @property
    def last_offset(self) -> str | None:
        """The hub's offset of the last event, where it has one."""
        ...

    @property
    def last_enqueued(self) -> float:
        """When the hub received the last event, in seconds since 1970; 0 where it does not say."""
        ...

    @property
    def nbytes(self) -> int:
        """About how many bytes the events are."""
        ...

    def __len__(self) -> int:
        """How many events these are."""
        ...

    def part(self, start: int, stop: int) -> EventChunk:
        """The events from the one at index `start` up to that at `stop`."""
        ...

    def events(self) -> list[Event]:
        """The events as objects, made anew at each call."""
        ...

    def arrow(self) -> pa.RecordBatch:
        """The events with all of `EVENT_COLUMNS`, as `Hub.read` gives them."""
        ...


@runtime_checkable
class ReadsChunks(Protocol):
    """What a hub may do beside: leave it open whether its events become objects or Arrow.

    Not asked of a hub for a group in which it is read as owner (`ReadsAsOwner`).

    For the plain processor, where the hub's own form is neither. A hub without it is read as Arrow, and objects are
    made from that.
    """

    def read_chunks(self, partition: str, start: int, end: int, *, batch_rows: int = 10_000) -> Iterator[EventChunk]:
        """As `Hub.read` of all columns."""
        ...


@runtime_checkable
class ReadsSamples(Protocol):
    """What a hub may do beside: read a few events here and there, and fetch hardly more than those.

    For a reader that looks at what events are like before it reads them. A hub whose `read` fetches nothing ahead
    does without.
    """

    def read_sample(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """As `Hub.read`. Made for few events, and none of the next range is fetched ahead."""
        ...


@runtime_checkable
class KnowsOffsets(Protocol):
    """What a hub may do beside: name a place by the hub's own opaque text, as checkpoints keep it for other readers."""

    def offset_of(self, partition: str, sequence_number: int) -> str | None:
        """The offset of the event with this number, None where it is not known without asking, or there is none.

        Never a guess: other SDKs' processors go on after a checkpoint's offset, whatever its sequence number says.
        """
        ...

    def learn_offsets(self, places: Mapping[str, int]) -> None:
        """Ask the service what `offset_of` does not know of these events, a sequence number for each partition.

        For a partition's owner, before its checkpoint, between two reads. It does so only where others go by offsets,
        since it costs a connection an event, and takes as long as one. What cannot be learned stays unknown.
        """
        ...


@runtime_checkable
class ReadsAsOwner(Protocol):
    """What a hub may do beside: let only the reader with the highest owner level read a partition."""

    def one_reader_per_partition(self, group_name: str) -> bool:
        """Whether readers for this consumer group are to say their owner level: then a partition has one at a time."""
        ...

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
        """As `Hub.read`; any other reader of the partition at this level or below is disconnected.

        Raises `ReaderDisconnected` as soon as that happens to this read, also in the middle of it: the batches given
        before reach to the error's `position`.
        """
        ...


@runtime_checkable
class KeepsReceivers(Protocol):
    """What a hub may do beside: keep a partition's receiver between two reads, for as long as its work lasts."""

    def attach(self, group_name: str, places: Mapping[str, int], timeout: float) -> None:
        """Attach to partitions as their owner, by the sequence number that comes next, and stay.

        For an owner that has just claimed, before it reads the checkpoint: from then on their former owner receives
        nothing more, and what it has recorded by then is where to begin. Takes at most `timeout` seconds; what could
        not be attached to by then is attached to by the next read. Does nothing where owners need not be shut out so.
        """
        ...

    def stay(self, partition: str) -> None:
        """Keep the receiver of a partition until `detach`, events or none. Without it, it is closed after a while."""
        ...

    def detach(self, partition: str) -> None:
        """The work on a partition has ended here: its receiver is closed. Waits for nothing."""
        ...


@runtime_checkable
class TellsTimes(Protocol):
    """What a hub may do beside: say when events came and for how long they are kept, to a caller that only looks.

    Neither method raises for a fault of the hub, or waits much longer than `timeout` seconds: what could not be found
    out by then, for whatever reason, is not known. Neither disturbs a reader.
    """

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        """By partition, when the first event at or after its sequence number was enqueued: seconds since the epoch.

        By the clock that the column `enqueuedTime` goes by. All partitions are asked about at once, each with a few
        requests at most, whatever the number of events. Without those that have no such event, or are not known.
        """
        ...

    def retention(self, timeout: float) -> float | None:
        """For how many seconds an event is kept at least; infinity where none is removed by its age. None: not known.

        Limits by size are not told: they may remove an event earlier.
        """
        ...


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


@runtime_checkable
class HasGaps(Protocol):
    """What a hub may do beside, where numbers below the end may have no event: tell what there is, without reading.

    Neither method raises for a fault of the hub, or waits much longer than `timeout` seconds: what could not be found
    out by then is left out. Neither disturbs a reader.
    """

    def first_events(self, starts: Mapping[str, int], timeout: float) -> dict[str, FirstEvent]:
        """By partition, the first event at or after its sequence number. In place of `TellsTimes.enqueued_times`."""
        ...

    def held_back(self, partitions: Sequence[str], timeout: float) -> dict[str, HeldBack]:
        """What readers do not get to see yet, of those partitions where there is such a thing."""
        ...


@runtime_checkable
class SendsOnce(Protocol):
    """What a hub may do beside: append what a source brings again only once."""

    def send_once(self, source: str, events: Sequence[tuple[str, Event]], *, remember: float) -> int:
        """Append durably those events whose names `source` has not brought before, all or none; return how many.

        Events without a key go to one partition. A name is remembered for at least `remember` seconds.
        """
        ...


def offset_of(hub: Hub, partition: str, sequence_number: int) -> str | None:
    """What `hub` calls this place, None where it does not say."""
    return hub.offset_of(partition, sequence_number) if isinstance(hub, KnowsOffsets) else None


def learn_offsets(hub: Hub, places: Mapping[str, int]) -> None:
    """Let `hub` find out what it calls these places, if others go by that."""
    if isinstance(hub, KnowsOffsets):
        hub.learn_offsets(places)


def owner_reads(hub: Hub, group_name: str) -> ReadsAsOwner | None:
    """The hub, if its readers for this group are to say their owner level."""
    return hub if isinstance(hub, ReadsAsOwner) and hub.one_reader_per_partition(group_name) else None


@runtime_checkable
class ProgressMirror(Protocol):
    """What a hub may do beside: show a group's progress in the service's own bookkeeping, for its own tools.

    The partition manager asks with `isinstance` and calls it after a checkpoint was written. The copy is
    never read by Leasehold: checkpoints are the authority.
    """

    def mirror(self, group_name: str, next_sequence_numbers: Mapping[str, int]) -> None:
        """Note, soon and if possible, that the group goes on from these sequence numbers, by partition.

        Never waits for the service and never raises for its faults. Without effect where the hub was not told
        to do so.
        """
        ...
