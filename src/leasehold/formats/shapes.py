"""The columns that bodies are read into, whatever the format of the bodies.

Owns which columns there may be, and that a value of any of them may be null. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from leasehold.errors import UsageError

DEPTH = 200
"""How many objects and arrays may be open at one place of a body."""

Vouched = tuple[pa.Array, pa.RecordBatch]
"""Which of the bodies were read, many at once, and their rows."""

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


def check_columns(schema: pa.Schema, adds: Sequence[str] = ()) -> None:
    """Refuse columns that no body can be read into, beside those that its format `adds`. Raises `UsageError`."""
    names = [*schema.names, *adds]
    if not names:
        raise UsageError("the schema of the bodies has no columns. Name those that you need, or read no body")
    _check_names("", names)
    for field in schema:
        _check_type(field.name, field.type, 1)


def _check_names(path: str, names: list[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        where = f"the field {path}" if path else "the schema of the bodies, with those that the format adds,"
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
            f"the field {path} is of type {type_}, which no value of a body is read as. Take one of Spark's types in "
            "Arrow's form: string, binary, bool, int8 to int64, float, double, decimal128, date32, timestamp[us] with "
            "the zone UTC or without one, list, struct, or a map with strings for keys"
        )


def _is_leaf(type_: pa.DataType) -> bool:
    if types.is_timestamp(type_):
        return bool(type_.unit == "us" and type_.tz in (None, "UTC"))
    if types.is_decimal128(type_):
        return bool(0 <= type_.scale <= type_.precision)
    return any(test(type_) for test in _LEAVES)


def nullable(field: pa.Field) -> pa.Field:
    """The same field, which may be null, and whose parts may be."""
    return pa.field(field.name, _all_nullable(field.type), metadata=field.metadata)


def _all_nullable(type_: pa.DataType) -> pa.DataType:
    if types.is_struct(type_):
        return pa.struct([nullable(field) for field in type_])
    if types.is_list(type_):
        return pa.list_(nullable(type_.value_field))
    if types.is_map(type_):
        return pa.map_(type_.key_type, nullable(type_.item_field))
    return type_
