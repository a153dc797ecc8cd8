"""The sections of a message, of the bytes in which a service on Azure sends it, whatever its sender has put into them.

Owns where a section begins and how long it is (OASIS AMQP 1.0, part 3), and what may be decoded at all. What is in a
section is decoded by the official client, whose decoders a reader of sections is made of: azure-eventhub and
azure-servicebus have each their own. Promises that no bytes of a sender raise, and that a message takes memory and time
by its bytes alone: the services do not look into bodies, the clients (5.15, 7.15) raise for types that they do not know
(`char`, `decimal32`) and for keys that Python cannot have, and one of them for deep values, and believes any count; a
receiver would then end at this message, and the next one again. What cannot be decoded is given as it came.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - as it is no class of ours
from typing import Any

HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, STATED, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
NONE = -1
"""The code of what is not a section."""
NAMES = {
    HEADER: "header",
    DELIVERY: "delivery-annotations",
    ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    STATED: "application-properties",
    DATA: "data",
    SEQUENCE: "amqp-sequence",
    VALUE: "amqp-value",
    FOOTER: "footer",
    NONE: "not a section",
}
BODIES = (DATA, SEQUENCE, VALUE)

DEEPEST = 32
"""How many levels a value may nest: more are no value of a program, and Python's stack has an end."""

_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_LONG = Struct(">L")
_TWO_LONGS = Struct(">LL")
_MAY_BE_MORE = re.compile(rb"[\xd0\xe0\xf0]")
"""What begins a list or an array that may say that it has more items than it has bytes. Also a part of other values."""
_FEW = 16
"""The most items of an array that take no bytes (`null`, `true`, 0): more would cost their sender nothing."""
_NO_KEYS = (0xC, 0xD, 0xE, 0xF)

Read = Callable[[memoryview], Any]
Decoders = Sequence[Callable[[memoryview], tuple[memoryview, Any]] | None]
_Found = dict[int, Any]
_Unreadable = list[tuple[int, memoryview]]


class SectionReader:
    """Reads messages by a client's decoders, and makes lists its `header` and `properties`; none of `unused`.

    `value` and `sequence` read the bodies of these kinds in their place, of bytes that have been checked.
    """

    def __init__(
        self,
        decoders: Decoders,
        *,
        header: Callable[..., Any],
        properties: Callable[..., Any],
        unused: Collection[int] = (),
        value: Read | None = None,
        sequence: Read | None = None,
    ) -> None:
        self._decoders = decoders
        self._unused = unused
        self._read: dict[int, Read] = {
            HEADER: self._made(header),
            DELIVERY: self._map,
            ANNOTATIONS: self._map,
            PROPERTIES: self._made(properties),
            STATED: self._map,
            DATA: _data,
            SEQUENCE: self._list if sequence is None else _checking(sequence),
            VALUE: self._value if value is None else _checking(value),
            FOOTER: self._map,
        }

    def read(self, payload: bytes | bytearray | memoryview) -> tuple[_Found, _Unreadable]:
        """What is in each section, by its code, and those that cannot be decoded; text is UTF-8.

        Of `DATA` and `SEQUENCE` there may be several: they are lists of what each holds. A body that cannot be decoded,
        and what is not a section, is among `DATA` as it came. Annotations that a sender has added to the service's do
        not override them.
        """
        found: _Found = {}
        unreadable: _Unreadable = []
        for code, content in _sections(memoryview(payload)):
            if code in self._unused:
                continue
            try:
                value = self._read[code](content)
            except Exception:  # noqa: BLE001  the clients raise whatever comes to pass
                unreadable.append((code, content))
                if code == NONE or code in BODIES:
                    found.setdefault(DATA, []).append(bytes(content))
                continue
            if code in (DATA, SEQUENCE):
                found.setdefault(code, []).append(value)
            elif code == ANNOTATIONS and code in found:  # the service's come first
                found[code] = {**value, **found[code]}
            else:
                found[code] = value
        return found, unreadable

    def _value(self, content: memoryview) -> Any:
        """What the client makes of a value. Raises whatever."""
        first = content[0]
        if first == 0xD0 and _LONG.unpack_from(content, 5)[0] > len(content):
            raise ValueError
        if first in (0xE0, 0xF0) or _MAY_BE_MORE.search(content, 1):
            _check(content)
        decoder = self._decoders[first]
        assert decoder is not None
        _, value = decoder(content[1:])
        return value

    def _map(self, content: memoryview) -> dict[Any, Any]:
        value = None if content[0] == 0x40 else self._value(content)
        if value is None or isinstance(value, dict):
            return value or {}
        raise ValueError

    def _list(self, content: memoryview) -> list[Any]:
        value = self._value(content)
        if isinstance(value, list):
            return value
        raise ValueError

    def _made(self, make: Callable[..., Any]) -> Callable[[memoryview], Any]:
        return lambda content: None if content[0] == 0x40 else make(*self._list(content))


