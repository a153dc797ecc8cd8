"""The type system of AMQP 1.0: Python values to bytes and back.

Owns the encodings of OASIS AMQP 1.0, part 1. A value that is decoded and encoded again keeps its type: the
classes below stand for the types that Python lacks; a plain `int` is a long, a `float` a double, `str` a
string, `bytes` binary, `list` a list, `dict` a map.

1. Decoding trusts nothing: a length, a count or a nesting that the bytes cannot back raises `AmqpError`
   (`amqp:decode-error`), before memory is spent on it.
2. A value nests at most `DEEPEST` levels, and one call of `decode` makes at most `MOST_VALUES` of them, and no more
   than it is given bytes: items of an array that take none (`null`, `true`, 0) would cost their sender nothing.
3. A list or map must be exactly as long as it says, and a map has no key twice.
4. Encoding writes `list32` and `map32` always, also for empty ones: the official clients read nothing else
   in a performative.

Pure: no I/O, no state.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leasehold_testkit.emulators.amqp.conditions import DECODE_ERROR, AmqpError

DEEPEST = 16
MOST_VALUES = 50_000


class UByte(int):
    """An unsigned number of 8 bits."""


class UShort(int):
    """An unsigned number of 16 bits."""


class UInt(int):
    """An unsigned number of 32 bits."""


class ULong(int):
    """An unsigned number of 64 bits."""


class Byte(int):
    """A number of 8 bits."""


class Short(int):
    """A number of 16 bits."""


class Int(int):
    """A number of 32 bits; a plain `int` has 64."""


class Timestamp(int):
    """Milliseconds since the Unix epoch."""


class Float(float):
    """A float of 32 bits; a plain `float` has 64."""


class Char(str):
    """One character."""


class Symbol(str):
    """A name in ASCII."""


class Decimal32(bytes):
    """Kept as its four bytes."""


class Decimal64(bytes):
    """Kept as its eight bytes."""


class Decimal128(bytes):
    """Kept as its sixteen bytes."""


class Array(list[Any]):
    """Values of one type, written with that type once."""


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, which says what it means."""

    descriptor: object
    value: Any


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value at `at`, and where it ends. Raises `AmqpError`."""
    decoder = _Decoder(data, at)
    value = decoder.value(0)
    return value, decoder.at


def encode(value: object) -> bytes:
    """The bytes of a value. Raises `TypeError` and `ValueError`: what is sent is the server's own to get right."""
    if value is None:
        return b"\x40"
    kind = type(value)
    if compact := _COMPACT.get(kind):
        short = compact(value)
        if short:
            return short
    if kind is Described:
        assert isinstance(value, Described)
        return b"\x00" + encode(value.descriptor) + encode(value.value)
    if kind not in _WIDE:
        raise TypeError(f"AMQP has no type for {kind.__name__}")
    code, body = _WIDE[kind]
    try:
        return bytes((code,)) + body(value)
    except struct.error as error:
        raise ValueError(f"{value!r} is no {kind.__name__}: {error}") from None


# encoding


def _packed(layout: str) -> Callable[[Any], bytes]:
    return struct.Struct(layout).pack


def _sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def _compound(count: int, body: bytes) -> bytes:
    return struct.pack(">II", len(body) + 4, count) + body


def _list(value: list[object]) -> bytes:
    return _compound(len(value), b"".join(map(encode, value)))


def _map(value: dict[object, object]) -> bytes:
    return _compound(2 * len(value), b"".join(encode(key) + encode(item) for key, item in value.items()))


def _array(value: Array) -> bytes:
    constructor, body = _items(value)
    return _compound(len(value), constructor + b"".join(map(body, value)))


def _items(items: list[Any]) -> tuple[bytes, Callable[[Any], bytes]]:
    """How the items of an array begin, once for all, and how each goes on."""
    kinds = {type(item) for item in items}
    if kinds == {Described} and len(descriptors := {encode(item.descriptor) for item in items}) == 1:
        constructor, body = _items([item.value for item in items])
        return b"\x00" + descriptors.pop() + constructor, lambda item: body(item.value)
    if kinds == {type(None)}:
        return b"\x40", lambda item: b""
    if len(kinds) > 1 or not kinds <= _WIDE.keys():
        raise TypeError(f"an array holds values of one type, not {sorted(kind.__name__ for kind in kinds)}")
    code, write = _WIDE[kinds.pop()] if kinds else _WIDE[Symbol]
    return bytes((code,)), write


