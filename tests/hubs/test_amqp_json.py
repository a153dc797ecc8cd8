"""Values of AMQP as JSON text: every type, alone and in others."""

from __future__ import annotations

import json
import math
import struct
import uuid
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.azure import amqp_json
from leasehold.azure.sections import VALUE, SectionReader
from leasehold_testkit.emulators.amqp import types as amqp
from leasehold_testkit.emulators.amqp.types import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Symbol,
    encode,
)
from tests.hubs.unreadable import BODIES, BY_NO_CLIENT, VALUES

_SECTION = 0x77
ID = uuid.UUID("0123456789ab-cdef-0123-456789ABCDEF".replace("-", ""))


def read(bare: bytes) -> tuple[bytes | None, bool]:
    """The body that a section is, and whether it could be read."""
    reader = SectionReader((), header=tuple, properties=tuple, value=amqp_json.body_of, sequence=amqp_json.items_of)
    found, unreadable = reader.read(bare)
    return found.get(VALUE), not unreadable


def text(value: object) -> str:
    body, readable = read(encode(Described(amqp.ULong(_SECTION), value)))
    assert readable
    assert body is not None
    return body.decode()


def decimal(kind: type[bytes], number: str) -> bytes:
    """A decimal of IEEE 754-2008, its coefficient binary."""
    bits, bias, width = {Decimal32: (8, 101, 4), Decimal64: (10, 398, 8), Decimal128: (14, 6_176, 16)}[kind]
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    coefficient, below = int("".join(map(str, digits))), 8 * width - 1 - bits
    made = sign << 8 * width - 1
    if coefficient >> below:  # its first bits are 100, and are not written
        made |= 3 << 8 * width - 3 | exponent + bias << below - 2 | coefficient & (1 << below - 2) - 1
    else:
        made |= exponent + bias << below | coefficient
    return kind(made.to_bytes(width))


@pytest.mark.more(but=3)
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (True, "true"),
        (False, "false"),
        (amqp.UByte(255), "255"),
        (amqp.Byte(-128), "-128"),
        (amqp.UShort(65_535), "65535"),
        (amqp.Short(-32_768), "-32768"),
        (amqp.UInt(0), "0"),
        (amqp.UInt(7), "7"),
        (amqp.UInt((1 << 32) - 1), "4294967295"),
        (amqp.Int(-5), "-5"),
        (amqp.Int(-(1 << 31)), "-2147483648"),
        (amqp.ULong(0), "0"),
        (amqp.ULong((1 << 64) - 1), "18446744073709551615"),
        (-(1 << 63), "-9223372036854775808"),
        (-1, "-1"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (-0.0, "-0.0"),
        (amqp.Float(1.1), "1.1"),
        (amqp.Float(16_777_216), "16777216.0"),
        (amqp.Float(3.4028234663852886e38), "3.40282347e+38"),
        (amqp.Float(1e-45), "1e-45"),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (amqp.Float(-math.inf), '"-Infinity"'),
        (amqp.Timestamp(0), '"1970-01-01T00:00:00.000Z"'),
        (amqp.Timestamp(1_770_091_506_007), '"2026-02-03T04:05:06.007Z"'),
        (amqp.Timestamp(-62_135_596_800_000), '"0001-01-01T00:00:00.000Z"'),
        (amqp.Timestamp(253_402_300_799_999), '"9999-12-31T23:59:59.999Z"'),
        (amqp.Timestamp(253_402_300_800_000), "253402300800000"),
        (amqp.Timestamp((1 << 63) - 1), "9223372036854775807"),
        (ID, '"01234567-89ab-cdef-0123-456789abcdef"'),
        (decimal(Decimal32, "1.10"), "1.10"),
        (decimal(Decimal32, "-9999999E+90"), "-9.999999E+96"),
        (decimal(Decimal64, "1234567890.123456"), "1234567890.123456"),
        (decimal(Decimal64, "9999999999999999"), "9999999999999999"),
        (decimal(Decimal128, "79228162514264337593543950335"), "79228162514264337593543950335"),
        (decimal(Decimal128, "-1234567890.123456789012345678"), "-1234567890.123456789012345678"),
        (decimal(Decimal128, "0.00"), "0.00"),
        (Decimal128(b"\x30\x41" + 14 * b"\xff"), "0"),  # more digits than it has
        (Decimal64(b"\x78" + 7 * b"\0"), '"Infinity"'),
        (Decimal64(b"\xf8" + 7 * b"\0"), '"-Infinity"'),
        (Decimal32(b"\x7c" + 3 * b"\0"), '"NaN"'),
        ([], "[]"),
        ({}, "{}"),
        ([None, True, 'a\n\u2028"', Symbol("s"), Char("\U0001f600")], '[null,true,"a\\n\u2028\\"","s","\U0001f600"]'),
        ({"b": {"a": [b"\xff", []]}, "a": None}, '{"b":{"a":["/w==",[]]},"a":null}'),
        ({1: 2, "1": 3, None: 4, False: 5, ID: 6}, None),
        (Array([amqp.Int(1), amqp.Int(-200)]), "[1,-200]"),
        (Array([True, False]), "[true,false]"),
        (Array(["a", "b"]), '["a","b"]'),
        (Described(Symbol("com.example:span"), 5), "5"),
        ([Described(amqp.ULong(9), {"a": Described("x", 1.5)})], '[{"a":1.5}]'),
        ([Array([Described(Symbol("d"), 1)])], None),
    ],
)
def test_every_type_is_json(value: object, found: str | None) -> None:
    if isinstance(value, dict) and found is None:
        names = {"1": 3, "null": 4, "false": 5, str(ID): 6}
        assert json.loads(text(value)) == {**names}
        assert text(value).count('"1":') == 2, "two keys of one text stay two"
    elif found is None:
        body, readable = read(encode(Described(amqp.ULong(_SECTION), value)))
        assert not readable, "arrays of described values are given as they came"
        assert body is None
    else:
        assert text(value) == found
        json.loads(text(value))


