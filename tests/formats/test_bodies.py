"""What a body must be, and what each type takes of it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError, UsageError
from leasehold.formats import BodyFormat, BodyReader


@pytest.fixture(autouse=True, scope="module", params=["as columns", "one by one"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """A few bodies are read one by one, and here as columns too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "as columns":
            patch.setattr("leasehold.formats.format_readers._FEW", 0)
        yield


SCHEMA = pa.schema([("id", pa.string()), ("delay", pa.float64()), ("n", pa.int32())])
UTF8 = "the body is not valid UTF-8"
AN_OBJECT = "the body is not a JSON object"
BODIES: list[tuple[bytes | None, object]] = [
    (b'{"id":"a","delay":1.5,"n":3}', ("a", 1.5, 3)),
    (b' \n{"id":"b"}\t\r\n', ("b", None, None)),
    (b"{}", (None, None, None)),
    (b" { } ", (None, None, None)),
    (b'{"id":null,"delay":1,"unknown":[{}]}', (None, 1.0, None)),
    (b'{"id":"}{","n":1}', ("}{", None, 1)),
    (b'{"id":\n"a"\n}', ("a", None, None)),
    ('{"id":"grün \\u00e9 \U0001f600 \\ud83d\\ude00"}'.encode(), ("grün é \U0001f600 \U0001f600", None, None)),
    (b'{"\\u0069d":"a\\u0000"}', ("a\0", None, None)),
    (b'{"ID":"x"}', (None, None, None)),
    (b'{"x":1,"x":2,"y":{"id":1,"id":2}}', (None, None, None)),
    (b'{"id":"x","delay":"1.5"}', 'the field delay is "1.5", which is not a DOUBLE'),
    (b'{"id":"x","delay":true}', "the field delay is true, which is not a DOUBLE"),
    (b'{"delay":1e400}', "the field delay is 1e400, which no DOUBLE holds"),
    (b'{"id":"a","id":"b"}', "the field id occurs twice in one object"),
    (b'{"id":null,"id":"b"}', "the field id occurs twice in one object"),
    (b'{"id":"\\ud83d"}', "the field id holds half a surrogate pair, which is not a character"),
    (b'{"x":{"y":["\\ude00\\ud83d"]}}', "the field x.y[0] holds half a surrogate pair, which is not a character"),
    (b'{"x":{"\\ud83d":1}}', "the field x holds half a surrogate pair in a field's name, which is not a character"),
    (b'{"id":"e"} trailing', f"{AN_OBJECT}: the first ends at character 10"),
    (b'{"id":"f"}{"id":"g"}', "the body is more than one JSON object: the first ends at character 10"),
    (b'{"id":"f"}\n{"id":"g"}', "the body is more than one JSON object: the first ends at character 10"),
    (b'{"id":"f"}}', "the body is more than one JSON object: the first ends at character 10"),
    (b'{"id":"f"}]}', "the body is more than one JSON object: the first ends at character 10"),
    (b'[{"id":"c"}]', f"{AN_OBJECT}: it is an array"),
    (b"nope", f"{AN_OBJECT}: expecting value at character 1"),
    (b"5", f"{AN_OBJECT}: it is 5"),
    (b"null", f"{AN_OBJECT}: it is null"),
    (b"", f"{AN_OBJECT}: expecting value at character 1"),
    (b'\xef\xbb\xbf{"id":"x"}', ("x", None, None)),
    (b'\xef\xbb\xbf\r\n {"id":"x"} ', ("x", None, None)),
    (b'\xef\xbb\xbf{"id":"\xef\xbb\xbfx"}', ("\ufeffx", None, None)),
    (b'\xef\xbb\xbf\xef\xbb\xbf{"id":"x"}', f"{AN_OBJECT}: expecting value at character 1"),
    (b' \xef\xbb\xbf{"id":"x"}', f"{AN_OBJECT}: expecting value at character 1"),
    (b'{"id":"x"}\xef\xbb\xbf', f"{AN_OBJECT}: the first ends at character 10"),
    (b"\xef\xbb\xbf", f"{AN_OBJECT}: expecting value at character 1"),
    ('{"id":"\xe9"}'.encode("utf-16"), f"{UTF8}: it is UTF-16, so its sender has to encode it as UTF-8"),
    ('{"id":"x"}'.encode("utf-16-le"), f"{UTF8}: it is UTF-16, so its sender has to encode it as UTF-8"),
    (' {"id":"\u0100"}'.encode("utf-16-be"), f"{UTF8}: it is UTF-16, so its sender has to encode it as UTF-8"),
    ('{"id":"x"}'.encode("utf-32"), f"{UTF8}: it is UTF-32, so its sender has to encode it as UTF-8"),
    (b"\x00\x00\x00\x00\x07\x02a\xff", UTF8),
    (b"\x00\x00\x00\x00\x07\x02ab", f"{AN_OBJECT}: expecting value at character 1"),
    (b'{"id":"x"', f"{AN_OBJECT}: expecting ',' delimiter at character 10"),
    (b'{"id":"x",}', f"{AN_OBJECT}: "),
    (b'{"id":"x"} // comment', f"{AN_OBJECT}: the first ends at character 10"),
    (b'{"id":"x" /* comment */}', f"{AN_OBJECT}: expecting ',' delimiter at character 11"),
    (b"{'id':'x'}", f"{AN_OBJECT}: "),
    (b'{"id":"a\tb"}', f"{AN_OBJECT}: invalid control character at at character 9"),
    (b'{"id":"a\nb"}', f"{AN_OBJECT}: invalid control character at at character 9"),
    (b'{"delay":NaN}', f"{AN_OBJECT}: it holds NaN, which is not JSON"),
    (b'{"x":[-Infinity]}', f"{AN_OBJECT}: it holds -Infinity, which is not JSON"),
    (b'{"x":Inf}', f"{AN_OBJECT}: expecting value at character 6"),
    (b'{"n":01}', f"{AN_OBJECT}: expecting ',' delimiter at character 7"),
    (b'{"id":"\xff"}', UTF8),
    (b'{"id":"\xed\xa0\xbd"}', UTF8),
    (b'{"x":' + b"[" * 199 + b"]" * 199 + b"}", (None, None, None)),
    (b'{"x":' + b"[" * 200 + b"]" * 200 + b"}", "the body is nested more than 200 deep"),
    (b'{"x":' + b"[" * 1_000_000, "the body is nested more than 200 deep"),
    (b'{"x":"' + b"[" * 1_000 + b'"}', (None, None, None)),
    (None, "the event has no body"),
]


