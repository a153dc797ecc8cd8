"""Avro's binary encoding, strictly: from bytes at a place to a value and the place behind it.

Owns the layout: Apache Avro 1.12, "Binary Encoding". Promises that each length and each number is what the layout
allows: no byte beyond the body is read, an index names a symbol or a branch, a number is one of its type, text is
UTF-8, and a list has as many items as its count says. So a body that was cut, or written by another schema, is found
out, where a reader that takes what comes would make a row of it. Time and memory are bounded by the length of the body:
items that take no bytes are counted.

A `Read` raises `Misfit`, or `IndexError` where the body ends too soon, which the record around it makes one of.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from leasehold.formats.avro.schemas import DEPTH
from leasehold.formats.misfits import Misfit

Read = Callable[[bytes, int], tuple[Any, int]]
Build = Callable[[list[Any]], Any]
"""What becomes of the values of an array, a map or a record."""

_LONG_BITS = 64
_INT = range(-(2**31), 2**31)
_EMPTY = 10_000
"""The most items of a body that may take no bytes: a count of three bytes could otherwise ask for a million."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class CountedBody(bytes):
    """A body whose schema holds itself, or has items that take no bytes: how deep a reader is in it, and how many."""

    depth = 0
    empty = 0


def ended() -> Misfit:
    """The body ends before a value does."""
    return Misfit("is not whole: the body ends within it")


def read_long(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift >= _LONG_BITS:
            raise Misfit("is no number: it does not end after ten bytes")
    if number >> _LONG_BITS:
        raise Misfit("is a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def read_int(body: bytes, at: int) -> tuple[int, int]:
    number, at = read_long(body, at)
    if number not in _INT:
        raise Misfit(f"is {number}, which is not an int of Avro")
    return number, at


def read_null(body: bytes, at: int) -> tuple[None, int]:
    return None, at


def read_boolean(body: bytes, at: int) -> tuple[bool, int]:
    byte = body[at]
    if byte > 1:
        raise Misfit(f"is the byte {byte}, which is not a boolean of Avro")
    return byte == 1, at + 1


def read_float(body: bytes, at: int) -> tuple[float, int]:
    return _number(_FLOAT, body, at)


def read_double(body: bytes, at: int) -> tuple[float, int]:
    return _number(_DOUBLE, body, at)


def _number(form: struct.Struct, body: bytes, at: int) -> tuple[float, int]:
    end = at + form.size
    if end > len(body):
        raise IndexError
    return form.unpack_from(body, at)[0], end


def read_bytes(body: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(body, at)
    end = at + size
    if size < 0 or end > len(body):
        raise Misfit(f"is of {size} bytes, and the body has {len(body) - at} more")
    return body[at:end], end


def read_string(body: bytes, at: int) -> tuple[str, int]:
    found, end = read_bytes(body, at)
    try:
        return str(found, "utf-8"), end
    except UnicodeDecodeError:
        raise Misfit("is not valid UTF-8") from None


def fixed(size: int) -> Read:
    """Reads this many bytes."""

    def read(body: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(body):
            raise IndexError
        return body[at:end], end

    return read


def enum(symbols: Sequence[str]) -> Read:
    """Reads one of these symbols."""

    def read(body: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(body, at)
        if not 0 <= number < len(symbols):
            raise Misfit(f"is the symbol {number} of {len(symbols)}, counted from 0")
        return symbols[number], at

    return read


def union(branches: Sequence[Read]) -> Read:
    """Reads a value of one of these branches."""
    most = len(branches)

    def read(body: bytes, at: int) -> tuple[Any, int]:
        number, at = read_long(body, at)
        if not 0 <= number < most:
            raise Misfit(f"is of the branch {number} of {most}, counted from 0")
        return branches[number](body, at)

    return read


def record(fields: Sequence[tuple[str, Read]], build: Build) -> Read:
    """Reads these fields, in their order."""

    def read(body: bytes, at: int) -> tuple[Any, int]:
        values = []
        for name, field in fields:
            try:
                value, at = field(body, at)
            except Misfit as error:
                raise error.within(name) from None
            except IndexError:
                raise ended().within(name) from None
            values.append(value)
        return build(values), at

    return read


def array(item: Read, least: int, build: Build) -> Read:
    """Reads a list of items, each of which takes `least` bytes or more."""

    def read(body: bytes, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        while True:
            count, size, at = _block(body, at)
            if not count:
                return build(values), at
            if count * least > len(body) - at:
                raise Misfit(f"has a block of {count} items, and the body has {len(body) - at} more bytes")
            if not least:
                _count_empty(body, count)
            begin = at
            for _ in range(count):
                try:
                    value, at = item(body, at)
                except Misfit as error:
                    raise error.within(len(values)) from None
                values.append(value)
            if size is not None and at - begin != size:
                raise Misfit(f"has a block of {at - begin} bytes that says it is of {size}")

    return read


def pairs(item: Read, least: int, build: Build) -> Read:
    """Reads pairs of a name and a value."""

    def pair(body: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = read_string(body, at)
        try:
            value, at = item(body, at)
        except Misfit as error:
            raise error.within(name) from None
        return (name, value), at

    return array(pair, least + 1, build)


def map_(item: Read, least: int, build: Build) -> Read:
    """Reads pairs as `pairs` does. A name that occurs twice is refused: either choice would lose a value."""

    def once(members: list[tuple[str, Any]]) -> Any:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise Misfit("occurs twice in one object").within(name)
            seen.add(name)
        return build(members)

    return pairs(item, least, once)


def _block(body: bytes, at: int) -> tuple[int, int | None, int]:
    """The number of items of a block, and how many bytes it says it has, if it does."""
    count, at = read_long(body, at)
    if count >= 0:
        return count, None, at
    size, at = read_long(body, at)
    return -count, size, at


def _count_empty(body: bytes, count: int) -> None:
    assert isinstance(body, CountedBody)
    body.empty += count
    if body.empty > _EMPTY:
        raise Misfit(f"has, with all that is before it, more than {_EMPTY:,} items that take no bytes")


def nested(read: Read) -> Read:
    """The same, where a type holds itself: so deep and no deeper. The body is `CountedBody`."""

    def counted(body: bytes, at: int) -> tuple[Any, int]:
        assert isinstance(body, CountedBody)
        if body.depth >= DEPTH:
            raise Misfit(f"is nested more than {DEPTH} deep")
        body.depth += 1
        found = read(body, at)
        body.depth -= 1
        return found

    return counted
