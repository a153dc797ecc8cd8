"""What a body in Avro must be, and what each type of a column takes of it."""

from __future__ import annotations

import base64
import io
import json
import pickle
import time
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import fingerprint, to_parsing_canonical_form

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats import BodyReader, ReadBodies
from tests.formats.avro_schemas import AT, LOCAL, encoded, record
from tests.formats.ways import way

__all__ = ["way"]


def of_field(type_: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": type_}]}


def reader(schema: Any, columns: pa.Schema, **how: Any) -> BodyReader:
    return BodyReader(columns, BodyFormat(format="avro", writer_schema=json.dumps(schema), **how))


def outcome(read: ReadBodies) -> list[Any]:
    """Each row, or the reason why there is none."""
    reasons = [None] * len(read.columns) if read.reasons is None else read.reasons.to_pylist()
    return [reason or row for row, reason in zip(read.columns.to_pylist(), reasons, strict=True)]


def read_one(type_: Any, column: pa.DataType, value: Any, **how: Any) -> Any:
    """What the column `v` has of a value that fastavro has written, or the reason of the reject."""
    body = encoded(of_field(type_), {"v": value})
    (found,) = outcome(reader(of_field(type_), pa.schema([("v", column)]), **how).read(pa.array([body])))
    return found["v"] if isinstance(found, dict) else found


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


FIXED16 = {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
CENTS = logical("bytes", "decimal", precision=9, scale=2)
UNION = ["null", "long", "string", {"type": "enum", "name": "E", "symbols": ["red"]}, of_field("int") | {"name": "I"}]
NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
MICROS = 1_770_120_000_000_000

TAKEN = [
    ("int", pa.int8(), 127, 127),
    ("int", pa.int8(), 128, "the field v is 128, which no TINYINT holds"),
    ("long", pa.int32(), -(2**31), -(2**31)),
    ("long", pa.int32(), 2**31, "the field v is 2147483648, which no INT holds"),
    ("long", pa.float64(), 2**53 + 1, 2.0**53),
    ("long", pa.float32(), 16_777_217, 16_777_216.0),
    ("long", pa.decimal128(4, 2), 12, Decimal("12.00")),
    ("long", pa.decimal128(4, 2), 123, "the field v is 123, which no DECIMAL(4,2) holds"),
    ("long", pa.string(), 12, "12"),
    ("long", pa.bool_(), 1, "the field v is 1, which is not a BOOLEAN"),
    ("long", AT, 1_770_120_000, NOON),
    ("long", AT, 1_770_120_000_000, "the field v is 1770120000000, which as seconds since 1970 is outside the years 1 to 9999"),
    ("long", LOCAL, 1, "the field v is 1, which is not a TIMESTAMP_NTZ"),
    ("bytes", pa.decimal128(9, 0), base64.b64decode("1234"), "the field v is 1234, which is not a DECIMAL(9,0)"),
    (logical("int", "time-millis"), pa.decimal128(12, 0), 2**31 - 1, "the field v is 2147483647, which is not a DECIMAL(12,0)"),
    (CENTS, pa.string(), Decimal("-0.01"), "-0.01"),
    ("float", pa.string(), -0.0, "-0.0"),
    ("boolean", pa.string(), True, "true"),
    ("boolean", pa.int32(), True, "the field v is true, which is not an INT"),
    ("double", pa.float32(), 0.1, 0.10000000149011612),
    ("double", pa.float32(), 1e300, "the field v is 1e+300, which no FLOAT holds"),
    ("double", pa.float32(), float("-inf"), float("-inf")),
    ("double", pa.int64(), 1.0, "the field v is 1.0, which is not a BIGINT"),
    ("double", pa.decimal128(4, 2), 0.1, "the field v is 0.1, a double, which is not the number that was meant: declare a DOUBLE"),
    ("double", pa.string(), 0.1, "0.1"),
    ("double", pa.string(), float("nan"), "NaN"),
    ("float", pa.string(), 0.1, "0.1"),
    ("float", pa.float64(), 0.1, 0.10000000149011612),
    ("string", pa.string(), "é", "é"),
    ("string", pa.int64(), "5", 'the field v is "5", which is not a BIGINT'),
    ("string", pa.decimal128(4, 2), "1.5", Decimal("1.50")),
    ("string", AT, "2026-02-03T13:00+01:00", NOON),
    ("string", LOCAL, "2026-02-03T12:00", NOON.replace(tzinfo=None)),
    ("string", pa.date32(), "2026-02-03", date(2026, 2, 3)),
    ("string", pa.date32(), "today", 'the field v is "today", which is not a DATE such as 2026-02-03'),
    ("string", pa.binary(), "é", "é".encode()),
    ("string", pa.list_(pa.string()), "a", 'the field v is "a", which is not an ARRAY'),
    ("bytes", pa.binary(), b"\xff", b"\xff"),
    ("bytes", pa.string(), "é".encode(), "é"),
    ("bytes", pa.string(), b"\xff", "the field v is 1 bytes that are not UTF-8, which is not a STRING"),
    ("bytes", pa.int64(), b"\x01", "the field v is AQ==, which is not a BIGINT"),
    (logical("int", "date"), pa.date32(), date(1, 1, 1), date(1, 1, 1)),
    (logical("int", "date"), AT, date(2026, 2, 3), datetime(2026, 2, 3, tzinfo=UTC)),
    (logical("int", "date"), pa.string(), date(2026, 2, 3), "2026-02-03"),
    (logical("int", "date"), pa.int32(), date(1970, 1, 3), 2),
    (logical("long", "timestamp-micros"), AT, MICROS + 7, NOON.replace(microsecond=7)),
    (logical("long", "timestamp-micros"), pa.int64(), MICROS, MICROS),
    (logical("long", "timestamp-micros"), pa.string(), MICROS + 70, "2026-02-03T12:00:00.00007Z"),
    (logical("long", "timestamp-micros"), LOCAL, MICROS, "the field v is a time in UTC, and a TIMESTAMP_NTZ has no zone: declare a TIMESTAMP"),
    (logical("long", "timestamp-micros"), pa.date32(), MICROS, "the field v is 2026-02-03T12:00:00Z, which is not a DATE"),
    (logical("long", "timestamp-micros"), AT, 2**62, f"the field v is {2**62} microseconds since 1970, which is outside the years 1 to 9999"),
    (logical("long", "timestamp-micros"), pa.string(), 2**62, str(2**62)),
    (logical("long", "timestamp-millis"), AT, -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    (logical("long", "timestamp-nanos"), AT, MICROS * 1_000, NOON),
    (logical("long", "timestamp-nanos"), AT, MICROS * 1_000 + 1, 'the field v is "2026-02-03T12:00:00.000000001Z", which is finer than the microseconds of a TIMESTAMP: timestamps = "truncate" cuts it'),
    (logical("long", "local-timestamp-micros"), LOCAL, MICROS, NOON.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), AT, MICROS, NOON),
    (logical("long", "local-timestamp-micros"), pa.string(), MICROS, "2026-02-03T12:00:00"),
    (logical("int", "time-millis"), pa.string(), 3_723_004, "01:02:03.004"),
    (logical("long", "time-micros"), pa.int64(), 7, 7),
    (logical("long", "time-micros"), AT, 7, 'the field v is 00:00:00.000007, which is not a TIMESTAMP'),
    (CENTS, pa.decimal128(9, 2), Decimal("-1.05"), Decimal("-1.05")),
    (CENTS, pa.decimal128(4, 1), Decimal("1.50"), Decimal("1.5")),
    (CENTS, pa.decimal128(4, 1), Decimal("1.05"), "the field v is 1.05, which no DECIMAL(4,1) holds"),
    (CENTS, pa.float64(), Decimal("1.05"), 1.05),
    (CENTS, pa.string(), Decimal("1.50"), "1.50"),
    (CENTS, pa.binary(), Decimal("0.01"), b"\x01"),
    (logical("string", "uuid"), pa.string(), str(UUID(int=7)), str(UUID(int=7))),
    (FIXED16, pa.string(), UUID(int=7).bytes, str(UUID(int=7))),
    (FIXED16 | {"size": 12, "logicalType": "duration"}, pa.string(), bytes([1, 0, 0, 0, 2, 0, 0, 0, 220, 5, 0, 0]), "P1M2DT1.5S"),
    (logical("string", "of nobody"), pa.string(), "a", "a"),
    (UNION, pa.int64(), None, None),
    (UNION, pa.int64(), 5, 5),
    (UNION, pa.int64(), "5", 'the field v is "5", which is not a BIGINT'),
    (UNION, pa.string(), 5, "5"),
    (UNION, pa.string(), {"v": 5}, '{"v":5}'),
    (UNION, pa.int64(), {"v": 5}, "the field v is an object, which is not a BIGINT"),
    ({"type": "array", "items": ["null", "double"]}, pa.list_(pa.float64()), [1.5, None], [1.5, None]),
    ({"type": "array", "items": "double"}, pa.string(), [1.5, float("nan")], '[1.5,"NaN"]'),
    ({"type": "array", "items": "long"}, pa.list_(pa.int8()), [1, 300], "the field v[1] is 300, which no TINYINT holds"),
    ({"type": "array", "items": "long"}, pa.map_(pa.string(), pa.int64()), [1], "the field v is an array, which is not a MAP"),
    ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
    ({"type": "map", "values": ["null", "bytes"]}, pa.string(), {'"': b"\xff", "b": None}, '{"\\"":"/w==","b":null}'),
    ({"type": "map", "values": "long"}, pa.struct([("a", pa.int64())]), {"a": 1}, "the field v is an object, which is not a STRUCT"),
    (of_field("long") | {"name": "I"}, pa.struct([("v", pa.int64()), ("w", pa.int64())]), {"v": 1}, {"v": 1, "w": None}),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "column", "value", "expected"), TAKEN, ids=lambda value: str(value)[:40])
def test_what_a_column_takes(type_: Any, column: pa.DataType, value: Any, expected: Any) -> None:
    assert read_one(type_, column, value) == expected


def test_times_are_cut_where_somebody_asks_for_it() -> None:
    assert read_one(logical("long", "timestamp-nanos"), AT, -1, timestamps="truncate") == datetime(
        1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC
    )
    assert read_one("string", AT, "2026-02-03T12:00:00.0000009Z", timestamps="truncate") == NOON


def test_a_nan_stays() -> None:
    assert str(read_one("double", pa.float64(), float("nan"))) == "nan"


def test_random_schemas_give_what_fastavro_wrote() -> None:
    dice = Random(59)
    for _ in range(400):
        drawn = record(dice)
        body = encoded(drawn.schema, drawn.value)
        found = outcome(reader(drawn.schema, pa.schema(list(drawn.type)), rescue="rest").read(pa.array([body])))
        assert found == [drawn.column | {"rest": None}], drawn


@pytest.mark.more
def test_bodies_that_are_broken_are_rejected_or_what_fastavro_reads() -> None:
    dice = Random(60)
    rejected = taken = 0
    for _ in range(400):
        drawn = record(dice)
        body = bytearray(encoded(drawn.schema, drawn.value))
        if not body:
            continue
        if dice.random() < 0.3:
            del body[dice.randrange(len(body)) :]
        else:
            body[dice.randrange(len(body))] = dice.randrange(256)
        columns = pa.schema(list(drawn.type))
        (found,) = outcome(reader(drawn.schema, columns).read(pa.array([bytes(body)])))
        rejected += isinstance(found, str)
        if isinstance(found, dict):
            taken += 1
            try:
                other = schemaless_reader(io.BytesIO(bytes(body)), parse_schema(drawn.schema), None)
            except (OverflowError, ValueError):  # what fastavro makes of times that Python has not
                continue
            back = reader(drawn.schema, columns).read(pa.array([encoded(drawn.schema, other)]))
            assert repr(outcome(back)) == repr([found])
    assert rejected > 80
    assert taken > 80


def test_fields_go_by_name_and_the_rest_is_kept_or_dropped() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "new", "type": ["null", "long"]},
            {"name": "leg", "type": {"type": "record", "name": "L", "fields": [
                {"name": "gate", "type": CENTS}, {"name": "to", "type": "string"}]}},
            {"name": "stops", "type": {"type": "array", "items": "L"}},
            {"name": "ID", "type": "string"},
            {"name": "id", "type": "string"},
        ],
    }  # fmt: skip
    leg = {"gate": Decimal("1.50"), "to": "EWR"}
    bodies = pa.array(
        [
            encoded(schema, {"new": 5, "leg": leg, "stops": [leg], "ID": "A", "id": "a"}),
            encoded(schema, {"new": None, "leg": leg, "stops": [], "ID": "", "id": ""}),
        ]
    )
    struct = pa.struct([("to", pa.string()), ("terminal", pa.string())])
    columns = pa.schema([("id", pa.string()), ("gone", pa.int32()), ("leg", struct), ("stops", pa.list_(struct))])
    there = {"to": "EWR", "terminal": None}
    rows = [
        {"id": "a", "gone": None, "leg": there, "stops": [there]},
        {"id": "", "gone": None, "leg": there, "stops": []},
    ]
    assert outcome(reader(schema, columns).read(bodies)) == rows
    kept = outcome(reader(schema, columns, rescue="rest").read(bodies))
    assert [row.pop("rest") for row in kept] == [
        '{"new":5,"leg":{"gate":"1.50"},"stops":[{"gate":"1.50"}],"ID":"A"}',
        '{"leg":{"gate":"1.50"},"ID":""}',
    ]
    assert kept == rows