def _data(content: memoryview) -> bytes:
    constructor = content[0]
    if constructor == 0xA0:
        return bytes(content[2:])
    if constructor == 0xB0:
        return bytes(content[5:])
    raise ValueError


def _sections(payload: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The sections in order, each with its encoded content. Other bytes are given as one section, with code `NONE`."""
    at, end = 0, len(payload)
    while at < end:
        try:
            code = payload[at + 2]
            if payload[at] != 0 or payload[at + 1] != 0x53 or not HEADER <= code <= FOOTER:
                raise ValueError
            behind = _behind(payload, at + 3)
            if behind > end:
                raise ValueError
        except (ValueError, IndexError, StructError):
            yield NONE, payload[at:]
            return
        yield code, payload[at + 3 : behind]
        at = behind


def _behind(payload: memoryview, at: int) -> int:
    """Where the value ends that begins here, by its own word."""
    constructor = payload[at]
    while constructor == 0:  # a described type: the descriptor, then the value
        at = _behind(payload, at + 1) if payload[at + 1] else len(payload)
        constructor = payload[at]
    kind = constructor >> 4
    if kind in _WIDTHS:
        return at + 1 + _WIDTHS[kind]
    if kind in (0xA, 0xC, 0xE):
        return at + 2 + payload[at + 1]
    if kind in (0xB, 0xD, 0xF):
        return at + 5 + int(_LONG.unpack_from(payload, at + 1)[0])
    raise ValueError


def _checking(read: Read) -> Read:
    def checked(content: memoryview) -> Any:
        _check(content)
        return read(content)

    return checked


def _check(content: memoryview) -> None:
    """Raise `ValueError` or `IndexError` unless a value is as long and has as many items as it says."""
    if _checked(content, 0, len(content), 0) != len(content):
        raise ValueError


def _checked(content: memoryview, at: int, end: int, depth: int) -> int:
    """Where the value that begins here ends, which is checked."""
    constructor = content[at]
    if constructor == 0:
        at = _checked(content, at + 1, end, depth + 1)
        return _checked(content, at, end, depth + 1)
    return _checked_content(constructor, content, at + 1, end, depth)


def _checked_content(constructor: int, content: memoryview, at: int, end: int, depth: int) -> int:
    kind = constructor >> 4
    if kind in _WIDTHS:
        behind = at + _WIDTHS[kind]
    elif kind == 0xA:
        behind = at + 1 + content[at]
    elif kind == 0xB:
        behind = at + 4 + int(_LONG.unpack_from(content, at)[0])
    elif kind in _NO_KEYS and depth < DEEPEST:
        return _checked_items(kind, content, at, end, depth)
    else:
        raise ValueError
    if behind > end:
        raise ValueError
    return behind


def _checked_items(kind: int, content: memoryview, at: int, end: int, depth: int) -> int:
    if kind in (0xC, 0xE):
        size, count, behind = content[at], content[at + 1], at + 1 + content[at]
        at += 2
    else:
        size, count = _TWO_LONGS.unpack_from(content, at)
        behind = at + 4 + size
        at += 8
    if behind > end or count > size + _FEW:
        raise ValueError
    if kind in (0xE, 0xF) and count:
        constructor = content[at]
        if _WIDTHS.get(constructor >> 4) == 0 and count > _FEW:
            raise ValueError
        at += 1
        for _ in range(count):
            at = _checked_content(constructor, content, at, behind, depth + 1)
    else:
        for _ in range(count):
            at = _checked(content, at, behind, depth + 1)
    if at != behind:
        raise ValueError
    return behind