_WIDE: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bool: (0x56, lambda value: b"\x01" if value else b"\x00"),
    UByte: (0x50, _packed(">B")),
    UShort: (0x60, _packed(">H")),
    UInt: (0x70, _packed(">I")),
    ULong: (0x80, _packed(">Q")),
    Byte: (0x51, _packed(">b")),
    Short: (0x61, _packed(">h")),
    Int: (0x71, _packed(">i")),
    int: (0x81, _packed(">q")),
    Float: (0x72, _packed(">f")),
    float: (0x82, _packed(">d")),
    Decimal32: (0x74, bytes),
    Decimal64: (0x84, bytes),
    Decimal128: (0x94, bytes),
    Char: (0x73, lambda value: struct.pack(">I", ord(value))),
    Timestamp: (0x83, _packed(">q")),
    uuid.UUID: (0x98, lambda value: value.bytes),
    bytes: (0xB0, _sized),
    str: (0xB1, lambda value: _sized(value.encode())),
    Symbol: (0xB3, lambda value: _sized(value.encode("ascii"))),
    list: (0xD0, _list),
    dict: (0xD1, _map),
    Array: (0xF0, _array),
}


def _short_text(code: int, body: bytes) -> bytes:
    return bytes((code, len(body))) + body if len(body) < 256 else b""


_COMPACT: dict[type, Callable[[Any], bytes]] = {
    bool: lambda value: b"\x41" if value else b"\x42",
    UInt: lambda value: b"\x43" if value == 0 else bytes((0x52, value)) if 0 < value < 256 else b"",
    ULong: lambda value: b"\x44" if value == 0 else bytes((0x53, value)) if 0 < value < 256 else b"",
    Int: lambda value: struct.pack(">Bb", 0x54, value) if -128 <= value < 128 else b"",
    int: lambda value: struct.pack(">Bb", 0x55, value) if -128 <= value < 128 else b"",
    bytes: lambda value: _short_text(0xA0, value),
    str: lambda value: _short_text(0xA1, value.encode()),
    Symbol: lambda value: _short_text(0xA3, value.encode("ascii")),
}


# decoding


def _reader(layout: str, kind: type) -> Callable[[bytes], Any]:
    unpack = struct.Struct(layout).unpack
    return lambda raw: kind(unpack(raw)[0])


def _boolean(raw: bytes) -> bool:
    if raw[0] > 1:
        raise _error(f"a boolean is 0 or 1, not {raw[0]}")
    return raw[0] == 1


def _char(raw: bytes) -> Char:
    (point,) = struct.unpack(">I", raw)
    if point > 0x10FFFF or 0xD800 <= point < 0xE000:
        raise _error(f"there is no character {point:#x}")
    return Char(chr(point))


def _text(kind: type[str], encoding: str) -> Callable[[bytes], str]:
    def read(raw: bytes) -> str:
        try:
            return kind(raw.decode(encoding))
        except UnicodeDecodeError as error:
            raise _error(f"text that is no {encoding}: {error.reason}") from None

    return read


_FIXED: dict[int, tuple[int, Callable[[bytes], Any]]] = {
    0x40: (0, lambda raw: None),
    0x41: (0, lambda raw: True),
    0x42: (0, lambda raw: False),
    0x43: (0, lambda raw: UInt(0)),
    0x44: (0, lambda raw: ULong(0)),
    0x45: (0, lambda raw: []),
    0x50: (1, _reader(">B", UByte)),
    0x51: (1, _reader(">b", Byte)),
    0x52: (1, _reader(">B", UInt)),
    0x53: (1, _reader(">B", ULong)),
    0x54: (1, _reader(">b", Int)),
    0x55: (1, _reader(">b", int)),
    0x56: (1, _boolean),
    0x60: (2, _reader(">H", UShort)),
    0x61: (2, _reader(">h", Short)),
    0x70: (4, _reader(">I", UInt)),
    0x71: (4, _reader(">i", Int)),
    0x72: (4, _reader(">f", Float)),
    0x73: (4, _char),
    0x74: (4, Decimal32),
    0x80: (8, _reader(">Q", ULong)),
    0x81: (8, _reader(">q", int)),
    0x82: (8, _reader(">d", float)),
    0x83: (8, _reader(">q", Timestamp)),
    0x84: (8, Decimal64),
    0x94: (16, Decimal128),
    0x98: (16, lambda raw: uuid.UUID(bytes=raw)),
}
_VARIABLE: dict[int, tuple[int, Callable[[bytes], Any]]] = {
    0xA0: (1, bytes),
    0xA1: (1, _text(str, "utf-8")),
    0xA3: (1, _text(Symbol, "ascii")),
    0xB0: (4, bytes),
    0xB1: (4, _text(str, "utf-8")),
    0xB3: (4, _text(Symbol, "ascii")),
}


