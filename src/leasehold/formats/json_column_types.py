"""What Arrow's JSON reader is asked for in place of each type, and what is made of that.

Owns the types that Arrow's reader takes more for, or other things, than `json_values` does: these are read in another
form, looked through, and only then cast. Promises the positions of all values that are not to be vouched for,
however deeply nested: positions of rows, not of values.

With `cut`, what timestamps have beyond microseconds is cut off: they are read as text, and cast.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import nulled, true_places

Strict = Callable[[Any], tuple[Any, list[int]]]
"""From what Arrow's reader made to the column, and the rows of it that are not to be vouched for, if there are any."""

_WIDE = 76  # digits of the widest decimal
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
_DAY = 86_400_000_000  # microseconds
_DAYS = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_HOURS, _MINUTES = "([01][0-9]|2[0-3])", "[0-5][0-9]"
_ZONES = f"(Z|[+-]{_HOURS}(:?{_MINUTES})?)"
_DATES = f"^{_DAYS}$"
_TIMES = rf"^{_DAYS}([T ]{_HOURS}(:{_MINUTES}(:{_MINUTES}([.][0-9]{{1,6}})?)?)?{_ZONES}?)?$"
_ZONED = rf"[T ].*{_ZONES}$"


def holds(test: Callable[[pa.DataType], bool], type_: pa.DataType) -> bool:
    """Whether the type, or one in it, is such a type."""
    return test(type_) or any(holds(test, type_.field(place).type) for place in range(type_.num_fields))


def read_as(type_: pa.DataType, cut: bool) -> pa.DataType:
    """The type that Arrow's reader is asked for in place of this one."""
    if types.is_decimal(type_):
        return pa.decimal256(_WIDE - type_.scale, type_.scale)
    if types.is_date(type_) or types.is_binary(type_) or (types.is_timestamp(type_) and (cut or type_.tz is None)):
        return pa.string()
    return _nested(type_, partial(read_as, cut=cut))


def strict(type_: pa.DataType, cut: bool) -> Strict:
    """What makes a column of this type of what has been read as `read_as(type_, cut)`."""
    if types.is_struct(type_):
        return partial(_strict_struct, type_=type_, inner=[strict(field.type, cut) for field in type_])
    if types.is_list(type_):
        return partial(_strict_list, type_=type_, inner=strict(type_.value_type, cut))
    if types.is_floating(type_):
        return _finite
    if types.is_decimal(type_):
        return partial(_within_precision, type_=type_)
    if types.is_binary(type_):
        return _from_base64
    if types.is_date(type_):
        return partial(_cast, type_=type_, number=pa.int32(), least=_FIRST_DAY, most=_LAST_DAY)
    if types.is_timestamp(type_):
        times = partial(_cast, type_=type_, number=pa.int64(), least=_FIRST_DAY * _DAY, most=(_LAST_DAY + 1) * _DAY - 1)
        return partial(_cut_times, zoned=type_.tz is not None, times=times) if cut else times
    return lambda column: (column, [])


