"""What is stored for one appended batch, and what may be appended.

Owns the check of Arrow input and the form of a payload: an Arrow IPC stream with one record batch of the
columns `body`, `partitionKey`, `publisher` and `properties`, of which those without any value are left
out. Promises that a payload holds at most `STORED_ROWS` events and, unless one event alone is larger, about
`STORED_BYTES` bytes. Payloads are written without compression: LZ4 makes JSON events three times smaller,
and halves the speed of appending and of reading. Pure; use from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import SchemaMismatch
from leasehold.hubs.arrow import TEXT_MAP, event_schema
from leasehold.model import Event

STORED_COLUMNS = ("body", "partitionKey", "publisher", "properties")
STORED_ROWS = 10_000
STORED_BYTES = 8 << 20
SENT_BYTES = 512 << 20
LARGEST_EVENT = 256 << 20
"""Arrow's columns and SQLite's blobs end between one and two gigabytes: this stays well below, also when joined."""

_SCHEMA = event_schema(STORED_COLUMNS)
_ALLOWED = (
    "body (binary, required, no nulls), partitionKey (string), publisher (string) and properties (map<string, string>)"
)


def checked(data: pa.RecordBatch | pa.Table) -> pa.Table:
    """`data` with the stored columns it has, in their exact types. Raises `SchemaMismatch`.

    Large, view and dictionary forms of a type are taken as well; missing properties become empty ones.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    names = table.column_names
    unknown = sorted(set(names) - set(STORED_COLUMNS))
    if unknown:
        raise SchemaMismatch(f"columns {', '.join(unknown)} are unknown to a log. It takes {_ALLOWED}")
    if "body" not in names or len(set(names)) < len(names):
        raise SchemaMismatch(f"the columns are {', '.join(names) or '(none)'}. A log takes, each once, {_ALLOWED}")
    for name in names:
        if not _fits(table.schema.field(name).type, _SCHEMA.field(name).type):
            raise SchemaMismatch(f"column {name} is {table.schema.field(name).type}. A log takes {_ALLOWED}")
    schema = pa.schema([field for field in _SCHEMA if field.name in names])
    table = table.select(schema.names)
    if table.schema != schema:
        try:
            table = table.cast(schema)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"the columns cannot be cast to what a log takes, {_ALLOWED}: {error}") from error
    if nulls := table.column("body").null_count:
        raise SchemaMismatch(f"column body is null in {nulls} of {table.num_rows} rows. A log takes {_ALLOWED}")
    return table


def from_events(events: Sequence[Event]) -> pa.Table:
    """What a producer sets of the events, as a table of the stored columns. Raises `SchemaMismatch`."""
    columns: Iterable[Sequence[object]] = (
        [event.body for event in events],
        [event.partition_key for event in events],
        [event.publisher for event in events],
        [list(event.properties.items()) for event in events],
    )
    try:
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, UnicodeEncodeError) as error:
        raise SchemaMismatch(
            f"an event's body is bytes, its partition key and publisher text or None, and its properties map text "
            f"to text: {error}"
        ) from error
    return checked(pa.Table.from_arrays(arrays, schema=_SCHEMA))


def payloads(table: pa.Table) -> Iterator[tuple[int, pa.Buffer]]:
    """A checked table as payloads in its order, each with the number of its events."""
    # Many small chunks make few payloads: the price of a payload is the same for one event and for thousands.
    for whole in table.combine_chunks().to_batches(max_chunksize=STORED_ROWS):
        for batch in _halved(whole, STORED_BYTES):
            if batch.num_rows == 1 and batch.nbytes > LARGEST_EVENT:
                raise SchemaMismatch(f"an event has {batch.nbytes:,} bytes; a log takes up to {LARGEST_EVENT:,}")
            yield batch.num_rows, _encoded(batch)


