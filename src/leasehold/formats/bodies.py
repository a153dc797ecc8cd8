"""Event bodies to columns: every body becomes a row, or is rejected with a reason, whatever its format.

Owns the promises that all formats share: a field that is missing or null is null, and names compare exactly; no value
is ever altered to make it fit, but times where `timestamps` says so; no body, however hostile, raises. docs/table.md
has what each type takes. And which schema each body is read by, where a registry has them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.body_format import PROTOBUF, BodyFormat, SchemaText
from leasehold.errors import ConfigError
from leasehold.formats.encodings import decoded
from leasehold.formats.format_readers import FormatReader, ReadBodies, joined, with_rescue
from leasehold.formats.misfits import NO_BODY
from leasehold.formats.schema_headers import NO_HEADER, by_schema, schema_numbers, without_header
from leasehold.formats.shapes import check_columns, nullable
from leasehold.registries import RegisteredSchema, Schemas
from leasehold.registries.known_schemas import known_schemas
from leasehold.registries.protobuf import compiled

_ROWS = 16_384  # bodies that are read at once


class BodyReader:
    """Reads bodies into the columns of `schema`, the Arrow form of a Spark schema.

    `how` says in which format they are; default: JSON. Every field may be null, whatever the schema says. `schemas` are
    those of a registry that nobody then asks (`given`). A reader may be pickled, and used by several threads. Raises
    `UsageError` if no body can be read by the schema, `ConfigError` for a `writer_schema` that is not one.
    """

    def __init__(self, schema: pa.Schema, how: BodyFormat | None = None, schemas: Schemas | None = None) -> None:
        how = how or BodyFormat()
        check_columns(schema, how.rescue)
        if how.format == PROTOBUF and how.writer_schema is not None:
            how = replace(how, writer_schema=SchemaText(compiled(str(how.writer_schema))))  # no copy needs a compiler
        self._given = (schema, how, schemas)
        self._plain = pa.schema([nullable(field) for field in schema])
        if how.registry is None:
            self._reader = FormatReader(self._plain, how)
        elif schemas is None:
            self._known = known_schemas(how.registry)
        self.schema: pa.Schema = with_rescue(self._plain, how)
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
        how = self._given[1]
        if how.registry is None:
            return {}
        groups = decoded(bodies.cast(pa.binary()), how.content_encoding)
        return self._known.of(set().union(*(schema_numbers(group) for group, _ in groups)))

    def read(self, bodies: pa.Array | pa.ChunkedArray) -> ReadBodies:
        """Read these bodies, of any binary or string type; a null is an event without a body."""
        parts = [
            part
            for chunk in (bodies.chunks if isinstance(bodies, pa.ChunkedArray) else [bodies])
            for first in range(0, len(chunk), _ROWS)
            for part in self._parts(chunk[first : first + _ROWS].cast(pa.binary()))
        ]
        return joined(parts, self.schema)

    def _parts(self, bodies: pa.Array) -> Iterator[ReadBodies]:
        how = self._given[1]
        read = self._reader.read if how.registry is None else self._by_their_schemas
        for group, wrong in decoded(bodies, how.content_encoding):
            part = read(group)
            if part.reasons is not None and wrong:
                reasons = [wrong.get(place, reason) for place, reason in enumerate(part.reasons.to_pylist())]
                part = replace(part, reasons=pa.array(reasons, pa.string()))
            yield part

    def _by_their_schemas(self, bodies: pa.Array) -> ReadBodies:
        _, how, given = self._given
        schemas = self._known.of(schema_numbers(bodies)) if given is None else given
        order: list[pa.Array] = []
        parts: list[ReadBodies] = []
        refused: list[pa.Array] = []
        reasons: list[str] = []
        unknown: set[int] = set()
        for number, rows in by_schema(bodies):
            if number is None:
                refused.append(rows)
                reasons += [NO_BODY if body is None else NO_HEADER for body in bodies.take(rows).to_pylist()]
                continue
            reader: FormatReader | str = f"its schema, {number}, is not here"
            if number in schemas:
                reader = _reader_by(self._plain, how, number, schemas[number])
            else:
                unknown.add(number)
            if isinstance(reader, str):
                refused.append(rows)
                reasons += [reader] * len(rows)
            else:
                order.append(rows)
                parts.append(reader.read(without_header(bodies.take(rows))))
        whole = joined([*parts, self._refused(reasons)], self.schema)
        back = pc.sort_indices(pa.concat_arrays([*order, *refused, pa.array([], pa.int32())]))
        said = None if whole.reasons is None else whole.reasons.take(back)
        return ReadBodies(whole.columns.take(back), said, frozenset(unknown))

    def _refused(self, reasons: Sequence[str]) -> ReadBodies:
        arrays = [pa.nulls(len(reasons), field.type) for field in self.schema]
        columns = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return ReadBodies(columns, pa.array(reasons, pa.string()) if reasons else None)


@functools.lru_cache(maxsize=256)
def _reader_by(
    schema: pa.Schema, how: BodyFormat, number: int, registered: RegisteredSchema | None
) -> FormatReader | str:
    """What reads bodies of one registered schema; or why nobody can."""
    if registered is None:
        return f"its schema, {number}, is not known to the registry"
    if registered.kind.lower() != how.format:
        return f"its schema, {number}, is of {registered.kind.title()}, and the format is {how.format.title()}"
    wrong = registered.wrong
    try:
        if not wrong:
            return FormatReader(schema, how, registered)
    except ConfigError as error:
        wrong = error.rule
    return f"its schema, {number}, cannot be read: {wrong}"
