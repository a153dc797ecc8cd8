"""Event bodies to columns by a schema: every body becomes a row, or is rejected with a reason.

Owns the order of work. A body is good if it is valid UTF-8 and exactly one JSON object whose fields fit the schema. A
field that is missing or null is null, and names compare exactly. Whatever else a body is, it is rejected: no value
is ever altered to make it fit, but timestamps where `timestamps` says so, and no body, however hostile, raises.
docs/table.md has what each type takes.

| type | takes |
|---|---|
| STRING | a string; a number, true, false, an object or an array as its JSON text, as written |
| BOOLEAN | true, false |
| TINYINT, SMALLINT, INT, BIGINT | a number without fraction and exponent, in the type's range: not 1.0 |
| FLOAT, DOUBLE | a number, and the nearest one of the type is its value; not where that is infinite |
| DECIMAL(p,s) | a number, or a string that is one, that it holds to the last digit |
| DATE | 2026-02-03 |
| TIMESTAMP | 2026-02-03T04:05:06.000007Z, with Z, an offset (+01:00, +0100, +01) or none (UTC); seconds since 1970 |
| TIMESTAMP_NTZ | the same without a zone; no numbers |
| BINARY | base64 as RFC 4648 has it, padded |
| ARRAY, STRUCT, MAP | an array, an object, an object |

`json_columns` reads most bodies, many at once; `json_rows` reads the rest, one at a time, and has the reasons. It reads
a few bodies sooner than the other has begun, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.errors import ConfigError, UsageError
from leasehold.formats.json_columns import ColumnReader
from leasehold.formats.json_rows import DEPTH, RowReader

EXACT, TRUNCATE = "exact", "truncate"
"""What `timestamps` may be."""

_ROWS = 16_384  # bodies that are read at once
_FEW = 50
"""Up to this many bodies are read sooner one at a time: 3 us each, beside 210 to 380 for the first of many at once."""

_LEAVES = (
    types.is_string,
    types.is_binary,
    types.is_boolean,
    types.is_int8,
    types.is_int16,
    types.is_int32,
    types.is_int64,
    types.is_float32,
    types.is_float64,
    types.is_date32,
)


@dataclass(frozen=True, slots=True)
class ReadBodies:
    """What became of bodies, row by row in their order.

    `columns` has a row for each body, with nulls only where it was rejected. `reasons` are strings, null where the
    body is good; None if all are.
    """

    columns: pa.RecordBatch
    reasons: pa.Array | None


class BodyReader:
    """Reads JSON bodies into the columns of `schema`, the Arrow form of a Spark schema. May be pickled.

    With `rescue`, the name of one more column, of strings, the fields that the schema does not know are kept there,
    at any depth, as one JSON object, numbers as they are written; null if there are none. Without it they are
    dropped. Every field may be null, whatever the schema says. A time that is finer than a microsecond, with seven or
    nine digits of a second, is a reason to reject the body; with `timestamps="truncate"` the digits beyond the sixth
    are cut off. Raises `UsageError` if the schema cannot be read from JSON, `ConfigError` for other `timestamps`.
    """

    def __init__(self, schema: pa.Schema, *, rescue: str | None = None, timestamps: str = EXACT) -> None:
        _check(schema, rescue)
        if timestamps not in (EXACT, TRUNCATE):
            raise ConfigError("timestamps", timestamps, f"{EXACT} or {TRUNCATE}", "Leave it out to reject finer times")
        self._given = (schema, rescue, timestamps)
        kept, cut = rescue is not None, timestamps == TRUNCATE
        self._rows = RowReader(schema, rescue=kept, cut=cut)
        nullable = pa.schema([_nullable(field) for field in schema])
        self._columns = ColumnReader(nullable, rescue=kept, cut=cut)
        self.schema: pa.Schema = nullable if rescue is None else nullable.append(pa.field(rescue, pa.string()))
        """Of what `read` returns: the schema given, all of it nullable, and the rescue column."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _reader, self._given

    def only(self, names: Sequence[str]) -> BodyReader:
        """The reader of these columns alone."""
        schema, _, timestamps = self._given
        return BodyReader(pa.schema([schema.field(name) for name in names]), timestamps=timestamps)

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
        if len(bodies) <= _FEW:
            columns, reasons = self._one_by_one(bodies)
            return ReadBodies(columns, None if reasons.null_count == len(reasons) else reasons)
        texts, rows = _texts(bodies)
        read = [(at, self._with_rescue(columns)) for at, columns in self._columns.read(texts, rows)]
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
        read = [self._rows.read(body) for body in bodies.to_pylist()]
        values: Iterable[tuple[Any, ...]] = zip(*(row for row, _, _ in read), strict=True)
        columns = list(values) or [()] * len(self._given[0])
        if self._given[1] is not None:
            columns.append(tuple(unknown for _, unknown, _ in read))
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        reasons = pa.array([reason for _, _, reason in read], pa.string())
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), reasons

    def _with_rescue(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        if self._given[1] is None:
            return columns
        return pa.RecordBatch.from_arrays([*columns.columns, pa.nulls(len(columns), pa.string())], schema=self.schema)


def _reader(schema: pa.Schema, rescue: str | None, timestamps: str) -> BodyReader:
    return BodyReader(schema, rescue=rescue, timestamps=timestamps)


def _texts(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those bodies that are text, and which rows they are."""
    rows = pa.array(range(len(bodies)), pa.int32())
    if bodies.null_count:
        rows = rows.filter(bodies.is_valid())
        bodies = bodies.drop_null()
    try:
        return bodies.cast(pa.string()), rows
    except pa.ArrowInvalid:
        is_text = pa.array([_is_text(body) for body in bodies.to_pylist()], pa.bool_())
        return bodies.filter(is_text).cast(pa.string()), rows.filter(is_text)


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _others(read: list[pa.Array], count: int) -> list[int]:
    done = bytearray(count)
    for rows in read:
        for row in rows.to_pylist():
            done[row] = 1
    return [row for row in range(count) if not done[row]]


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _check(schema: pa.Schema, rescue: str | None) -> None:
    """Refuse a schema that no JSON object can be read by."""
    names = [*schema.names, *([] if rescue is None else [rescue])]
    if not names:
        raise UsageError("the schema of the bodies has no columns. Name those that you need, or read no body")
    _check_names("", names)
    for field in schema:
        _check_type(field.name, field.type, 1)


def _check_names(path: str, names: list[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        where = f"the field {path}" if path else "the schema of the bodies, with the rescue column,"
        raise UsageError(f"{where} has these names twice: {', '.join(doubled)}. Rename them")


def _check_type(path: str, type_: pa.DataType, depth: int) -> None:
    if depth >= DEPTH:
        raise UsageError(f"the schema of the bodies is nested {DEPTH} deep or more. No body is read that deep")
    if types.is_struct(type_):
        _check_names(path, [field.name for field in type_])
        for field in type_:
            _check_type(f"{path}.{field.name}", field.type, depth + 1)
    elif types.is_list(type_):
        _check_type(path, type_.value_type, depth + 1)
    elif types.is_map(type_) and types.is_string(type_.key_type):
        _check_type(path, type_.item_type, depth + 1)
    elif not _is_leaf(type_):
        raise UsageError(
            f"the field {path} is of type {type_}, which no JSON value is read as. Take one of Spark's types in "
            "Arrow's form: string, binary, bool, int8 to int64, float, double, decimal128, date32, timestamp[us] with "
            "the zone UTC or without one, list, struct, or a map with strings for keys"
        )


def _is_leaf(type_: pa.DataType) -> bool:
    if types.is_timestamp(type_):
        return bool(type_.unit == "us" and type_.tz in (None, "UTC"))
    if types.is_decimal128(type_):
        return bool(0 <= type_.scale <= type_.precision)
    return any(test(type_) for test in _LEAVES)


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _all_nullable(field.type), metadata=field.metadata)


def _all_nullable(type_: pa.DataType) -> pa.DataType:
    if types.is_struct(type_):
        return pa.struct([_nullable(field) for field in type_])
    if types.is_list(type_):
        return pa.list_(_nullable(type_.value_field))
    if types.is_map(type_):
        return pa.map_(type_.key_type, _nullable(type_.item_field))
    return type_
