"""From stored batches to the record batches of `Hub.read`.

Owns the joining of stored batches that are small, the cutting of large ones and the columns that are not
stored but follow from the place. Promises that nothing is done per row in Python, that a column which was
not asked for costs nothing, and that every batch given is one unbroken run of sequence numbers. Pure: no
I/O; an object serves one read, in one thread at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import HubError
from leasehold.hubs.arrow import event_schema

_LARGEST_BATCH = 64 << 20


class StoredBatch(NamedTuple):
    """Events `[first, first + rows)`; `events` is `None` when nothing of what is stored was asked for.

    `size` is that of the payload they are from, also after a cut: it bounds the memory of a batch.
    """

    first: int
    rows: int
    enqueued: int
    size: int
    events: pa.RecordBatch | None

    def cut(self, start: int, end: int) -> StoredBatch:
        """The part of it that lies in `[start, end)`; it has no rows if none does."""
        first, stop = max(self.first, start), min(self.first + self.rows, end)
        rows = max(0, stop - first)
        if rows == self.rows:
            return self
        events = self.events.slice(first - self.first, rows) if self.events is not None else None
        return StoredBatch(first, rows, self.enqueued, self.size, events)


class EventBatches:
    """Builds record batches of the given columns for one partition."""

    def __init__(self, columns: Sequence[str], partition: str, hub: str) -> None:
        self._schema = event_schema(columns)
        self._fixed = {"partition": partition, "hub": hub, "systemProperties": [], "properties": []}
        self._repeated: dict[str, pa.Array] = {}
        makers: Mapping[str, Callable[[Sequence[StoredBatch], int], pa.Array]] = {
            "sequenceNumber": _sequence_numbers,
            "offset": lambda run, rows: _sequence_numbers(run, rows).cast(pa.string()),
            "enqueuedTime": self._enqueued_times,
            "partition": lambda _, rows: self._constant("partition", rows),
            "hub": lambda _, rows: self._constant("hub", rows),
            "systemProperties": lambda _, rows: self._constant("systemProperties", rows),
        }
        self._makers = [makers.get(column) or self._from_storage(column) for column in columns]

    def joined(self, stored: Iterable[StoredBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Batches of `batch_rows` rows, fewer at the end, before a gap or an error, and where bodies are very large."""
        run: list[StoredBatch] = []
        rows = size = 0
        pieces, damage = iter(stored), None
        while True:
            try:
                piece = next(pieces)
            except StopIteration:
                break
            except HubError as error:  # what came before it is given first
                damage = error
                break
            if run and (run[-1].first + run[-1].rows != piece.first or size > _LARGEST_BATCH):
                yield self._batch(run, rows)
                run, rows, size = [], 0, 0
            start, end = piece.first, piece.first + piece.rows
            while rows + end - start >= batch_rows:
                cut = start + batch_rows - rows
                run.append(piece.cut(start, cut))
                yield self._batch(run, batch_rows)
                run, rows, size, start = [], 0, 0, cut
            if start < end:
                rest = piece.cut(start, end)
                run.append(rest)
                rows += rest.rows
                size += rest.size
        if run:
            yield self._batch(run, rows)
        if damage is not None:
            raise damage

    def _batch(self, run: Sequence[StoredBatch], rows: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([make(run, rows) for make in self._makers], schema=self._schema)

    def _from_storage(self, column: str) -> Callable[[Sequence[StoredBatch], int], pa.Array]:
        def make(run: Sequence[StoredBatch], rows: int) -> pa.Array:
            parts = [self._part(column, piece) for piece in run]
            return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

        return make

    def _part(self, column: str, piece: StoredBatch) -> pa.Array:
        events = piece.events
        index = -1 if events is None else events.schema.get_field_index(column)
        return events.column(index) if events is not None and index >= 0 else self._constant(column, piece.rows)

    def _constant(self, column: str, rows: int) -> pa.Array:
        """A column of one value, made once and sliced from then on."""
        made = self._repeated.get(column)
        if made is None or len(made) < rows:
            made = pa.repeat(pa.scalar(self._fixed.get(column), event_schema([column]).field(0).type), rows)
            self._repeated[column] = made
        return made if len(made) == rows else made.slice(0, rows)

    def _enqueued_times(self, run: Sequence[StoredBatch], rows: int) -> pa.Array:
        kind = self._schema.field("enqueuedTime").type
        if run[0].enqueued == run[-1].enqueued:  # they never go back, so that all between are the same
            return pa.repeat(pa.scalar(run[0].enqueued, kind), rows)
        return pa.concat_arrays([pa.repeat(pa.scalar(piece.enqueued, kind), piece.rows) for piece in run])


_counted = pa.nulls(0, pa.int64())  # not pa.array, which imports pandas: every command would wait for it


def _sequence_numbers(run: Sequence[StoredBatch], rows: int) -> pa.Array:
    global _counted  # grows to the largest batch of the process; two threads at worst make it twice
    counted = _counted
    if len(counted) < rows:
        _counted = counted = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(array("q", range(rows)))])
    return pc.add(counted.slice(0, rows), run[0].first)
