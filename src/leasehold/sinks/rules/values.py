"""From Arrow columns to plain values, in the form in which SQLite stores them.

Owns the mapping of types, and of each the form that keys, values of `sequence_by` and JSON have in every database. A
database with types of its own (a date that is no text) takes its rows from Arrow, as `rules.rows.Rows.data` has them,
and only what it remembers of keys from here. Promises that what has an order keeps it: timestamps become UTC text of
fixed width (`2026-01-31T08:00:00.000000Z`; without the Z where Spark's type has no time zone), dates `2026-01-31`. A
row whose value has no such form (a year outside 1 to 9999, a time finer than microseconds, text that is not UTF-8) is
reported as a problem of that row, never altered. Refuses types without a form: intervals, times of day, unsigned
64-bit integers.

| Arrow | SQLite | | Arrow | SQLite |
|---|---|---|---|---|
| integers, boolean | INTEGER | | decimal | TEXT, all digits |
| float, double | REAL, NaN as NULL | | date, timestamp | TEXT, as above |
| string | TEXT | | struct, list, map | TEXT, JSON |
| binary | BLOB | | null | NULL |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import nulled, true_places

Column = Any
"""A `pyarrow.Array` or `pyarrow.ChunkedArray`."""

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_DAYS = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_LITERAL, _PUNCTUATION = 64, 16
"""Bytes that a number or a time comes to at most, and what stands around a value."""


class ColumnKind(StrEnum):
    """What a column is stored as."""

    INTEGER = "integer"
    REAL = "floating point"
    TEXT = "string"
    BLOB = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"
    JSON = "nested"
    NOTHING = "void"


def kind_of(type_: pa.DataType) -> ColumnKind | None:
    """What a column of this Arrow type is stored as, `None` if it cannot be."""
    if types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if types.is_boolean(type_) or (types.is_integer(type_) and not types.is_uint64(type_)):
        return ColumnKind.INTEGER
    if types.is_nested(type_):
        inner = [type_.field(index).type for index in range(type_.num_fields)]
        return ColumnKind.JSON if not types.is_union(type_) and all(map(kind_of, inner)) else None
    for test, kind in (
        (types.is_floating, ColumnKind.REAL),
        (_is_text, ColumnKind.TEXT),
        (_is_binary, ColumnKind.BLOB),
        (types.is_date, ColumnKind.DATE),
        (types.is_timestamp, ColumnKind.TIMESTAMP),
        (types.is_decimal, ColumnKind.DECIMAL),
        (types.is_null, ColumnKind.NOTHING),
    ):
        if test(type_):
            return kind
    return None


def _is_text(type_: pa.DataType) -> bool:
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(
        types.is_binary(type_)
        or types.is_large_binary(type_)
        or types.is_binary_view(type_)
        or types.is_fixed_size_binary(type_)
    )


@dataclass(frozen=True, slots=True)
class Converted:
    """A column's values in order, and what is wrong with those that have no such form, by index."""

    values: Sequence[Any]
    problems: Mapping[int, str] = field(default_factory=dict)


def convert(column: Column) -> Converted:
    """The values of a column whose type has a `ColumnKind`."""
    try:
        return Converted(stored(column), out_of_range(column))
    except UnicodeDecodeError:
        pass
    values: list[Any] = []
    problems: dict[int, str] = {}
    for index in range(len(column)):
        try:
            values.extend(stored(column.slice(index, 1)))
        except UnicodeDecodeError:
            values.append(None)
            problems[index] = "is not UTF-8 text"
    return Converted(values, problems)


@dataclass(frozen=True, slots=True)
class Unstorable:
    """What of a column cannot be stored, by index: where it is null (or NaN), and what is wrong with other values."""

    problems: Mapping[int, str] = field(default_factory=dict)
    nulls: Sequence[int] = ()


def unstorable(column: Column) -> Unstorable:
    """What `convert` would find, without a conversion."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        column.validate(full=True)
        problems = out_of_range(column)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        problems = dict(convert(column).problems)
    return Unstorable(problems, true_places(pc.is_null(column, nan_is_null=True)))


def as_json(columns: Mapping[str, Column]) -> list[str]:
    """The rows of these columns as JSON objects; bytes that are not UTF-8 show as replacement characters."""
    plain = [_plain(column, lossy=True) for column in columns.values()]
    return [dumps(dict(zip(columns, row, strict=True))) for row in zip(*plain, strict=True)]


def nested_parts(column: Column) -> list[pa.Array]:
    """What a nested column is made of; more than that where it is a slice."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if types.is_map(column.type):
        return [column.keys, column.items]
    if types.is_struct(column.type):
        return list(column.flatten())
    return [column.values if types.is_fixed_size_list(column.type) else column.flatten()]


def most_json(column: Column) -> int:
    """Bytes that the JSON of all values of a column comes to at most, as text or as Postgres keeps it."""
    type_ = column.type
    if types.is_dictionary(type_):
        column = column.cast(type_.value_type)
    if not types.is_nested(type_):
        text = types.is_primitive(type_) or types.is_boolean(type_) or types.is_decimal(type_) or types.is_null(type_)
        return len(column) * _LITERAL + (0 if text else 6 * int(column.nbytes))  # a character may become an escape
    names = 0
    if types.is_struct(type_):
        names = sum(6 * len(type_.field(place).name.encode()) + _PUNCTUATION for place in range(type_.num_fields))
    return len(column) * (names + _PUNCTUATION) + sum(map(most_json, nested_parts(column)))


