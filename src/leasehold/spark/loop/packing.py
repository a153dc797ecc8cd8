"""The events of a task as a few binary values, so that the JVM hands on bytes, and makes no rows of them.

Owns their form: each value is an Arrow stream of about `CHUNK_BYTES` of events, compressed where Arrow here can, since
the JVM copies it several times. Promises the same events in the same order. A value is far below the 2 GB that one may
have, unless a single event is that large: a task reads no more than some megabytes at a time (`tasks.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import pyarrow as pa

SCHEMA = "packed binary"
CHUNK_BYTES = 16 * 2**20
"""About how many bytes of events go into one value."""


def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a task, in batches of one value each."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield _value(held)
            held, size = [], 0
    if held:
        yield _value(held)


def _value(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One value of these batches, put together: whatever is done to each chunk of each column is then done once."""
    table = pa.Table.from_batches(batches).combine_chunks()
    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
    with pa.ipc.new_stream(stream, table.schema, options=options) as writer:
        writer.write_table(table)
    content = stream.getvalue()
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])
    return pa.RecordBatch.from_arrays([value], names=["packed"])


def unpacked(values: pa.ChunkedArray) -> pa.Table | None:
    """The events in these values; None if there are none."""
    options = pa.ipc.IpcReadOptions(use_threads=False)  # waking them takes longer than most values do
    streams = [pa.ipc.open_stream(cast(pa.Scalar, value).as_buffer(), options=options) for value in values]
    return pa.concat_tables([stream.read_all() for stream in streams]) if streams else None
