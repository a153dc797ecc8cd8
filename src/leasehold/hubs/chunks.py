"""How the plain processor reads a hub: in chunks, whatever form the hub has its events in.

Owns what a chunk is, and the chunk that is an Arrow batch, which every hub can give. Needs pyarrow only for what has
been read. Use from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.model import Event

if TYPE_CHECKING:
    import pyarrow as pa


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


ReadChunks = Callable[..., Iterator[EventChunk]]
"""`Hub.read_chunks`, or what reads so in its place."""


class ArrowChunk:
    """A batch with all of `EVENT_COLUMNS` as an `EventChunk`.

    What its events are made from is taken out of Arrow at the first look at one, for all parts of the chunk at once: in
    parts of a hundred, each of ten calls of Arrow's would have the threads of all partitions wait for the interpreter.
    Threads that look at the same moment do it twice at worst.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._whole = _Whole(batch)
        self._start = 0

    @property
    def first(self) -> int:
        """See `EventChunk`."""
        return int(self.batch.column("sequenceNumber")[0].as_py())

    @property
    def last(self) -> int:
        """See `EventChunk`."""
        return int(self.batch.column("sequenceNumber")[-1].as_py())

    @property
    def last_offset(self) -> str | None:
        """See `EventChunk`."""
        offset: str | None = self.batch.column("offset")[-1].as_py()
        return offset

    @property
    def last_enqueued(self) -> float:
        """See `EventChunk`."""
        return (self.batch.column("enqueuedTime")[-1].value or 0) / 1e6

    @property
    def nbytes(self) -> int:
        """See `EventChunk`."""
        return int(self.batch.nbytes)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def part(self, start: int, stop: int) -> ArrowChunk:
        """See `EventChunk`."""
        part = ArrowChunk(self.batch.slice(start, stop - start))
        part._whole, part._start = self._whole, self._start + start
        return part

    def events(self) -> list[Event]:
        """See `EventChunk`."""
        return self._whole.events(self._start, self._start + len(self))

    def arrow(self) -> pa.RecordBatch:
        """See `EventChunk`."""
        return self.batch


class _Whole:
    """The batch that parts are of, and what its events are made from once that was asked for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._values: tuple[list[Any] | None, ...] | None = None

    def events(self, start: int, stop: int) -> list[Event]:
        from leasehold.hubs.arrow_events import events_from, field_values

        if self._values is None:
            self._values = field_values(self._batch)
        these = slice(start, stop)
        return events_from(stop - start, *(values and values[these] for values in self._values))


def as_chunks(read: Callable[..., Iterator[pa.RecordBatch]]) -> ReadChunks:
    """A `Hub.read` that gives chunks."""
    return lambda *place, **options: map(ArrowChunk, read(*place, **options))
