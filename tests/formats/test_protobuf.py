"""What a body in Protobuf must be, and what each type of a column takes of it."""

from __future__ import annotations

import base64
import json
import pickle
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isnan
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats import BodyReader, ReadBodies
from leasehold.formats.protobuf.schemas import read_file
from tests.formats.protobuf_schemas import encoded, message_class, proto
from tests.formats.ways import way

__all__ = ["way"]

AT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")


def reader(text: str, columns: pa.Schema, **how: Any) -> BodyReader:
    return BodyReader(columns, BodyFormat(format="protobuf", writer_schema=text, message="p.M", **how))


def outcome(read: ReadBodies) -> list[Any]:
    """Each row, or the reason why there is none."""
    reasons = [None] * len(read.columns) if read.reasons is None else read.reasons.to_pylist()
    return [reason or row for row, reason in zip(read.columns.to_pylist(), reasons, strict=True)]


def read_bytes(text: str, column: pa.DataType, body: bytes | None, **how: Any) -> Any:
    """What the column `v` has of a body, or the reason of the reject."""
    (found,) = outcome(reader(text, pa.schema([("v", column)]), **how).read(pa.array([body], pa.binary())))
    return found["v"] if isinstance(found, dict) and not how.get("rescue") else found


LEG = "message Leg { string gate = 1; optional double miles = 2; Leg next = 3; }"
LEG_TYPE = pa.struct([("miles", pa.float64()), ("gate", pa.string()), ("none", pa.int8())])

