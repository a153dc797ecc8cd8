"""Arrow columns as SQLite values."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leasehold.sinks.postgres.staging import encode
from leasehold.sinks.rules.values import ColumnKind, as_json, convert, kind_of, order_kind, order_values, unstorable

AT = datetime(2026, 1, 31, 8, 0, 0, 5, UTC)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([True, False, None]), [1, 0, None]),
        (pa.array([0.5, float("nan"), None, float("inf")]), [0.5, None, None, float("inf")]),
        (pa.array([0.5], pa.float32()), [0.5]),
        (pa.array(["x", None], pa.large_string()), ["x", None]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.array([date(2026, 1, 31), date(1, 1, 1), None]), ["2026-01-31", "0001-01-01", None]),
        (pa.array([AT, None], pa.timestamp("us", "UTC")), ["2026-01-31T08:00:00.000005Z", None]),
        (pa.array([AT], pa.timestamp("us", "Asia/Tokyo")), ["2026-01-31T08:00:00.000005Z"]),
        (pa.array([AT.replace(tzinfo=None)], pa.timestamp("ms")), ["2026-01-31T08:00:00.000000"]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), ["1.50", None]),
        (pa.array([Decimal("-0.0000000012")], pa.decimal128(38, 10)), ["-0.0000000012"]),
        (pa.array([{"a": 1, "b": [b"x", None]}, None]), ['{"a":1,"b":["eA==",null]}', None]),
        (pa.array([[1.5, float("nan"), -float("inf")], [], None]), ['[1.5,"NaN","-Infinity"]', "[]", None]),
        (pa.array([[("k", AT), ("é", None)], None, []], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
         ['{"k":"2026-01-31T08:00:00.000005Z","é":null}', None, "{}"]),
        (pa.array([[(7, True)]], pa.map_(pa.int32(), pa.bool_())), ['{"7":true}']),
        (pa.array([[[1], None], [[2, 3]]]), ["[[1],null]", "[[2,3]]"]),
        (pa.nulls(2), [None, None]),
    ],
)  # fmt: skip
def test_values(column: Any, values: list[Any]) -> None:
    assert convert(column).values == values
    assert not convert(column).problems
    padded = pa.concat_arrays([column, column, column])  # a slice has offsets of its own
    assert convert(padded.slice(len(column), len(column))).values == values
    assert convert(pa.chunked_array([column, column])).values == values * 2
    assert kind_of(column.type) is not None


@pytest.mark.parametrize(
    "column",
    [pa.array([timedelta(1)]), pa.array([time(1)]), pa.array([1], pa.uint64()), pa.array([[timedelta(1)]])],
)
def test_types_without_a_form(column: Any) -> None:
    assert kind_of(column.type) is None


def test_a_year_that_does_not_fit_the_width_is_a_problem_of_its_row() -> None:
    numbers = [0, 253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_001, None]
    stamps = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert set(convert(stamps).problems) == {2, 3}
    days = pa.array([2_932_896, 2_932_897, -719_163], pa.int32()).cast(pa.date32())
    assert set(convert(days).problems) == {1, 2}


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize(
    ("unit", "numbers", "problems"),
    [
        ("ns", [-1_000, 1_000, 1_001, None, -(2**63)], {2: "finer", 4: "finer"}),
        ("s", [253_402_300_799, 253_402_300_800, 10**15, None], {1: "outside", 2: "outside"}),
        ("ms", [253_402_300_799_999, -(10**18)], {1: "outside"}),
    ],
)
def test_a_time_in_any_unit_is_kept_or_a_problem_of_its_row(
    unit: str, numbers: list[int | None], problems: dict[int, str], zone: str | None
) -> None:
    column = pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, zone))
    for found in (convert(column).problems, unstorable(column).problems, dict(encode(column).problems)):
        assert found.keys() == problems.keys()
        assert all(problems[place] in said for place, said in found.items())
    if unit == "ns":
        assert order_values(column).problems == {2: "is finer than microseconds", 3: "is null or NaN", 4: found[4]}


def test_text_order_of_timestamps_is_time_order() -> None:
    numbers = [-62_135_596_800_000_000, -1, 0, 999_999, 1_000_000, 1_700_000_000_000_001, 253_402_300_799_999_999]
    texts = convert(pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))).values
    assert sorted(texts) == texts
    assert len({len(text) for text in texts}) == 1


def broken_text() -> Any:
    return pa.array([b"fine", b"\xff\xfe", None], pa.binary()).view(pa.string())


def test_text_that_is_not_utf8_is_a_problem_of_its_row() -> None:
    converted = convert(broken_text())
    assert converted.values == ["fine", None, None]
    assert list(converted.problems) == [1]
    nested = convert(pa.StructArray.from_arrays([broken_text()], ["a"]))
    assert nested.values[0] == '{"a":"fine"}'
    assert list(nested.problems) == [1]


def test_rows_as_json_show_everything_they_can() -> None:
    rows = as_json({"t": broken_text(), "b": pa.array([b"\xff", None, b""]), "f": pa.array([1.0, float("nan"), None])})
    assert [json.loads(row) for row in rows] == [
        {"t": "fine", "b": "/w==", "f": 1.0},
        {"t": "��", "b": None, "f": "NaN"},
        {"t": None, "b": "", "f": None},
    ]


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (pa.array([1, 2]), "number", [1, 2]),
        (pa.array([1.5]), "number", [1.5]),
        (pa.array(["a"]), str(ColumnKind.TEXT), ["a"]),
        (pa.array([date(1970, 1, 3)]), str(ColumnKind.DATE), [2]),
        (pa.array([AT], pa.timestamp("us", "UTC")), str(ColumnKind.TIMESTAMP), [int(AT.timestamp()) * 1_000_000 + 5]),
        (pa.array([10**18], pa.int64()).cast(pa.timestamp("us")), str(ColumnKind.TIMESTAMP), [10**18]),
    ],
)
def test_orders(column: Any, kind: str, values: list[Any]) -> None:
    assert order_kind(column.type) == kind
    assert order_values(column).values == values
    assert not order_values(column).problems


def test_what_has_no_order() -> None:
    for column in (pa.array([True]), pa.array([Decimal(1)]), pa.array([b"x"]), pa.array([[1]]), pa.nulls(1)):
        assert order_kind(column.type) is None


def test_null_and_nan_have_no_place_in_an_order() -> None:
    assert set(order_values(pa.array([1.0, None, float("nan")])).problems) == {1, 2}
