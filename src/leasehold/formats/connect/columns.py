"""The columns of rows that Kafka Connect has written in JSON: how a value is read, and what is made of it.

Owns what a column takes of each type that Connect states, and of a value of which no type is stated. A number that
stands for a time says in no unit what it is, and a decimal is bytes in base64: so they are read as what they are on the
wire, and made into what their column has by the stated type, as values of other formats that have types (`typed`).
Without a stated type a TIMESTAMP is text, and a DECIMAL is refused unless somebody says that it is no base64: digits
may be either.

Promises that no value is altered to make it fit, and a reason for each that does not. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.formats.connect.types import OPAQUE, VARIABLE_DECIMAL, ConnectType
from leasehold.formats.json_values import Convert, converter
from leasehold.formats.misfits import Misfit
from leasehold.formats.typed.columns import micros, within
from leasehold.formats.typed.types import ValueType
from leasehold.formats.typed.values import DAYS, MICROSECONDS, NO_DIGIT, decimal_with_scale, taken

Fields = Mapping[str, ConnectType]
_Way = tuple[pa.DataType, Convert | None]
"""As what type a value is read, and what makes of it that of the column; None where it is that."""
_Quick = Callable[[pa.Array], pa.Array]
"""What makes many values at once, and raises `ArrowInvalid` where one of them may not fit."""
_FACTORS = {"local-timestamp-millis": 1_000, "local-timestamp-micros": 1}
_IN_UTC = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?Z$"  # RFC 3339
_UNTYPED_DECIMAL = (
    "is a decimal of which the body does not say the type, so digits may be base64: have the connector send schemas, "
    'or state decimal_handling_mode = "string"'
)


class WireColumns:
    """Columns of a row, by the types that their writer states; see `stated_columns` and `typed_columns`.

    `wire` are the columns to read in their place.
    """

    def __init__(self, columns: pa.Schema, ways: Sequence[_Way], quick: Sequence[_Quick | None]) -> None:
        self._columns, self._converts, self._quick = columns, [way[1] for way in ways], quick
        self.wire = pa.schema([pa.field(one.name, way[0]) for one, way in zip(columns, ways, strict=True)])

    def of(self, values: Sequence[pa.Array]) -> tuple[list[pa.Array], dict[int, str]]:
        """The columns, from those that were read as `wire`, and why a row does not fit them, by its place."""
        reasons: dict[int, str] = {}
        ways = zip(values, self._columns, self._converts, self._quick, strict=True)
        return [_converted(*way, reasons) for way in ways], reasons


def stated_columns(columns: pa.Schema, fields: Fields | None, *, plain_decimals: bool, cut: bool) -> WireColumns:
    """Columns of a row in JSON whose `fields` have these types; None where the writer states none.

    With `plain_decimals`, a decimal without a type is a number, or text that is one. `cut` cuts times to microseconds.
    """
    ways = _Ways(plain_decimals and fields is None, cut)
    if fields is None:
        untyped = [ways.untyped(one.type) for one in columns]
        return WireColumns(columns, untyped, [_quick_text(one.type) for one in columns])
    stated = [fields.get(one.name, OPAQUE) for one in columns]
    return WireColumns(
        columns,
        [ways.of(type_, one.type) for type_, one in zip(stated, columns, strict=True)],
        [_quick(type_, one.type) for type_, one in zip(stated, columns, strict=True)],
    )


def typed_columns(columns: pa.Schema) -> WireColumns:
    """Columns of a row in a format whose reader makes values of them by itself."""
    return WireColumns(columns, [(one.type, None) for one in columns], [None] * len(columns))


def _converted(
    values: pa.Array,
    column: pa.Field,
    convert: Convert | None,
    quick: _Quick | None,
    reasons: dict[int, str],
) -> pa.Array:
    if convert is None or values.null_count == len(values):
        return values.cast(column.type) if convert is None else pa.nulls(len(values), column.type)
    if quick is not None:
        try:
            return quick(values)
        except pa.ArrowInvalid:
            pass  # one of them does not fit
    made: list[Any] = []
    for place, value in enumerate(values.to_pylist()):
        try:
            made.append(None if value is None else convert(value))
        except Misfit as error:
            made.append(None)
            reasons.setdefault(place, error.within(column.name).reason)
    return pa.array(made, column.type)


def _quick(stated: ConnectType, type_: pa.DataType) -> _Quick | None:
    if stated.logical == "date" and types.is_date(type_):
        return lambda values: within(values, DAYS).cast(pa.int32()).cast(type_)
    if stated.logical in _FACTORS and types.is_timestamp(type_):
        return micros(_FACTORS[stated.logical], type_)
    return _quick_text(type_) if stated.kind == "string" else None


def _quick_text(type_: pa.DataType) -> _Quick | None:
    """The same of text without a type: times in UTC, as Debezium writes them."""
    if not types.is_timestamp(type_) or type_.tz is None:
        return None

    def read(values: pa.Array) -> pa.Array:
        if not pc.all(pc.match_substring_regex(values, _IN_UTC)).as_py():
            raise pa.ArrowInvalid("a text that is no such time")
        return within(values.cast(type_).cast(pa.int64()), MICROSECONDS).cast(type_)

    return read


class _Ways:
    def __init__(self, plain_decimals: bool, cut: bool) -> None:
        self._plain_decimals, self._cut = plain_decimals, cut

    def untyped(self, type_: pa.DataType) -> _Way:
        """Of a value without a type."""
        if types.is_struct(type_):
            return _struct(type_, [self.untyped(one.type) for one in type_])
        if types.is_list(type_):
            return _list(self.untyped(type_.value_type))
        if types.is_map(type_):
            return _map(type_, self.untyped(type_.item_type))
        if types.is_timestamp(type_) and type_.tz:
            return pa.string(), converter(type_, cut=self._cut)
        if types.is_decimal(type_) and not self._plain_decimals:
            return pa.string(), _refused(_UNTYPED_DECIMAL)
        return type_, None

    def of(self, stated: ConnectType, type_: pa.DataType) -> _Way:
        """Of a value of this type."""
        if stated.name == VARIABLE_DECIMAL and stated.kind == "record" and not types.is_struct(type_):
            wire = pa.struct([("scale", pa.int32()), ("value", pa.binary())])
            return wire, lambda value: decimal_with_scale(value["scale"], value["value"], type_, cut=self._cut)
        if stated.kind == "record" and types.is_struct(type_):
            return _struct(type_, [self.of(stated.fields.get(one.name, OPAQUE), one.type) for one in type_])
        if stated.items is not None and stated.kind == "array" and types.is_list(type_):
            return _list(self.of(stated.items, type_.value_type))
        if stated.items is not None and stated.kind == "map" and types.is_map(type_):
            return _map(type_, self.of(stated.items, type_.item_type))
        if not stated.kind or types.is_nested(type_) or stated.kind in ("record", "array", "map"):
            return self.untyped(type_)
        return self._leaf(stated, type_)

    def _leaf(self, stated: ConnectType, type_: pa.DataType) -> _Way:
        if stated.kind == "bytes":
            return pa.binary(), _with_bytes(stated, taken(stated, type_, cut=self._cut), type_)
        if stated.logical and not types.is_integer(type_):
            return pa.int64(), taken(stated, type_, cut=self._cut)
        if types.is_temporal(type_) and stated.kind != "string":
            return pa.string(), _refused("is no time: its schema does not say of which unit")
        return self.untyped(type_) if types.is_timestamp(type_) else (type_, None)


def _with_bytes(leaf: ValueType, convert: Convert | None, type_: pa.DataType) -> Convert | None:
    """The same, which refuses a decimal without bytes."""
    if convert is None or leaf.logical != "decimal" or types.is_binary(type_):
        return convert

    def read(raw: bytes) -> Any:
        if not raw:
            raise Misfit(NO_DIGIT)
        return convert(raw)

    return read


def _refused(what: str) -> Convert:
    def refuse(value: Any) -> Any:
        raise Misfit(what)

    return refuse


def _struct(type_: pa.StructType, ways: Sequence[_Way]) -> _Way:
    wire = pa.struct([pa.field(one.name, way[0]) for one, way in zip(type_, ways, strict=True)])
    converts = [(one.name, way[1]) for one, way in zip(type_, ways, strict=True)]
    if all(convert is None for _, convert in converts):
        return wire, None

    def convert_all(value: Mapping[str, Any]) -> Any:
        return {name: _inner(value[name], convert, name) for name, convert in converts}

    return wire, convert_all


def _list(way: _Way) -> _Way:
    wire, convert = way
    if convert is None:
        return pa.list_(wire), None
    return pa.list_(wire), lambda values: [_inner(one, convert, place) for place, one in enumerate(values)]


def _map(type_: pa.MapType, way: _Way) -> _Way:
    wire, convert = way
    whole = pa.map_(type_.key_type, wire)
    return whole, convert and (lambda pairs: [(name, _inner(one, convert, name)) for name, one in pairs])


def _inner(value: Any, convert: Convert | None, step: str | int) -> Any:
    if value is None or convert is None:
        return value
    try:
        return convert(value)
    except Misfit as error:
        raise error.within(step) from None