# The field, the column, the value as Protobuf's JSON has it, what the column has or the reason says.
TAKEN = [
    ("int32 v", pa.int32(), -7, -7),
    ("int32 v", pa.int64(), 7, 7),
    ("sint32 v", pa.int8(), -128, -128),
    ("sint32 v", pa.int8(), 128, "the field v is 128, which no TINYINT holds"),
    ("sfixed32 v", pa.float64(), 7, 7.0),
    ("uint32 v", pa.int64(), 2**32 - 1, 2**32 - 1),
    ("uint32 v", pa.int32(), 2**32 - 1, "the field v is 4294967295, which no INT holds"),
    ("fixed32 v", pa.int64(), 5, 5),
    ("int64 v", pa.int64(), "-9223372036854775808", -(2**63)),
    ("sint64 v", pa.decimal128(20, 1), "9223372036854775807", Decimal("9223372036854775807.0")),
    ("sfixed64 v", pa.string(), "5", "5"),
    ("uint64 v", pa.int64(), "9223372036854775807", 2**63 - 1),
    ("uint64 v", pa.int64(), "9223372036854775808", "the field v is 9223372036854775808, which no BIGINT holds"),
    ("fixed64 v", pa.decimal128(20, 0), "18446744073709551615", Decimal(2**64 - 1)),
    ("uint64 v", pa.string(), "18446744073709551615", "18446744073709551615"),
    ("int64 v", AT, 1770091506, datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
    ("bool v", pa.bool_(), True, True),
    ("bool v", pa.string(), True, "true"),
    ("bool v", pa.int32(), True, "the field v is true, which is not an INT"),
    ("float v", pa.float32(), 0.1, 0.10000000149011612),
    ("float v", pa.float64(), 0.1, 0.10000000149011612),
    ("float v", pa.string(), 0.1, "0.1"),
    ("double v", pa.float64(), "Infinity", inf),
    ("double v", pa.float32(), 1e300, "the field v is 1e+300, which no FLOAT holds"),
    ("double v", pa.decimal128(4, 1), 0.5, "the field v is 0.5, a double, which is not the number that was meant"),
    ("string v", pa.string(), "LH1é", "LH1é"),
    ("string v", pa.decimal128(6, 2), "12.30", Decimal("12.30")),
    ("string v", AT, "2026-02-03T04:05:06Z", datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
    ("string v", pa.binary(), "é", "é".encode()),
    ("string v", pa.int64(), "a", 'the field v is "a", which is not a BIGINT'),
    ("bytes v", pa.binary(), base64.b64encode(b"\xff\0").decode(), b"\xff\0"),
    ("bytes v", pa.string(), base64.b64encode("é".encode()).decode(), "é"),
    ("bytes v", pa.string(), base64.b64encode(b"\xff").decode(), "the field v is 1 bytes that are not UTF-8"),
    ("Status v", pa.string(), "LATE", "LATE"),
    ("Status v", pa.int32(), "LATE", 1),
    ("Status v", pa.string(), 7, "7"),
    ("Status v", pa.int8(), 200, "the field v is 200, which no TINYINT holds"),
    ("repeated int32 v", pa.list_(pa.int64()), [1, 0, 3], [1, 0, 3]),
    ("repeated int32 v", pa.string(), [1, 2], "[1,2]"),
    ("repeated string v", pa.list_(pa.int8()), ["1", "x"], 'the field v[0] is "1", which is not a TINYINT'),
    ("repeated int32 v", pa.int64(), [1], "the field v is an array, which is not a BIGINT"),
    ("map<int32, bool> v", pa.map_(pa.string(), pa.bool_()), {"10": True, "9": False}, [("9", False), ("10", True)]),
    ("map<string, Leg> v", pa.string(), {"b": {}, "a": {"gate": "B7"}}, '{"a":{"gate":"B7"},"b":{"gate":""}}'),
    ("map<string, int64> v", pa.map_(pa.string(), pa.int8()), {"a": 300}, "the field v.a is 300, which no TINYINT"),
    ("map<string, int64> v", pa.list_(pa.int8()), {"a": 3}, "the field v is an object, which is not an ARRAY"),
    ("Leg v", LEG_TYPE, {"gate": "B7"}, {"miles": None, "gate": "B7", "none": None}),
    ("Leg v", pa.string(), {"miles": 1.5, "next": {"gate": "A"}}, '{"gate":"","miles":1.5,"next":{"gate":"A"}}'),
    ("Leg v", pa.int32(), {}, "the field v is an object, which is not an INT"),
    ("repeated Leg v", pa.list_(LEG_TYPE), [{"miles": 1}, {}], [{"miles": 1.0, "gate": "", "none": None},
                                                                {"miles": None, "gate": "", "none": None}]),
    ("google.protobuf.Timestamp v", AT, "2026-02-03T04:05:06.789Z", datetime(2026, 2, 3, 4, 5, 6, 789000, UTC)),
    ("google.protobuf.Timestamp v", AT, "0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ("google.protobuf.Timestamp v", AT, "2026-02-03T04:05:06.000000001Z", "finer than the microseconds"),
    ("google.protobuf.Timestamp v", LOCAL, "2026-02-03T04:05:06Z", "the field v is a time in UTC, and a TIMESTAMP_NTZ"),
    ("google.protobuf.Timestamp v", pa.string(), "2026-02-03T04:05:06.5Z", "2026-02-03T04:05:06.5Z"),
    ("google.protobuf.Timestamp v", pa.int64(), "2026-02-03T04:05:06Z", "which is not a BIGINT"),
    ("google.protobuf.Duration v", pa.string(), "-1.500s", "-1.5s"),
    ("google.protobuf.Int32Value v", pa.int32(), 0, 0),
    ("google.protobuf.UInt64Value v", pa.int64(), "9223372036854775808", "which no BIGINT holds"),
    ("google.protobuf.StringValue v", pa.string(), "", ""),
    ("google.protobuf.BytesValue v", pa.binary(), "", b""),
    ("google.protobuf.FloatValue v", pa.float32(), 0.5, 0.5),
    ("google.protobuf.Struct v", pa.string(), {"b": [1, None, {"c": "x"}], "a": True}, '{"a":true,"b":[1,null,{"c":"x"}]}'),
    ("google.protobuf.Struct v", pa.int32(), {}, "which is not an INT"),
    ("google.protobuf.Value v", pa.string(), 0.5, "0.5"),
    ("google.protobuf.ListValue v", pa.string(), ["a"], '["a"]'),
    ("google.protobuf.FieldMask v", pa.string(), "aB,c", "a_b,c"),
    ("google.type.Date v", pa.date32(), {"year": 2026, "month": 2, "day": 3}, date(2026, 2, 3)),
    ("google.type.Date v", pa.string(), {"year": 2026, "month": 2, "day": 3}, "2026-02-03"),
    ("google.type.Date v", pa.date32(), {"year": 2026}, "the field v is 2026-0-0, which is not a date"),
    ("google.type.TimeOfDay v", pa.string(), {"hours": 4, "nanos": 5000}, "04:00:00.000005"),
    ("google.type.Decimal v", pa.decimal128(9, 2), {"value": "12.3"}, Decimal("12.30")),
    ("confluent.type.Decimal v", pa.decimal128(9, 2), {"value": "MDk=", "scale": 2}, Decimal("123.45")),
    ("confluent.type.Decimal v", pa.string(), {"value": "zw==", "scale": 1}, "-4.9"),
    ("confluent.type.Decimal v", pa.string(), {"value": "MDk=", "scale": 2147483647}, "scale 2147483647, which no number has"),
    ("Status v", pa.date32(), "LATE", 'the field v is "LATE"'),
]  # fmt: skip


@pytest.mark.parametrize(("field", "column", "value", "expected"), TAKEN, ids=lambda value: str(value)[:30])
def test_each_type_is_taken_as_it_is_or_not_at_all(field: str, column: pa.DataType, value: Any, expected: Any) -> None:
    text = proto(field, more=LEG)
    found = read_bytes(text, column, encoded(text, {"v": value}))
    if isinstance(expected, str) and " " in expected:
        assert expected in found
    else:
        assert found == expected


def test_an_any_is_its_url_and_bytes() -> None:
    text = proto("google.protobuf.Any v")
    body = message_class(text)(v={"type_url": "type.googleapis.com/x.Y", "value": b"\1"}).SerializeToString()
    assert json.loads(read_bytes(text, pa.string(), body)) == {"@type": "type.googleapis.com/x.Y", "value": "AQ=="}


def test_nan_stays() -> None:
    text = proto("double v")
    assert isnan(read_bytes(text, pa.float64(), encoded(text, {"v": "NaN"})))
    assert read_bytes(text, pa.string(), encoded(text, {"v": "NaN"})) == "NaN"


@pytest.mark.parametrize(
    ("field", "column", "expected"),
    [
        ("int32 v", pa.int32(), 0),
        ("string v", pa.string(), ""),
        ("Status v", pa.string(), "UNKNOWN"),
        ("optional int32 v", pa.int32(), None),
        ("Leg v", LEG_TYPE, None),
        ("google.protobuf.Timestamp v", AT, None),
        ("google.protobuf.Int64Value v", pa.int64(), None),
        ("repeated int32 v", pa.list_(pa.int32()), []),
        ("map<string, int32> v", pa.map_(pa.string(), pa.int32()), []),
        ("oneof o { int32 v = 1; string w = 2; }", pa.int32(), None),
        ("int32 w", pa.int32(), None),
    ],
)
def test_what_is_not_set_is_null_where_the_schema_has_presence(field: str, column: pa.DataType, expected: Any) -> None:
    assert read_bytes(proto(field, more=LEG), column, b"") == expected


def test_what_is_set_to_zero_is_zero() -> None:
    text = proto("optional int32 v")
    assert read_bytes(text, pa.int32(), encoded(text, {"v": 0})) == 0


def test_fields_of_proto2() -> None:
    more = "message N { required int32 n = 1; }"
    text = proto("optional int32 v", "optional bytes b", "optional N inner", syntax="proto2", more=more)
    assert read_bytes(text, pa.int32(), b"") is None
    lacking = message_class(text)()
    lacking.inner.SetInParent()
    assert read_bytes(text, pa.int32(), lacking.SerializePartialToString()) == (
        "the body lacks the field inner.n, which its schema requires"
    )
    stated = (
        "syntax = 'proto2'; package p; enum E { A = 1; B = 2; } message M { optional string v = 1 [default = 'no'];"
    )
    stated += " optional E e = 2 [default = B]; optional group G = 3 { optional int32 x = 1; } }"
    assert read_bytes(stated, pa.string(), b"") == "no"
    assert read_bytes(stated, pa.string(), b"\x0a\x01\xff") == "the field v is not valid UTF-8"
    columns = pa.schema([("e", pa.string()), ("g", pa.struct([("x", pa.int32())]))])
    bodies = pa.array([b"", b"\x10\x01\x1b\x08\x05\x1c", b"\x10\x07", b"\x1a\x02\x08\x05"])
    assert outcome(reader(stated, columns).read(bodies)) == [
        {"e": "B", "g": None},
        {"e": "A", "g": {"x": 5}},
        {"e": "B", "g": None},
        {"e": "B", "g": None},
    ]


def test_of_a_oneof_the_last_counts() -> None:
    text = proto("oneof o { int32 v = 1; string w = 2; Leg l = 3; }", more=LEG)
    columns = pa.schema([("v", pa.int32()), ("w", pa.string())])
    one, other = encoded(text, {"v": 5}), encoded(text, {"w": "x"})
    bodies = [one, other, one + other, other + one, one + encoded(text, {"l": {}})]
    assert outcome(reader(text, columns).read(pa.array(bodies))) == [
        {"v": 5, "w": None},
        {"v": None, "w": "x"},
        {"v": None, "w": "x"},
        {"v": 5, "w": None},
        {"v": None, "w": None},
    ]


def test_what_no_column_takes_is_kept_where_it_is_in_the_body() -> None:
    text = proto(
        "int32 v", "string w", "Leg leg", "repeated Leg legs", "google.protobuf.Timestamp at", "Status s", more=LEG
    )
    columns = pa.schema([("v", pa.int32()), ("leg", LEG_TYPE), ("legs", pa.list_(LEG_TYPE))])
    value = {
        "v": 1,
        "w": 'a"',
        "leg": {"gate": "B", "next": {"gate": "C"}},
        "legs": [{"gate": "D"}, {"next": {}}],
        "at": "2026-02-03T04:05:06Z",
        "s": 5,
    }
    bodies = [encoded(text, value), encoded(text, {"v": 1, "w": ""}), b"\x08\x01\xa0\x06\x05\xa0\x06\x06\xaa\x06\x02hi"]
    rest = [one["rest"] for one in outcome(reader(text, columns, rescue="rest").read(pa.array(bodies)))]
    assert json.loads(rest[0]) == {
        "w": 'a"',
        "leg": {"next": {"gate": "C"}},
        "legs": [None, {"next": {"gate": ""}}],
        "at": "2026-02-03T04:05:06Z",
        "s": "5",
    }
    assert rest[1] is None
    assert json.loads(rest[2]) == {"100": [5, 6], "101": base64.b64encode(b"hi").decode()}
    assert outcome(reader(text, columns).read(pa.array(bodies)))[2]["v"] == 1


NOT = "the body is not a message of the type p.M"
HOSTILE = [
    ("string v", b"\x0a\x05ab", NOT),
    ("string v", b"\x0a\xff\xff\xff\xff\x07", NOT),
    ("string v", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", NOT),
    ("string v", b"\x0a\x01\xff", f"{NOT}: a text in it is not valid UTF-8"),
    ("int32 v", b"\x08" + b"\xff" * 11, NOT),
    ("int32 v", b"\x08", NOT),
    ("int32 v", b"\x00\x01", NOT),
    ("int32 v", b"\x0f\x01", NOT),
    ("int32 v", b"\x0c", NOT),
    ("Leg v", b"\x0a\x80\x01" + b"\x1a\x00" * 3, NOT),
    ("Leg v", b"\x0b" * 200_000, NOT),
    ("int32 v", b"\x13" * 200_000, NOT),
    ("map<string, Leg> v", b"\x0a\x05\x0a\x01a\x12\x05", NOT),
    (
        "google.protobuf.Timestamp v",
        b"\x0a\x02\x10\x7f",
        'the field v is "1970-01-01T00:00:00.000000127Z", which is finer',
    ),
    (
        "google.protobuf.Timestamp v",
        b"\x0a\x0b\x10" + b"\xff" * 9 + b"\x01",
        "the field v is a time with -1 nanoseconds",
    ),
    ("google.protobuf.Timestamp v", b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", "which is outside the years 1 to 9999"),
]


@pytest.mark.parametrize(("field", "body", "reason"), HOSTILE, ids=lambda value: repr(value)[:30])
def test_hostile_bodies_are_rejected_alone(field: str, body: bytes, reason: str) -> None:
    text = proto(field, "optional int32 good", more=LEG)
    column = {"string v": pa.string(), "int32 v": pa.int32(), "Leg v": LEG_TYPE}.get(field, pa.string())
    column = AT if "Timestamp" in field else column
    good = encoded(text, {"good": 5})
    columns = pa.schema([("v", column), ("good", pa.int32())])
    read = outcome(reader(text, columns).read(pa.array([good] * 60 + [body] + [good] * 60)))
    assert reason in read.pop(60)
    assert {one["good"] for one in read} == {5}


def test_deep_bodies_are_rejected() -> None:
    text = proto("Leg v", more=LEG)
    body = b""
    for _ in range(3_000):
        body = b"\x1a" + _varint(len(body)) + body
    body = b"\x0a" + _varint(len(body)) + body
    assert read_bytes(text, pa.string(), body) == NOT
    body = b""
    for _ in range(90):
        body = b"\x1a" + _varint(len(body)) + body
    found = read_bytes(text, pa.string(), b"\x0a" + _varint(len(body)) + body)
    assert found.count("next") == 90


def test_short_bodies_cost_little() -> None:
    text = proto("repeated Leg v", "repeated int32 n", more=LEG)
    bodies = pa.array([b"\x0a\x00" * 2_000, b"\x12\x90\x4e" + b"\x01" * 10_000] * 20)
    both = reader(text, pa.schema([("v", pa.list_(LEG_TYPE)), ("n", pa.list_(pa.int32()))]))
    tracemalloc.start()
    started = time.process_time()
    read = outcome(both.read(bodies))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(read[0]["v"]), len(read[1]["n"])) == (2_000, 10_000)
    assert most < 200 << 20
    assert time.process_time() - started < 60


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_bodies_that_are_broken_are_rejected_or_what_the_runtime_reads() -> None:
    text = proto("int64 v", "string w", "optional double d", "repeated Leg legs", "Status s", more=LEG)
    columns = pa.schema(
        [("v", pa.int64()), ("w", pa.string()), ("d", pa.float64()), ("legs", pa.list_(LEG_TYPE)), ("s", pa.string())]
    )
    good = encoded(text, {"v": 300, "w": "abc", "d": 2.5, "legs": [{"gate": "B", "miles": 1}, {}], "s": "LATE"})
    dice = Random(1)
    bodies = []
    for _ in range(2_000):
        changed = bytearray(good)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        bodies.append(bytes(changed[: dice.randrange(len(changed))] if dice.random() < 0.3 else changed))
    rejected = 0
    for body, found in zip(bodies, outcome(reader(text, columns).read(pa.array(bodies))), strict=True):
        try:
            message = message_class(text).FromString(body)
        except DecodeError:
            assert found.startswith(NOT)
            rejected += 1
            continue
        assert (
            found
            == {
                "v": message.v,
                "w": message.w,
                "d": message.d if message.HasField("d") else None,
                "legs": [
                    {"miles": leg.miles if leg.HasField("miles") else None, "gate": leg.gate, "none": None}
                    for leg in message.legs
                ],
                "s": {0: "UNKNOWN", 1: "LATE", 2: "LANDED"}.get(message.s, str(message.s)),
            }
            or isnan(found["d"] or 0)
            or any(isnan(leg["miles"] or 0) for leg in found["legs"])
        )
    assert 200 < rejected < 1_800


def test_a_type_with_the_name_of_a_well_known_one_is_a_message_like_any_other() -> None:
    text = """syntax = "proto3"; package google.protobuf; message Timestamp { string seconds = 1; int32 nanos = 2; }
    message Struct { string fields = 1; } message M { Timestamp v = 1; Struct s = 2; }"""
    how = BodyFormat(format="protobuf", writer_schema=text, message="google.protobuf.M")
    columns = pa.schema([("v", pa.string()), ("s", pa.struct([("fields", pa.string())]))])
    body = b"\x0a\x03\x0a\x01x\x12\x03\x0a\x01y"
    expected = {"v": '{"seconds":"x","nanos":0}', "s": {"fields": "y"}}
    assert outcome(BodyReader(columns, how).read(pa.array([body]))) == [expected]
    times = pa.schema([("v", AT)])
    assert outcome(BodyReader(times, how).read(pa.array([body]))) == [
        "the field v is an object, which is not a TIMESTAMP"
    ]


def test_names_that_the_runtime_has_too_are_fields() -> None:
    text = proto("optional string HasField", "string ListFields", "int32 class")
    columns = pa.schema([("HasField", pa.string()), ("ListFields", pa.string()), ("class", pa.int32())])
    value = {"HasField": "a", "ListFields": "b", "class": 3}
    assert outcome(reader(text, columns).read(pa.array([encoded(text, value)]))) == [value]
    read = reader(text, columns.remove(1), rescue="rest").read(pa.array([encoded(text, value)]))
    assert outcome(read)[0]["rest"] == '{"ListFields":"b"}'


def test_a_schema_is_a_file_a_set_of_descriptors_or_one_of_them(tmp_path: Path) -> None:
    text = proto("string v", "google.protobuf.Timestamp at")
    body = encoded(text, {"v": "x"})
    (tmp_path / "m.proto").write_text(text)
    file = read_file(text)
    alone = FileDescriptorProto()
    file.CopyToProto(alone)
    together = FileDescriptorSet()
    for one in file.dependencies:
        one.CopyToProto(together.file.add())
    together.file.append(alone)
    (tmp_path / "m.desc").write_bytes(together.SerializeToString())
    single = base64.b64encode(alone.SerializeToString()).decode()
    whole = base64.b64encode(together.SerializeToString()).decode()
    for schema in (text, tmp_path / "m.proto", str(tmp_path / "m.desc"), tmp_path / "m.desc", single, whole):
        how = BodyFormat(format="protobuf", writer_schema=schema, message="p.M")
        one = pickle.loads(pickle.dumps(BodyReader(pa.schema([("v", pa.string())]), how)))  # noqa: S301
        assert outcome(one.read(pa.array([body]))) == [{"v": "x"}]


def test_the_type_of_the_bodies_is_the_only_one_or_is_named() -> None:
    two = 'syntax = "proto3"; package p; message A { string v = 1; message I { string v = 2; } } message B {}'
    columns = pa.schema([("v", pa.string())])
    with pytest.raises(ConfigError, match=r"message.*these types of messages: p.A, p.B"):
        BodyReader(columns, BodyFormat(format="protobuf", writer_schema=two))
    with pytest.raises(ConfigError, match="no such type of messages"):
        BodyReader(columns, BodyFormat(format="protobuf", writer_schema=two, message="A"))
    inner = BodyReader(columns, BodyFormat(format="protobuf", writer_schema=two, message="p.A.I"))
    assert outcome(inner.read(pa.array([b"\x12\x01x"]))) == [{"v": "x"}]
    one = two.partition(" message B")[0]
    assert outcome(BodyReader(columns, BodyFormat(format="protobuf", writer_schema=one)).read(pa.array([b""])))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message { }", "schema.proto:1:9: Expected message name"),
        ('syntax = "proto3"; import "mine.proto"; message M {}', "mine.proto: File not found"),
        ('syntax = "proto3"; import "/etc/passwd"; message M {}', "not a schema of Protobuf"),
        ('syntax = "proto3"; import "google/protobuf/nothing.proto"; message M {}', "nothing.proto: File not found"),
        ("CgRhYmNkEgRhYmNkEgR/", "not a schema of Protobuf that can be read"),
        ("enum A { B = 0; }", "has no type of messages"),
    ],
)
def test_other_schemas_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BodyReader(pa.schema([("v", pa.string())]), BodyFormat(format="protobuf", writer_schema=text))


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for how, said in (
        ({"format": "protobuf"}, "bodies in Protobuf are read by the schema that wrote them"),
        ({"format": "avro", "writer_schema": "{}", "message": "p.M"}, 'it is for format = "protobuf"'),
        ({"format": "protobuf", "writer_schema": "m.proto"}, "cannot be read"),
        ({"format": "protobuf", "writer_schema": "{}", "registry": "http://localhost"}, "are read by the schema"),
        ({"writer_schema": "{}"}, 'it is for format = "avro" or "protobuf"'),
    ):
        with pytest.raises(ConfigError, match=said):
            BodyFormat(**how)


def two(fields: str, more: str = "", syntax: str = "proto2") -> str:
    """A file of these fields as they are written."""
    return f'syntax = "{syntax}"; package p; {more} message M {{ {fields} }}'


def rows(text: str, columns: dict[str, pa.DataType], bodies: list[bytes], **how: Any) -> list[Any]:
    """The outcome of bodies, many of them, so that they are read many at once."""
    found = outcome(reader(text, pa.schema(list(columns.items())), **how).read(pa.array(bodies * 60)))
    assert found == found[: len(bodies)] * 60
    return found[: len(bodies)]


def test_a_type_that_holds_itself_is_a_struct_as_deep_as_the_column() -> None:
    text = two("M n = 1; string id = 2; repeated M all = 3;", syntax="proto3")
    inner = pa.struct([("id", pa.string()), ("n", pa.struct([("id", pa.string())]))])
    body = encoded(text, {"n": {"id": "a", "n": {"id": "b"}}, "all": [{"id": "c"}]})
    columns = {"n": inner, "all": pa.list_(pa.struct([("id", pa.string())]))}
    assert rows(text, columns, [b"", body]) == [
        {"n": None, "all": []},
        {"n": {"id": "a", "n": {"id": "b"}}, "all": [{"id": "c"}]},
    ]


@pytest.mark.parametrize("name", ["Timestamp", "Duration", "Int64Value", "StringValue", "Struct", "Any"])
def test_types_called_like_well_known_ones_are_structs(name: str) -> None:
    text = (
        f'syntax = "proto3"; package google.protobuf; message {name} {{ int64 x = 7; }} message M {{ {name} v = 1; }}'
    )
    how = BodyFormat(format="protobuf", writer_schema=text, message="google.protobuf.M")
    read = BodyReader(pa.schema([("v", pa.struct([("x", pa.int64())]))]), how).read(
        pa.array([b"\x0a\x02\x38\x05"] * 60)
    )
    assert outcome(read) == [{"v": {"x": 5}}] * 60


def test_text_of_proto2_that_is_not_utf8_rejects_its_body_wherever_it_is() -> None:
    keys = b"\x0a\x05\x0a\x01\xff\x10\x01\x0a\x05\x0a\x01a\x10\x01"
    reason = "the field v is not valid UTF-8"
    for type_ in (pa.string(), pa.map_(pa.string(), pa.int32())):
        assert rows(two("map<string, int32> v = 1;"), {"v": type_}, [keys]) == [reason]
    more = "message L { optional string a = 1; }"
    assert rows(two("optional L v = 1;", more), {"v": pa.string()}, [b"\x0a\x03\x0a\x01\xff"]) == [
        "the field v.a is not valid UTF-8"
    ]
    wrapper = two("optional StringValue v = 1;", "message StringValue { optional string value = 1; }")
    wrapper = wrapper.replace("package p", "package google.protobuf")
    how = BodyFormat(format="protobuf", writer_schema=wrapper, message="google.protobuf.M")
    read = BodyReader(pa.schema([("v", pa.string())]), how).read(pa.array([b"\x0a\x03\x0a\x01\xff"]))
    assert outcome(read) == [reason]


def test_extensions_and_what_the_schema_does_not_know_are_kept_at_any_depth() -> None:
    more = "message L { optional int32 x = 1; extensions 100 to 200; } extend L { optional L e = 100; repeated int32 f = 101; }"
    text = two("optional int32 Extensions = 1; optional L l = 2; map<string, L> m = 3; extensions 100 to 200;", more)
    text += " extend M { optional int32 own = 100; }"
    inner = b"\x08\x05\xa2\x06\x02\x08\x06\xa8\x06\x07\xf8\x3f\x08"
    body = b"\x08\x01\x12" + _varint(len(inner)) + inner + b"\xa0\x06\x05"
    entry = b"\x0a\x01k\x12" + _varint(len(inner)) + inner
    body += b"\x1a" + _varint(len(entry)) + entry
    left = {"[p.e]": {"x": 6}, "[p.f]": [7], "1023": 8}
    struct = pa.struct([("x", pa.int32())])
    (one,) = rows(text, {"l": struct, "m": pa.map_(pa.string(), struct)}, [body], rescue="rest")
    assert json.loads(one["rest"]) == {"Extensions": 1, "l": left, "m": {"k": left}, "[p.own]": 5}
    (one,) = rows(text, {"l": pa.string(), "m": pa.string(), "Extensions": pa.int8()}, [body], rescue="rest")
    assert json.loads(one["l"]) == {"x": 5, **left}
    assert json.loads(one["rest"]) == {"[p.own]": 5}
    (one,) = rows(text, {"Extensions": pa.int8()}, [body + b"\xcb\x3e\x08\x05\xcc\x3e"], rescue="rest")
    assert json.loads(one["rest"])["1001"] == {"1": 5}
    assert json.loads(one["rest"])["l"] == {"x": 5, **left}


def test_of_a_time_that_is_read_as_a_struct_the_rest_is_kept() -> None:
    text = proto("google.protobuf.Timestamp v")
    (one,) = rows(text, {"v": pa.struct([("seconds", pa.int64())])}, [b"\x0a\x04\x08\x05\x10\x07"], rescue="rest")
    assert one == {"v": {"seconds": 5}, "rest": '{"v":{"nanos":7}}'}


def test_a_default_that_its_column_does_not_take_rejects_the_bodies_that_have_it() -> None:
    text = two("optional int32 v = 1 [default = 300];")
    assert rows(text, {"v": pa.int8()}, [b"", b"\x08\x05"]) == ["the field v is 300, which no TINYINT holds", {"v": 5}]


def test_long_chains_of_types_and_of_files_are_read() -> None:
    chain = "".join(f"message C{n} {{ C{n + 1} n = 1; }}" for n in range(400)) + "message C400 { string v = 1; }"
    text = two("C0 c = 1; string v = 2;", chain, syntax="proto3")
    assert rows(text, {"c": pa.string()}, [b"\x0a\x00", b"\x12\x01x"], rescue="rest") == [
        {"c": "{}", "rest": None},
        {"c": None, "rest": '{"v":"x"}'},
    ]
    together = FileDescriptorSet()
    for number in range(1_500):
        file = together.file.add(name=f"f{number}.proto", package="p", syntax="proto3")
        file.dependency.extend([f"f{number - 1}.proto"] if number else [])
    last = together.file[-1].message_type.add(name="M").field.add(name="v", number=1)
    last.type, last.label = 9, 1
    schema = base64.b64encode(together.SerializeToString()).decode()
    assert rows(schema, {"v": pa.string()}, [b"\x0a\x01x"]) == [{"v": "x"}]


def test_a_map_without_a_key_is_refused() -> None:
    file = FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    field = message.field.add(name="v", number=1, type_name=".p.M.VEntry")
    field.type, field.label = 11, 3
    inner = message.nested_type.add(name="VEntry")
    inner.options.map_entry = True
    for name, number in (("key", 1), ("value", 3)):
        one = inner.field.add(name=name, number=number)
        one.type, one.label = 5, 1
    with pytest.raises(ConfigError):
        reader(base64.b64encode(file.SerializeToString()).decode(), pa.schema([("v", pa.string())]))


def test_of_two_symbols_with_a_number_the_first_is_read() -> None:
    text = two("E v = 1;", "enum E { option allow_alias = true; A = 0; B = 1; C = 1; }", syntax="proto3")
    assert rows(text, {"v": pa.string()}, [b"\x08\x01", b""]) == [{"v": "B"}, {"v": "A"}]


def test_a_field_that_an_extension_requires_is_required() -> None:
    more = "message L { required int32 x = 1; }"
    text = two("optional int32 v = 1; extensions 100 to 200;", more) + " extend M { optional L e = 100; }"
    (reason,) = rows(text, {"v": pa.int32()}, [b"\x08\x01\xa2\x06\x00"])
    assert reason.startswith("the body lacks the field")


def test_a_text_stays_one_in_copies_of_its_reader(tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text(
        "syntax = 'proto3'; import 'google/type/date.proto'; message M\n{ google.type.Date v = 1; }"
    )
    one = BodyFormat(format="protobuf", writer_schema=tmp_path / "m.proto")
    columns = pa.schema([("v", pa.date32()), ("w", pa.string())])
    assert outcome(BodyReader(columns, one).only(["v"]).read(pa.array([b""])))[0] == {"v": None}
    descriptors = FileDescriptorProto()
    read_file('syntax = "proto3"; message M { string v = 1; }').CopyToProto(descriptors)
    wrapped = base64.encodebytes(descriptors.SerializeToString()).decode()
    copy = pickle.loads(pickle.dumps(BodyFormat(format="protobuf", writer_schema=wrapped)))  # noqa: S301
    assert outcome(BodyReader(columns, copy).only(["w"]).read(pa.array([b""])))[0] == {"w": None}
    (tmp_path / "empty.proto").write_text("")
    with pytest.raises(ConfigError, match="no type of messages"):
        BodyReader(columns, BodyFormat(format="protobuf", writer_schema=tmp_path / "empty.proto")).only(["v"])


def test_several_threads_may_use_a_reader() -> None:
    fields = " ".join(f"optional int32 f{n} = {n};" for n in range(1, 120))
    text = (
        two("optional int32 v = 1; extensions 100 to 200;", f"message L {{ {fields} }}")
        + " extend M { optional L e = 100; }"
    )
    bodies = pa.array([b"\x08\x01\xa2\x06\x02\x08\x05"] * 30)
    for _ in range(5):
        one = reader(text, pa.schema([("v", pa.int32())]), rescue="rest")
        with ThreadPoolExecutor(6) as pool:
            for found in pool.map(lambda _, one=one: outcome(one.read(bodies)), range(12)):
                assert found == [{"v": 1, "rest": '{"[p.e]":{"f1":5}}'}] * 30
