"""One value of a program to one value of a column: of a handler's state, or of a row that it writes.

Owns which Python value each type takes, and what comes of it. `json_values` decides wherever a body can hold the same,
a number or a text, so that a value means one thing in a body and in a state. A value is taken as it is or not at all:
what a type cannot hold is a `Misfit`. But FLOAT and DOUBLE take the nearest number that they have, with NaN as null, as
the table has it, and a float of seconds counts to the microsecond, since the times of today leave it no more digits.

| type | takes |
|---|---|
| STRING | `str`, and `bytes` that are UTF-8 |
| BINARY | `bytes`, `bytearray`, `memoryview` |
| BOOLEAN | `bool` |
| TINYINT to BIGINT | `int`, and floats and decimals without a fraction |
| FLOAT, DOUBLE | `int`, `float`, `Decimal` |
| DECIMAL | `int`, `Decimal`, and a text that is a number; a float has digits that nobody wrote |
| DATE | `date` without a time of day, and a text as in a body |
| TIMESTAMP | `datetime`, of UTC where it has no zone; `date`; seconds since 1970; a text as in a body |
| TIMESTAMP_NTZ | `datetime` without a zone, `date`, and a text as in a body |

A scalar of numpy counts as the number that it is; its times do not count, since they come in any unit. A value of a
class made of one of these types, as a member of an `Enum` with `str` or `int` is, counts as what it is of that type,
however the class would write it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.json_values import TRUNCATES, Convert, Real, Whole, converter, misfit
from leasehold.formats.misfits import Misfit, shown, type_name

_BITS = 4096
"""Whole numbers of more than these are not looked at: no type holds them, and Python refuses to write longer ones."""
_DIGITS = 40
"""Decimals of more digits before the point are beyond all types of whole numbers."""


def taken(type_: pa.DataType) -> Convert:
    """What makes of a Python value the one that a column of this flat type gives back. It raises `Misfit`."""
    name = type_name(type_)
    take = next((take for test, take in _TAKES if test(type_)), _as_in_a_body)
    take = partial(take, name=name, read=partial(_read, converter(type_)))

    def checked(value: Any) -> Any:
        value = without_numpy(value)
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise Misfit(f"is a whole number of {value.bit_length()} bits, which no {name} holds")
        return None if value is None else take(value)

    return checked


def without_numpy(value: Any) -> Any:
    """A number or a boolean of numpy as Python's own; anything else as it is."""
    if getattr(getattr(value, "dtype", None), "kind", None) in ("b", "i", "u", "f") and value.shape == ():
        return value.item()
    return value


def not_exact(value: float, name: str) -> Misfit:
    """A float has digits that nobody meant: 0.1 is 0.1000000000000000055511151231257827."""
    return Misfit(f"is {shown(value)}, a float, which is not the number that was meant: give a {name} a Decimal")


def _read(convert: Convert, value: Any) -> Any:
    """What a body with this value gives, without advice for bodies."""
    try:
        return convert(value)
    except Misfit as error:
        raise Misfit(error.what.removesuffix(TRUNCATES)) from None


def _in_a_body(value: Any) -> Any:
    """A number or a text as a body would have it; anything else, which no body has, as it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Whole(int.__repr__(value))
    if isinstance(value, float) and math.isfinite(value):
        return Real(float.__repr__(value))
    if isinstance(value, Decimal) and value.is_finite():
        return Real(Decimal.__str__(value))
    return value


def _as_in_a_body(value: Any, name: str, read: Convert) -> Any:
    return read(_in_a_body(value))


def _text(value: Any, name: str, read: Convert) -> str:
    try:
        if isinstance(value, bytes | bytearray):
            return value.decode()
        if isinstance(value, str):
            value.encode()  # half a surrogate pair cannot be
            return str.__str__(value)
    except UnicodeError:
        raise Misfit(f"is {shown(value)}, which is not UTF-8 text") from None
    raise misfit(value, name)


def _binary(value: Any, name: str, read: Convert) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise misfit(value, name)


def _whole(value: Any, name: str, read: Convert) -> Any:
    return read(_in_a_body(int(value) if _is_whole(value) else value))


def _is_whole(value: Any) -> bool:
    """Whether a float or a decimal has no fraction, of which bodies make no whole number."""
    if isinstance(value, Decimal):
        return value.is_finite() and value.adjusted() < _DIGITS and value == value.to_integral_value()
    return isinstance(value, float) and value.is_integer()


def _floating(value: Any, name: str, read: Convert) -> Any:
    if isinstance(value, float) and (name == "DOUBLE" or not math.isfinite(value)):
        return None if math.isnan(value) else float(value)
    return read(_in_a_body(value))


def _decimal(value: Any, name: str, read: Convert) -> Any:
    if isinstance(value, float):
        raise not_exact(value, name)
    return read(_in_a_body(value))


def _date(value: Any, name: str, read: Convert) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    return read(_in_a_body(value))


def _timestamp(value: Any, name: str, read: Convert) -> Any:
    zoned = name == "TIMESTAMP"
    if not isinstance(value, date):
        seconds = zoned and isinstance(value, float) and math.isfinite(value)
        return read(Real(f"{float(value):.6f}") if seconds else _in_a_body(value))
    if value != value:  # pandas' NaT
        return None
    moment = _plain(value, name)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC) if zoned else moment
    if not zoned:
        raise Misfit(f"is {shown(value)}, which has a zone, and a {name} has none: take it off, or declare a TIMESTAMP")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Misfit(f"is {shown(value)}, which in UTC is outside the years 1 to 9999") from None


def _plain(value: date, name: str) -> datetime:
    """A date or a time as Python's own `datetime`: pandas has times with nanoseconds."""
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if getattr(value, "nanosecond", 0):
        raise Misfit(f"is {shown(value)}, which is finer than the microseconds of a {name}")
    day = (value.year, value.month, value.day)
    return datetime(*day, value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)


_TAKES: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Any]], ...] = (
    (types.is_string, _text),
    (types.is_binary, _binary),
    (types.is_integer, _whole),
    (types.is_floating, _floating),
    (types.is_decimal, _decimal),
    (types.is_date, _date),
    (types.is_timestamp, _timestamp),
)
