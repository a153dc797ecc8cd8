"""Event bodies to columns: every body becomes a row, or is rejected with a reason, whatever its format.

Owns the order of work, and the promises that all formats share: a field that is missing or null is null, and names
compare exactly; no value is ever altered to make it fit, but times where `timestamps` says so; no body, however
hostile, raises. docs/table.md has what each type takes.

Each format has a reader that reads one body at a time, and is the definition: of which bodies are good, of their values
and of every reason. It may have another that reads many at once, and vouches for what it is sure of: the others go one
by one, as a few bodies do, which costs less than it takes the other to begin.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.body_format import AVRO, TRUNCATE, BodyFormat
from leasehold.errors import ConfigError, UsageError
from leasehold.formats.avro.columns import avro_columns
from leasehold.formats.avro.rows import AvroRows
from leasehold.formats.avro.schemas import read_schema
from leasehold.formats.json_columns import ColumnReader
from leasehold.formats.json_rows import RowReader
from leasehold.formats.misfits import NO_BODY
from leasehold.formats.schema_headers import NO_HEADER, by_schema, schema_numbers, without_header
from leasehold.formats.shapes import Vouched, check_columns, nullable
from leasehold.registries import RegisteredSchema, Schemas
from leasehold.registries import contract as kinds
from leasehold.registries.known_schemas import known_schemas

_ROWS = 16_384  # bodies that are read at once
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


class BodyReader:
    """Reads bodies into the columns of `schema`, the Arrow form of a Spark schema.

    `how` says in which format they are; default: JSON. Every field may be null, whatever the schema says. `schemas` are
    those of a registry that nobody then asks (`given`). A reader may be pickled, and used by several threads. Raises
    `UsageError` if no body can be read by the schema, `ConfigError` for an `writer_schema` that is not one.
    """

    def __init__(self, schema: pa.Schema, how: BodyFormat | None = None, schemas: Schemas | None = None) -> None:
        how = how or BodyFormat()
        check_columns(schema, how.rescue)
        self._given = (schema, how, schemas)
        plain = pa.schema([nullable(field) for field in schema])
        self._one: ReadsOne
        self._many: ReadsMany | None
        if how.registry is None:
            self._one, self._many = _parts(plain, how)
        elif schemas is None:
            self._known = known_schemas(how.registry)
        self.schema: pa.Schema = plain if how.rescue is None else plain.append(pa.field(how.rescue, pa.string()))
        """Of what `read` returns: the schema given, all of it nullable, and the rescue column."""

    def __reduce__(self) -> tuple[Any, ...]:
        return BodyReader, self._given

    def only(self, names: Sequence[str]) -> BodyReader:
        """The reader of these columns alone."""
        schema, how, schemas = self._given
        return BodyReader(pa.schema([schema.field(name) for name in names]), how.without_rescue(), schemas)

    def given(self, schemas: Schemas) -> BodyReader:
        """The same reader where nobody asks a registry: it knows these schemas, and tells which others it needs."""
        schema, how, _ = self._given
        return self if how.registry is None else BodyReader(schema, how, schemas)

    def schemas_of(self, bodies: pa.Array) -> Schemas:
        """The schemas that these bodies name, from the registry. Raises `RegistryUnavailable`, `RegistryError`."""
        return {} if self._given[1].registry is None else self._known.of(schema_numbers(bodies))

    def read(self, bodies: pa.Array | pa.ChunkedArray) -> ReadBodies:
        """Read these bodies, of any binary or string type; a null is an event without a body."""
        parts = [
            self._part(chunk[first : first + _ROWS])
            for chunk in (bodies.chunks if isinstance(bodies, pa.ChunkedArray) else [bodies])
            for first in range(0, len(chunk), _ROWS)
        ]
        return _joined(parts, self.schema)

    def _part(self, bodies: pa.Array) -> ReadBodies:
        bodies = bodies.cast(pa.binary())
        if self._given[1].registry is not None:
            return self._by_their_schemas(bodies)
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
        merged = _batch(pa.Table.from_batches([*(each for _, each in read), columns], self.schema).take(back))
        if reasons.null_count == len(reasons):
            return ReadBodies(merged, None)
        said = pa.concat_arrays([pa.nulls(len(bodies) - len(rest), pa.string()), reasons]).take(back)
        return ReadBodies(merged, said)

    def _by_their_schemas(self, bodies: pa.Array) -> ReadBodies:
        schema, how, given = self._given
        schemas = self.schemas_of(bodies) if given is None else given
        order: list[pa.Array] = []
        parts: list[ReadBodies] = []
        unknown: set[int] = set()
        for number, rows in by_schema(bodies):
            mine = bodies.take(rows)
            order.append(rows)
            if number is None:
                parts.append(self._refused(mine, [NO_BODY if body is None else NO_HEADER for body in mine.to_pylist()]))
            elif number not in schemas:
                unknown.add(number)
                parts.append(self._refused(mine, [f"its schema, {number}, is not here"] * len(mine)))
            else:
                reader = _reader_by(schema, how, number, schemas[number])
                read = reader if isinstance(reader, str) else reader.read(without_header(mine))
                parts.append(self._refused(mine, [read] * len(mine)) if isinstance(read, str) else read)
        whole = _joined(parts, self.schema)
        back = pc.sort_indices(pa.concat_arrays(order)) if order else pa.array([], pa.uint64())
        reasons = None if whole.reasons is None else whole.reasons.take(back)
        return ReadBodies(whole.columns.take(back), reasons, frozenset(unknown))

    def _refused(self, bodies: pa.Array, reasons: Sequence[str]) -> ReadBodies:
        arrays = [pa.nulls(len(bodies), field.type) for field in self.schema]
        return ReadBodies(pa.RecordBatch.from_arrays(arrays, schema=self.schema), pa.array(reasons, pa.string()))

    def _one_by_one(self, bodies: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        schema, how, _ = self._given
        read = [self._one.read(body) for body in bodies.to_pylist()]
        values: Iterable[tuple[Any, ...]] = zip(*(row for row, _, _ in read), strict=True)
        columns = list(values) or [()] * len(schema)
        if how.rescue is not None:
            columns.append(tuple(unknown for _, unknown, _ in read))
        arrays = [_array(column, field) for column, field in zip(columns, self.schema, strict=True)]
        reasons = pa.array([reason for _, _, reason in read], pa.string())
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), reasons

    def _with_rescue(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        if self._given[1].rescue is None:
            return columns
        return pa.RecordBatch.from_arrays([*columns.columns, pa.nulls(len(columns), pa.string())], schema=self.schema)


def _joined(parts: Sequence[ReadBodies], schema: pa.Schema) -> ReadBodies:
    """All of these, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    columns = _batch(pa.Table.from_batches([part.columns for part in parts], schema))
    unknown: frozenset[int] = frozenset().union(*(part.unknown for part in parts))
    if all(part.reasons is None for part in parts):
        return ReadBodies(columns, None, unknown)
    reasons = [pa.nulls(len(part.columns), pa.string()) if part.reasons is None else part.reasons for part in parts]
    return ReadBodies(columns, pa.concat_arrays(reasons), unknown)