HOSTILE: list[tuple[Any, bytes, str]] = [
    ("string", b"\x01", "the field v is of -1 bytes, and the body has 0 more"),
    ("string", b"\x20ab", "the field v is of 16 bytes, and the body has 2 more"),
    ("string", b"\x02\xff", "the field v is not valid UTF-8"),
    ("string", b"", "the field v is not whole: the body ends within it"),
    ("double", b"\0\0", "the field v is not whole: the body ends within it"),
    ("boolean", b"\x02", "the field v is the byte 2, which is not a boolean of Avro"),
    ("long", b"\xff" * 10 + b"\1", "the field v is no number: it does not end after ten bytes"),
    ("long", b"\xff" * 9 + b"\2", "the field v is a number of more than 64 bits"),
    ("int", b"\x80\x80\x80\x80\x10", "the field v is 2147483648, which is not an int of Avro"),
    ("int", b"\x02\x02", "the body has 1 more bytes than a value of its schema"),
    (["null", "int"], b"\x01\x02", "the field v is of the branch -1 of 2, counted from 0"),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, b"\x01", "the field v is the symbol -1 of 2, counted from 0"),
    ({"type": "fixed", "name": "F", "size": 4}, b"abc", "the field v is not whole: the body ends within it"),
    ({"type": "array", "items": "int"}, b"\xfe\xff\xff\x07", "the field v has a block of 8388607 items, and the body has 0 more bytes"),
    ({"type": "array", "items": "int"}, b"\x01\x08\x02\x00", "the field v has a block of 1 bytes that says it is of 4"),
    ({"type": "array", "items": "null"}, b"\xfe\xff\xff\x07\x00", "the field v has, with all that is before it, more than 10,000 items that take no bytes"),
    ({"type": "array", "items": {"type": "array", "items": "null"}}, b"\x06" + b"\xa0\x9c\x01\x00" * 3 + b"\x00", "the field v[1] has, with all that is before it, more than 10,000 items that take no bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    "columns", [pa.schema([("v", pa.string())]), pa.schema([("w", pa.string())])], ids=["read", "over"]
)
@pytest.mark.parametrize(("type_", "body", "reason"), HOSTILE, ids=lambda value: repr(value)[:40])
def test_a_body_that_is_not_what_its_schema_says_is_rejected(
    type_: Any, body: bytes, reason: str, columns: pa.Schema
) -> None:
    (found,) = outcome(reader(of_field(type_), columns).read(pa.array([body])))
    assert found == reason


