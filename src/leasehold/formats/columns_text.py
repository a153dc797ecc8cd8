"""Columns written as text, `id STRING, total DECIMAL(12,2)`, to an Arrow schema, without Spark.

Owns the flat types of Spark's SQL. Refuses nested ones, and names in backquotes, which only Spark's own reader takes.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError

_TYPES: dict[str, Any] = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "BINARY": pa.binary(),
}
_COLUMN = re.compile(r"\s*(\w+)\s+(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")
_NESTED = re.compile(r"\s*(\w+)\s+(ARRAY|MAP|STRUCT)\b.*", re.IGNORECASE | re.DOTALL)
_BETWEEN = re.compile(r",(?![^(]*\))")  # a comma that is not within brackets


def read_columns(text: str, field: str) -> pa.Schema:
    """The schema that `text` states; `field` names the setting in the `ConfigError` that it raises."""
    fields: list[pa.Field] = []
    for part in _BETWEEN.split(text):
        found = _COLUMN.fullmatch(part)
        type_ = _type(found[2].upper(), found[3], found[4]) if found else None
        if nested := _NESTED.fullmatch(part):
            raise ConfigError(
                field,
                text,
                f"{nested[1]} is of type {nested[2].upper()}, and without Spark, and in handlers, columns are flat",
                f"Declare {nested[1]} STRING: its value is then its JSON text",
            )
        if found is None or type_ is None:
            known = ", ".join([*_TYPES, "DECIMAL(p,s)"])
            raise ConfigError(
                field, text, f"{part.strip()!r} is no column: a name and one of {known}", 'As in "id STRING, n BIGINT"'
            )
        if found[1].lower() in {one.name.lower() for one in fields}:
            raise ConfigError(field, text, f"{found[1]} is there twice", "Name each column once")
        fields.append(pa.field(found[1], type_))
    return pa.schema(fields)


def _type(name: str, precision: str | None, scale: str | None) -> pa.DataType | None:
    if name in ("DECIMAL", "DEC", "NUMERIC"):
        digits, places = int(precision or 10), int(scale or 0)
        return pa.decimal128(digits, places) if 1 <= digits <= 38 and places <= digits else None
    return None if precision else _TYPES.get(name)
