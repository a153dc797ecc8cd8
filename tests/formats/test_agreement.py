"""The fast way of reading bodies says what the slow one says, and neither raises, whatever the bytes are."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.formats import BodyFormat, BodyReader
from leasehold.formats.format_readers import FormatReader
from leasehold.formats.json_columns import ColumnReader
from leasehold.formats.schema_headers import without_number


@pytest.fixture(autouse=True, scope="module")
def as_columns() -> Iterator[None]:
    """A few bodies would be read one by one, which is what they are compared with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leasehold.formats.format_readers._FEW", 0)
        yield


UTC = pa.timestamp("us", "UTC")
LEAVES = {
    "s": pa.string(),
    "y": pa.binary(),
    "b": pa.bool_(),
    "i1": pa.int8(),
    "i2": pa.int16(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "m": pa.decimal128(5, 2),
    "w": pa.decimal128(38, 38),
    "n": pa.decimal128(38, 0),
    "day": pa.date32(),
    "at": UTC,
    "local": pa.timestamp("us"),
}
NESTED = {
    "l": pa.list_(pa.list_(pa.float64())),
    "o": pa.struct([("s", pa.string()), ("day", pa.date32()), ("m", pa.decimal128(10, 3)), ("l", pa.list_(UTC))]),
    "lo": pa.list_(pa.struct([("i4", pa.int32()), ("y", pa.binary()), ("f", pa.float32())])),
}
MAPS = {"mp": pa.map_(pa.string(), pa.struct([("i4", pa.int32()), ("s", pa.string())])), "s": pa.string()}
SCHEMAS = {
    **{name: pa.schema([(name, type_)]) for name, type_ in {**LEAVES, **NESTED}.items()},
    "leaves": pa.schema(list(LEAVES.items())),
    "all": pa.schema([*LEAVES.items(), *NESTED.items()]),
    "maps": pa.schema(list(MAPS.items())),
}

HOSTILE_NUMBERS = """
NaN Infinity -Infinity Inf -Inf -NaN 1e400 -1e400 1e-400 1e400000000 1e-400000000 0e400000000 0e-99999999999 -0 -0.0
1.0 1.5 1e3 01 1. .5 +1 - 1e 0x1F 999.99 999.995 1000 1.005 1.500 3.4028235e38 3.4028236e38 16777217.0
9007199254740993 1e38 9e37 99999999999999999999999999999999999999 1770000000 1770000000.123456 1770000000123 1e-7
0.0000001 -0.0000001 1770000000.123456789 253402300799.9999999 1.00000005960464477540 -62135596800 253402300799.999999
"""
HOSTILE_TIMES = """
2026-02-03T25:00 2026-02-30 0000-01-01 0001-01-01 0001-01-01T00:00+01 9999-12-31 9999-12-31T23:59-01 2026 2026-02
2026-2-3 20260203 12026-01-01 -026-01-01 2026-02-03T10:11:12,5 2026-02-03T 1900-02-29 2000-02-29 \uff12026-02-03
2026-02-03T10:11:12.123456000Z 2026-02-03T10:11:12.1234567Z 2026-W01-1 2026-02-03T10:11:12.9999999
2026-02-03T10:11:12.123456789+01:30 2026-02-03T10:11:12.1234567.1234567Z 2026-02-03T10:11.1234567
0001-01-01T00:00:00.0000009Z 9999-12-31T23:59:59.9999999Z
"""
HOURS = "10 10:11 10:11:12 24:00 25:00 10:60 10:11:60 1:2:3 10:11:12. 23:59:59"
ZONES = "Z z +01 +01:00 -0130 +1 +24:00 +23:59 +01:60 +01: Europe/Berlin"
HOSTILE_STRINGS = r"""
"\ud83d" "\ude00" "\ud83d\ude00" "\ud83dx" "\\ud83d" "\ude00\ud83d" "\u0000" "\n" "\x" "\/" "NaN" "Inf" "+1.5" ".5" "5."
"." "" "1,5" "true" "\u0031" "1e\u002d77" "1_0" "QQ==" "QR==" "QQ" "-_-_" "++//" 'a' "{" "}\n{" "} "{
"""
SPACED_STRINGS = [
    '"\t"',
    '"\n"',
    '"\x7f"',
    '" 1"',
    '"1 "',
    '"Q Q=="',
    '"\uff11"',
    '"0.' + "0" * 60 + '1"',
    "}\n{",
    "} {",
]

NUMBERS = st.one_of(
    st.integers(-300, 300).map(str),
    st.sampled_from([7, 8, 15, 16, 31, 32, 63, 64, 126]).map(lambda bits: str(2**bits)),
    st.sampled_from([7, 15, 31, 63, 64]).map(lambda bits: str(-(2**bits) - 1)),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=3).map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,3})?\Z"),
    st.sampled_from(HOSTILE_NUMBERS.split()),
)
TIMES = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.builds(
        "{}{}{}{}".format,
        st.dates(),
        st.sampled_from(["T", " ", "t", ""]),
        st.sampled_from(HOURS.split())
        | st.builds("10:11:12.{}".format, st.text("0123456789", min_size=1, max_size=10)),
        st.sampled_from(["", " UTC", "Z ", *ZONES.split()]),
    ),
    st.sampled_from(HOSTILE_TIMES.split()),
)
STRINGS = st.one_of(
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=8).map(json.dumps),
    NUMBERS.map(lambda text: f'"{text}"'),
    TIMES.map(lambda text: f'"{text}"'),
    st.binary(max_size=6).map(lambda raw: json.dumps(base64.b64encode(raw).decode())),
    st.sampled_from([*HOSTILE_STRINGS.split(), *SPACED_STRINGS]),
)
NAMES = st.sampled_from([*LEAVES, *NESTED, "mp", "x", "X", "", r"\u0073", "S", r"\ud83d", "}{", "\x00"])
BLANK = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t", "\x0c", "\xa0"])
MARK = st.sampled_from(["", "", "", "\ufeff"])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.builds('{}"{}"{}:{}{}'.format, BLANK, NAMES, BLANK, BLANK, values), max_size=4)
    return st.builds("{{{}{}}}".format, members.map(",".join), BLANK)


def containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return objects(values) | st.lists(values, max_size=3).map(lambda items: f"[{','.join(items)}]")


VALUES = st.recursive(NUMBERS | STRINGS | TIMES | st.sampled_from(["true", "false", "null", "nul", ""]), containers)


def fitting(type_: pa.DataType) -> st.SearchStrategy[str]:
    """JSON that mostly fits a type."""
    if pa.types.is_struct(type_):
        members = [
            st.builds('"{}":{}'.format, st.just(field.name), fitting(field.type)) | st.just(None) for field in type_
        ]
        return st.tuples(*members).map(lambda parts: "{" + ",".join(part for part in parts if part) + "}")
    if pa.types.is_list(type_):
        return st.lists(fitting(type_.value_type), max_size=3).map(lambda items: f"[{','.join(items)}]")
    if pa.types.is_map(type_):
        items = st.lists(st.builds('"{}":{}'.format, NAMES, fitting(type_.item_type)), max_size=3)
        return items.map(lambda parts: "{" + ",".join(parts) + "}")
    if pa.types.is_boolean(type_):
        return st.sampled_from(["true", "false", "null"])
    if pa.types.is_temporal(type_):
        return TIMES.map(lambda text: f'"{text}"') | st.dates().map(lambda day: f'"{day}"')
    return STRINGS if pa.types.is_string(type_) or pa.types.is_binary(type_) else NUMBERS | st.integers(0, 9).map(str)


def mutated(raw: bytes, places: list[tuple[int, int]]) -> bytes:
    changed = bytearray(raw)
    for place, byte in places:
        if changed:
            changed[place % len(changed)] = byte
    return bytes(changed)


def bodies(schema: pa.Schema) -> st.SearchStrategy[bytes]:
    fit = fitting(pa.struct(list(schema)))
    text = fit | fit | objects(VALUES) | st.builds("{}{}{}".format, fit, BLANK, fit) | VALUES
    whole = st.builds("{}{}{}{}".format, MARK, BLANK, text, BLANK).map(
        lambda said: said.encode("utf-8", "surrogatepass")
    )
    places = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255) | st.sampled_from(b'{}[]",:\n\\')), max_size=2)
    return whole | whole | st.builds(mutated, whole, places) | st.binary(max_size=12)


