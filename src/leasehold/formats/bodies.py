"""Event bodies to columns: every body becomes a row, or is rejected with a reason, whatever its format.

Owns the order of work, and the promises that all formats share: a field that is missing or null is null, and names
compare exactly; no value is ever altered to make it fit, but times where `timestamps` says so; no body, however
hostile, raises. docs/table.md has what each type takes.

Each format has a reader that reads one body at a time, and is the definition: of which bodies are good, of their values
and of every reason. It may have another that reads many at once, and vouches for what it is sure of: the others go one
by one, as a few bodies do, which costs less than it takes the other to begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.body_format import AVRO, TRUNCATE, BodyFormat
from leasehold.formats.avro.columns import avro_columns
from leasehold.formats.avro.rows import AvroRows
from leasehold.formats.avro.schemas import read_schema
from leasehold.formats.json_columns import ColumnReader
from leasehold.formats.json_rows import RowReader
from leasehold.formats.shapes import check_columns, nullable

_ROWS = 16_384  # bodies that are read at once
_FEW = 50
"""Up to this many bodies are read sooner one at a time: 3 us each, beside 210 to 380 for the first of many at once."""

Row = tuple[Sequence[Any], str | None, str | None]
"""The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""
Vouched = tuple[pa.Array, pa.RecordBatch]
"""Rows, and which of the bodies they are."""


class ReadsOne(Protocol):
    """Reads one body."""

    def read(self, body: bytes | None) -> Row: ...


class ReadsMany(Protocol):
    """Reads many bodies at once, of which it may leave out any."""

    def read(self, bodies: pa.Array) -> list[Vouched]: ...


@dataclass(frozen=True, slots=True)
class ReadBodies:
    """What became of bodies, row by row in their order.

    `columns` has a row for each body, with nulls only where it was rejected. `reasons` are strings, null where the
    body is good; None if all are.
    """

    columns: pa.RecordBatch
    reasons: pa.Array | None


class BodyReader:
    """Reads bodies into the columns of `schema`, the Arrow form of a Spark schema.

    `how` says in which format they are; default: JSON. Every field may be null, whatever the schema says. A reader may
    be pickled, and used by several threads. Raises
    `UsageError` if no body can be read by the schema, `ConfigError` for an `avro_schema` that is not one.
    """

    def __init__(self, schema: pa.Schema, how: BodyFormat | None = None) -> None:
        how = how or BodyFormat()
        check_columns(schema, how.rescue)
        self._given = (schema, how)
        plain = pa.schema([nullable(field) for field in schema])
        self._one, self._many = _parts(plain, how)
        self.schema: pa.Schema = plain if how.rescue is None else plain.append(pa.field(how.rescue, pa.string()))
        """Of what `read` returns: the schema given, all of it nullable, and the rescue column."""

    def __reduce__(self) -> tuple[Any, ...]:
        return BodyReader, self._given

    def only(self, names: Sequence[str]) -> BodyReader:
        """The reader of these columns alone."""
        schema, how = self._given
        return BodyReader(pa.schema([schema.field(name) for name in names]), how.without_rescue())

    def read(self, bodies: pa.Array | pa.ChunkedArray) -> ReadBodies:
        """Read these bodies, of any binary or string type; a null is an event without a body."""
        parts = [
            self._part(chunk[first : first + _ROWS])
            for chunk in (bodies.chunks if isinstance(bodies, pa.ChunkedArray) else [bodies])
            for first in range(0, len(chunk), _ROWS)
        ]
        if len(parts) == 1:
            return parts[0]
        table = pa.Table.from_batches([part.columns for part in parts], self.schema).combine_chunks()
        columns = table.to_batches()[0] if parts else _no_rows(self.schema)
        if all(part.reasons is None for part in parts):
            return ReadBodies(columns, None)
        reasons = [pa.nulls(len(part.columns), pa.string()) if part.reasons is None else part.reasons for part in parts]
        return ReadBodies(columns, pa.concat_arrays(reasons))

    def _part(self, bodies: pa.Array) -> ReadBodies:
        bodies = bodies.cast(pa.binary())
        if self._many is None or len(bodies) <= _FEW:
            columns, reasons = self._one_by_one(bodies)
            return ReadBodies(columns, None if reasons.null_count == len(reasons) else reasons)
        read = [(at, self._with_rescue(columns)) for at, columns in self._many.read(bodies)]
        if len(read) == 1 and len(read[0][0]) == len(bodies):
            return ReadBodies(read[0][1], None)
        rest = _others([at for at, _ in read], len(bodies))
        columns, reasons = self._one_by_one(bodies.take(pa.array(rest, pa.int32())))
        order = pa.concat_arrays([*(at for at, _ in read), pa.array(rest, pa.int32())])
        back = pc.sort_indices(order)
        table = pa.Table.from_batches([*(each for _, each in read), columns], self.schema).take(back).combine_chunks()
        merged = table.to_batches()[0] if len(bodies) else _no_rows(self.schema)
        if reasons.null_count == len(reasons):
            return ReadBodies(merged, None)
        said = pa.concat_arrays([pa.nulls(len(bodies) - len(rest), pa.string()), reasons]).take(back)
        return ReadBodies(merged, said)

    def _one_by_one(self, bodies: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        schema, how = self._given
        read = [self._one.read(body) for body in bodies.to_pylist()]
        values: Iterable[tuple[Any, ...]] = zip(*(row for row, _, _ in read), strict=True)
        columns = list(values) or [()] * len(schema)
        if how.rescue is not None:
            columns.append(tuple(unknown for _, unknown, _ in read))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        reasons = pa.array([reason for _, _, reason in read], pa.string())
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), reasons

    def _with_rescue(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        if self._given[1].rescue is None:
            return columns
        return pa.RecordBatch.from_arrays([*columns.columns, pa.nulls(len(columns), pa.string())], schema=self.schema)


def _parts(schema: pa.Schema, how: BodyFormat) -> tuple[ReadsOne, ReadsMany | None]:
    """What reads one body of this format, and what reads many, if there is any."""
    rescue, cut = how.rescue is not None, how.timestamps == TRUNCATE
    if how.format == AVRO:
        assert how.avro_schema is not None
        writer = read_schema(how.avro_schema)
        return AvroRows(schema, writer, rescue=rescue, cut=cut), avro_columns(schema, writer, rescue=rescue)
    return RowReader(schema, rescue=rescue, cut=cut), ColumnReader(schema, rescue=rescue, cut=cut)


def _others(read: list[pa.Array], count: int) -> list[int]:
    done = bytearray(count)
    for rows in read:
        for row in rows.to_pylist():
            done[row] = 1
    return [row for row in range(count) if not done[row]]


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