@functools.lru_cache(maxsize=256)
def _reader_by(
    schema: pa.Schema, how: BodyFormat, number: int, registered: RegisteredSchema | None
) -> BodyReader | str:
    """What reads bodies of one registered schema; or why nobody can."""
    if registered is None:
        return f"its schema, {number}, is not known to the registry"
    if registered.kind != kinds.AVRO:
        return f"its schema, {number}, is of {registered.kind.title()}, and the format is Avro"
    if registered.references:
        return f"its schema, {number}, refers to others, which are not read"
    try:
        return BodyReader(schema, replace(how, registry=None, writer_schema=registered.text))
    except ConfigError as error:
        return f"its schema, {number}, cannot be read: {error.rule}"


def _parts(schema: pa.Schema, how: BodyFormat) -> tuple[ReadsOne, ReadsMany | None]:
    """What reads one body of this format, and what reads many, if there is any."""
    rescue, cut = how.rescue is not None, how.timestamps == TRUNCATE
    if how.format == AVRO:
        assert isinstance(how.writer_schema, str), "a BodyFormat has the text"
        writer = read_schema(how.writer_schema)
        return AvroRows(schema, writer, rescue=rescue, cut=cut), avro_columns(schema, writer, rescue=rescue)
    return RowReader(schema, rescue=rescue, cut=cut), ColumnReader(schema, rescue=rescue, cut=cut)


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
