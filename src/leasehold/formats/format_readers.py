"""Bodies of one format, and where it has types by one schema of who wrote them, to columns.

Owns the order of work. Each format has a reader that reads one body at a time, and is the definition: of which bodies
are good, of their values and of every reason. It may have another that reads many at once, and vouches for what it is
sure of: the others go one by one, as a few bodies do, which costs less than it takes the other to begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.body_format import AVRO, JSON, TRUNCATE, BodyFormat
from leasehold.errors import UsageError
from leasehold.formats.avro.columns import avro_columns
from leasehold.formats.avro.rows import AvroRows
from leasehold.formats.avro.schemas import read_schema
from leasehold.formats.json_columns import ColumnReader
from leasehold.formats.json_rows import RowReader
from leasehold.formats.protobuf.columns import protobuf_columns
from leasehold.formats.protobuf.rows import ProtobufRows
from leasehold.formats.protobuf.schemas import message_type, read_file
from leasehold.formats.protobuf.typed_bodies import TypedBodies, TypedColumns
from leasehold.formats.schema_headers import without_number
from leasehold.formats.shapes import Vouched
from leasehold.registries import RegisteredSchema

_FEW = 50
"""Up to this many bodies are read sooner one at a time: 3 us each, beside 210 to 380 for the first of many at once."""

Row = tuple[Sequence[Any], str | None, str | None]
"""The values of the columns, what the rescue column keeps, and the reason if the body is rejected."""


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
    unknown: frozenset[int] = frozenset()
    """Numbers of schemas that a reader was not given (`BodyReader.given`), and that bodies name: read them again."""
    passed: pa.Array | None = None
    """True for a body that is no row and no reject, and is passed over; None if none is."""

    @property
    def good(self) -> pa.Array | None:
        """True for a body that is a row; None if all are."""
        if self.reasons is None:
            return None if self.passed is None else pc.invert(self.passed)
        accepted = self.reasons.is_null()
        return accepted if self.passed is None else pc.and_not(accepted, self.passed)


class FormatReader:
    """Reads bodies into the columns of `schema`, all of which may be null, and the rescue column.

    `how` says in which format they are; with `registered`, by this schema and with what stands in them behind its
    number. Raises `ConfigError` for a schema that is not one.
    """

    def __init__(self, schema: pa.Schema, how: BodyFormat, registered: RegisteredSchema | None = None) -> None:
        self._columns, self._rescue = schema, how.rescue is not None
        self._schema, self._is_json = with_rescue(schema, how), how.format == JSON
        self._one, self._many = _parts(schema, how, registered)

    def read(self, bodies: pa.Array) -> ReadBodies:
        """Read these bodies, which are of type binary; a null is an event without a body."""
        if self._is_json:
            bodies = without_number(bodies)
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
        merged = _batch(pa.Table.from_batches([*(each for _, each in read), columns], self._schema).take(back))
        if reasons.null_count == len(reasons):
            return ReadBodies(merged, None)
        said = pa.concat_arrays([pa.nulls(len(bodies) - len(rest), pa.string()), reasons]).take(back)
        return ReadBodies(merged, said)

    def _one_by_one(self, bodies: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        read = [self._one.read(body) for body in bodies.to_pylist()]
        values: Iterable[tuple[Any, ...]] = zip(*(row for row, _, _ in read), strict=True)
        columns = list(values) or [()] * len(self._columns)
        if self._rescue:
            columns.append(tuple(unknown for _, unknown, _ in read))
        arrays = [_array(column, field) for column, field in zip(columns, self._schema, strict=True)]
        reasons = pa.array([reason for _, _, reason in read], pa.string())
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), reasons

    def _with_rescue(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        if not self._rescue:
            return columns
        return pa.RecordBatch.from_arrays([*columns.columns, pa.nulls(len(columns), pa.string())], schema=self._schema)


def check_writer_schema(how: BodyFormat) -> None:
    """Read the schema that bodies are written by, and find their type. Raises `ConfigError`, `MissingDependency`."""
    FormatReader(pa.schema([("any", pa.string())]), how)


def with_rescue(schema: pa.Schema, how: BodyFormat) -> pa.Schema:
    """The columns that bodies are read into, and the one for what none of them takes, if there is one."""
    return schema if how.rescue is None else schema.append(pa.field(how.rescue, pa.string()))


def joined(parts: Sequence[ReadBodies], schema: pa.Schema) -> ReadBodies:
    """All of these, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    columns = _batch(pa.Table.from_batches([part.columns for part in parts], schema))
    unknown: frozenset[int] = frozenset().union(*(part.unknown for part in parts))
    reasons = _joined([part.reasons for part in parts], parts, pa.scalar(None, pa.string()))
    return ReadBodies(columns, reasons, unknown, _joined([part.passed for part in parts], parts, pa.scalar(False)))


