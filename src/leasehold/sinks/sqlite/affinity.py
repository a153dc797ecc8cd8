"""What a column of SQLite does to a value that it is given, by what it is declared as.

Owns the rules of affinity (https://sqlite.org/datatype3.html): SQLite takes any value in any column, and makes a number
of a text, or rounds one, without a word. Pure. `shape` asks for whole columns, `related` for one value of a program.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from leasehold.formats.misfits import Misfit, shown
from leasehold.formats.python_values import taken

EXACT_DIGITS = 15
"""SQLite keeps this many decimal digits of a number exactly."""
_LONGEST = 2**63
"""Whole numbers below this are kept to the last digit."""
_TAKES = {"INTEGER": taken(pa.int64()), "REAL": taken(pa.float64()), "TEXT": taken(pa.string())}
_TIME, _LOCAL_TIME = taken(pa.timestamp("us", "UTC")), taken(pa.timestamp("us"))
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)


def affinity(declared: str, *, strict: bool) -> str:
    """The rules of https://sqlite.org/datatype3.html, in their order."""
    name = declared.upper()
    if strict and name == "ANY":
        return "ANY"
    for words, found in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(word in name for word in words):
            return found
    return "NUMERIC" if name else "BLOB"


def kept(of: str, value: Any) -> Any:
    """A value of a program as a column of this affinity gives it back. Raises `Misfit` for one that it would alter.

    Dates, times and decimals have a text of their own (`rules.values`), which a column of texts holds.
    """
    if isinstance(value, datetime):
        return (_LOCAL_TIME if value.tzinfo is None else _TIME)(value)
    if isinstance(value, date) or (of == "TEXT" and isinstance(value, Decimal)):
        return value
    if of == "NUMERIC":
        return _as_a_number(value)
    if of not in _TAKES or (of == "INTEGER" and isinstance(value, bool)):
        return value
    return _TAKES[of](value)


def _as_a_number(value: Any) -> Any:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        raise Misfit(f"is {shown(value)}, a text of which the column makes a number: declare it as TEXT")
    if not isinstance(value, Decimal) or not value.is_finite():
        return value
    if abs(value) < _LONGEST and value == value.to_integral_value():
        return int(value)
    if len(value.normalize().as_tuple().digits) > EXACT_DIGITS:
        raise Misfit(f"is {shown(value)}, and the column keeps {EXACT_DIGITS} digits: declare it as TEXT")
    return value
