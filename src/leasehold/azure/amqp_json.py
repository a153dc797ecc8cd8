"""The values of AMQP as JSON text, from the bytes in which they come.

Owns what each type becomes. The official clients' decoders do not tell a time from a number, or a text from bytes, and
end at `char` and at two of the decimals; so these read the bytes themselves.

| AMQP | JSON |
|---|---|
| null, boolean | `null`, `true`, `false` |
| whole numbers, float, double, decimals | a number with all its digits: `1.10` of a decimal stays `1.10` |
| what is not a number of JSON | a text: `"NaN"`, `"Infinity"`, `"-Infinity"` |
| string, symbol, char | a text; bytes that are no UTF-8 with backslashes (`\\xff`) |
| binary | a text: base64 |
| uuid | a text, in lower case |
| timestamp | a text: `"2026-02-03T04:05:06.007Z"`; outside the years 1 to 9999 a number, of milliseconds since 1970 |
| list, array | an array |
| map | an object, in its order; a key that is no text is its JSON text, and two of one text stay two |
| a described value | the value |

Promises that no digit is lost, and text that is no longer than a small multiple of the bytes. A value has to be checked
before (`sections`): as long as it says, and not nested deeper than Python is. Pure.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import pack, unpack
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NULL, _CHAR, _EMPTY_LIST = 0x40, 0x73, 0x45
_BINARIES, _TEXTS = (0xA0, 0xB0), (0xA1, 0xB1, 0xA3, 0xB3)
_QUOTE = '"'
_LISTS, _MAPS, _ARRAYS = (_EMPTY_LIST, 0xC0, 0xD0), (0xC1, 0xD1), (0xE0, 0xF0)
_FIXED = {0x41: "true", 0x42: "false", 0x43: "0", 0x44: "0", _EMPTY_LIST: "[]", _NULL: "null"}
_UNSIGNED, _SIGNED = (0x50, 0x52, 0x53, 0x60, 0x70, 0x80), (0x51, 0x54, 0x55, 0x61, 0x71, 0x81)
_DECIMALS = {0x74: (8, 101, 7), 0x84: (10, 398, 16), 0x94: (14, 6_176, 34)}
"""Of each its exponent's bits and bias, and how many digits it has."""
_LARGEST = 3.4028234663852886e38
"""Of the numbers of 32 bits."""


def body_of(content: memoryview) -> bytes | None:
    """A value as an event's body: bytes and text as they are, null as none, and all else as JSON text.

    Raises `ValueError` for what is not a value of AMQP.
    """
    constructor, at = _constructor(content, 0)
    if constructor == _NULL:
        return None
    raw, end = _raw(constructor, content, at)
    if constructor in _BINARIES or constructor in _TEXTS:
        return bytes(raw)
    if constructor == _CHAR:
        return _char(raw).encode()
    return _json(constructor, content, at, end).encode()


def items_of(content: memoryview) -> list[str]:
    """The items of a list, each as JSON text. Raises `ValueError` for what is not a list."""
    constructor, at = _constructor(content, 0)
    if constructor not in _LISTS:
        raise ValueError
    return list(_items(constructor, content, at))


def _value(content: memoryview, at: int) -> tuple[str, int]:
    """The value that begins here as JSON, and where it ends."""
    constructor, at = _constructor(content, at)
    _, end = _raw(constructor, content, at)
    return _json(constructor, content, at, end), end


def _constructor(content: memoryview, at: int) -> tuple[int, int]:
    """The constructor of the value that begins here, past what describes it, and where it goes on."""
    while content[at] == 0:
        descriptor, at = _constructor(content, at + 1)
        _, at = _raw(descriptor, content, at)
    return content[at], at + 1


def _raw(constructor: int, content: memoryview, at: int) -> tuple[memoryview, int]:
    """The bytes of a value behind its constructor and its length, and where it ends."""
    kind = constructor >> 4
    if kind in (0xA, 0xC, 0xE):
        begin, end = at + 1, at + 1 + content[at]
    elif kind in (0xB, 0xD, 0xF):
        begin = at + 4
        end = begin + int.from_bytes(content[at:begin])
    else:
        begin, end = at, at + (0 if kind == 4 else 1 << kind - 5)
    return content[begin:end], end


