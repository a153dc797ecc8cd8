"""One value of a body whose values have types to one value of a column.

Owns what each type of a column takes of each type of value (`types`). A value is taken as it is or not at all; what a
text or a number means in a column, it means as in a JSON body (`json_values`). FLOAT and DOUBLE take the nearest number
that they have; NaN and the infinities stay.

| column | takes |
|---|---|
| STRING | string, enum, uuid; bytes that are UTF-8; anything else as its text (`texts`) |
| BOOLEAN | boolean |
| TINYINT to BIGINT | int and long, also where they are a date or a time: the number as it is written |
| FLOAT, DOUBLE | int, long, float, double, decimal |
| DECIMAL | decimal, int, long, and a string that is a number; a float has digits that nobody meant |
| DATE | date, and a string as in a body |
| TIMESTAMP | timestamps; local timestamps, in UTC; date; a string as in a body; numbers: seconds since 1970 |
| TIMESTAMP_NTZ | local timestamps, date, and a string as in a body |
| BINARY | bytes and fixed, also a decimal's; a string as UTF-8, which is Avro's rule and not that of JSON |

Dates and times come out as Arrow counts them: days, and microseconds since 1970.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.json_values import TRUNCATES, Convert, Real, Whole, converter, misfit
from leasehold.formats.misfits import Misfit, shown, type_name
from leasehold.formats.typed.texts import decimal_of, plain_text, unit_of
from leasehold.formats.typed.types import HOLDING, MOST_SCALE, WHOLE, ValueType

NO_DIGIT = "is a decimal without a digit"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000  # microseconds
DAYS = range(date.min.toordinal() - _EPOCH.toordinal(), date.max.toordinal() - _EPOCH.toordinal() + 1)
"""The dates that columns have, as days since 1970."""
MICROSECONDS = range(DAYS.start * _DAY, DAYS.stop * _DAY)
"""The times that columns have, as microseconds since 1970."""
_MICROS = 1_000_000
_OPAQUE = ("bytes", "fixed", "json")
"""What is neither a number nor a text that may be one."""


def taken(leaf: ValueType, type_: pa.DataType, *, cut: bool) -> Convert | None:
    """What makes of a value of this type one of the column; None where it is that. It raises `Misfit`.

    A value comes as its number, its text or its bytes. With `cut`, what a time has beyond microseconds is cut off.
    """
    name = type_name(type_)
    if name in ("STRUCT", "ARRAY", "MAP"):
        return refusal(leaf, name)
    if types.is_string(type_):
        return _string(leaf)
    if types.is_binary(type_):
        return _binary(leaf)
    if types.is_date(type_) and leaf.logical == "date":
        return _date
    if types.is_timestamp(type_) and (leaf.logical == "date" or unit_of(leaf)):
        return _moment(leaf, type_, cut)
    if types.is_integer(type_) and leaf.kind in WHOLE:
        return _whole(leaf, type_)
    if types.is_boolean(type_) and leaf.kind == "boolean":
        return None
    if types.is_floating(type_) and _is_as_wide(leaf, type_):
        return float if leaf.kind in WHOLE else None
    if leaf.logical not in ("", "decimal") or (leaf.kind in _OPAQUE and not leaf.logical):
        return refusal(leaf, name)
    return _as_in_a_body(leaf, type_, cut)


def decimal_with_scale(scale: int | None, raw: bytes | None, type_: pa.DataType, *, cut: bool) -> Any:
    """What a column of this type has of a decimal that has its scale beside it. Raises `Misfit`."""
    if scale is None or raw is None or not -MOST_SCALE <= scale <= MOST_SCALE:
        raise Misfit("is a decimal without a scale or a value")
    if not raw and not types.is_binary(type_):
        raise Misfit(NO_DIGIT)
    convert = taken(ValueType("bytes", "decimal", scale=scale), type_, cut=cut)
    return raw if convert is None else convert(raw)


def refusal(node: ValueType, name: str) -> Convert:
    """What refuses a value of one kind for a column of another."""
    what: Any = [] if node.kind == "array" else {}

    def refuse(raw: Any) -> Any:
        raise misfit(what if node.kind in HOLDING else _shown(node, raw), name)

    return refuse


def _is_as_wide(leaf: ValueType, type_: pa.DataType) -> bool:
    """Whether each number of this type has its nearest in the column without another rounding before."""
    if leaf.logical or leaf.kind == "double":
        return leaf.kind == "double" and types.is_float64(type_)
    return leaf.kind == "float" or (leaf.kind in WHOLE and types.is_float64(type_))


def _shown(leaf: ValueType, raw: Any) -> Any:
    """A value as a reason shows it: one that has no form of its own as JSON has it."""
    if leaf.kind in ("boolean", "string", "enum") or raw is None:
        return raw
    return Whole(plain_text(leaf)(raw))  # without quotes


def _string(leaf: ValueType) -> Convert | None:
    if leaf.kind in ("string", "enum"):
        return None
    if leaf.kind in ("bytes", "fixed") and not leaf.logical:
        return _utf8
    return plain_text(leaf)


def _utf8(raw: bytes) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise Misfit(f"is {len(raw)} bytes that are not UTF-8, which is not a STRING") from None


def _binary(leaf: ValueType) -> Convert | None:
    if leaf.kind in ("bytes", "fixed"):
        return None
    return str.encode if leaf.kind == "string" else refusal(leaf, "BINARY")


def _whole(leaf: ValueType, type_: pa.DataType) -> Convert | None:
    if (leaf.kind != "unsigned" and type_.bit_width == 64) or (leaf.kind == "int" and type_.bit_width == 32):
        return None
    fits = range(-(1 << type_.bit_width - 1), 1 << type_.bit_width - 1)
    other = _as_in_a_body(leaf, type_, False)
    return lambda raw: raw if raw in fits else other(raw)


def _date(raw: int) -> int:
    if raw not in DAYS:
        raise Misfit(f"is {raw} days since 1970, which is outside the years 1 to 9999")
    return raw


def _moment(leaf: ValueType, type_: pa.DataType, cut: bool) -> Convert:
    """Of a date, or a time, to microseconds."""
    name = type_name(type_)
    if leaf.logical == "date":
        return lambda raw: _date(raw) * _DAY
    if leaf.logical.startswith("time-"):
        return refusal(leaf, name)
    if not type_.tz and leaf.logical.startswith("timestamp-"):
        return _zoned
    unit = unit_of(leaf)
    if unit > _MICROS:
        return lambda raw: _checked(_finer(raw, unit // _MICROS, name, leaf, cut), raw, leaf)
    factor = _MICROS // unit
    return lambda raw: _checked(raw * factor, raw, leaf)


def _zoned(raw: int) -> Any:
    raise Misfit("is a time in UTC, and a TIMESTAMP_NTZ has no zone: declare a TIMESTAMP")


def _finer(raw: int, factor: int, name: str, leaf: ValueType, cut: bool) -> int:
    micros, rest = divmod(raw, factor)
    if rest and not cut:
        text = plain_text(leaf)(raw)
        raise Misfit(f"is {shown(text)}, which is finer than the microseconds of a {name}{TRUNCATES}")
    return micros


def _checked(micros: int, raw: int, leaf: ValueType) -> int:
    if micros not in MICROSECONDS:
        unit = {"millis": "milliseconds", "micros": "microseconds"}.get(leaf.logical.rpartition("-")[2], "nanoseconds")
        raise Misfit(f"is {raw} {unit} since 1970, which is outside the years 1 to 9999")
    return micros


def _as_in_a_body(leaf: ValueType, type_: pa.DataType, cut: bool) -> Convert:
    """What a JSON body with the same value gives."""
    convert = converter(type_, cut=cut)
    counted = _counting(type_)

    def read(raw: Any) -> Any:
        if types.is_floating(type_) and isinstance(raw, float) and not math.isfinite(raw):
            return raw
        if types.is_decimal(type_) and isinstance(raw, float):
            raise Misfit(f"is {shown(raw)}, a {leaf.kind}, which is not the number that was meant: declare a DOUBLE")
        return counted(convert(_in_a_body(leaf, raw)))

    return read


def _in_a_body(leaf: ValueType, raw: Any) -> Any:
    """A number or a text as a JSON body would have it."""
    if leaf.logical == "decimal":
        return Real(f"{decimal_of(raw, leaf.scale):f}")
    if leaf.kind in WHOLE:
        return Whole(raw)
    if isinstance(raw, float):
        return Real(repr(raw)) if math.isfinite(raw) else plain_text(leaf)(raw)
    return raw


def _counting(type_: pa.DataType) -> Convert:
    """From dates and times of Python to what Arrow counts; anything else as it is."""
    if types.is_date(type_):
        return lambda value: value.toordinal() - _EPOCH.toordinal()
    if types.is_timestamp(type_):
        return lambda value: ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    return lambda value: value
