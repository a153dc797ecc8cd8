"""How the plain processor reads a hub: in chunks, whatever form the hub has its events in.

Owns the chunk that is an Arrow batch, which every hub can give. Needs pyarrow only for what has been read. Use from
any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.hubs.base import EventChunk, Hub, ReadsChunks
from leasehold.model import Event

if TYPE_CHECKING:
    import pyarrow as pa

ReadChunks = Callable[..., Iterator[EventChunk]]


@dataclass(frozen=True, slots=True)
class ArrowChunk:
    """A batch with all of `EVENT_COLUMNS` as an `EventChunk`."""

    batch: pa.RecordBatch

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

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def part(self, start: int, stop: int) -> ArrowChunk:
        """See `EventChunk`."""
        return ArrowChunk(self.batch.slice(start, stop - start))

    def events(self) -> list[Event]:
        """See `EventChunk`."""
        from leasehold.hubs.arrow_events import events_of

        return events_of(self.batch)

    def arrow(self) -> pa.RecordBatch:
        """See `EventChunk`."""
        return self.batch


def chunk_reads(hub: Hub) -> ReadChunks:
    """`ReadsChunks.read_chunks`: the hub's own, or made of its `read`."""
    return hub.read_chunks if isinstance(hub, ReadsChunks) else as_chunks(hub.read)


def as_chunks(read: Callable[..., Iterator[pa.RecordBatch]]) -> ReadChunks:
    """A `Hub.read` that gives chunks."""
    return lambda *place, **options: map(ArrowChunk, read(*place, **options))
