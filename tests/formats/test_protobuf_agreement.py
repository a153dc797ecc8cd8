"""Bodies in Protobuf that are read many at once are read as one by one, whatever is among them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leasehold.body_format import BodyFormat
from leasehold.formats import BodyReader
from leasehold.formats.format_readers import FormatReader
from leasehold.formats.protobuf.columns import protobuf_columns
from leasehold.formats.protobuf.schemas import message_type, read_file
from tests.formats.drawn_protobuf import AT, Drawn
from tests.formats.protobuf_schemas import encoded, message_class, proto


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bodies are read many at once, too."""
    monkeypatch.setattr("leasehold.formats.format_readers._FEW", 0)


def agree(text: str, columns: pa.Schema, bodies: Sequence[bytes | None], rescue: str | None = None) -> int:
    """How many of the bodies were read many at once."""
    how = BodyFormat(format="protobuf", writer_schema=text, message="p.M", rescue=rescue)
    chunk = pa.array(bodies, pa.binary())
    single = BodyReader(columns, how)
    assert isinstance(single._reader, FormatReader)
    single._reader._many = None
    read, other = BodyReader(columns, how).read(chunk), single.read(chunk)
    assert (read.reasons and read.reasons.to_pylist()) == (other.reasons and other.reasons.to_pylist())
    assert repr(read.columns.to_pylist()) == repr(other.columns.to_pylist())
    many = protobuf_columns(columns, message_type(read_file(text), "p.M"), rescue=rescue is not None)
    return sum(len(rows) for rows, _ in many.read(chunk)) if many else 0


def spoilt(dice: Random, body: bytes) -> bytes:
    changed = bytearray(body)
    if not changed or dice.random() < 0.2:
        return bytes(changed) + dice.choice((b"\0", b"\x98\x06\x05", b"\x08\x01", b"\x0a\x00", bytes(changed)))
    if dice.random() < 0.2:
        return bytes(changed[: dice.randrange(len(changed))])
    changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def drawn_agree(seed: int, schemas: int) -> None:
    dice, many = Random(seed), 0
    for _ in range(schemas):
        drawn = Drawn(dice)
        bodies = [drawn.body() for _ in range(40)]
        bodies += [spoilt(dice, dice.choice(bodies)) for _ in range(40)]
        many += agree(drawn.text, drawn.columns, bodies) > 0
        agree(drawn.text, pa.schema(list(drawn.columns)[1:] or list(drawn.columns)), bodies, rescue="rest")
    assert many > schemas / 2


def test_a_few_random_schemas_agree() -> None:
    drawn_agree(59, 5)


@pytest.mark.more
def test_random_schemas_agree() -> None:
    drawn_agree(60, 60)


@pytest.mark.soak
@pytest.mark.timeout(3600)  # each schema is compiled by a process of its own
@pytest.mark.parametrize("part", range(20))
def test_twenty_thousand_random_schemas_agree(part: int) -> None:
    drawn_agree(Random().randrange(2**32), 1_000)


FLIGHT = (
    "string id",
    "int64 n",
    "double delay",
    "google.protobuf.Timestamp at",
    "Status s",
    "bool ok",
    "optional int32 o",
)
FLIGHTS = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("delay", pa.float64()),
        ("at", AT),
        ("s", pa.string()),
        ("ok", pa.bool_()),
        ("o", pa.int32()),
    ]
)


def flight(number: int) -> dict[str, Any]:
    return {
        "id": f"LH{number}é",
        "n": str(number),
        "delay": number / 7,
        "at": f"2026-02-03T04:05:06.{number % 1000:03}Z",
        "s": "LATE" if number % 2 else 5,
        "ok": number % 3 == 0,
        **({"o": 0} if number % 5 else {}),
    }


def test_all_good_flights_are_read_many_at_once() -> None:
    text = proto(*FLIGHT)
    bodies = [encoded(text, flight(number)) for number in range(2_000)]
    assert agree(text, FLIGHTS, bodies) == 2_000
    mixed: list[bytes | None] = list(bodies)
    dice = Random(1)
    for place in range(0, 2_000, 97):
        mixed[place] = dice.choice((None, b"", spoilt(dice, bodies[place]), bodies[place] * 2, b"\x0b" * 9_000))
    assert agree(text, FLIGHTS, mixed) > 1_800


