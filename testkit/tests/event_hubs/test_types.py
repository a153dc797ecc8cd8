"""The codec of AMQP values: everything comes back as it was, and nothing that is wrong gets in."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.types import (
    DEEPEST,
    MOST_VALUES,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def numbers(kind: type[int], bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high).map(kind)


HASHABLE: list[st.SearchStrategy[Any]] = [
    *(numbers(kind, bits, signed=False) for kind, bits in ((UByte, 8), (UShort, 16), (UInt, 32), (ULong, 64))),
    *(numbers(kind, bits, signed=True) for kind, bits in ((Byte, 8), (Short, 16), (Int, 32), (int, 64))),
    numbers(Timestamp, 64, signed=True),
    st.booleans(),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.uuids(),
    st.binary(max_size=300),
    TEXT,
    st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
]
SCALARS = st.one_of(st.none(), *HASHABLE)
ARRAYS = st.one_of(*(st.lists(kind, max_size=5) for kind in HASHABLE)).map(Array)
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.one_of(*HASHABLE), inner, max_size=5),
        st.builds(Described, SCALARS, inner),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(Array),
    ),
    max_leaves=20,
)


def shape(value: Any) -> Any:
    """The value with its types, since `UInt(1) == True`."""
    if isinstance(value, Described):
        return "described", shape(value.descriptor), shape(value.value)
    if isinstance(value, dict):
        return "map", [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return type(value), [shape(item) for item in value]
    return type(value), value


def comes_back(value: Any) -> None:
    data = encode(value)
    found, end = decode(data)
    assert end == len(data)
    assert shape(found) == shape(value)


@given(VALUES)
def test_what_is_encoded_comes_back_with_its_type(value: Any) -> None:
    comes_back(value)


@pytest.mark.soak
@settings(max_examples=5_000)
@given(VALUES)
def test_the_same_with_many_values(value: Any) -> None:
    comes_back(value)


@given(VALUES, st.data())
def test_a_value_that_is_cut_off_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    whole = encode(value)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(AmqpError, match="amqp:decode-error"):
        decode(whole[:cut])


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_decode_error(data: bytes) -> None:
    try:
        value, end = decode(data)
    except AmqpError:
        pass
    else:
        assert 0 < end <= len(data)
        repr(value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("40", None),
        ("45", []),
        ("c00100", []),
        ("c10100", {}),
        ("c0020141", [True]),
        ("e0020040", Array()),
        ("e00100", Array()),
        ("e0050350010203", Array([UByte(1), UByte(2), UByte(3)])),
        ("e00702005301500102", Array([Described(ULong(1), UByte(n)) for n in (1, 2)])),
        ("e0020340", Array([None] * 3)),
        ("005310c00100", Described(ULong(16), [])),
        ("9800112233445566778899aabbccddeeff", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    ],
)
def test_encodings_that_the_encoder_does_not_use(data: str, value: Any) -> None:
    raw = bytes.fromhex(data)
    assert decode(raw) == (value, len(raw))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "1 bytes are announced"),
        (b"\x3f", "no type"),
        (b"\x56\x02", "boolean"),
        (b"\xa1\x02\xff\xff", "utf-8"),
        (b"\xa3\x01\xff", "ascii"),
        (b"\x73\x00\x11\x00\x00", "no character"),
        (b"\x73\x00\x00\xd8\x00", "no character"),
        (b"\xb0\xff\xff\xff\xff", "announced"),
        (b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff", "compound"),
        (b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff", "cannot be in"),
        (b"\xc0\x03\x01\x41\x41", "ends 1 bytes late"),
        (b"\xc1\x02\x01\x41", "no value"),
        (b"\xc1\x05\x04\x41\x41\x41\x41", "twice"),
        (b"\xc1\x03\x02\x45\x41", "key of a map"),
        (b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40", "an array of"),
        (b"\xe0\x07\x01\x00\x53\x01\x00\x53\x01", "described twice"),
        (b"\x00" * 100, "nested"),
    ],
)
def test_what_is_wrong_is_refused(data: bytes, match: str) -> None:
    with pytest.raises(AmqpError, match=match):
        decode(data)


def test_nesting_is_limited_and_not_by_the_stack() -> None:
    value: Any = None
    for _ in range(DEEPEST):
        value = [value]
    assert decode(encode(value))[0] == value
    deep = b"\x40"
    for _ in range(400):
        deep = b"\xd0" + struct.pack(">II", len(deep) + 4, 1) + deep
    with pytest.raises(AmqpError, match="nested"):
        decode(deep)


@pytest.mark.parametrize("item", [b"\x45", b"\x40", b"\x43"])
def test_many_small_values_cost_no_more_than_the_limit(item: bytes) -> None:
    count = MOST_VALUES + 1
    body = item * count
    with pytest.raises(AmqpError, match="more than"):
        decode(b"\xd0" + struct.pack(">II", len(body) + 4, count) + body)
    for count in (MOST_VALUES + 1, MOST_VALUES - 1, 49_000, 27):
        with pytest.raises(AmqpError, match="an array of"):
            decode(b"\xf0" + struct.pack(">II", 5, count) + item + b"\x40" * 16)  # the rest of a frame of 26 bytes
    assert decode(b"\xf0" + struct.pack(">II", 5, 8) + item)[0] == Array([decode(item)[0]] * 8)


@pytest.mark.parametrize("value", [object(), Array([1, "a"]), Array([None, 1]), {1: object()}])
def test_what_amqp_has_no_type_for_is_not_encoded(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


@pytest.mark.parametrize("value", [UByte(256), UInt(-1), 1 << 63])
def test_a_number_out_of_range_is_not_encoded(value: int) -> None:
    with pytest.raises(ValueError, match=str(int(value))):
        encode(value)
