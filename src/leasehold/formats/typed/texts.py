"""Values as JSON text: for a column of type STRING, and for fields that no column takes.

Owns the text of each type, which is the one that a value of a nested column has in the table: numbers and booleans as
they are, NaN and the infinities as strings; decimals, dates, times, and bytes in base64 as strings.
"""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from json.encoder import encode_basestring as quoted
from typing import Any

import pyarrow as pa

from leasehold.formats.misfits import Misfit
from leasehold.formats.typed.types import WHOLE, ValueType

Text = Callable[[Any], str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 420  # bytes of a decimal: some 1,000 digits
_UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
"""How many of them are a second."""


def plain_text(leaf: ValueType) -> Text:
    """What gives the text of a value of a type that holds no others, as its bytes or its number: without quotes."""
    found = _LOGICAL.get(leaf.logical) or _PLAIN.get(leaf.kind)
    if leaf.logical == "bits":
        return lambda raw: _bits_text(raw, leaf.precision)
    if leaf.logical == "decimal":
        return lambda raw: f"{decimal_of(raw, leaf.scale):f}"
    if unit := unit_of(leaf):
        return (lambda raw: _time_text(raw, unit)) if leaf.logical.startswith("time-") else _moment_text(leaf, unit)
    return found or str


def json_text(leaf: ValueType) -> Text:
    """The same as JSON."""
    plain = plain_text(leaf)
    if leaf.kind in ("float", "double"):
        return lambda raw: plain(raw) if math.isfinite(raw) else quoted(plain(raw))
    if (leaf.kind in WHOLE or leaf.kind in ("boolean", "json")) and not leaf.logical:
        return plain
    return lambda raw: quoted(plain(raw))


def object_text(members: Iterable[tuple[str, str | None]]) -> str | None:
    """These names and texts as a JSON object, without those that are None; None if there are no others."""
    kept = [f"{quoted(name)}:{text}" for name, text in members if text is not None]
    return f"{{{','.join(kept)}}}" if kept else None


def map_text(members: Iterable[tuple[str, str | None]]) -> str:
    """The same, with null for None."""
    return f"{{{','.join([quoted(name) + ':' + (text or 'null') for name, text in members])}}}"


def array_text(items: Iterable[str | None]) -> str:
    """These texts as a JSON array, with null for None."""
    return f"[{','.join([item or 'null' for item in items])}]"


def decimal_of(raw: bytes, scale: int) -> Decimal:
    """The number that these bytes are: two's complement, the highest first. Raises `Misfit` where they are too many."""
    if len(raw) > _LONGEST:
        raise Misfit(f"is a decimal of {len(raw)} bytes, which is longer than any number")
    number = int.from_bytes(raw, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def unit_of(leaf: ValueType) -> int:
    """How many of the units of a time are a second; 0 for another type."""
    return _UNITS.get(leaf.logical.rpartition("-")[2], 0)


def _time_text(raw: int, unit: int) -> str:
    seconds, rest = divmod(raw, unit)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    if not 0 <= hour < 24:
        return str(raw)
    return f"{hour:02}:{minute:02}:{second:02}{_fraction(rest, unit)}"


def _moment_text(leaf: ValueType, unit: int) -> Text:
    zone = "" if leaf.logical.startswith("local-") else "Z"

    def text(raw: int) -> str:
        seconds, rest = divmod(raw, unit)
        try:
            moment = _EPOCH + timedelta(seconds=seconds)
        except OverflowError:  # no year of four digits
            return str(raw)
        return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + _fraction(rest, unit) + zone

    return text


def _fraction(rest: int, unit: int) -> str:
    digits = len(str(unit)) - 1
    return f".{rest:0{digits}}".rstrip("0") if rest else ""


def _date_text(raw: int) -> str:
    try:
        return (_EPOCH + timedelta(days=raw)).date().isoformat()
    except OverflowError:
        return str(raw)


def _uuid_text(raw: str | bytes) -> str:
    return raw if isinstance(raw, str) else str(uuid.UUID(bytes=raw))


def _duration_text(raw: bytes) -> str:
    """Months, days and milliseconds, three numbers of four bytes, the lowest first."""
    months, days, millis = (int.from_bytes(raw[at : at + 4], "little") for at in (0, 4, 8))
    seconds, rest = divmod(millis, 1_000)
    return f"P{months}M{days}DT{seconds}{_fraction(rest, 1_000)}S"


def _double_text(raw: float) -> str:
    return repr(raw) if math.isfinite(raw) else "NaN" if math.isnan(raw) else "Infinity" if raw > 0 else "-Infinity"


def _float_text(raw: float) -> str:
    """The fewest digits by which the number is known, which are fewer than a double needs."""
    if not raw or not math.isfinite(raw):
        return _double_text(raw)
    return str(pa.scalar(raw, pa.float32()).cast(pa.string()))


def _bits_text(raw: bytes, length: int) -> str:
    """Digits, the highest first."""
    digits = min(length or 8 * len(raw), 8 * len(raw))
    return f"{int.from_bytes(raw, 'little'):0{digits}b}" if raw else ""


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _boolean_text(raw: bool) -> str:
    return "true" if raw else "false"


_PLAIN: dict[str, Text] = {
    "boolean": _boolean_text,
    "float": _float_text,
    "double": _double_text,
    "bytes": _base64,
    "fixed": _base64,
}
_LOGICAL: dict[str, Text] = {"date": _date_text, "uuid": _uuid_text, "duration": _duration_text}