def loosely_read_as(type_: pa.DataType, cut: bool) -> pa.DataType:
    """A type that Arrow's reader makes of nearly all that it would refuse for this one."""
    if types.is_integer(type_) or types.is_decimal(type_):
        return pa.decimal256(_WIDE, _WIDE // 2)
    return pa.string() if types.is_timestamp(type_) else _nested(read_as(type_, cut), partial(loosely_read_as, cut=cut))


def unfit(column: Any, type_: pa.DataType, cut: bool) -> list[int]:
    """The rows of what was read as `loosely_read_as(type_, cut)` that Arrow's reader would refuse, most of them."""
    if types.is_struct(type_):
        return sorted({row for place, field in enumerate(type_) for row in unfit(column.field(place), field.type, cut)})
    if types.is_list(type_):
        return _rows_of(unfit(column.values, type_.value_type, cut), column)
    if types.is_timestamp(type_) and type_.tz is not None:
        column = _without_excess(column) if cut else column
        zoned = pc.match_substring_regex(column, _ZONED)
        plain = uncastable(nulled(column, zoned), pa.timestamp("us"))
        return sorted({*plain, *uncastable(nulled(column, pc.invert(zoned)), type_)})
    if types.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        return true_places(pc.or_(_out_of(column, -most, most - 1), pc.not_equal(pc.round(column), column)))
    if types.is_decimal(type_):
        most = min(10 ** (type_.precision - type_.scale), 10 ** (_WIDE // 2) - 1)
        return true_places(pc.or_(_out_of(column, -most, most), pc.not_equal(pc.round(column, type_.scale), column)))
    return []


def uncastable(column: Any, type_: pa.DataType) -> list[int]:
    """The positions of texts that have no cast to the type, a date or a timestamp."""
    try:
        column.cast(type_)
        return []
    except pa.ArrowInvalid:
        shapely = pc.match_substring_regex(column, _DATES if types.is_date(type_) else _TIMES)
    shapeless = pc.invert(shapely)
    return sorted({*true_places(shapeless), *_bisected(nulled(column, shapeless), type_)})


def _bisected(column: Any, type_: pa.DataType, first: int = 0) -> list[int]:
    try:
        column.cast(type_)
    except pa.ArrowInvalid:
        half = len(column) // 2
        if not half:
            return [first]
        return _bisected(column[:half], type_, first) + _bisected(column[half:], type_, first + half)
    return []


def _out_of(column: Any, least: int, most: int) -> Any:
    bounds = [pa.scalar(Decimal(bound), column.type) for bound in (least, most)]
    return pc.or_(pc.less(column, bounds[0]), pc.greater(column, bounds[1]))


def _nested(type_: pa.DataType, inner: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, inner(field.type)) for field in type_])
    return pa.list_(inner(type_.value_type)) if types.is_list(type_) else type_


def _strict_struct(column: Any, type_: pa.DataType, inner: list[Strict]) -> tuple[Any, list[int]]:
    made = [strict(column.field(place)) for place, strict in enumerate(inner)]
    doubtful = sorted({row for _, rows in made for row in rows})
    if doubtful:
        return column, doubtful
    return pa.StructArray.from_arrays([part for part, _ in made], fields=list(type_), mask=column.is_null()), []


def _strict_list(column: Any, type_: pa.DataType, inner: Strict) -> tuple[Any, list[int]]:
    made, doubtful = inner(column.values)
    if doubtful:
        return column, _rows_of(doubtful, column)
    return pa.ListArray.from_arrays(column.offsets, made, type=type_, mask=column.is_null()), []


def _rows_of(items: list[int], column: Any) -> list[int]:
    """The rows of a list column whose values these are."""
    return sorted(set(pc.list_parent_indices(column).take(pa.array(items, pa.int64())).to_pylist()))


def _finite(column: Any) -> tuple[Any, list[int]]:
    finite = pc.is_finite(column)
    return column, [] if pc.all(finite).as_py() is not False else true_places(pc.invert(finite))


def _within_precision(column: Any, type_: pa.DataType) -> tuple[Any, list[int]]:
    bound = pa.scalar(Decimal(10 ** (type_.precision - type_.scale)), pa.decimal256(_WIDE, type_.scale))
    doubtful = true_places(pc.greater_equal(pc.abs(column), bound))
    return (column, doubtful) if doubtful else (column.cast(type_), [])


def _from_base64(column: Any) -> tuple[Any, list[int]]:
    values: list[bytes | None] = []
    doubtful = []
    for place, text in enumerate(column.to_pylist()):
        try:
            value = None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            value = None
        if value is not None and base64.b64encode(value).decode() != text:
            value = None
        if value is None and text is not None:
            doubtful.append(place)
        values.append(value)
    return pa.array(values, pa.binary()), doubtful


def _cut_times(column: Any, zoned: bool, times: Strict) -> tuple[Any, list[int]]:
    text = _without_excess(column)
    if doubtful := true_places(pc.invert(pc.match_substring_regex(text, _TIMES))):
        return column, doubtful
    if zoned:  # a cast wants a zone everywhere
        midnight = pc.if_else(pc.match_substring_regex(text, _DATES), "T00:00Z", "Z")
        zone = pc.if_else(pc.match_substring_regex(text, _ZONED), "", midnight)
        text = pc.binary_join_element_wise(text, zone, "")
    return times(text)


def _without_excess(column: Any) -> Any:
    """Times as they are written, without the digits of a second beyond microseconds."""
    return pc.replace_substring_regex(column, r"([.][0-9]{6})[0-9]+", r"\1")


def _cast(column: Any, type_: pa.DataType, number: pa.DataType, least: int, most: int) -> tuple[Any, list[int]]:
    doubtful = uncastable(column, type_)
    if doubtful:
        return column, doubtful
    made = column.cast(type_)
    numbers = made.cast(number)
    return made, true_places(pc.or_(pc.less(numbers, least), pc.greater(numbers, most)))
