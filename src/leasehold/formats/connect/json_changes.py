"""Changes in JSON, with the schema of the value beside them or without, to columns.

Owns that each schema that occurs has a reader of its own. They are kept by what they say of the row, so that a table
whose definition changes costs one more. Without a schema, values are told by the columns that they go to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.body_format import STRING, TRUNCATE, BodyFormat
from leasehold.formats.connect.bodies import values_of
from leasehold.formats.connect.changes import ChangeReader, changed
from leasehold.formats.connect.columns import Fields, WireColumns, stated_columns
from leasehold.formats.connect.flattened import FlattenedReader, is_flattened
from leasehold.formats.connect.types import OPAQUE, read_type
from leasehold.formats.format_readers import FormatReader, ReadBodies, in_order, rejected
from leasehold.formats.misfits import NO_BODY
from leasehold.formats.schema_headers import without_number

_NOT_A_SCHEMA = "the schema beside the value cannot be read"


class JsonChanges:
    """Reads bodies into these columns, and that of deleted rows; see `BodyFormat`."""

    def __init__(self, columns: pa.Schema, how: BodyFormat) -> None:
        self._columns, self._how = columns, how
        self._schema = changed(columns, how)
        _reader_by(columns, how, None)  # which refuses columns that cannot be

    def read(self, bodies: pa.Array) -> ReadBodies:
        """What these bodies say."""
        there, rows = bodies.is_valid(), pa.array(range(len(bodies)), pa.int32())
        nulls, rows = rows.filter(pc.invert(there)), rows.filter(there)
        parts = [(nulls, rejected([NO_BODY] * len(nulls), self._schema))] if len(nulls) else []
        groups, reasons = values_of(without_number(bodies.filter(there)))
        for group in groups:
            reader = _reader_by(self._columns, self._how, group.schema)
            mine = rows.take(group.rows)
            read = rejected([_NOT_A_SCHEMA] * len(mine), self._schema) if reader is None else reader.read(group.values)
            parts.append((mine, read))
        if reasons:
            parts.append((rows.take(pa.array(reasons, pa.int32())), rejected(list(reasons.values()), self._schema)))
        return in_order(parts, self._schema) if parts else rejected([], self._schema)


@functools.lru_cache(maxsize=256)
def _reader_by(columns: pa.Schema, how: BodyFormat, text: str | None) -> ChangeReader | FlattenedReader | None:
    """What reads changes with this schema; None where the text is not a schema."""
    plain, cut = how.decimal_handling_mode == STRING, how.timestamps == TRUNCATE

    def columns_of(fields: Fields | None) -> Callable[[pa.Schema], WireColumns]:
        return lambda row: stated_columns(row, fields, plain_decimals=plain, cut=cut)

    def read(schema: pa.Schema) -> FormatReader:
        return FormatReader(schema, how.within)

    if text is None:
        return ChangeReader(columns, columns_of(None), read, how)
    if (stated := read_type(text)) is None:
        return None
    if is_flattened(stated.fields):
        return FlattenedReader(columns, columns_of(stated.fields), read, stated.fields, how)
    row = stated.fields.get("after", OPAQUE)
    return ChangeReader(columns, columns_of(row.fields), read, how)