def test_a_name_that_occurs_twice_is_refused_where_it_is_read() -> None:
    reads = [reader(of_field({"type": "map", "values": "int"}), pa.schema([(name, pa.string())])) for name in "vw"]
    found = [outcome(one.read(pa.array([b"\x04\x02a\x02\x02a\x04\x00"]))) for one in reads]
    assert found == [["the field v.a occurs twice in one object"], [{"w": None}]]


def test_an_event_without_a_body_is_rejected() -> None:
    read = reader(of_field("int"), pa.schema([("v", pa.int32())])).read(pa.array([None, b"\2"], pa.binary()))
    assert outcome(read) == ["the event has no body", {"v": 1}]


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "n", "type": "int"}, {"name": "below", "type": {"type": "array", "items": "Tree"}}],
}


def test_a_schema_that_holds_itself_is_read_as_deep_as_the_columns_and_kept_as_text() -> None:
    below = pa.list_(pa.struct([("n", pa.int32())]))
    leaf = {"n": 3, "below": []}
    body = encoded(TREE, {"n": 1, "below": [{"n": 2, "below": [leaf]}, leaf]})
    columns = pa.schema([("n", pa.int32()), ("below", below)])
    (found,) = outcome(reader(TREE, columns, rescue="rest").read(pa.array([body])))
    rest = '{"below":[{"below":[{"n":3,"below":[]}]},{"below":[]}]}'
    assert found == {"n": 1, "below": [{"n": 2}, {"n": 3}], "rest": rest}