def _error(what: str) -> AmqpError:
    return AmqpError(DECODE_ERROR, what)


class _Decoder:
    """Where one call of `decode` is, and how much it may still make."""

    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.left = min(MOST_VALUES, len(data) - at)

    def value(self, depth: int) -> Any:
        return self._by_code(self._byte(), depth)

    def _by_code(self, code: int, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _error(f"more values than bytes, or more than {MOST_VALUES:,}")
        if (fixed := _FIXED.get(code)) is not None:
            width, read = fixed
            return read(self._take(width) if width else b"")
        if (variable := _VARIABLE.get(code)) is not None:
            width, read = variable
            return read(self._take(self._byte() if width == 1 else self._number(width)))
        if depth >= DEEPEST:
            raise _error(f"values nested more than {DEEPEST} deep")
        match code:
            case 0x00:
                return Described(self.value(depth + 1), self.value(depth + 1))
            case 0xC0 | 0xD0:
                end, count = self._compound(code)
                items = [self.value(depth + 1) for _ in range(count)]
                self._must_end(end)
                return items
            case 0xC1 | 0xD1:
                end, count = self._compound(code)
                found = self._pairs(count, depth)
                self._must_end(end)
                return found
            case 0xE0 | 0xF0:
                end, count = self._compound(code)
                if not count and self.at == end:
                    return Array()  # without the type that AMQP wants even then: clients do that
                array = self._items(count, depth)
                self._must_end(end)
                return array
        raise _error(f"there is no type {code:#04x}")

    def _compound(self, code: int) -> tuple[int, int]:
        """Where a compound value ends, and how many items it says it has."""
        width = 1 if code < 0xD0 or code == 0xE0 else 4
        size = self._number(width)
        end = self.at + size
        if size < width or end > len(self.data):
            raise _error(f"a compound value of {size} bytes, of which {len(self.data) - self.at} are there")
        count = self._number(width)
        if code not in (0xE0, 0xF0) and count > end - self.at:
            raise _error(f"{count} items cannot be in {end - self.at} bytes")
        return end, count

    def _pairs(self, count: int, depth: int) -> dict[Any, Any]:
        if count % 2:
            raise _error("a map with a key that has no value")
        found: dict[Any, Any] = {}
        for _ in range(count // 2):
            key, item = self.value(depth + 1), self.value(depth + 1)
            try:
                if key in found:
                    raise _error(f"a map with a key twice: {key!r:.60}")
                found[key] = item
            except TypeError:
                raise _error(f"a {type(key).__name__} as the key of a map") from None
        return found

    def _items(self, count: int, depth: int) -> Array:
        code = self._byte()
        descriptor = None
        if code == 0x00:
            descriptor = self.value(depth + 1)
            code = self._byte()
        if count > self.left:
            raise _error(f"an array of {count:,} items in fewer bytes")
        if code == 0x00:
            raise _error("an array of values that are described twice")
        items = Array(self._by_code(code, depth + 1) for _ in range(count))
        return items if descriptor is None else Array(Described(descriptor, item) for item in items)

    def _must_end(self, end: int) -> None:
        if self.at != end:
            raise _error(f"a compound value ends {abs(end - self.at)} bytes {'late' if self.at < end else 'early'}")

    def _byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise _error("1 bytes are announced and 0 are there")
        self.at = at + 1
        return self.data[at]

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _take(self, width: int) -> bytes:
        start = self.at
        end = start + width
        if end > len(self.data):
            raise _error(f"{width} bytes are announced and {len(self.data) - start} are there")
        self.at = end
        return self.data[start:end]
