"""What SQLite does with each Spark type in an entity table: how it is stored, compared, sorted and reached into.

docs/table.md tells users the same; whoever changes one changes both.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import SchemaMismatch
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.sinks.events import look, run

UTC_TIME, LOCAL_TIME, MONEY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(20, 2)
AT = datetime(2026, 1, 31, 8, 0, 0, 5, UTC)


def fill(path: Path, type_: pa.DataType, values: list[Any], declared: str | None = None) -> None:
    """A table `t` of one column `v`, in order of `rowid`; Leasehold makes it unless it is `declared`."""
    if declared is not None:
        run(path, f"CREATE TABLE t (v {declared})")
    count = len(values)
    columns = {
        "v": pa.array(values, type_),
        "hub": pa.array(["h"] * count),
        "partition": pa.array(["0"] * count),
        "sequenceNumber": pa.array(range(count), pa.int64()),
        "ownerLevel": pa.array([1] * count, pa.int64()),
    }
    table = SqliteSink(path, TableSpec(name="t", pipeline="p", mode="append", keys=()), timeout=10.0)
    assert table.apply(Batch(pa.table(columns))).applied == count


@pytest.mark.parametrize(
    ("type_", "value", "declared", "storage", "stored"),
    [
        (pa.bool_(), True, "INTEGER", "integer", 1),
        (pa.int8(), -5, "INTEGER", "integer", -5),
        (pa.int64(), 2**63 - 1, "INTEGER", "integer", 2**63 - 1),
        (pa.float32(), 0.1, "REAL", "real", 0.10000000149011612),
        (pa.float64(), 0.1, "REAL", "real", 0.1),
        (pa.float64(), 3.0, "REAL", "real", 3.0),
        (pa.float64(), float("inf"), "REAL", "real", float("inf")),
        (pa.float64(), float("nan"), "REAL", "null", None),
        (pa.string(), "12", "TEXT", "text", "12"),
        (pa.string(), "a\0b", "TEXT", "text", "a\0b"),
        (pa.binary(), b"\x00\xff", "BLOB", "blob", b"\x00\xff"),
        (MONEY, Decimal("9.50"), "TEXT", "text", "9.50"),
        (pa.decimal128(38, 10), Decimal("-0.0000000012"), "TEXT", "text", "-0.0000000012"),
        (pa.date32(), date(2026, 1, 31), "TEXT", "text", "2026-01-31"),
        (UTC_TIME, AT, "TEXT", "text", "2026-01-31T08:00:00.000005Z"),
        (LOCAL_TIME, AT.replace(tzinfo=None), "TEXT", "text", "2026-01-31T08:00:00.000005"),
        (pa.list_(pa.int32()), [1, None], "TEXT", "text", "[1,null]"),
        (pa.list_(MONEY), [Decimal("9.50")], "TEXT", "text", '["9.50"]'),
        (pa.struct([("a", pa.bool_()), ("b", UTC_TIME)]), {"a": True, "b": AT}, "TEXT", "text",
         '{"a":true,"b":"2026-01-31T08:00:00.000005Z"}'),
        (pa.map_(pa.string(), pa.binary()), [("k", b"AB")], "TEXT", "text", '{"k":"QUI="}'),
    ],
)  # fmt: skip
def test_how_each_type_is_stored(
    tmp_path: Path, type_: pa.DataType, value: Any, declared: str, storage: str, stored: Any
) -> None:
    path = tmp_path / "t.db"
    fill(path, type_, [value, None])
    assert look(path, "SELECT type FROM pragma_table_info('t')") == [(declared,)]
    assert look(path, "SELECT typeof(v), v FROM t ORDER BY rowid") == [(storage, stored), ("null", None)]


def test_decimals_compare_as_text_unless_they_are_cast(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, MONEY, [Decimal("9.50"), Decimal("10.00"), Decimal("-1.00"), Decimal("123456789012345678.91")])
    assert look(path, "SELECT v FROM t ORDER BY v") == [("-1.00",), ("10.00",), ("123456789012345678.91",), ("9.50",)]
    assert look(path, "SELECT max(v) FROM t") == [("9.50",)]
    assert look(path, "SELECT v FROM t WHERE v > 9") == [("9.50",)]  # the number becomes text, 9
    assert look(path, "SELECT count(*) FROM t WHERE v = 10") == [(0,)]  # 10 is not 10.00
    assert look(path, "SELECT count(*) FROM t WHERE v = '10.00'") == [(1,)]
    assert look(path, "SELECT v FROM t WHERE CAST(v AS REAL) > 9 ORDER BY CAST(v AS REAL)") == [
        ("9.50",),
        ("10.00",),
        ("123456789012345678.91",),
    ]
    assert look(path, "SELECT sum(v) FROM t WHERE v < '2'") == [(pytest.approx(123456789012345687.91),)]
    assert look(path, "SELECT CAST(v AS REAL) = 123456789012345680.0 FROM t WHERE rowid = 4") == [(1,)]  # digits lost


def test_decimals_of_up_to_15_digits_may_have_a_column_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, pa.decimal128(15, 2), [Decimal("9.50"), Decimal("10.00"), Decimal("1234567890123.45")], "DECIMAL(15,2)")
    assert look(path, "SELECT v, typeof(v) FROM t ORDER BY v DESC") == [
        (1234567890123.45, "real"),
        (10, "integer"),
        (9.5, "real"),
    ]
    assert look(path, "SELECT count(*) FROM t WHERE v = 10") == [(1,)]
    with pytest.raises(SchemaMismatch, match="v: is of type decimal128"):
        fill(tmp_path / "wide.db", MONEY, [Decimal("1.00")], "DECIMAL(20,2)")


def test_cents_in_a_bigint_are_exact_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, pa.int64(), [950, 1_000, 12_345_678_901_234_567])
    assert look(path, "SELECT sum(v), max(v) FROM t WHERE v > 900") == [
        (12_345_678_901_236_517, 12_345_678_901_234_567)
    ]


def test_timestamps_and_dates_sort_as_time_and_serve_the_date_functions(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    times = [AT, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(1, 1, 1, tzinfo=UTC)]
    fill(path, UTC_TIME, [*times, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)])
    assert look(path, "SELECT rowid FROM t ORDER BY v") == [(3,), (2,), (1,), (4,)]
    assert look(path, "SELECT rowid FROM t WHERE v >= '2026-01-31' AND v < '2026-02-01'") == [(1,)]
    assert look(path, "SELECT unixepoch(v), date(v, '+1 day'), strftime('%H', v) FROM t WHERE rowid = 1") == [
        (1_769_846_400, "2026-02-01", "08")
    ]
    assert look(path, "SELECT datetime(v) FROM t WHERE rowid = 1") == [("2026-01-31 08:00:00",)]
    # What SQLite makes itself has a blank for the T, which sorts before it: later that day is not after it.
    assert look(path, "SELECT v > datetime('2026-01-31 23:00') FROM t WHERE rowid = 1") == [(1,)]
    assert look(path, "SELECT v > '2026-01-31T23:00' FROM t WHERE rowid = 1") == [(0,)]


def test_timestamps_with_a_zone_and_without_are_not_equal_as_text(tmp_path: Path) -> None:
    path, other = tmp_path / "t.db", tmp_path / "other.db"
    fill(path, UTC_TIME, [AT])
    fill(other, LOCAL_TIME, [AT.replace(tzinfo=None)])
    run(path, f"ATTACH '{other}' AS o", "CREATE TABLE seen AS SELECT a.v = b.v AS same FROM t a, o.t b")
    assert look(path, "SELECT same FROM seen") == [(0,)]


def test_arrays_structs_and_maps_are_reached_into_as_json(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    leg = pa.struct([("to", pa.string()), ("delay", pa.float64()), ("price", MONEY)])
    legs = [{"to": "IAH", "delay": 1.5, "price": Decimal("9.50")}, {"to": "EWR", "delay": None, "price": None}]
    fill(path, pa.list_(leg), [legs, [], None])
    assert look(path, "SELECT v ->> '$[0].to', v ->> '$[1].delay', json_array_length(v) FROM t") == [
        ("IAH", None, 2),
        (None, None, 0),
        (None, None, None),
    ]
    assert look(path, "SELECT j.value ->> 'to' FROM t, json_each(t.v) j ORDER BY 1") == [("EWR",), ("IAH",)]
    assert look(path, "SELECT typeof(v ->> '$[0].delay'), typeof(v ->> '$[0].price') FROM t WHERE rowid = 1") == [
        ("real", "text")
    ]
    # Two values are equal if their text is: the order of a struct's fields is the schema's, a map's its own.
    assert json.loads(look(path, "SELECT v FROM t WHERE rowid = 1")[0][0])[0] == {
        "to": "IAH",
        "delay": 1.5,
        "price": "9.50",
    }


def test_a_map_keeps_the_order_of_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]])
    assert look(path, "SELECT count(DISTINCT v) FROM t") == [(2,)]
    assert look(path, "SELECT v ->> 'a' FROM t") == [(1,), (1,)]


def test_text_compares_by_its_bytes_and_not_by_a_language(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, pa.string(), ["a", "B", "ä", "10", "9"])
    assert look(path, "SELECT v FROM t ORDER BY v") == [("10",), ("9",), ("B",), ("a",), ("ä",)]
    assert look(path, "SELECT count(*) FROM t WHERE v = 9") == [(1,)]


def test_booleans_are_one_and_zero(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, pa.bool_(), [True, False, None])
    assert look(path, "SELECT v FROM t WHERE v") == [(1,)]
    assert look(path, "SELECT count(*) FROM t WHERE v IS TRUE OR v = FALSE") == [(2,)]


def test_a_float_is_stored_as_the_double_that_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    fill(path, pa.float32(), [0.1, 0.5])
    assert look(path, "SELECT count(*) FROM t WHERE v = 0.1") == [(0,)]
    assert look(path, "SELECT count(*) FROM t WHERE v = 0.5") == [(1,)]


@pytest.mark.parametrize("type_", [pa.duration("us"), pa.time64("us"), pa.uint64(), pa.month_day_nano_interval()])
def test_types_without_a_form_are_refused_by_name(tmp_path: Path, type_: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"v: is of type .*, which SQLite cannot hold"):
        fill(tmp_path / "t.db", type_, [None])