@pytest.mark.parametrize("value", ["größer", "", b"\xff\0", b"", Symbol("s"), Char("é"), Described(Symbol("d"), "x")])
def test_text_and_bytes_alone_are_as_they_are(value: Any) -> None:
    bare = value.value if isinstance(value, Described) else value
    known = bytes(bare) if isinstance(bare, bytes) else bare.encode()
    assert read(encode(Described(amqp.ULong(_SECTION), value))) == (known, True)


def test_text_that_is_no_utf_8_has_backslashes() -> None:
    assert read(b"\0\x53\x77\xc0\x04\x01\xa1\x01\xff") == (b'["\\\\xff"]', True)


def test_null_is_no_body() -> None:
    assert read(b"\0\x53\x77\x40") == (None, True)


@pytest.mark.parametrize("bare", BY_NO_CLIENT.values(), ids=BY_NO_CLIENT)
def test_what_no_client_can_decode_is_read(bare: bytes) -> None:
    assert read(bare)[1]


@pytest.mark.parametrize("bare", [bare for bare in BODIES.values() if bare[2] == _SECTION])
def test_what_is_none_is_refused(bare: bytes) -> None:
    assert not read(bare)[1]


@pytest.mark.parametrize(
    "content", [b"\x56\x02", b"\x73\0\0\xd8\0", b"\x73\0\x11\0\0", b"\xc1\x03\x01\x43", b"\xc1\x02\x01\x43"]
)
def test_values_that_there_are_not_are_refused(content: bytes) -> None:
    assert not read(b"\0\x53\x77" + content)[1]


@given(VALUES)
def test_what_was_encoded_is_found_in_the_json(value: object) -> None:
    body, readable = read(encode(Described(amqp.ULong(_SECTION), value)))
    assert readable
    if value is None:
        assert body is None
    elif isinstance(value, str | bytes):
        assert body == (value if isinstance(value, bytes) else value.encode())
    else:
        assert body is not None
        assert json.loads(body) == _plain(value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_of_32_bits_has_its_shortest_digits(number: float) -> None:
    said = text(amqp.Float(number))
    assert struct.unpack(">f", struct.pack(">f", float(said)))[0] == number
    assert len(said.replace("-", "").partition("e")[0].replace(".", "").strip("0")) <= 9


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value