def pieces(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """The table in parts of at most this many rows, small enough to be rearranged in memory."""
    return (part for at in range(0, table.num_rows, rows) for part in _halved(table.slice(at, rows), SENT_BYTES))


def decoded(payload: bytes, rows: int) -> pa.RecordBatch:
    """The batch of this many events in a payload, without copying it. Raises `ValueError` for what is not a payload.

    Takes nothing on trust: buffers that point elsewhere would end the process, and a compressed one would take a
    thousand times its size in memory.
    """
    try:
        messages = pa.ipc.MessageReader.open_stream(payload)
        schema = pa.ipc.read_schema(messages.read_next_message())
        _check_columns(schema)
        message = messages.read_next_message()
        if message.type != "record batch" or _is_compressed(message.metadata):
            raise ValueError(f"not a record batch without compression, but a {message.type} or a compressed one")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration, struct.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    if batch.num_rows != rows or batch.column("body").null_count:
        raise ValueError(f"it has {batch.num_rows} events, {batch.column('body').null_count} without a body")
    return batch


def _check_columns(schema: pa.Schema) -> None:
    known = pa.schema([field for field in _SCHEMA if field.name in schema.names])
    if "body" not in known.names or schema.names != known.names or schema.types != known.types:
        raise ValueError(f"its columns are {', '.join(map(str, schema))}")


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether a record batch's message says that its buffers are compressed.

    pyarrow does not tell before it has made room for what each buffer claims to hold. The metadata is a Message of
    Arrow's Message.fbs, whose third field is the header; the fourth field of a RecordBatch is its compression.
    """
    message = _u32(metadata, 0)
    header = message + _field(metadata, message, 2)
    return _field(metadata, header + _u32(metadata, header), 3) != 0


def _field(metadata: pa.Buffer, table: int, field: int) -> int:
    """Where in a table of a flatbuffer a field lies, 0 for one that is not there."""
    fields = table - struct.unpack_from("<i", metadata, table)[0]
    at = 4 + 2 * field
    if at >= struct.unpack_from("<H", metadata, fields)[0]:
        return 0
    return int(struct.unpack_from("<H", metadata, fields + at)[0])


def _u32(metadata: pa.Buffer, at: int) -> int:
    return int(struct.unpack_from("<I", metadata, at)[0])


def _halved(data: pa.RecordBatch | pa.Table, size: int) -> Iterator[Any]:
    """What is larger than `size` bytes in halves, until it is not, or is one row."""
    waiting = [data]
    while waiting:
        part = waiting.pop()
        half = part.num_rows // 2
        if half and part.nbytes > size:
            waiting += [part.slice(half), part.slice(0, half)]
        elif part.num_rows:
            yield part


def _encoded(batch: pa.RecordBatch) -> pa.Buffer:
    batch = batch.select([name for name in batch.schema.names if not _is_blank(batch.column(name))])
    if "properties" in batch.schema.names and batch.column("properties").null_count:
        known = pc.coalesce(batch.column("properties"), pa.repeat(pa.scalar([], TEXT_MAP), batch.num_rows))
        batch = batch.set_column(batch.num_columns - 1, "properties", known)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _is_blank(column: pa.Array) -> bool:
    """Whether the column says nothing: only nulls, or only empty maps."""
    if column.type == TEXT_MAP:
        offsets = column.offsets
        return bool(offsets[0] == offsets[-1])
    return bool(column.null_count == len(column))


def _fits(type_: pa.DataType, column_type: pa.DataType) -> bool:
    if column_type == TEXT_MAP:
        is_text_map = (
            pa.types.is_map(type_) and _fits(type_.key_type, pa.string()) and _fits(type_.item_type, pa.string())
        )
        return is_text_map or bool(pa.types.is_null(type_))
    if pa.types.is_dictionary(type_):
        return _fits(type_.value_type, column_type)
    t = pa.types
    if column_type == pa.binary():
        return bool(
            t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_)
        )
    return bool(t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_) or t.is_null(type_))