def order_kind(type_: pa.DataType) -> str | None:
    """What values of `sequence_by` are compared as; values of one such kind can be compared with each other."""
    if (types.is_integer(type_) and not types.is_uint64(type_)) or types.is_floating(type_):
        return "number"
    kind = kind_of(type_)
    return str(kind) if kind in (ColumnKind.TEXT, ColumnKind.DATE, ColumnKind.TIMESTAMP) else None


def order_values(column: Column) -> Converted:
    """Values of `sequence_by` in a form whose order is theirs: days and microseconds for dates and timestamps."""
    finer = _too_fine(column)
    if types.is_timestamp(column.type):
        column = _microseconds(column)
    elif types.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    converted = convert(column)
    if None not in converted.values and not finer:
        return converted
    nulls = {index: "is null or NaN" for index, value in enumerate(converted.values) if value is None}
    return Converted(converted.values, {**nulls, **converted.problems, **finer})


def stored(column: Column) -> list[Any]:
    kind = kind_of(column.type)
    if kind is ColumnKind.JSON:
        return [None if value is None else dumps(value) for value in _plain(column, lossy=False)]
    if kind is ColumnKind.INTEGER and types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return _scalars(column, lossy=False)


def _scalars(column: Column, *, lossy: bool) -> list[Any]:
    """The values of a column that is not nested, as SQLite stores them (booleans as they are)."""
    kind = kind_of(column.type)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kind is ColumnKind.REAL:
        column = column.cast(pa.float64())
        not_a_number = pc.is_nan(column)
        if pc.any(not_a_number).as_py():
            column = nulled(column, not_a_number)
    elif kind is ColumnKind.DATE:
        column = column.cast(pa.date32()).cast(pa.string())
    elif kind is ColumnKind.TIMESTAMP:
        column = timestamps(column)
    elif kind is ColumnKind.DECIMAL:
        texts = column.cast(pa.string()).to_pylist()
        # Arrow writes small numbers with an exponent.
        return [format(Decimal(text), "f") if text is not None and "E" in text else text for text in texts]
    elif kind is ColumnKind.TEXT and lossy:
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "replace") for value in values]
    values = column.to_pylist()
    return values if isinstance(values, list) else list(values)


def _microseconds(column: Column) -> Column:
    unit = pa.timestamp("us", tz=column.type.tz)
    return column.cast(unit, safe=False).cast(pa.int64())


def timestamps(column: Column) -> Column:
    # Through int64, since Arrow's own conversions of zoned timestamps need a time zone database.
    text = _microseconds(column).cast(pa.timestamp("us")).cast(pa.string())
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return text if column.type.tz is None else pc.binary_join_element_wise(text, "Z", "")


def out_of_range(column: Column) -> dict[int, str]:
    """Dates and timestamps whose text would not be of the width that keeps their order, or would be cut to it."""
    return _too_fine(column) | _outside_of_years(column)


def _too_fine(column: Column) -> dict[int, str]:
    if not types.is_timestamp(column.type) or column.type.unit != "ns":
        return {}
    whole = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(column.type)
    return dict.fromkeys(true_places(pc.not_equal(column, whole)), "is finer than microseconds")


def _outside_of_years(column: Column) -> dict[int, str]:
    if types.is_date(column.type):
        numbers, first, last = column.cast(pa.date32()).cast(pa.int32()), _FIRST_DAY, _LAST_DAY
    elif types.is_timestamp(column.type) and column.type.unit in _DAYS:  # in nanoseconds all are in 1677 to 2262
        day = _DAYS[column.type.unit]
        numbers, first, last = column.cast(pa.int64()), _FIRST_DAY * day, (_LAST_DAY + 1) * day - 1
    else:
        return {}
    outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
    if not pc.any(outside).as_py():
        return {}
    return dict.fromkeys(true_places(outside), "is outside the years 1 to 9999")


def _plain(column: Column, *, lossy: bool) -> list[Any]:
    """The values of a column as JSON knows them, however deeply nested."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _plain(chunk, lossy=lossy)]
    type_ = column.type
    if types.is_struct(type_):
        names = [type_.field(index).name for index in range(type_.num_fields)]
        fields = [_plain(part, lossy=lossy) for part in column.flatten()]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)] or [{}] * len(column)
        return _with_nulls(column, rows)
    if types.is_map(type_):
        keys, items = _plain(column.keys, lossy=lossy), _plain(column.items, lossy=lossy)
        pairs = [(key if isinstance(key, str) else dumps(key), item) for key, item in zip(keys, items, strict=True)]
        offsets = column.offsets.to_pylist()
        return _with_nulls(column, [dict(pairs[a:b]) for a, b in pairwise(offsets)])
    if types.is_nested(type_):
        inner = iter(_plain(column.flatten(), lossy=lossy))  # leaves out what is below a null
        lengths = pc.list_value_length(column).to_pylist()
        return [None if length is None else [next(inner) for _ in range(length)] for length in lengths]
    if types.is_floating(type_):
        return [_finite(value) for value in column.cast(pa.float64()).to_pylist()]
    values = _scalars(column, lossy=lossy)
    if kind_of(type_) is ColumnKind.BLOB:
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    return values


def _with_nulls(column: Column, rows: list[Any]) -> list[Any]:
    if not column.null_count:
        return rows
    return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _finite(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities; Spark's `to_json` writes their names."""
    if value is None or abs(value) < float("inf"):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def text_in_json(value: object) -> str:
    """What a decimal, a date or a time of Python is in JSON, for `dumps`."""
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}"
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} in it")


def dumps(value: object, default: Callable[[Any], object] | None = None) -> str:
    """A value as JSON, in the one form in which all of it is kept; `default` makes a text of what JSON has not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=default)