@pytest.mark.parametrize("column", [pa.string(), pa.int32()], ids=["text", "not read"])
@pytest.mark.parametrize("deep", [100, 100_000])
def test_a_body_that_is_nested_too_deep_is_rejected(deep: int, column: pa.DataType) -> None:
    columns = pa.schema([("below" if column == pa.string() else "n", column)])
    (found,) = outcome(reader(TREE, columns).read(pa.array([b"\2\2" * deep + b"\2\0" + b"\0" * deep])))
    assert isinstance(found, str)
    assert found.endswith("is nested more than 64 deep")


def test_hostile_bodies_cost_bounded_time_and_memory() -> None:
    wide = {"type": "array", "items": {"type": "array", "items": "null"}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": wide}, {"name": "t", "type": TREE}]}
    reads = reader(schema, pa.schema([("v", pa.string())]), rescue="rest")
    dice = Random(61)
    bodies = [b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" * 9, b"\x7e" * 200_000, b"\xa0\x9c\x01\x00" * 50_000]
    bodies += [dice.randbytes(dice.choice((10, 1_000, 100_000))) for _ in range(50)]
    tracemalloc.start()
    started = time.process_time()
    found = outcome(reads.read(pa.array(bodies)))
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(isinstance(one, str) for one in found)
    assert peak < 200 * 2**20
    assert seconds < 120  # a second here; a bomb would take hours


def test_a_single_object_is_read_behind_its_header() -> None:
    schema = of_field("string")
    columns = pa.schema([("v", pa.string())])
    crc = bytes.fromhex(fingerprint(to_parsing_canonical_form(parse_schema(schema)), "CRC-64-AVRO"))
    value = encoded(schema, {"v": "a"})
    other = b"\xc3\x01" + crc[::-1] + value
    good, bad = outcome(reader(schema, columns).read(pa.array([b"\xc3\x01" + crc + value, other])))
    assert good == {"v": "a"}
    assert isinstance(bad, str)


def test_a_reader_is_pickled() -> None:
    one = reader(TREE, pa.schema([("n", pa.int32())]))
    again = pickle.loads(pickle.dumps(one))  # noqa: S301 - as Spark brings it to its workers
    assert outcome(again.read(pa.array([b"\2\0"]))) == [{"n": 1}]
    assert again.only(["n"]).schema.names == ["n"]


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '"long"',
        '["null",["int"]]',
        '["int","int"]',
        '{"type":"record"}',
        '"of nobody"',
        "[]",
        "5",
        "null",
        '{"type":"fixed","name":"f","size":-1}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:9],
)
def test_what_is_no_schema_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="writer_schema"):
        BodyReader(pa.schema([("a", pa.string())]), BodyFormat(format="avro", writer_schema=schema))


