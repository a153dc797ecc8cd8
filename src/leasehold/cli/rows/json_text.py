"""Arrow columns as JSON text, and rows of them as JSON objects, without a Python loop over rows.

The rules, also those of `leasehold send`:

    integer, boolean             the JSON number, `true` or `false`
    float                        the shortest number that reads back the same; NaN is null; infinity is refused
    decimal                      a string: a JSON number is a double to most readers, and would be rounded
    text                         a string
    date, time, timestamp        a string, ISO 8601; a timestamp with a time zone is in UTC and ends in Z; those that
                                 are no time of a day, or not in the years 1 to 9999, are refused
    binary                       a string, base64
    list, struct, map            an array, an object, an object (the keys of a map must be text)
    null                         null

Any other type is refused. Pure; an array of text has no nulls: null is the text `null`.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import nulled

_DAY = {unit: 86_400 * 10**power for unit, power in {"s": 0, "ms": 3, "us": 6, "ns": 9}.items()}
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))


class NotJson(ValueError):
    """A value that JSON cannot hold; `row` is its place in the array, or `None` where the whole type is refused."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.row = reason, row


def objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """One JSON object a row, from columns that are JSON text already."""
    pieces: list[Any] = []
    for name, column in zip(names, columns, strict=True):
        pieces += [f"{',' if pieces else '{'}{json.dumps(name, ensure_ascii=False)}:", column]
    return pc.binary_join_element_wise(*pieces, "}", "")


def as_json(column: pa.Array) -> pa.Array:
    """The values of a column as JSON text. Raises `NotJson`."""
    kind = column.type
    if types.is_dictionary(kind):
        return as_json(column.dictionary_decode())
    if types.is_integer(kind) or types.is_boolean(kind):
        text = column.cast(pa.string())
    elif types.is_floating(kind):
        text = _floats(column)
    elif (plain := _as_text(column)) is not None:
        text = quoted(plain)
    elif types.is_nested(kind) or types.is_null(kind):
        text = _nested(column)
    else:
        raise NotJson(f"its type {kind} has no place in JSON: cast it to text or a number first")
    return text.fill_null("null")


def as_key(column: pa.Array) -> pa.Array:
    """The values of a column as text, as in the body but without quotes; null stays null. Raises `NotJson`."""
    if types.is_dictionary(column.type):
        return as_key(column.dictionary_decode())
    plain = _as_text(column)
    if plain is None:
        text = as_json(column)
        plain = nulled(text, pc.equal(text, "null"))
    return plain


def quoted(text: pa.Array) -> pa.Array:
    """Text as JSON strings; null stays null."""
    special = pc.match_substring_regex(text, r'["\\\x00-\x1f]')
    plain = pc.binary_join_element_wise('"', text, '"', "")
    if not pc.any(special).as_py():
        return plain
    escaped = [json.dumps(value, ensure_ascii=False) for value in text.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special.fill_null(False), pa.array(escaped, pa.string()))


def _as_text(column: pa.Array) -> pa.Array | None:
    """The values that JSON writes as strings, without quotes; `None` for a type that it does not."""
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        column.validate(full=True)  # a file may hold text that is not UTF-8
        return column.cast(pa.string())
    if types.is_decimal(kind):
        return column.cast(pa.string())
    if types.is_temporal(kind):
        _check_range(column)
    if types.is_date32(kind) or types.is_time(kind):
        return column.cast(pa.string())
    if types.is_date64(kind):
        return column.cast(pa.date32(), safe=False).cast(pa.string())
    if types.is_timestamp(kind):
        # The numbers of a timestamp are UTC whatever its zone; so no time zone database is needed.
        text = pc.strftime(column.cast(pa.int64()).cast(pa.timestamp(kind.unit)), "%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(text, "Z", "") if kind.tz else text
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        values = column.to_pylist()
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in values], pa.string())
    return None


def _check_range(column: pa.Array) -> None:
    """Refuse a date outside of the years 1 to 9999, and a time outside of a day: Arrow writes any text for those."""
    kind = column.type
    if types.is_time(kind):
        first, end, what = 0, _DAY[kind.unit], "a time outside of a day"
    elif types.is_date(kind) or types.is_timestamp(kind):
        day = 1 if types.is_date32(kind) else _DAY["ms" if types.is_date64(kind) else kind.unit]
        first, end, what = _FIRST_DAY * day, (_LAST_DAY + 1) * day, "outside of the years 1 to 9999"
    else:
        return
    numbers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    bounds = (pc.less(numbers, max(first, -(2**63))), pc.greater(numbers, min(end - 1, 2**63 - 1)))
    wrong = pc.or_(*bounds)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise NotJson(f"the number {numbers[row].as_py()} of type {kind} is {what}", row)


def _floats(column: pa.Array) -> pa.Array:
    infinite = pc.is_inf(column)
    if pc.any(infinite).as_py():
        raise NotJson("JSON has no word for infinity", pc.index(infinite, True).as_py())
    numbers = nulled(column, pc.is_nan(column))
    # Arrow writes 2.0 as 2, which a reader would take for an integer.
    return pc.replace_substring_regex(numbers.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")


def _nested(column: pa.Array) -> pa.Array:
    texts = []
    for row, item in enumerate(column):
        try:
            value = _simple(item.as_py(maps_as_pydicts="strict"), row)
        except KeyError:
            raise NotJson("a map has a key twice", row) from None
        except NotJson:
            raise
        except (ValueError, OverflowError) as error:  # a field's name twice, a time that Python has not
            raise NotJson(f"it cannot be read ({error})", row) from None
        texts.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return pa.array(texts, pa.string())


def _simple(value: object, row: int) -> object:
    """A Python value as those that JSON knows, by the rules above."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):
                raise NotJson("JSON has no word for infinity", row)
            return None if math.isnan(value) else value
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case datetime():
            zone, value = value.tzinfo, value.astimezone(UTC) if value.tzinfo else value
            return value.replace(tzinfo=None).isoformat() + ("Z" if zone else "")
        case date() | time():
            return value.isoformat()
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise NotJson("the keys of a map are not text", row)
            return {key: _simple(item, row) for key, item in value.items()}
        case list():
            return [_simple(item, row) for item in value]
        case _:
            raise NotJson(f"a {type(value).__name__} has no place in JSON", row)