def in_order(parts: Sequence[tuple[pa.Array, ReadBodies]], schema: pa.Schema) -> ReadBodies:
    """All of these, each with the rows that it is of, in the order of the rows."""
    if len(parts) == 1:
        return parts[0][1]
    whole = joined([part for _, part in parts], schema)
    back = pc.sort_indices(pa.concat_arrays([pa.array([], pa.int32()), *(rows for rows, _ in parts)]))
    reasons, passed = (None if each is None else each.take(back) for each in (whole.reasons, whole.passed))
    return ReadBodies(whole.columns.take(back), reasons, whole.unknown, passed)


def rejected(reasons: Sequence[str], schema: pa.Schema, unknown: frozenset[int] = frozenset()) -> ReadBodies:
    """As many bodies as there are reasons, each of which is rejected by its own."""
    arrays = [pa.nulls(len(reasons), field.type) for field in schema]
    columns = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return ReadBodies(columns, pa.array(reasons, pa.string()) if reasons else None, unknown=unknown)


def _joined(arrays: Sequence[pa.Array | None], parts: Sequence[ReadBodies], default: pa.Scalar) -> pa.Array | None:
    """These arrays, one of each part, where `default` stands for one that is None; None if all are."""
    if all(one is None for one in arrays):
        return None
    filled = [
        pa.repeat(default, len(part.columns)) if one is None else one for one, part in zip(arrays, parts, strict=True)
    ]
    return pa.concat_arrays(filled)


def _parts(
    schema: pa.Schema, how: BodyFormat, registered: RegisteredSchema | None
) -> tuple[ReadsOne, ReadsMany | None]:
    """What reads one body of this format, and what reads many, if there is any."""
    rescue, cut = how.rescue is not None, how.timestamps == TRUNCATE
    if how.format == JSON:
        return RowReader(schema, rescue=rescue, cut=cut), ColumnReader(schema, rescue=rescue, cut=cut)
    text = how.writer_schema if registered is None else registered.text
    files = () if registered is None else registered.files
    assert isinstance(text, str), "a BodyFormat has the text"
    if how.format == AVRO:
        writer = read_schema(text, files)
        return AvroRows(schema, writer, rescue=rescue, cut=cut), avro_columns(schema, writer, rescue=rescue)
    file = read_file(text, files)
    if registered is not None:
        one = TypedBodies(schema, file, how.message, rescue=rescue, cut=cut)
        return one, TypedColumns(schema, file, how.message, rescue=rescue)
    message = message_type(file, how.message)
    many = protobuf_columns(schema, message, rescue=rescue)
    return ProtobufRows(schema, message, rescue=rescue, cut=cut), many


def _others(read: list[pa.Array], count: int) -> list[int]:
    done = bytearray(count)
    for rows in read:
        for row in rows.to_pylist():
            done[row] = 1
    return [row for row in range(count) if not done[row]]


def _batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table as one batch. Raises `UsageError` for more than one holds: a part of them would be lost."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise _too_much(table.num_rows)
    empty = [pa.array([], field.type) for field in table.schema]
    return batches[0] if batches else pa.RecordBatch.from_arrays(empty, schema=table.schema)


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    made = pa.array(values, field.type)
    if isinstance(made, pa.ChunkedArray):
        raise _too_much(len(values))
    return made


def _too_much(count: int) -> UsageError:
    return UsageError(f"{count} bodies have more than 2 GiB of text in one column. Read fewer of them at once")