@pytest.mark.more
@pytest.mark.parametrize("alone", [True, False])
def test_every_body_is_read_or_rejected_with_its_reason(alone: bool) -> None:
    reader = BodyReader(SCHEMA)
    raw = [body for body, _ in BODIES]
    parts = [[body] for body in raw] if alone else [raw]
    read = [reader.read(pa.array(part, pa.binary())) for part in parts]
    rows = [row for each in read for row in each.columns.to_pylist()]
    reasons = [why for each in read for why in (each.reasons or pa.nulls(len(each.columns))).to_pylist()]
    for (body, expected), row, reason in zip(BODIES, rows, reasons, strict=True):
        if isinstance(expected, str):
            assert reason is not None, body
            assert reason == expected or (expected.endswith(": ") and reason.startswith(expected)), body
            assert set(row.values()) == {None}
        else:
            assert (reason, tuple(row.values())) == (None, expected), body


NO = object()
TYPES: list[tuple[pa.DataType, str, object]] = [
    (pa.string(), "5", "5"),
    (pa.string(), "-1.50E+3", "-1.50E+3"),
    (pa.string(), "true", "true"),
    (pa.string(), '{"b" : [1.0, "\\u0041"], "a":2, "a":3}', '{"b" : [1.0, "\\u0041"], "a":2, "a":3}'),
    (pa.string(), "[ 1,\n2]", "[ 1,\n2]"),
    (pa.binary(), '"QUI="', b"AB"),
    (pa.binary(), '"++//"', b"\xfb\xef\xff"),
    (pa.binary(), '""', b""),
    (pa.binary(), '"QUI"', "which is not base64, as a BINARY must be"),
    (pa.binary(), '"QUJ="', "which is not base64, as a BINARY must be"),
    (pa.binary(), '"-_-_"', "which is not base64, as a BINARY must be"),
    (pa.binary(), '"QU I="', "which is not base64, as a BINARY must be"),
    (pa.binary(), "5", "which is not a BINARY"),
    (pa.bool_(), "true", True),
    (pa.bool_(), '"true"', "which is not a BOOLEAN"),
    (pa.bool_(), "1", "which is not a BOOLEAN"),
    (pa.int8(), "-128", -128),
    (pa.int8(), "128", "which no TINYINT holds"),
    (pa.int16(), "-32769", "which no SMALLINT holds"),
    (pa.int32(), "2147483648", "which no INT holds"),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.int64(), "9223372036854775808", "which no BIGINT holds"),
    (pa.int64(), "9" * 5_000, "which no BIGINT holds"),
    (pa.int64(), "-0", 0),
    (pa.int64(), "1.5", "which is not a BIGINT"),
    (pa.int64(), "1.0", "which is not a BIGINT"),
    (pa.int64(), "1e3", "which is not a BIGINT"),
    (pa.int64(), '"5"', "which is not a BIGINT"),
    (pa.int64(), "{}", "is an object, which is not a BIGINT"),
    (pa.float64(), "9007199254740993", 9007199254740992.0),
    (pa.float64(), "1e-400", 0.0),
    (pa.float64(), "-1e400", "is -1e400, which no DOUBLE holds"),
    (pa.float32(), "3.4028235e38", 3.4028234663852886e38),
    (pa.float32(), "1e39", "which no FLOAT holds"),
    (pa.float32(), "1.00000005960464477540", 1.0000001192092896),  # by way of a double it would be 1.0
    (pa.decimal128(3, 2), "1.5", Decimal("1.50")),
    (pa.decimal128(3, 2), "1.500", Decimal("1.50")),
    (pa.decimal128(3, 2), "15e-1", Decimal("1.50")),
    (pa.decimal128(3, 2), '"-9.99"', Decimal("-9.99")),
    (pa.decimal128(3, 2), "-0", Decimal("0.00")),
    (pa.decimal128(3, 2), "0e400000000", Decimal("0.00")),
    (pa.decimal128(3, 2), "1.005", "is 1.005, which no DECIMAL(3,2) holds"),
    (pa.decimal128(3, 2), "10", "is 10, which no DECIMAL(3,2) holds"),
    (pa.decimal128(3, 2), "1e400000000", "is 1e400000000, which no DECIMAL(3,2) holds"),
    (pa.decimal128(3, 2), "1e-400000000", "is 1e-400000000, which no DECIMAL(3,2) holds"),
    (pa.decimal128(3, 2), "1e" + "9" * 10_000, "which no DECIMAL(3,2) holds"),
    (pa.decimal128(3, 2), '"1e\\u002d400000000"', 'is "1e-400000000", which no DECIMAL(3,2) holds'),
    (pa.decimal128(3, 2), '"1\\u0065-99"', 'is "1e-99", which no DECIMAL(3,2) holds'),
    (pa.decimal128(3, 2), '"1,5"', 'is "1,5", which is not a DECIMAL(3,2)'),
    (pa.decimal128(3, 2), '"NaN"', "which is not a DECIMAL(3,2)"),
    (pa.decimal128(3, 2), "[1]", "is an array, which is not a DECIMAL(3,2)"),
    (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
    (pa.decimal128(38, 38), "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
    (pa.decimal128(38, 38), "1", "which no DECIMAL(38,38) holds"),
    (pa.date32(), '"2026-02-03"', date(2026, 2, 3)),
    (pa.date32(), '"0001-01-01"', date(1, 1, 1)),
    (pa.date32(), '"9999-12-31"', date(9999, 12, 31)),
    (pa.date32(), '"0000-01-01"', "which is not a DATE such as 2026-02-03"),
    (pa.date32(), '"2026-02-30"', "which is not a DATE such as 2026-02-03"),
    (pa.date32(), '"2026-02-03T25:00"', 'is "2026-02-03T25:00", which is not a DATE such as 2026-02-03'),
    (pa.date32(), '"2026-02-03T00:00:00"', "which is not a DATE such as 2026-02-03"),
    (pa.date32(), '"2026-02"', "which is not a DATE such as 2026-02-03"),
    (pa.date32(), '"2026-2-3"', "which is not a DATE such as 2026-02-03"),
    (pa.date32(), "20000", "which is not a DATE"),
]
AT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
NOT_TIMES = """2026-02-03T25:00 2026-02-03T24:00 2026-02-03T10:11:60 2026-02-30T10:00 2026 2026-2-3
2026-02-03T1:2:3 0000-01-01 now"""
TYPES += [
    (AT, f'"2026-02-03{time}"', datetime(2026, 2, 3, *expected, tzinfo=UTC))  # type: ignore[misc, arg-type]
    for time, expected in [
        ("", ()),
        ("T04", (4,)),
        (" 04:05", (4, 5)),
        ("T04:05:06", (4, 5, 6)),
        ("T04:05:06Z", (4, 5, 6)),
        ("T04:05:06.7Z", (4, 5, 6, 700_000)),
        ("T04:05:06.000007", (4, 5, 6, 7)),
        ("T04:05:06.000007000Z", (4, 5, 6, 7)),
        ("T04:05:06+01", (3, 5, 6)),
        ("T04:05:06-0130", (5, 35, 6)),
        ("T04:05+01:30", (2, 35)),
    ]
]
TYPES += [
    (type_, f'"{text}"', f"which is not a {name} such as")
    for type_, name in [(AT, "TIMESTAMP"), (LOCAL, "TIMESTAMP_NTZ")]
    for text in [*NOT_TIMES.split(), "2026-02-03T10:11 Europe/Berlin", "2026-02-03T10:11 UTC", ""]
]
TYPES += [
    (AT, '"0001-01-01T00:00+01"', "which is not a TIMESTAMP such as"),
    (
        AT,
        '"2026-02-03T04:05:06.1234567Z"',
        'which is finer than the microseconds of a TIMESTAMP: timestamps = "truncate"',
    ),
    (AT, "1770000000", datetime(2026, 2, 2, 2, 40, tzinfo=UTC)),
    (AT, "-1.000001", datetime(1969, 12, 31, 23, 59, 58, 999_999, tzinfo=UTC)),
    (AT, "1770000000123", "is 1770000000123, which as seconds since 1970 is outside"),
    (AT, "0.0000001", "which is finer than the microseconds of a TIMESTAMP"),
    (AT, "1e400000000", "which as seconds since 1970 is outside"),
    (AT, f"1e{'9' * 30}", "which as seconds since 1970 is outside"),
    (AT, "true", "which is not a TIMESTAMP"),
    (LOCAL, '"2026-02-03T04:05:06.7"', datetime(2026, 2, 3, 4, 5, 6, 700_000)),
    (LOCAL, '"2026-02-03T04:05:06Z"', "which is not a TIMESTAMP_NTZ such as"),
    (LOCAL, '"2026-02-03T04:05:06+01:00"', "which is not a TIMESTAMP_NTZ such as"),
    (LOCAL, "1770000000", "which is not a TIMESTAMP_NTZ"),
    (pa.list_(pa.int32()), "[1,null,-3]", [1, None, -3]),
    (pa.list_(pa.int32()), "[]", []),
    (pa.list_(pa.int32()), "1", "which is not an ARRAY"),
    (pa.struct([("a", pa.int32()), ("b", pa.date32())]), '{"a":1,"c":2}', {"a": 1, "b": None}),
    (pa.struct([("a", pa.int32())]), "[1]", "which is not a STRUCT"),
    (pa.map_(pa.string(), pa.int32()), '{"x":1,"":null}', [("x", 1), ("", None)]),
    (pa.map_(pa.string(), pa.int32()), "[]", "is an array, which is not a MAP"),
    (pa.map_(pa.string(), pa.string()), '{"x":{"y": 1}}', [("x", '{"y": 1}')]),
]


CUT = [
    (AT, '"2026-02-03T04:05:06.1234567Z"', datetime(2026, 2, 3, 4, 5, 6, 123_456, tzinfo=UTC)),  # .NET
    (AT, '"2026-02-03T04:05:06.123456789+01:00"', datetime(2026, 2, 3, 3, 5, 6, 123_456, tzinfo=UTC)),  # Go, Java
    (AT, '"2026-02-03T04:05:06.999999999"', datetime(2026, 2, 3, 4, 5, 6, 999_999, tzinfo=UTC)),
    (AT, '"9999-12-31T23:59:59.9999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    (AT, "1770000000.1234567", datetime(2026, 2, 2, 2, 40, 0, 123_456, tzinfo=UTC)),
    (AT, "-0.0000001", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    (AT, "1e-400000000", datetime(1970, 1, 1, tzinfo=UTC)),
    (AT, "0." + "1" * 10_000, datetime(1970, 1, 1, 0, 0, 0, 111_111, tzinfo=UTC)),
    (LOCAL, '"2026-02-03T04:05:06.1234567"', datetime(2026, 2, 3, 4, 5, 6, 123_456)),
    (LOCAL, '"2026-02-03T04:05:06.1234567Z"', "which is not a TIMESTAMP_NTZ such as"),
    (AT, '"2026-02-03T04:05:06.1234567.1Z"', "which is not a TIMESTAMP such as"),
    (AT, '"2026-02-03T04:05.1234567"', "which is not a TIMESTAMP such as"),
    (pa.decimal128(3, 2), "1.005", "is 1.005, which no DECIMAL(3,2) holds"),
]


@pytest.mark.more(but=33)
@pytest.mark.parametrize(("type_", "text", "expected"), CUT, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("many", [1, 100])
def test_times_are_cut_to_microseconds_where_that_is_asked_for(
    type_: pa.DataType, text: str, expected: object, many: int
) -> None:
    reader = pickle.loads(pickle.dumps(BodyReader(pa.schema([("v", type_)]), BodyFormat(timestamps="truncate"))))  # noqa: S301  our own
    read = reader.read(pa.array([f'{{"v":{text}}}'] * many))
    if isinstance(expected, str):
        assert read.reasons is not None
        assert expected in read.reasons[many - 1].as_py()
    else:
        assert read.columns.column("v").to_pylist() == [expected] * many
        assert read.reasons is None


def test_other_words_for_timestamps_are_refused() -> None:
    with pytest.raises(ConfigError, match="exact or truncate"):
        BodyReader(pa.schema([("v", AT)]), BodyFormat(timestamps="round"))


@pytest.mark.more(but=50)
@pytest.mark.parametrize(("type_", "text", "expected"), TYPES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("nested", [False, True])
def test_each_type_takes_a_value_as_it_is_or_not_at_all(
    type_: pa.DataType, text: str, expected: object, nested: bool
) -> None:
    schema = pa.schema([("a", pa.list_(pa.struct([("b", type_)]))) if nested else ("v", type_)])
    body = f'{{"a":[{{}},{{"b":{text}}}]}}' if nested else f'{{"v":{text}}}'
    read = BodyReader(schema).read(pa.array([body.encode(), b"{}"], pa.binary()))
    assert read.columns.num_rows == 2
    value = read.columns.column(0).to_pylist()[0]
    if isinstance(expected, str) and not pa.types.is_string(type_):
        assert read.reasons is not None
        reason, other = read.reasons.to_pylist()
        assert (value, other) == (None, None)
        assert reason.startswith(f"the field {'a[1].b' if nested else 'v'} is "), reason
        assert expected in reason
    else:
        assert read.reasons is None, read.reasons
        assert (value[1]["b"] if nested else value) == expected


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('{"o":{"l":[[1],[2,"x"]]}}', "o.l[1][1]"),
        ('{"m":{"k e y":{"d":"x"}}}', "m.k e y.d"),
        ('{"m":{"\\n\\u202e":{"d":"x"}}}', "m.\\n\\u202e.d"),
        ('{"o":{"l":[], "l":[]}}', "o.l"),
        ('{"m":{"k":{}, "k":{}}}', "m.k"),
    ],
)
def test_a_reason_names_the_field_by_its_path(body: str, path: str) -> None:
    schema = pa.schema(
        [
            ("o", pa.struct([("l", pa.list_(pa.list_(pa.int8())))])),
            ("m", pa.map_(pa.string(), pa.struct([("d", pa.date32())]))),
        ]
    )
    reasons = BodyReader(schema).read(pa.array([body.encode()])).reasons
    assert reasons is not None
    assert reasons[0].as_py().startswith(f"the field {path} ")


def test_a_reason_is_short_and_printable() -> None:
    body = json.dumps({"v": "\x1b[2J" + "x" * 1_000_000, "w" * 1_000_000: 1})
    reasons = BodyReader(pa.schema([("v", pa.int32())])).read(pa.array([body.encode()])).reasons
    assert reasons is not None
    assert reasons[0].as_py() == f'the field v is "\\x1b[2J{"x" * 35}…", which is not an INT'


def test_a_long_path_is_cut() -> None:
    type_ = pa.int8()
    for _ in range(150):
        type_ = pa.struct([("deep", type_)])
    body = b'{"deep":' * 151 + b"true" + b"}" * 151
    reasons = BodyReader(pa.schema([("deep", type_)])).read(pa.array([body])).reasons
    assert reasons is not None
    assert reasons[0].as_py() == f"the field {'deep.' * 39}deep… is true, which is not a TINYINT"


@pytest.mark.more
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "body",
    [
        b'{"x":"' + b'\\"[' * 500_000,
        b'{"x":"' + b'\\"[' * 500_000 + b"\\",
        b'{"x":' + b'["' * 500_000,
        b'{"d":' + b"1" * 2_000_000 + b"}",
        b'{"d":0.' + b"1" * 2_000_000 + b"e" + b"1" * 2_000_000 + b"}",
        b'{"d":"' + b"1" * 2_000_000 + b'x"}',
        b'{"d":[' + b'{"d":1,"d":2},' * 20_000 + b"1]}",
        b'{"s":{' + b'"s":"\\ud83d",' * 100_000 + b'"x":1}}',
        b'{"at":"2026-02-03T04:05:06.' + b"0" * 2_000_000 + b'"}',
        b"{" + b" " * 2_000_000,
        b" " * 2_000_000 + b"{",
    ],
    ids=lambda body: body[:12].decode(),
)
def test_a_hostile_body_of_megabytes_takes_no_longer_than_its_bytes(body: bytes) -> None:
    fields = [("s", pa.string()), ("d", pa.decimal128(38, 10)), ("at", AT), ("n", pa.int8()), ("f", pa.float32())]
    for schema in (pa.schema(fields), pa.schema([("d", pa.float64())]), pa.schema([("d", pa.int64())])):
        for rescue in (None, "rest"):
            read = BodyReader(schema, BodyFormat(rescue=rescue)).read(pa.array([body, body]))
            assert read.columns.num_rows == 2


RESCUED: list[tuple[str, str | None]] = [
    ('{"id":"a","o":{"x":1},"l":[{"x":1}]}', None),
    ('{"id":"a", "more" : {"b" : 1.50} ,"y":null}', '{"more":{"b":1.50},"y":null}'),
    ('{"o":{"x":1,"deep":[1, 2]},"z":"\\u00e9"}', '{"o":{"deep":[1,2]},"z":"é"}'),
    ('{"l":[{"x":1},{"x":2,"q":3},null]}', '{"l":[null,{"q":3},null]}'),
    ('{"m":{"k":{"x":1,"q":2},"n":{"x":1}}}', '{"m":{"k":{"q":2}}}'),
    ('{"id":{"a": 1},"ID":2}', '{"ID":2}'),
]


def test_rescue_keeps_what_the_schema_does_not_know() -> None:
    item = pa.struct([("x", pa.int32())])
    schema = pa.schema([("id", pa.string()), ("o", item), ("l", pa.list_(item)), ("m", pa.map_(pa.string(), item))])
    for fields in (schema, pa.schema(list(schema)[:3])):
        raw = [body.encode() for body, _ in RESCUED if len(fields) == 4 or '"m"' not in body]
        kept = [rest for body, rest in RESCUED if len(fields) == 4 or '"m"' not in body]
        read = BodyReader(fields, BodyFormat(rescue="rest")).read(pa.array(raw))
        assert read.reasons is None
        assert read.columns.schema.names == [*fields.names, "rest"]
        assert read.columns.column("rest").to_pylist() == kept
    only = BodyReader(pa.schema([]), BodyFormat(rescue="all")).read(
        pa.array([b'{"a":1,"a":2}', b'{"a": {"b":1, "b":2E+05}}', b"{}"])
    )
    assert only.columns.column("all").to_pylist() == [None, '{"a":{"b":1,"b":2E+05}}', None]
    assert only.reasons is not None
    assert only.reasons.to_pylist() == ["the field a occurs twice in one object", None, None]


@pytest.mark.parametrize(
    ("schema", "rescue", "said"),
    [
        ([], None, "no columns"),
        ([("a", pa.int8()), ("a", pa.int8())], None, "these names twice: a"),
        ([("a", pa.int8())], "a", "with those that the format adds, has these names twice: a"),
        ([("o", pa.struct([("a", pa.int8()), ("a", pa.int8())]))], None, "the field o has these names twice: a"),
        ([("a", pa.uint8())], None, "the field a is of type uint8"),
        ([("a", pa.list_(pa.struct([("b", pa.timestamp("ns"))])))], None, r"the field a.b is of type timestamp\[ns\]"),
        ([("a", pa.timestamp("us", "Europe/Berlin"))], None, "the field a is of type timestamp"),
        ([("a", pa.map_(pa.int8(), pa.int8()))], None, "the field a is of type map"),
        ([("a", pa.decimal128(3, -2))], None, "the field a is of type decimal128"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(schema: list[Any], rescue: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        BodyReader(pa.schema(schema), BodyFormat(rescue=rescue))


@pytest.mark.parametrize(
    "bodies",
    [
        ['{"x":', '{"x":1}}', '{"id":"a"}{"id":"b"}'],
        ['{"id":"a"}{"x":{}', '}{"id":"b"}'],
        ['{"id":"a"}{"id":"b"}', ""],
        ['{"id":"a"}{"id":"b"}', " \n"],
        ['{"id":"a"}{"id":"}', '{","n":1}'],
        ['{"id":"a"}{"id":"b","x":"{', '}"}'],
        ["{}{}{}", "[{}", ",{}]"],
    ],
)
def test_bodies_do_not_make_up_for_each_other(bodies: list[str]) -> None:
    for schema in (SCHEMA, SCHEMA.append(pa.field("x", pa.struct([("x", pa.int8())])))):
        reasons = BodyReader(schema).read(pa.array(bodies)).reasons
        assert reasons is not None
        assert reasons.null_count == 0


@pytest.mark.parametrize("number", ["1e-400000000", "1e400000000", "0." + "0" * 100 + "1", "9" * 100])
def test_a_number_that_is_far_from_whole_does_no_harm_to_the_others(number: str) -> None:
    bodies = [b'{"n":1}'] * 1_000
    bodies[500] = f'{{"n":{number}}}'.encode()
    bodies[700] = b'{"n":2147483648}'
    read = BodyReader(SCHEMA).read(pa.array(bodies))
    assert read.reasons is not None
    assert [row for row in range(1_000) if read.reasons[row].is_valid] == [500, 700]
    assert read.columns.column("n").to_pylist() == [None if row in (500, 700) else 1 for row in range(1_000)]


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    type_ = pa.int8()
    for _ in range(200):
        type_ = pa.list_(type_)
    with pytest.raises(UsageError, match="nested 200 deep"):
        BodyReader(pa.schema([("a", type_)]))


def test_all_columns_may_be_null_whatever_the_schema_says() -> None:
    item = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    strict = pa.schema([pa.field("a", pa.list_(pa.field("item", item, nullable=False)), nullable=False)])
    read = BodyReader(strict).read(pa.array([b"{}", b'{"a":[null,{}]}', b"nope"]))
    assert read.columns.column(0).to_pylist() == [None, [None, {"x": None}], None]
    read.columns.validate(full=True)


def test_any_form_of_bodies_is_read_in_their_order() -> None:
    reader = pickle.loads(pickle.dumps(BodyReader(SCHEMA)))  # noqa: S301 - as Spark brings it to its workers
    raw = [b'{"id":"%d"}' % number for number in range(40_000)]
    raw[39_999] = b"last"
    for form in (
        pa.array(raw, pa.binary()),
        pa.array(raw, pa.large_binary()),
        pa.array(raw, pa.binary_view()),
        pa.array([body.decode() for body in raw]),
        pa.chunked_array([pa.array(raw[:3], pa.binary()), pa.array([], pa.binary()), pa.array(raw[3:], pa.binary())]),
        pa.array([b"{}", *raw, b"nope"], pa.binary())[1:-1],
    ):
        read = reader.read(form)
        assert read.columns.schema == reader.schema == SCHEMA
        assert read.columns.column("id").to_pylist() == [*map(str, range(39_999)), None]
        assert read.reasons is not None
        assert read.reasons.null_count == 39_999
        assert len(read.reasons) == 40_000
    for nothing in (pa.array([], pa.binary()), pa.chunked_array([], pa.binary())):
        read = reader.read(nothing)
        assert (read.columns.num_rows, read.columns.schema, read.reasons) == (0, SCHEMA, None)