# The fields, a column, and bodies in which a fast reader and the runtime may differ.
APART = [
    ("oneof o { int32 v = 1; string w = 2; }", pa.int32(), [b"\x08\x05\x12\x01x", b"\x12\x01x\x08\x05", b"\x08\x05"]),
    ("map<string, int32> v", pa.map_(pa.string(), pa.int32()), [b"\x0a\x05\x0a\x01a\x10\x01\x0a\x05\x0a\x01a\x10\x02"]),
    ("map<string, int32> v", pa.string(), [b"\x0a\x05\x0a\x01b\x10\x01\x0a\x05\x0a\x01a\x10\x02", b"\x0a\x00"]),
    ("int32 v", pa.int32(), [b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x08\x81\x80\x80\x80\x10", b"\x08\x80\x00"]),
    ("bool v", pa.bool_(), [b"\x08\x02", b"\x08\x80\x01", b"\x08\x00"]),
    ("int32 v", pa.int32(), [b"\x08\x00", b"\x08\x01\x08\x02", b"\x0a\x01\x05", b"\x0d\x01\x00\x00\x00"]),
    ("optional int32 v", pa.int32(), [b"\x08\x00", b""]),
    ("repeated int32 v", pa.list_(pa.int32()), [b"\x08\x01\x08\x02", b"\x0a\x02\x01\x02", b"\x0a\x01\x01\x08\x02"]),
    ("double v", pa.float64(), [b"\x09" + b"\x00" * 7 + b"\x80", b"\x09" + b"\xff" * 8]),
    ("float v", pa.float32(), [b"\x0d\x01\x00\x80\x7f"]),
    ("Status v", pa.string(), [b"\x08\x63", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\xe3\x80\x80\x80\x10"]),
    ("repeated Status v", pa.list_(pa.string()), [b"\x0a\x02\x01\x63"]),
    ("google.protobuf.Timestamp v", AT, [b"\x0a\x02\x10\x01", b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", b"\x0a\x00"]),
    ("google.protobuf.Timestamp v", AT, [b"\x0a\x07\x10\x80\x94\xeb\xdc\x03\x08\x01", b"\x0a\x02\x08\x01\x0a\x02\x10\x00"]),
    ("google.protobuf.Int64Value v", pa.int64(), [b"\x0a\x00", b"\x0a\x02\x08\x00", b"\x0a\x02\x08\x05"]),
    ("google.type.Date v", pa.date32(), [b"\x0a\x00", b"\x0a\x07\x08\xea\x0f\x10\x02\x18\x03"]),
    ("In v", pa.struct([("x", pa.int32())]), [b"\x0a\x00", b"\x0a\x02\x08\x05\x0a\x02\x10\x06", b""]),
    ("In v", pa.struct([("y", pa.int32()), ("z", pa.int8())]), [b"\x0a\x04\x08\x05\x10\x06"]),
    ("repeated In v", pa.list_(pa.struct([("p", pa.int32())])), [b"\x0a\x04\x18\x05\x20\x06", b"\x0a\x02\x18\x05"]),
]  # fmt: skip


@pytest.mark.parametrize(("field", "column", "bodies"), APART, ids=lambda value: str(value)[:12])
def test_where_a_fast_reader_may_differ(field: str, column: pa.DataType, bodies: list[bytes]) -> None:
    text = proto(field, more="message In { int32 x = 1; int32 y = 2; oneof q { int32 p = 3; int32 r = 4; } }")
    columns = pa.schema([("v", column)])
    for body in bodies:
        agree(text, columns, [body] * 3)
        agree(text, columns, [body] * 3, rescue="rest")
    agree(text, columns, bodies)


# The same of proto2: closed enums, groups, defaults, text that is not UTF-8.
APART_2 = [
    ("optional E v = 1;", pa.string(), [b"\x08\x63", b"\x08\x01", b""]),
    ("repeated E v = 1;", pa.list_(pa.string()), [b"\x08\x01\x08\x63", b"\x0a\x02\x01\x63"]),
    ("optional E v = 1; optional E unread = 2;", pa.string(), [b"\x08\x01\x10\x63"]),
    ("optional group V = 1 { optional int32 x = 1; }", pa.int32(), [b"\x0b\x08\x05\x0c", b"\x0a\x02\x08\x05"]),
    ("optional int32 v = 1 [default = 7];", pa.int32(), [b"", b"\x08\x00"]),
    ("optional string v = 1;", pa.string(), [b"\x0a\x01\xff", b"\x0a\x01a"]),
    ("repeated int32 v = 1;", pa.list_(pa.int32()), [b"\x08\x01\x08\x02", b"\x0a\x02\x01\x02"]),
    ("required int32 w = 2; optional int32 v = 1;", pa.int32(), [b"\x08\x01", b"\x08\x01\x10\x00"]),
]


@pytest.mark.parametrize(("fields", "column", "bodies"), APART_2, ids=lambda value: str(value)[:12])
def test_where_proto2_may_differ(fields: str, column: pa.DataType, bodies: list[bytes]) -> None:
    text = f'syntax = "proto2"; package p; enum E {{ A = 1; B = 2; }} message M {{ {fields} }}'
    columns = pa.schema([("v", column)])
    for body in bodies:
        agree(text, columns, [body] * 3)
    agree(text, columns, bodies)


@pytest.mark.parametrize(
    "text",
    [
        'edition = "2023"; package p; message M { int32 v = 1; }',
        'syntax = "proto3"; package p; message M { int32 v = 536870911; }',
        'syntax = "proto3"; package p; message M { int32 v = 1; M inner = 2; }',
        'syntax = "proto3"; package p; message M { int32 v = 1; M1 a = 2; M1 b = 3; }'
        + "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(1, 16))
        + "message M16 { int32 x = 1; }",
    ],
    ids=["edition", "large number", "holds itself", "many ways"],
)
def test_schemas_that_are_costly_for_a_fast_reader_are_read(text: str) -> None:
    body = message_class(text)(v=5).SerializeToString()
    agree(text, pa.schema([("v", pa.int32())]), [body] * 60 + [b""])