def slowly(reader: BodyReader, raw: list[bytes | None]) -> tuple[Any, Any]:
    """What the reader says if Arrow's vouches for nothing."""
    assert isinstance(reader._reader, FormatReader)
    columns, reasons = reader._reader._one_by_one(without_number(pa.array(raw, pa.binary())))
    return columns, reasons.to_pylist()


def check(reader: BodyReader, raw: list[bytes | None]) -> None:
    expected, reasons = slowly(reader, raw)
    for part in [raw] if len(raw) > 200 else [raw, *([body] for body in raw)]:
        read = reader.read(pa.array(part, pa.binary()))
        read.columns.validate(full=True)
        assert read.columns.schema == reader.schema
        if part is raw:
            assert read.columns.equals(expected), (raw, read.columns.to_pylist(), expected.to_pylist())
            assert (read.reasons.to_pylist() if read.reasons else [None] * len(raw)) == reasons
        else:
            at = raw.index(part[0])
            assert read.columns.equals(expected[at : at + 1]), (part, read.columns.to_pylist())
    for row, reason in zip(expected.to_pylist(), reasons, strict=True):
        assert reason is None or (set(row.values()) == {None} and reason.isprintable() and len(reason) < 300)


@pytest.mark.more(but=2)
@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("rescue", [None, "rest"])
@pytest.mark.parametrize("examples", [15, pytest.param(3_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3_000)
def test_both_ways_agree(name: str, rescue: str | None, examples: int) -> None:
    reader = BodyReader(SCHEMAS[name], BodyFormat(rescue=rescue))

    @settings(max_examples=examples, deadline=None)
    @given(st.lists(bodies(SCHEMAS[name]), min_size=1, max_size=6))
    def agree(raw: list[bytes | None]) -> None:
        check(reader, raw)

    agree()


@pytest.mark.more
@pytest.mark.parametrize("name", ["at", "local", "leaves", "all", "o", "maps"])
@pytest.mark.parametrize("examples", [15, pytest.param(3_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3_000)
def test_both_ways_cut_times_alike(name: str, examples: int) -> None:
    reader = BodyReader(SCHEMAS[name], BodyFormat(timestamps="truncate"))

    @settings(max_examples=examples, deadline=None)
    @given(st.lists(bodies(SCHEMAS[name]), min_size=1, max_size=6), st.sampled_from([1, 60]))
    def agree(raw: list[bytes | None], times: int) -> None:
        check(reader, raw * times)

    agree()


def test_times_that_are_cut_are_read_many_at_once() -> None:
    times = ["2026-02-03T04:05:06.1234567Z", "2026-02-03 04:05:06.123456789+01:00", "2026-02-03T04:05", "2026-02-03"]
    schema = pa.schema([("at", LEAVES["at"]), ("local", LEAVES["local"]), ("l", pa.list_(LEAVES["at"]))])
    raw = [f'{{"at":"{at}","local":"2026-02-03T04:05:06.1234567","l":["{at}",null]}}' for at in times * 1_000]
    [(rows, columns)] = ColumnReader(schema, rescue=False, cut=True).read(pa.array(raw, pa.binary()))
    assert len(rows) == len(raw)
    first = datetime.fromisoformat("2026-02-03T04:05:06.123456Z")
    assert columns.column("at")[:2].to_pylist() == [first, first - timedelta(hours=1)]
    assert columns.column("local")[0].as_py() == first.replace(tzinfo=None)
    check(BodyReader(schema, BodyFormat(timestamps="truncate")), [one.encode() for one in raw])


@pytest.mark.more
@pytest.mark.parametrize("name", ["leaves", "all", "o", "lo", "l", "i4", "at"])
@pytest.mark.parametrize("rescue", [None, "rest"])
@pytest.mark.parametrize("examples", [5, pytest.param(1_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3_000)
def test_both_ways_agree_wherever_the_others_stand_in_the_way(name: str, rescue: str | None, examples: int) -> None:
    """Some hundred bodies, most of them good, so that those in the way are looked for in all ways there are."""
    reader = BodyReader(SCHEMAS[name], BodyFormat(rescue=rescue))
    others = st.lists(bodies(SCHEMAS[name]), min_size=1, max_size=8)

    @settings(max_examples=examples, deadline=None)
    @given(others, st.integers(100, 400), st.sampled_from([2, 10, 50]), st.randoms(use_true_random=False))
    def agree(pool: list[bytes], count: int, one_in: int, dice: random.Random) -> None:
        alone = [reader.read(pa.array([body])) for body in pool]
        good = [body for body, read in zip(pool, alone, strict=True) if read.reasons is None] or [b"{}"]
        check(reader, [dice.choice(good if dice.randrange(one_in) else pool) for _ in range(count)])

    agree()


CLEAN = json.dumps(
    {
        **{"s": "a", "y": "QUI=", "b": True, "i1": 1, "i2": 2, "i4": 3, "i8": 4, "f": 0.5, "d": 1e30, "m": 9.99},
        **{"w": 0, "n": "5", "day": "2026-02-03", "at": "2026-02-03T04:05:06Z", "local": "2026-02-03 04:05"},
        **{"o": {"s": "b", "day": None, "m": 1, "l": ["2026-02-03"]}, "lo": [{"i4": 1, "y": "", "f": 2}, None]},
        **{"l": [[1.5, 1e-07], [], None]},
    }
)
OTHERS = [
    ('"i1": 1', '"i1": 128'),
    ('"i8": 4,', '"i8": 1.5,'),
    ('"i8": 4,', '"i8": 1.0,'),
    ('"i4": 3', '"i4": "3"'),
    ('"f": 0.5', '"f": 1e39'),
    ('"d": 1e+30', '"d": 1e400'),
    ('"m": 9.99', '"m": 9.995'),
    ('"m": 9.99', '"m": 1e-400000000'),
    ('"i8": 4,', '"i8": 1e-400000000,'),
    ('"s": "a"', '"s": 5'),
    ('"s": "a"', '"s": "a", "s": "a"'),
    ('"day": "2026-02-03"', '"day": "2026-02-30"'),
    ('"at": "2026-02-03T04:05:06Z"', '"at": "2026-02-03T25:00:00Z"'),
    ('"at": "2026-02-03T04:05:06Z"', '"at": 1770000000'),
    ('"local": "2026-02-03 04:05"', '"local": "2026-02-03 04:05Z"'),
    ('"y": ""', '"y": "-"'),
    ('"f": 2', '"f": 4e38'),
    ('"l": ["2026-02-03"]', '"l": ["2026-02-31"]'),
    ('{"s": "b"', '{"s": null, "s": "b"'),
    ('[{"i4": 1', '[{"i4": 1, "i4": 2'),
    ('"lo": [', '"lo": [5, '),
    ("null", "nil"),
    ("}", "}}"),
    ('"s": "a"', '"s": "a"} {"s": "b"'),
]


@pytest.mark.more(but=7)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("others", [[each] for each in OTHERS] + [OTHERS], ids=lambda others: str(others[0][1]))
def test_a_body_in_the_way_leaves_the_others_to_the_fast_way(others: list[tuple[str, str]], closed: bool) -> None:
    reader = ColumnReader(SCHEMAS["all"], rescue=False)
    clean = CLEAN if closed else CLEAN[:-1] + ', "unknown": [{}]}'
    raw = [clean] * 4_000
    for place, (good, other) in enumerate(others * (40 // len(others))):
        assert good in clean
        raw[place * 97 + 5] = clean.replace(good, other)
    changed = {place for place, text in enumerate(raw) if text != clean}
    read = reader.read(pa.array(raw, pa.binary()))
    done = [row for rows, _ in read for row in rows.to_pylist()]
    assert len(done) == len(set(done))
    assert changed.isdisjoint(done)
    assert len(raw) - len(done) == len(changed)
