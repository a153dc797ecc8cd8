"""Which Python value each type of column takes, and what comes of it: each sentence of the module, and of the page."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.formats import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.formats.misfits import Misfit
from leasehold.formats.python_values import taken

EAST = timezone(timedelta(hours=5))
MOMENT = datetime(2026, 6, 21, tzinfo=UTC)


class Text(str):
    __slots__ = ()


class Word(str, Enum):  # noqa: UP042 -- as programs have it
    OPEN = "open"


class Number(int, Enum):
    TWO = 2


class Ratio(float, Enum):
    HALF = 0.5


class Exact(Decimal, Enum):
    HALF = "0.5"


def of(type_: str, value: Any) -> Any:
    return taken(read_columns(f"a {type_}", "state").field("a").type)(value)


TAKEN: list[tuple[str, Any, Any]] = [
    ("TIMESTAMP", 1_782_000_000, MOMENT),
    ("TIMESTAMP", 1_782_000_000.5, MOMENT.replace(microsecond=500_000)),
    ("TIMESTAMP", 1_782_000_000.1234567, MOMENT.replace(microsecond=123_457)),
    ("TIMESTAMP", Decimal("1782000000.000001"), MOMENT.replace(microsecond=1)),
    ("TIMESTAMP", -0.5, datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)),
    ("TIMESTAMP", np.int64(1_782_000_000), MOMENT),
    ("TIMESTAMP", datetime(2026, 6, 21, 5, tzinfo=EAST), MOMENT),
    ("TIMESTAMP", datetime(2026, 6, 21), MOMENT),
    ("TIMESTAMP", date(2026, 6, 21), MOMENT),
    ("TIMESTAMP", "2026-06-21T05:00:00+05:00", MOMENT),
    ("TIMESTAMP", pd.Timestamp("2026-06-21 00:00:00.000007", tz="UTC"), MOMENT.replace(microsecond=7)),
    ("TIMESTAMP", pd.NaT, None),
    ("TIMESTAMP_NTZ", datetime(2026, 6, 21, 5), datetime(2026, 6, 21, 5)),
    ("TIMESTAMP_NTZ", date(2026, 6, 21), datetime(2026, 6, 21)),
    ("TIMESTAMP_NTZ", "2026-06-21 05:00", datetime(2026, 6, 21, 5)),
    ("DATE", date(2026, 6, 21), date(2026, 6, 21)),
    ("DATE", "2026-06-21", date(2026, 6, 21)),
    ("BIGINT", 2**63 - 1, 2**63 - 1),
    ("BIGINT", 2.0, 2),
    ("BIGINT", Decimal("1E+3"), 1000),
    ("BIGINT", Decimal(-(2**63)), -(2**63)),
    ("TINYINT", np.int64(-128), -128),
    ("DOUBLE", 2**53 + 1, 2.0**53),
    ("DOUBLE", 2**64, 2.0**64),
    ("DOUBLE", Decimal("0.1"), 0.1),
    ("DOUBLE", math.inf, math.inf),
    ("DOUBLE", math.nan, None),
    ("DOUBLE", np.float32(0.5), 0.5),
    ("FLOAT", 0.1, 0.10000000149011612),
    ("FLOAT", 16_777_217, 16_777_216.0),
    ("FLOAT", -math.inf, -math.inf),
    ("DECIMAL(6,2)", 7, Decimal("7.00")),
    ("DECIMAL(6,2)", Decimal("1E+3"), Decimal("1000.00")),
    ("DECIMAL(6,2)", "12.5", Decimal("12.50")),
    ("DECIMAL(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("STRING", Text("x"), "x"),
    ("STRING", Word.OPEN, "open"),
    ("BIGINT", Number.TWO, 2),
    ("DOUBLE", Number.TWO, 2.0),
    ("DOUBLE", Ratio.HALF, 0.5),
    ("FLOAT", Ratio.HALF, 0.5),
    ("DOUBLE", Exact.HALF, 0.5),
    ("DECIMAL(6,2)", Exact.HALF, Decimal("0.50")),
    ("DECIMAL(6,2)", Number.TWO, Decimal("2.00")),
    ("TIMESTAMP", Number.TWO, datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)),
    ("TIMESTAMP", Ratio.HALF, datetime(1970, 1, 1, microsecond=500_000, tzinfo=UTC)),
    ("STRING", b"gr\xc3\xbcn", "grün"),
    ("BINARY", bytearray(b"\xff"), b"\xff"),
    ("BINARY", memoryview(b"\xff"), b"\xff"),
    ("BOOLEAN", True, True),
    ("BOOLEAN", np.bool_(False), False),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("TIMESTAMP", True, "is true, which is not a TIMESTAMP"),
    ("TIMESTAMP", math.nan, "is nan, which is not a TIMESTAMP"),
    ("TIMESTAMP", 1_782_000_000_000, "is 1782000000000, which as seconds since 1970 is outside the years 1 to 9999"),
    ("TIMESTAMP", 1e300, "which as seconds since 1970 is outside"),
    ("TIMESTAMP", Decimal("1E+9999999"), "which as seconds since 1970 is outside"),
    ("TIMESTAMP", Decimal("1.0000001"), "is 1.0000001, which is finer than the microseconds of a TIMESTAMP"),
    ("TIMESTAMP", "2026-06-21T00:00:00.1234567Z", '1234567Z", which is finer than the microseconds of a TIMESTAMP'),
    ("TIMESTAMP", pd.Timestamp("2026-06-21 00:00:00.123456789"), "finer than the microseconds of a TIMESTAMP"),
    ("TIMESTAMP", np.datetime64("2026-06-21T00:00:00.123456789"), "which is not a TIMESTAMP"),
    ("TIMESTAMP", datetime(1, 1, 1, tzinfo=EAST), "which in UTC is outside the years 1 to 9999"),
    ("TIMESTAMP", "yesterday", 'is "yesterday", which is not a TIMESTAMP such as 2026-'),
    ("TIMESTAMP", time(1), "which is not a TIMESTAMP"),
    ("TIMESTAMP_NTZ", datetime(2026, 6, 21, tzinfo=UTC), "which has a zone, and a TIMESTAMP_NTZ has none"),
    ("TIMESTAMP_NTZ", 1_782_000_000, "is 1782000000, which is not a TIMESTAMP_NTZ"),
    ("TIMESTAMP_NTZ", "2026-06-21T00:00Z", "which is not a TIMESTAMP_NTZ such as"),
    ("DATE", datetime(2026, 6, 21), "is 2026-06-21 00:00:00, which is not a DATE"),
    ("DATE", pd.NaT, "which is not a DATE"),
    ("DATE", 20_625, "is 20625, which is not a DATE"),
    ("BIGINT", True, "is true, which is not a BIGINT"),
    ("BIGINT", 1.5, "is 1.5, which is not a BIGINT"),
    ("BIGINT", 2**63, "is 9223372036854775808, which no BIGINT holds"),
    ("BIGINT", 10**5000, "is a whole number of 16610 bits, which no BIGINT holds"),
    ("BIGINT", Decimal("1E+9999999"), "is 1E+9999999, which is not a BIGINT"),
    ("BIGINT", Decimal("sNaN"), "is sNaN, which is not a BIGINT"),
    ("BIGINT", "7", 'is "7", which is not a BIGINT'),
    ("TINYINT", 128, "is 128, which no TINYINT holds"),
    ("DOUBLE", 10**400, "which no DOUBLE holds"),
    ("DOUBLE", True, "is true, which is not a DOUBLE"),
    ("DOUBLE", "1.5", "which is not a DOUBLE"),
    ("DOUBLE", Decimal("NaN"), "is NaN, which is not a DOUBLE"),
    ("FLOAT", 1e300, "is 1e+300, which no FLOAT holds"),
    ("DECIMAL(6,2)", 1.5, r"is 1.5, a float, which is not the number that was meant: give a DECIMAL(6,2) a Decimal"),
    ("DECIMAL(6,2)", Decimal("1.005"), "is 1.005, which no DECIMAL(6,2) holds"),
    ("DECIMAL(6,2)", 123_456, "is 123456, which no DECIMAL(6,2) holds"),
    ("DECIMAL(6,2)", Decimal("Infinity"), "is Infinity, which is not a DECIMAL(6,2)"),
    ("STRING", 7, "is 7, which is not a STRING"),
    ("STRING", "\ud800", "which is not UTF-8 text"),
    ("STRING", b"\xff", "which is not UTF-8 text"),
    ("BINARY", "QUI=", 'is "QUI=", which is not a BINARY'),
    ("BOOLEAN", 1, "is 1, which is not a BOOLEAN"),
    ("BOOLEAN", np.array([True]), "which is not a BOOLEAN"),
    ("BIGINT", [1], "is an array, which is not a BIGINT"),
    ("STRING", {"a": 1}, "is an object, which is not a STRING"),
]


@pytest.mark.parametrize(("type_", "value", "expected"), TAKEN, ids=[f"{one[0]}-{n}" for n, one in enumerate(TAKEN)])
def test_what_a_type_takes(type_: str, value: Any, expected: Any) -> None:
    found = of(type_, value)
    assert (found, type(found)) == (expected, type(expected))
    if isinstance(found, datetime):
        assert found.tzinfo is expected.tzinfo


@pytest.mark.parametrize(("type_", "value", "said"), REFUSED, ids=[f"{one[0]}-{n}" for n, one in enumerate(REFUSED)])
def test_what_a_type_refuses(type_: str, value: Any, said: str) -> None:
    with pytest.raises(Misfit) as error:
        of(type_, value)
    assert said in str(error.value)
    assert "truncate" not in str(error.value), "that is a setting for bodies"


@pytest.mark.parametrize("type_", ["STRING", "BINARY", "BOOLEAN", "INT", "FLOAT", "DECIMAL", "DATE", "TIMESTAMP"])
def test_nothing_is_null(type_: str) -> None:
    assert of(type_, None) is None


@pytest.mark.more(but=5)
@pytest.mark.parametrize(
    "type_", ["SMALLINT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(9,3)", "TIMESTAMP", "TIMESTAMP_NTZ"]
)
@given(number=st.integers(-(2**70), 2**70) | st.decimals(allow_nan=False, allow_infinity=False, places=7))
def test_a_number_means_what_it_means_in_a_body(type_: str, number: int | Decimal) -> None:
    schema = read_columns(f"a {type_}", "state")
    read = BodyReader(schema).read(pa.array([f'{{"a":{number}}}'.encode()]))
    try:
        found = taken(schema.field("a").type)(number)
    except Misfit:
        assert read.reasons is not None
        return
    if read.reasons is None:
        assert found == read.columns.column("a")[0].as_py()
    else:
        assert type_ in ("SMALLINT", "BIGINT"), "which take 2.0 of a handler alone"
        assert found == number
