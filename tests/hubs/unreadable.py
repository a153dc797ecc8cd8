"""Sections of messages as no client writes them: those that a decoder ends at, alone and before a body."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from leasehold_testkit.emulators.amqp.types import Described, Symbol, Timestamp, ULong, encode

HEADER, ANNOTATIONS, PROPERTIES, STATED, DATA, SEQUENCE, VALUE, FOOTER = (0x70, *range(0x72, 0x79))


def section(code: int, value: bytes) -> bytes:
    return b"\0\x53" + bytes([code]) + value


def many(count: int, items: bytes, constructor: int = 0xD0) -> bytes:
    """A list, map or array that says that it has this many items."""
    return struct.pack(">BLL", constructor, len(items) + 4, count) + items


def nested(levels: int) -> bytes:
    value = b"\x45"
    for _ in range(levels):
        value = many(1, value)
    return value


CHAR, A_MAP_WITH_A_LIST_AS_KEY = b"\x73\0\0\0A", b"\xc1\x03\x02\x45\x43"
BODY = encode(Described(ULong(DATA), b"body"))
SERVICE = encode(
    Described(
        ULong(ANNOTATIONS),
        {
            Symbol("x-opt-sequence-number"): 7,
            Symbol("x-opt-offset"): "700",
            Symbol("x-opt-enqueued-time"): Timestamp(1_700_000_000_000),
        },
    )
)
BY_NO_CLIENT = {
    "a char": section(VALUE, CHAR),
    "a decimal of 32 bits": section(VALUE, b"\x74abcd"),
    "a decimal of 64 bits": section(VALUE, b"\x84abcdefgh"),
    "a decimal out of range": section(VALUE, b"\x94" + 16 * b"\x5f"),
    "a list as a key": section(VALUE, A_MAP_WITH_A_LIST_AS_KEY),
}
"""Values that are as AMQP has them, which the official clients cannot decode."""
BODIES = {
    "three thousand levels": section(VALUE, nested(3_000)),
    "a text as data": section(DATA, b"\xa1\x03abc"),
    "a number as data": section(DATA, b"\x54\x05"),
    "a number as a sequence": section(SEQUENCE, b"\x54\x05"),
    "null as a sequence": section(SEQUENCE, b"\x40"),
    "an array of two thousand million nulls": section(VALUE, many(1 << 31, b"\x40", 0xF0)),
    "a list of as many, with one": section(VALUE, many(1 << 31, b"\x40")),
    "such a list in a list": section(VALUE, many(1, many(1 << 31, b"\x40"))),
    "arrays of nulls in arrays": section(VALUE, many(2, b"\xe0\x03\xff\x40\x03\xff\x40", 0xF0)),
}
NO_SECTIONS = {
    "an unknown type": section(VALUE, b"\x3f"),
    "less than it says": section(DATA, b"\xb0\0\0\0\x64abc"),
    "a name as descriptor": b"\0\xa3\x10amqp:data:binary\xa0\x03abc",
    "garbage": b"\xff\xfe\xfd",
    "a section of another kind": section(0x99, b"\x40"),
}
OTHERS = {
    "header": [section(HEADER, many(9, 9 * b"\x43")), section(HEADER, b"\x40")],
    "properties": [section(PROPERTIES, many(20, 20 * b"\x43")), section(PROPERTIES, b"\xa1\x03abc")],
    "application-properties": [
        section(STATED, b"\xc0\x03\x02\x43\x43"),
        section(STATED, b"\xa1\x03abc"),
        section(STATED, b"\xc1\x09\x02\xa1\x01a" + CHAR),
        section(STATED, A_MAP_WITH_A_LIST_AS_KEY),
        section(STATED, many(2, b"\xa1\x01a" + nested(2_000), 0xD1)),
    ],
    "message-annotations": [section(ANNOTATIONS, CHAR)],
}
ALL = (
    *BY_NO_CLIENT.values(),
    *BODIES.values(),
    *NO_SECTIONS.values(),
    *(each for some in OTHERS.values() for each in some),
)
"""Each of them."""
BEFORE_A_BODY = tuple(each + BODY for some in OTHERS.values() for each in some)
"""Messages whose body can be read, and another section cannot."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
"""What every client reads."""


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """Some of them and of chance, with some bytes altered."""
    found = bytearray(b"".join(draw(st.lists(st.sampled_from(ALL) | st.binary(max_size=20), max_size=4))))
    for place in draw(st.lists(st.integers(0, max(0, len(found) - 1)), max_size=6)) if found else ():
        found[place] = draw(st.integers(0, 255))
    return bytes(found)
