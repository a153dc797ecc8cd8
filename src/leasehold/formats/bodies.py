"""Event bodies to columns: every body becomes a row, or is rejected with a reason, whatever its format.

Owns the promises that all formats share: a field that is missing or null is null, and names compare exactly; no value
is ever altered to make it fit, but times where `timestamps` says so; no body, however hostile, raises. docs/table.md
has what each type takes. And which schema each body is read by, where a registry has them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from leasehold.arrow_masks import true_places
from leasehold.body_format import DEBEZIUM, IDENTITY, JSON, PROTOBUF, BodyFormat, SchemaText
from leasehold.errors import ConfigError, UsageError
from leasehold.formats.cloud_events import CloudEvents, EventHeaders, data_columns
from leasehold.formats.connect.changes import ChangeReader, changed
from leasehold.formats.connect.columns import typed_columns
from leasehold.formats.connect.json_changes import JsonChanges
from leasehold.formats.encodings import decoded
from leasehold.formats.format_readers import FormatReader, ReadBodies, in_order, joined, rejected, with_rescue
from leasehold.formats.misfits import NO_BODY
from leasehold.formats.schema_headers import NO_HEADER, by_schema, schema_numbers, without_header
from leasehold.formats.shapes import check_columns, nullable
from leasehold.registries import RegisteredSchema, Schemas
from leasehold.registries.known_schemas import known_schemas
from leasehold.registries.protobuf import compiled

_ROWS = 16_384  # bodies that are read at once
_NOT_GIVEN = (
    "is of no version that the named subjects had when this read began: "
    "begin it again if they have it now, or name its subject"
)


class BodyReader:
    """Reads bodies into the columns of `schema`, the Arrow form of a Spark schema.

    `how` says in which format they are; default: JSON. Every field may be null, whatever the schema says. `schemas` are
    those of a registry that nobody then asks (`given`). A reader may be pickled, and used by several threads. Raises
    `UsageError` if no body can be read by the schema, `ConfigError` for a `writer_schema` that is not one.
    """

    def __init__(self, schema: pa.Schema, how: BodyFormat | None = None, schemas: Schemas | None = None) -> None:
        how = how or BodyFormat()
        check_columns(schema, how.adds)
        if how.format == PROTOBUF and how.writer_schema is not None:
            how = replace(how, writer_schema=SchemaText(compiled(str(how.writer_schema))))  # no copy needs a compiler
        self._given = (schema, how, schemas)
        self._plain = pa.schema([nullable(field) for field in schema])
        self.schema: pa.Schema = _read_into(self._plain, how)
        """Of what `read` returns: the schema given, all of it nullable, and the columns that `BodyFormat.adds`."""
        self._events: CloudEvents | None = None
        if how.envelope is not None:
            columns, of_data = data_columns(self._plain), replace(how, envelope=None, content_encoding=IDENTITY)
            is_read = columns.names or how.rescue is not None
            self._events = CloudEvents(self.schema, how, BodyReader(columns, of_data, schemas) if is_read else None)
        elif how.registry is None:
            self._reader = _reader(self._plain, how)
        elif schemas is None:
            self._known = known_schemas(how.registry)

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

    @property
    def reads_headers(self) -> bool:
        """Whether `read` has to be given headers: those that were there when the event was read first, too."""
        return self._events is not None

    def read(self, bodies: pa.Array | pa.ChunkedArray, headers: EventHeaders | None = None) -> ReadBodies:
        """Read these bodies, of any binary or string type; a null is an event without a body.

        `headers` has the columns `properties` and `systemProperties` of the same events, among any others; without an
        `envelope` nobody looks at it. Raises `UsageError` where an envelope needs it and it is not there.
        """
        if self._events is not None and (headers is None or "properties" not in headers.schema.names):
            raise UsageError("an envelope is told by headers: give the events with their properties as headers")
        pieces = [
            chunk[first : first + _ROWS].cast(pa.binary())
            for chunk in (bodies.chunks if isinstance(bodies, pa.ChunkedArray) else [bodies])
            for first in range(0, len(chunk), _ROWS)
        ]
        return joined([*self._parts(pieces, headers)], self.schema)

    def _parts(self, pieces: Iterable[pa.Array], headers: EventHeaders | None) -> Iterator[ReadBodies]:
        how, begin = self._given[1], 0
        for group, wrong in (found for piece in pieces for found in decoded(piece, how.content_encoding)):
            part = self._read(group, headers if headers is None else headers.slice(begin, len(group)))
            begin += len(group)
            yield _of_nulls(part, group, wrong, tombstones=how.format == DEBEZIUM) if group.null_count else part

    def _read(self, bodies: pa.Array, headers: EventHeaders | None) -> ReadBodies:
        if self._events is not None and headers is not None:
            return self._events.read(bodies, headers)
        return self._reader.read(bodies) if self._given[1].registry is None else self._by_their_schemas(bodies)

    def _by_their_schemas(self, bodies: pa.Array) -> ReadBodies:
        _, how, given = self._given
        schemas = self._known.of(schema_numbers(bodies)) if given is None else given
        parts: list[tuple[pa.Array, ReadBodies]] = []
        for number, rows in by_schema(bodies):
            if number is None:
                reasons = [NO_BODY if body is None else NO_HEADER for body in bodies.take(rows).to_pylist()]
                parts.append((rows, rejected(reasons, self.schema)))
            elif number not in schemas:
                reason = f"its schema, {number}, {_NOT_GIVEN}"
                parts.append((rows, rejected([reason] * len(rows), self.schema, frozenset({number}))))
            elif isinstance(reader := _reader_by(self._plain, how, number, schemas[number]), str):
                parts.append((rows, rejected([reader] * len(rows), self.schema)))
            else:
                parts.append((rows, reader.read(without_header(bodies.take(rows)))))
        return in_order(parts, self.schema) if parts else rejected([], self.schema)


class _Reads(Protocol):
    """Reads bodies that are written by one schema, or by none."""

    def read(self, bodies: pa.Array) -> ReadBodies: ...


def _read_into(schema: pa.Schema, how: BodyFormat) -> pa.Schema:
    """The columns that bodies are read into: these, and those that the format adds."""
    return changed(schema) if how.format == DEBEZIUM else with_rescue(schema, how)


def _reader(schema: pa.Schema, how: BodyFormat, registered: RegisteredSchema | None = None) -> _Reads:
    """What reads bodies of this format; with `registered`, by this schema."""
    if how.format != DEBEZIUM:
        return FormatReader(schema, how, registered)
    if how.encoding == JSON:
        return JsonChanges(schema, how)

    def read(columns: pa.Schema) -> FormatReader:
        return FormatReader(columns, how.within, registered)

    return ChangeReader(schema, typed_columns, read, how.skipped_operations)


def _of_nulls(part: ReadBodies, bodies: pa.Array, wrong: Mapping[int, str], *, tombstones: bool) -> ReadBodies:
    """The same, with why a body is `wrong`, by its place, that could not be decompressed and is null therefore.

    Other nulls are passed over where they are `tombstones`.
    """
    reasons: list[str | None] = [None] * len(bodies) if part.reasons is None else part.reasons.to_pylist()
    passed: list[bool] = [False] * len(bodies) if part.passed is None else part.passed.to_pylist()
    for place in true_places(bodies.is_null()):
        passed[place] = tombstones and place not in wrong
        reasons[place] = None if passed[place] else wrong.get(place, reasons[place])
    said = pa.array(reasons, pa.string()) if any(reasons) else None
    return replace(part, reasons=said, passed=pa.array(passed, pa.bool_()) if any(passed) else None)


@functools.lru_cache(maxsize=256)
def _reader_by(schema: pa.Schema, how: BodyFormat, number: int, registered: RegisteredSchema | None) -> _Reads | str:
    """What reads bodies of one registered schema; or why nobody can."""
    if registered is None:
        return f"its schema, {number}, is not known to the registry"
    if registered.kind.lower() != how.encoding:
        return f"its schema, {number}, is of {registered.kind.title()}, and the format is {how.encoding.title()}"
    wrong = registered.wrong
    try:
        if not wrong:
            return _reader(schema, how, registered)
    except ConfigError as error:
        wrong = error.rule
    return f"its schema, {number}, cannot be read: {wrong}"