def test_a_body_may_be_a_record_or_something_else() -> None:
    columns = pa.schema([("v", pa.int64())])
    either = ["null", of_field("long")]
    assert outcome(reader(either, columns).read(pa.array([b"\2\2", b"\0"]))) == [
        {"v": 1},
        "the body is null, which is not a STRUCT",
    ]


def chain(deep: int) -> Any:
    """Records in records, each twice in the one around it, without any field that takes a byte."""
    made: Any = {"type": "record", "name": "R", "fields": []}
    for number in range(deep):
        fields = [{"name": "a", "type": made}, {"name": "b", "type": made["name"]}]
        made = {"type": "record", "name": f"R{number}", "fields": fields}
    return made


WIDE = {"type": "record", "name": "W", "fields": [{"name": f"f{number}", "type": "null"} for number in range(101)]}


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        (chain(65), "nested more than 64 deep"),
        (chain(20), "more than 100 parts that take no bytes"),
        (WIDE, "more than 100 parts that take no bytes"),
        (logical("bytes", "decimal", precision=1_001, scale=0), "a decimal of 1001 digits"),
        ({"type": "enum", "name": "E", "symbols": ["s" * 256]}, "a symbol of E is longer than 255 characters"),
        ({"type": "fixed", "name": "X", "size": 3.9}, "not a schema of Avro that can be read"),
        ({"type": "fixed", "name": "X", "size": 10**30}, "bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_by_which_a_short_body_would_cost_much_is_refused(type_: Any, said: str) -> None:
    outer = of_field(type_) | {"name": "Outer"}
    with pytest.raises(ConfigError, match=said):
        reader(outer, pa.schema([("v", pa.string())]))


@pytest.mark.parametrize("column", [pa.string(), pa.binary(), pa.decimal128(9, 2), pa.float64(), None], ids=str)
def test_a_decimal_of_very_many_bytes_is_rejected(column: pa.DataType | None) -> None:
    body = b"\xa0\x1f" + b"\x7f" * 2_000
    columns = pa.schema([("v", column) if column else ("w", pa.int32())])
    (found,) = outcome(reader(of_field(CENTS), columns, rescue="rest").read(pa.array([body])))
    if column == pa.binary():
        assert found == {"v": b"\x7f" * 2_000, "rest": None}
    else:
        assert found == "the field v is a decimal of 2000 bytes, which is longer than any number"


def test_types_in_a_circle_through_lists_are_of_some_bytes() -> None:
    edge = {"type": "record", "name": "Edge", "fields": [{"name": "to", "type": "Node"}]}
    node = {"type": "record", "name": "Node", "fields": [{"name": "kids", "type": {"type": "array", "items": edge}}]}
    body = b"\xa2\x9c\x01" + b"\0" * 10_001 + b"\0\2"
    fields = [{"name": "node", "type": node}, {"name": "n", "type": "int"}]
    columns = pa.schema([("n", pa.int32())])
    (found,) = outcome(reader({"type": "record", "name": "R", "fields": fields}, columns).read(pa.array([body])))
    assert found == {"n": 1}


@pytest.mark.parametrize("levels", [0, 1, 5, 40])
def test_how_deep_a_type_may_hold_itself_is_the_same_whatever_the_columns(levels: int) -> None:
    link = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    type_: pa.DataType = pa.struct([("x", pa.int32())])
    for _ in range(levels):
        type_ = pa.struct([("n", type_)])
    for column in (type_, pa.string()):
        reads = reader(link, pa.schema([("n", column)]))
        good, bad = outcome(reads.read(pa.array([b"\2" * 63 + b"\0", b"\2" * 64 + b"\0"])))
        assert isinstance(good, dict)
        assert bad.endswith("is nested more than 64 deep")


def test_settings_that_do_not_go_together_are_refused(tmp_path: Any) -> None:
    for how, said in (
        ({"format": "avro"}, "bodies in Avro are read by the schema that wrote them"),
        ({"writer_schema": "{}"}, 'it is for format = "avro"'),
        ({"format": "xml"}, "json or avro"),
        ({"format": "avro", "writer_schema": str(tmp_path / "no.avsc")}, "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=said):
            BodyFormat(**how)
    path = tmp_path / "one.avsc"
    path.write_text("\ufeff" + json.dumps(TREE))
    assert BodyFormat(format="avro", writer_schema=path) == BodyFormat(format="avro", writer_schema=str(path))
    assert BodyFormat(format="avro", writer_schema="\ufeff{}").writer_schema == "{}"
    with pytest.raises(ConfigError, match="a text or a path"):
        BodyFormat(format="avro", writer_schema=TREE)  # type: ignore[arg-type]
    assert json.loads(str(BodyFormat(format="avro", writer_schema=str(path)).writer_schema)) == TREE
