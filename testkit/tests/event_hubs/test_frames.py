"""Frames and performatives: how a stream is cut, and what is refused at its first bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.frames import AMQP_HEADER, EMPTY_FRAME, Frame, FrameReader, Header, encode_frame
from leasehold_testkit.emulators.amqp.performatives import (
    PERFORMATIVES,
    Attach,
    Begin,
    Close,
    Open,
    Performative,
    Transfer,
    decode_performative,
    encode_performative,
)
from leasehold_testkit.emulators.amqp.types import Described, Symbol, UInt, ULong, UShort, decode, encode
from testkit.tests.event_hubs.wire import RECORDED, consumer, flow, frame, opening, producer, transfers

EXAMPLES: list[Performative] = [
    Open(container_id="a", hostname="b", offered_capabilities=["x", "y"], properties={Symbol("p"): "v"}),
    Begin(next_outgoing_id=1, incoming_window=2, outgoing_window=3),
    producer(),
    consumer(),
    flow(),
    Transfer(handle=1, delivery_id=7, delivery_tag=b"t", more=True, settled=False),
    Close(error=Described(ULong(0x1D), [Symbol("amqp:not-found"), "text", None])),
]


@settings(max_examples=100)
@given(st.sampled_from(sorted(RECORDED)), st.lists(st.integers(1, 200)))
def test_a_stream_is_the_same_however_it_arrives(name: str, sizes: list[int]) -> None:
    data = RECORDED[name]
    whole = list(FrameReader(1 << 16).feed(data))
    reader, at, found = FrameReader(1 << 16), 0, []
    for size in [*sizes, len(data)]:
        found += list(reader.feed(data[at : at + size]))
        at += size
    assert found == whole
    assert b"".join(unit.data for unit in whole if isinstance(unit, Header)).count(b"AMQP") == 2


@pytest.mark.parametrize("performative", EXAMPLES, ids=lambda performative: type(performative).__name__)
def test_a_performative_comes_back(performative: Performative) -> None:
    data = encode_performative(performative) + b"payload"
    found, end = decode_performative(data)
    assert found == performative
    assert data[end:] == b"payload"


@pytest.mark.parametrize("performative", EXAMPLES, ids=lambda performative: type(performative).__name__)
def test_every_field_is_written_at_its_place(performative: Performative) -> None:
    data = encode_performative(performative)
    assert data[:4] == bytes((0x00, 0x53, performative.CODE, 0xD0))
    assert len(decode(data)[0].value) == len(performative.TYPES)


def test_fields_at_the_end_may_be_missing() -> None:
    short = encode(Described(ULong(0x10), ["name"]))
    assert decode_performative(short)[0] == Open(container_id="name")
    by_name = encode(Described(Symbol("amqp:open:list"), ["name"]))
    assert decode_performative(by_name)[0] == Open(container_id="name")


def test_a_symbol_may_stand_for_an_array_of_one() -> None:
    found, _ = decode_performative(encode(Described(ULong(0x10), ["n", *[None] * 4, Symbol("en-US")])))
    assert found == Open(container_id="n", outgoing_locales=["en-US"])


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (None, "decode-error"),
        (Described(ULong(0x10), {}), "decode-error"),
        (Described(ULong(0x99), []), "decode-error"),
        (Described(Symbol("amqp:nothing:list"), []), "decode-error"),
        (Described(0x10, ["name"]), "decode-error"),
        (Described(ULong(0x18), [None, None]), "decode-error"),
        (Described(ULong(0x10), []), "invalid-field"),
        (Described(ULong(0x10), [None]), "invalid-field"),
        (Described(ULong(0x10), [b"name"]), "invalid-field"),
        (Described(ULong(0x11), [None, UInt(0), UInt(1), UShort(1)]), "invalid-field"),
        (Described(ULong(0x10), ["n", *[None] * 4, "en-US"]), "invalid-field"),
    ],
)
def test_what_is_no_performative_is_refused(value: object, condition: str) -> None:
    with pytest.raises(AmqpError, match=condition):
        decode_performative(encode(value))


@pytest.mark.parametrize(
    ("prefix", "match"),
    [
        (struct.pack(">IBBH", 1 << 20, 2, 0, 0), "at most"),
        (struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0), "at most"),
        (struct.pack(">IBBH", 100, 1, 0, 0), "begin at 4"),
        (struct.pack(">IBBH", 7, 2, 0, 0), "begin at 8"),
        (struct.pack(">IBBH", 100, 200, 0, 0), "begin at 800"),
        (struct.pack(">IBBH", 100, 2, 7, 0), "type 7"),
    ],
)
def test_a_bad_frame_is_refused_at_its_first_eight_bytes(prefix: bytes, match: str) -> None:
    reader = FrameReader(1 << 16)
    assert list(reader.feed(AMQP_HEADER + prefix[:7])) == [Header(AMQP_HEADER)]
    with pytest.raises(AmqpError, match=match) as caught:
        list(reader.feed(prefix[7:]))
    assert caught.value.condition == "amqp:connection:framing-error"


def test_an_empty_frame_and_an_extended_header_are_frames() -> None:
    extended = struct.pack(">IBBH", 12, 3, 0, 5) + b"more"
    assert list(FrameReader(512).feed(EMPTY_FRAME + extended)) == [Frame(0, 0, b""), Frame(0, 5, b"")]


def test_every_performative_has_a_code_and_types_of_its_own() -> None:
    assert len({kind.CODE for kind in PERFORMATIVES}) == len(PERFORMATIVES)
    assert isinstance(Attach.TYPES, tuple)


def test_helpers_make_what_the_reader_reads() -> None:
    units = list(FrameReader(1 << 16).feed(opening() + frame(producer()) + transfers(b"x" * 100, size=30)))
    assert len(units) == 1 + 3 + 4
    assert encode_frame(3, Close())[6:8] == b"\x00\x03"
