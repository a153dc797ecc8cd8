"""One value of a JSON body to one value of a column.

Owns which JSON value each type takes, and exactly which value comes of it. A value is taken as it is or not at
all: what a type cannot hold to the last digit is a `Misfit`, except that FLOAT and DOUBLE take the nearest number
that they have, which is what floating point is for, and that timestamps may be cut to microseconds where somebody asks
for it. `json_columns` must agree with every line here.

A converter gets what `json_rows` decodes: None, bool, `str`, `Whole` or `Real` (numbers, as they are written),
`Verbatim` (JSON text, for STRING), dict and list. It never gets None: null is null in every type. Values that a program
gives, and not a body, come here by `python_values`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import types

from leasehold.formats.misfits import Misfit, shown, type_name

Convert = Callable[[Any], Any]
TRUNCATES = ': timestamps = "truncate" cuts it'
"""The end of a reason that a body can be read without."""

_DIGITS = 38  # of a DECIMAL
_EXACT = Context(prec=2 * _DIGITS)
_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ](?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6}(0*)([0-9]*))?)?)?"
    r"(Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS = 6  # digits of a second
_MICROSECOND = Decimal(1).scaleb(-_MICROSECONDS)
_FLOOR = Context(prec=_DIGITS, rounding=ROUND_FLOOR)  # to the earlier, as where digits are cut off a date


class Whole(str):
    """A number without fraction and exponent, as it is written."""

    __slots__ = ()


class Real(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()


class Verbatim(str):
    """The JSON text of an object or array, as it is written."""

    __slots__ = ()


class AsWritten(Exception):
    """The body has to be decoded again, with the text of the objects and arrays that a STRING keeps."""


def converter(type_: pa.DataType, *, cut: bool = False) -> Convert:
    """The converter of a type that holds no others. With `cut`, what a timestamp has beyond microseconds is cut off."""
    if types.is_string(type_):
        return _string
    if types.is_binary(type_):
        return _binary
    if types.is_boolean(type_):
        return _boolean
    if types.is_integer(type_):
        return partial(_integer, bits=type_.bit_width, name=type_name(type_))
    if types.is_floating(type_):
        return _double if types.is_float64(type_) else _float
    if types.is_decimal(type_):
        return partial(_decimal, precision=type_.precision, scale=type_.scale, name=type_name(type_))
    if types.is_date32(type_):
        return _date
    return partial(_timestamp if type_.tz else _timestamp_ntz, cut=cut)


def misfit(value: object, name: str) -> Misfit:
    """The value is of another kind than the type."""
    return Misfit(f"is {shown(value)}, which is not {'an' if name[0] in 'AI' else 'a'} {name}")


def _too_much(value: object, name: str) -> Misfit:
    return Misfit(f"is {shown(value)}, which no {name} holds")


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value if type(value) is str else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise AsWritten


def _binary(value: Any) -> bytes:
    if type(value) is not str:
        raise misfit(value, "BINARY")
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        decoded = None
    if decoded is None or base64.b64encode(decoded).decode() != value:
        raise Misfit(f"is {shown(value)}, which is not base64, as a BINARY must be")
    return decoded


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise misfit(value, "BOOLEAN")


def _integer(value: Any, bits: int, name: str) -> int:
    if type(value) is not Whole:
        raise misfit(value, name)
    number = int(value) if len(value) <= _DIGITS else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise _too_much(value, name)
    return number


def _double(value: Any, name: str = "DOUBLE") -> float:
    if type(value) is not Whole and type(value) is not Real:
        raise misfit(value, name)
    number = float(value)
    if abs(number) == float("inf"):
        raise _too_much(value, name)
    return number


def _float(value: Any) -> float:
    _double(value, "FLOAT")
    number: float = pa.scalar(str(value)).cast(pa.float32()).as_py()  # straight from the digits: rounded once
    if abs(number) == float("inf"):
        raise _too_much(value, "FLOAT")
    return number


def _decimal(value: Any, precision: int, scale: int, name: str) -> Decimal:
    found = _NUMBER.fullmatch(value) if isinstance(value, str) and type(value) is not Verbatim else None
    if found is None:
        raise misfit(value, name)
    unscaled = _unscaled(found, precision, scale)
    if unscaled is None:
        raise _too_much(value, name)
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _unscaled(match: re.Match[str], precision: int, scale: int) -> int | None:
    """The number times ten to the `scale`, if it is whole and has at most `precision` digits."""
    sign, whole, fraction, bare, exponent = match.groups(default="")
    written = (whole + fraction + bare).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return 0
    if len(exponent) > _DIGITS:
        return None
    power = int(exponent or "0") - len(fraction + bare) + len(written) - len(digits) + scale
    if power < 0 or len(digits) + power > precision:
        return None
    unscaled: int = int(sign + digits) * 10**power
    return unscaled


def _date(value: Any) -> date:
    if type(value) is not str:
        raise misfit(value, "DATE")
    try:
        if _DATE.fullmatch(value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise Misfit(f"is {shown(value)}, which is not a DATE such as 2026-02-03")


def _timestamp(value: Any, cut: bool) -> datetime:
    if type(value) is Whole or type(value) is Real:
        return _since_epoch(value, cut)
    return _read_timestamp(value, "TIMESTAMP", "2026-02-03T04:05:06.000007Z", cut)


def _timestamp_ntz(value: Any, cut: bool) -> datetime:
    example = "2026-02-03T04:05:06.000007, without a zone"
    return _read_timestamp(value, "TIMESTAMP_NTZ", example, cut).replace(tzinfo=None)


def _since_epoch(value: str, cut: bool) -> datetime:
    try:
        seconds = Decimal(value)
        whole = seconds.quantize(_MICROSECOND, context=_FLOOR)
        moment = _EPOCH + timedelta(microseconds=int(whole.scaleb(_MICROSECONDS, _EXACT)))
    except (ArithmeticError, ValueError):
        raise Misfit(f"is {shown(value)}, which as seconds since 1970 is outside the years 1 to 9999") from None
    if whole != seconds and not cut:
        raise _too_fine(value, "TIMESTAMP")
    return moment


def _read_timestamp(value: Any, name: str, example: str, cut: bool) -> datetime:
    if type(value) is not str:
        raise misfit(value, name)
    found = _TIMESTAMP.fullmatch(value)
    if found and found[2] and not cut:
        raise _too_fine(value, name)
    if found and not (found[3] and name == "TIMESTAMP_NTZ"):
        try:
            moment = datetime.fromisoformat(value)  # cuts what is beyond microseconds
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):  # no such day, or a year beyond 1 to 9999
            pass
    raise Misfit(f"is {shown(value)}, which is not a {name} such as {example}")


def _too_fine(value: str, name: str) -> Misfit:
    return Misfit(f"is {shown(value)}, which is finer than the microseconds of a {name}{TRUNCATES}")