def _json(constructor: int, content: memoryview, at: int, end: int) -> str:
    if constructor in _FIXED:
        return _FIXED[constructor]
    if constructor in _MAPS:
        return "{" + ",".join(_pairs(constructor, content, at)) + "}"
    if constructor in _LISTS or constructor in _ARRAYS:
        return "[" + ",".join(_items(constructor, content, at)) + "]"
    raw, _ = _raw(constructor, content, at)
    if constructor in _UNSIGNED or constructor in _SIGNED:
        return str(int.from_bytes(raw, signed=constructor in _SIGNED))
    if constructor in _DECIMALS:
        return _number(str(_decimal(raw, *_DECIMALS[constructor])))
    match constructor:
        case 0x56 if raw[0] < 2:
            return "true" if raw[0] else "false"
        case 0x72:
            return _number(_shortest(*unpack(">f", raw)))
        case 0x82:
            return _number(repr(*unpack(">d", raw)))
        case 0x83:
            return _time(int.from_bytes(raw, signed=True))
        case 0x98:
            return _text(str(UUID(bytes=bytes(raw))))
        case 0x73:
            return _text(_char(raw))
    if constructor in _TEXTS:
        return _text(bytes(raw).decode("utf-8", "backslashreplace"))
    if constructor in _BINARIES:
        return _text(b64encode(raw).decode())
    raise ValueError


def _items(constructor: int, content: memoryview, at: int) -> Iterator[str]:
    if constructor == _EMPTY_LIST:
        return
    count, at = _count(constructor, content, at)
    if constructor not in _ARRAYS:
        for _ in range(count):
            item, at = _value(content, at)
            yield item
    elif count:
        of_each, at = _constructor(content, at)
        for _ in range(count):
            _, end = _raw(of_each, content, at)
            yield _json(of_each, content, at, end)
            at = end


def _pairs(constructor: int, content: memoryview, at: int) -> Iterator[str]:
    count, at = _count(constructor, content, at)
    if count % 2:
        raise ValueError
    for _ in range(count // 2):
        key, at = _value(content, at)
        item, at = _value(content, at)
        yield f"{key if key.startswith(_QUOTE) else _text(key)}:{item}"


def _count(constructor: int, content: memoryview, at: int) -> tuple[int, int]:
    """How many items a list, map or array has, and where the first begins."""
    if constructor < 0xD0 or constructor == 0xE0:
        return content[at + 1], at + 2
    return int.from_bytes(content[at + 4 : at + 8]), at + 8


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _char(raw: memoryview) -> str:
    return bytes(raw).decode("utf-32-be")


def _number(text: str) -> str:
    """A number as JSON, which has none that is not finite."""
    low = text.lower()
    if "nan" in low:
        return '"NaN"'
    if "inf" in low:
        return '"-Infinity"' if low.startswith("-") else '"Infinity"'
    return text


def _shortest(number: float) -> str:
    """The fewest digits that are this number of 32 bits and no other."""
    if number - number != 0:  # not finite
        return str(number)
    for digits in range(1, 9):
        shorter = float(f"{number:.{digits}g}")
        if abs(shorter) <= _LARGEST and unpack(">f", pack(">f", shorter))[0] == number:
            return repr(shorter)
    return repr(float(f"{number:.9g}"))


def _decimal(raw: memoryview, exponent_bits: int, bias: int, digits: int) -> Decimal:
    """A decimal of IEEE 754-2008 whose coefficient is a binary whole number, as AMQP has it."""
    number, bits = int.from_bytes(raw), 8 * len(raw)
    sign = number >> bits - 1
    below = bits - 1 - exponent_bits  # bits of the coefficient
    if number >> bits - 5 & 0xF == 0xF:
        return Decimal("NaN" if number >> bits - 6 & 1 else "-Infinity" if sign else "Infinity")
    first = 0
    if number >> bits - 3 & 3 == 3:
        below, first = below - 2, 0b100 << below - 2
    exponent = (number >> below & (1 << exponent_bits) - 1) - bias
    coefficient = first | number & (1 << below) - 1
    if coefficient >= 10**digits:  # which counts as 0
        coefficient = 0
    return Decimal((sign, tuple(map(int, str(coefficient))), exponent))


def _time(milliseconds: int) -> str:
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return _text(at.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
