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
from leasehold.formats.cloud_events import CloudEvents, data_columns
from leasehold.formats.connect.changes import ChangeReader, changed
from leasehold.formats.connect.columns import typed_columns
from leasehold.formats.connect.json_changes import JsonChanges
from leasehold.formats.content_types import by_content_type
from leasehold.formats.encodings import decoded
from leasehold.formats.event_headers import EventHeaders
from leasehold.formats.format_readers import FormatReader, ReadBodies, in_order, joined, rejected, with_rescue
from leasehold.formats.schema_headers import NamedBodies, by_schema
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

    @property
    def names(self) -> list[str]:
        """The columns of the bodies alone, without those that the format adds."""
        return [field.name for field in self._plain]

    def only(self, names: Sequence[str]) -> BodyReader:
        """The reader of these columns alone."""
        schema, how, schemas = self._given
        return BodyReader(pa.schema([schema.field(name) for name in names]), how.without_rescue(), schemas)

    def given(self, schemas: Schemas) -> BodyReader:
        """The same reader where nobody asks a registry: it knows these schemas, and tells which others it needs."""
        schema, how, _ = self._given
        return self if how.registry is None else BodyReader(schema, how, schemas)

    def schemas_of(self, bodies: pa.Array, headers: EventHeaders | None = None) -> Schemas:
        """The schemas that these bodies name, from the registry. Raises `RegistryUnavailable`, `RegistryError`."""
        if self._given[1].registry is None:
            return {}
        groups = self._groups([bodies.cast(pa.binary())], headers)
        named = [one for group, _, its in groups for one in self._named(group, its)]
        return self._known.of({one.number for one in named if one.number is not None})

    @property
    def reads_headers(self) -> bool:
        """Whether `read` has to be given headers: those that were there when the event was read first, too."""
        return self._given[1].by_headers

    def read(self, bodies: pa.Array | pa.ChunkedArray, headers: EventHeaders | None = None) -> ReadBodies:
        """Read these bodies, of any binary or string type; a null is an event without a body.

        `headers` has the columns `properties` and `systemProperties` of the same events, among any others; nobody looks
        at it where bodies are not read by headers. Raises `UsageError` where they are, and it is not there.
        """
        if self.reads_headers and (headers is None or "properties" not in headers.schema.names):
            what = "an envelope is told" if self._events is not None else "schemas are named"
            raise UsageError(f"{what} by headers: give the events with their properties as headers")
        pieces = [
            chunk[first : first + _ROWS].cast(pa.binary())
            for chunk in (bodies.chunks if isinstance(bodies, pa.ChunkedArray) else [bodies])
            for first in range(0, len(chunk), _ROWS)
        ]
        return joined([*self._parts(pieces, headers)], self.schema)

    def _groups(
        self, pieces: Iterable[pa.Array], headers: EventHeaders | None
    ) -> Iterator[tuple[pa.Array, Mapping[int, str], EventHeaders | None]]:
        """The bodies without their content encoding, what is wrong with some by their places, and their headers."""
        begin = 0
        for group, wrong in (found for piece in pieces for found in decoded(piece, self._given[1].content_encoding)):
            yield group, wrong, None if headers is None else headers.slice(begin, len(group))
            begin += len(group)

    def _parts(self, pieces: Iterable[pa.Array], headers: EventHeaders | None) -> Iterator[ReadBodies]:
        tombstones = self._given[1].format == DEBEZIUM
        for group, wrong, its in self._groups(pieces, headers):
            part = self._read(group, its)
            yield _of_nulls(part, group, wrong, tombstones=tombstones) if group.null_count else part

    def _read(self, bodies: pa.Array, headers: EventHeaders | None) -> ReadBodies:
        if self._events is not None and headers is not None:
            return self._events.read(bodies, headers)
        if self._given[1].registry is None:
            return self._reader.read(bodies)
        return self._by_their_schemas([*self._named(bodies, headers)])

    def _named(self, bodies: pa.Array, headers: EventHeaders | None) -> Iterator[NamedBodies]:
        """The bodies by the schemas that they name, or the headers of their events."""
        if headers is None or not self._given[1].by_content_type:
            return by_schema(bodies)
        return by_content_type(bodies, headers)

    def _by_their_schemas(self, named: Sequence[NamedBodies]) -> ReadBodies:
        _, how, given = self._given
        numbers = {one.number for one in named if one.number is not None}
        schemas = self._known.of(numbers) if given is None else given
        parts: list[tuple[pa.Array, ReadBodies]] = []
        for one in named:
            if one.number is None:
                part = rejected(one.reasons, self.schema)
            elif one.number not in schemas:
                reasons = [f"its schema, {how.named(one.number)}, {_NOT_GIVEN}"] * len(one.rows)
                part = rejected(reasons, self.schema, frozenset({one.number}))
            elif isinstance(reader := _reader_by(self._plain, how, one.number, schemas[one.number]), str):
                part = rejected([reader] * len(one.rows), self.schema)
            else:
                part = reader.read(one.values)
            parts.append((one.rows, part))
        return in_order(parts, self.schema) if parts else rejected([], self.schema)


class _Reads(Protocol):
    """Reads bodies that are written by one schema, or by none."""

    def read(self, bodies: pa.Array) -> ReadBodies: ...


def _read_into(schema: pa.Schema, how: BodyFormat) -> pa.Schema:
    """The columns that bodies are read into: these, and those that the format adds."""
    return changed(schema, how) if how.format == DEBEZIUM else with_rescue(schema, how)


def _reader(schema: pa.Schema, how: BodyFormat, registered: RegisteredSchema | None = None) -> _Reads:
    """What reads bodies of this format; with `registered`, by this schema."""
    if how.format != DEBEZIUM:
        return FormatReader(schema, how, registered)
    if how.encoding == JSON:
        return JsonChanges(schema, how)

    def read(columns: pa.Schema) -> FormatReader:
        return FormatReader(columns, how.within, registered)

    return ChangeReader(schema, typed_columns, read, how)


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
    name = how.named(number)
    if registered is None:
        return f"its schema, {name}, is not known to the registry"
    if registered.kind.lower() != how.encoding:
        return f"its schema, {name}, is of {registered.kind.title()}, and the format is {how.encoding.title()}"
    wrong = registered.wrong
    try:
        if not wrong:
            return _reader(schema, how, registered)
    except ConfigError as error:
        wrong = error.rule
    return f"its schema, {name}, cannot be read: {wrong}"
