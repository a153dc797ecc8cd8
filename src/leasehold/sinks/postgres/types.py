"""Which column of Postgres holds which type of a DataFrame, and how a value gets there.

Owns the mapping of types. A value travels as its *carrier*, the widest type of its kind, into the staging table, which
takes every value; from there it is cast to the column's type. What the column cannot hold (`Way.fits`) is known before,
and so is, of a whole Arrow column at a glance, that the column holds all of it (`Way.takes`). An array of one dimension
goes as its elements do. Which labels an enum has, each statement asks the server; those in `Enumeration` are what the
table had at the start of the batch.
Refuses a column that would alter values: fewer decimal places, a float for a double, a time of fewer digits. So it does
with a single value that a program gives (`taken_by`): Postgres rounds and cuts off where it casts, without a word.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.database.statements import sent
from leasehold.formats.json_values import Convert
from leasehold.formats.misfits import Misfit, shown
from leasehold.formats.python_values import not_exact, taken
from leasehold.sinks.postgres.array_text import list_of, literal
from leasehold.sinks.rules.values import Column, ColumnKind, kind_of, most_json

_INTEGERS = {"smallint": 15, "integer": 31, "bigint": 63}
_UUID = "'^[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$'"
_SPELLINGS = tuple(f"^[0-9{six}]{{8}}-([0-9{six}]{{4}}-){{3}}[0-9{six}]{{12}}$" for six in ("a-f", "A-F"))
"""Of UUIDs that are all written in one of these ways, those that differ as text are different."""
_LONGEST_JSON, _GROWTH = 2**28, 16
"""Bytes that a `jsonb` may have; and how many times those of its text it has at most: 32 for the 5 of `[1,1]`."""
_CARRIERS = {
    ColumnKind.INTEGER: "bigint",
    ColumnKind.REAL: "double precision",
    ColumnKind.TEXT: "text",
    ColumnKind.BLOB: "bytea",
    ColumnKind.DATE: "date",
    ColumnKind.DECIMAL: "numeric",
    ColumnKind.JSON: "text",
    ColumnKind.NOTHING: "text",
}
_FLAT = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "character varying": pa.string(),
    "character": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}
"""What a column declared so is in Arrow, for values that a program gives."""
_SHORT, _MOST_DIGITS = 38, 76  # of decimals in Arrow
_UNCUT = {"character varying": "varchar", "character": "bpchar", "bit": "varbit", "bit varying": "varbit"}
_TIMES = re.compile(r"(timestamp)\((\d)\)( with(?:out)? time zone)")
_TIMES_OF_DAY = re.compile(r"time(?:\((\d)\))? with(?:out)? time zone")
_FRACTION = re.compile(r"\.(\d*?)0*(?!\d)")
_ARRAY = "[]"
_MOST_LABELS = 20
"""Labels of an enum that a message names."""


def _any(_: Column) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An ENUM type: its number in the catalogue, and its labels in their order."""

    oid: int
    labels: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The labels, the first ones of many."""
        more = len(self.labels) - _MOST_LABELS
        return f"{', '.join(self.labels[:_MOST_LABELS])}{f' and {more} others' if more > 0 else ''}" or "none"


@dataclass(frozen=True, slots=True)
class Way:
    """From the carrier to the column: SQL of a condition and of a value, in which `{}` is the carrier's column.

    `fits` is None where every value fits. `held` is the value that the column has in the end, where that is another.
    `respells` says that several values of the carrier are one value of the column. `takes` says of values in Arrow that
    each fits, and that those which differ are different in the column too; False where that cannot be told at a glance.
    """

    cast: str
    fits: str | None = None
    held: str | None = None
    respells: bool = False
    takes: Callable[[Column], bool] = _any


def carrier_of(type_: pa.DataType) -> str:
    """The type of Postgres that takes every value of a type that has a `ColumnKind`."""
    kind = kind_of(type_)
    assert kind is not None
    if _is_boolean(type_):
        return "boolean"
    if kind is ColumnKind.TIMESTAMP:
        return "timestamp" if _unwrapped(type_).tz is None else "timestamptz"
    return _CARRIERS[kind]


def carrier_into(type_: pa.DataType, declared: str) -> str:
    """The type in which values of this type travel into a column declared so: arrays go as arrays, or else as JSON."""
    element = element_of(type_) if is_array(declared) else None
    return carrier_of(type_) if element is None else f"{carrier_of(element)}[]"


def is_array(declared: str) -> bool:
    """Whether a column declared so has arrays; a type whose name ends so is in quotes."""
    return declared.endswith(_ARRAY)


def declared_for(type_: pa.DataType, *, is_key: bool) -> str | None:
    """The type that a column of a new table is declared with, None where there is none."""
    kind, plain = kind_of(type_), _unwrapped(type_)
    if kind is None or kind is ColumnKind.NOTHING:
        return None
    if kind is ColumnKind.INTEGER and not _is_boolean(type_):
        return "integer" if plain.bit_width < 64 and plain != pa.uint32() else "bigint"
    if kind is ColumnKind.REAL:
        return "double precision" if types.is_float64(plain) else "real"
    if kind is ColumnKind.DECIMAL:
        return f"numeric({plain.precision},{plain.scale})"
    if kind is ColumnKind.JSON:
        return "text" if is_key else "jsonb"
    return carrier_of(type_)


def way(type_: pa.DataType, declared: str, enum: Enumeration | None = None) -> Way | None:
    """The way into a column declared so, as `format_type` writes it; None if it would not hold values as they are.

    `enum` is what the column's type is, or that of its elements, if it is one.
    """
    kind, plain = kind_of(type_), _unwrapped(type_)
    name, length, scale = _read(declared)
    cast = Way(f"CAST({{}} AS {sent(declared).replace('{', '{{').replace('}', '}}')})")
    if kind is None:
        return None
    if kind is ColumnKind.JSON and is_array(declared):
        return _of_elements(type_, declared, enum, cast.cast)
    if kind is ColumnKind.TEXT and enum is not None:
        return None if is_array(declared) else _to_label(cast.cast, enum)
    if kind is ColumnKind.NOTHING or (
        kind is not ColumnKind.JSON and carrier_of(type_) == _without_zone_words(declared)
    ):
        return cast
    if kind is ColumnKind.INTEGER and not _is_boolean(type_):
        if name in _INTEGERS:
            most = 2 ** _INTEGERS[name]
            bits = plain.bit_width - types.is_signed_integer(plain)
            return cast if bits <= _INTEGERS[name] else _between(cast, most)
        if name == "numeric":
            if (scale or 0) < 0:  # it would round to tens
                return None
            return cast if length is None else _between(cast, 10 ** (length - (scale or 0)))
        return cast if name == "double precision" and plain.bit_width <= 32 else None
    if kind is ColumnKind.REAL:
        return cast if name == "real" and not types.is_float64(plain) else None
    if kind is ColumnKind.DECIMAL and name == "numeric":
        if length is None:
            return cast
        whole = length - (scale or 0)
        if plain.scale > (scale or 0):
            return None
        return cast if plain.precision - plain.scale <= whole else _between(cast, Decimal(10) ** whole)
    if kind is ColumnKind.TEXT and name in ("character varying", "character"):
        # No cast: one that is written cuts the text off, and the one on the way into the column refuses it.
        if length is None:
            return Way("{}", held=cast.cast)
        return Way("{}", f"char_length({{}}) <= {length}", held=cast.cast, takes=lambda them: _no_longer(them, length))
    if kind is ColumnKind.TEXT and name == "uuid":
        return Way(cast.cast, f"{{}} ~ {_UUID}", respells=True, takes=_are_uuids)
    if kind is ColumnKind.JSON and name in ("jsonb", "json", "text"):
        it = Way(cast.cast, takes=lambda them: most_json(them) < _LONGEST_JSON)
        short = f"octet_length({{}}) < {_LONGEST_JSON // _GROWTH}"
        return replace(it, fits=short, held=cast.cast, respells=True) if name == "jsonb" else it
    return None


def fitting(declared: str, enum: Enumeration | None = None) -> pa.DataType | None:
    """A type of Spark's that a column declared so takes; None if there is none."""
    if is_array(declared):
        element = fitting(declared.removesuffix(_ARRAY), enum)
        return None if element is None else pa.list_(element)
    name, length, scale = _read(declared)
    if enum is not None or name == "uuid":
        return pa.string()
    if name == "numeric" and length is None:
        return pa.decimal128(_SHORT, _SHORT // 2 - 1)
    if name == "numeric" and 0 <= (scale or 0) <= _SHORT:
        return pa.decimal128(min(length or _SHORT, _SHORT), scale or 0)
    return _FLAT.get(name)


def _of_elements(type_: pa.DataType, declared: str, enum: Enumeration | None, cast: str) -> Way | None:
    """The way of arrays, by that of their elements. An element that is NULL fits, whatever it is in a column."""
    element = element_of(type_)
    one = None if element is None else way(element, declared.removesuffix(_ARRAY), enum)
    if one is None:
        return None
    fits = one.fits and f"NOT EXISTS (SELECT 1 FROM unnest({{}}) AS e(v) WHERE NOT ({one.fits.replace('{}', 'e.v')}))"
    return Way(
        cast if one.cast != "{}" else "{}",
        fits,
        held=one.held and cast,
        respells=one.respells,
        takes=lambda them: one.takes(pc.list_flatten(them)),
    )


def _to_label(cast: str, enum: Enumeration) -> Way:
    labels = pa.array(enum.labels, pa.string())

    def are_labels(column: Column) -> bool:
        return pc.all(pc.is_in(column.cast(pa.string()), labels, skip_nulls=False)).as_py() is not False

    of = f"SELECT CAST(enumlabel AS text) FROM pg_enum WHERE enumtypid = {enum.oid}"
    return Way(cast, f'{{}} COLLATE "C" IN ({of})', takes=are_labels)


@functools.cache
def taken_by(declared: str, enum: Enumeration | None = None) -> Convert:
    """What makes of a Python value the one that a column declared so gives back. It raises `Misfit`.

    The server alone knows what other types take, such as a UUID or a domain: there a value stays as it is. So does a
    text for an array, but for a list as JSON.
    """
    if is_array(declared):
        return _elements_taken_by(declared.removesuffix(_ARRAY), enum)
    if enum is not None:
        return taken(pa.string())
    times = _TIMES.fullmatch(declared)
    name, length, scale = _read(times[1] + times[3] if times else declared)
    if name == "numeric":
        return _numbers(length, scale or 0, declared)
    if clock := _TIMES_OF_DAY.fullmatch(declared):
        return lambda value: _no_finer_text(value, int(clock[1] or 6), declared)
    if name not in _FLAT:
        return lambda value: value
    take = taken(_FLAT[name])
    if name == "character varying" and length is not None:
        return lambda value: _no_longer_text(take(value), length, declared)
    return take if times is None else lambda value: _no_finer(take(value), int(times[2]), declared)


def _elements_taken_by(declared: str, enum: Enumeration | None) -> Convert:
    take = taken_by(declared, enum)

    def array(value: Any) -> Any:
        if (elements := list_of(value)) is None:
            return value
        try:
            return literal([take(element) for element in elements])
        except Misfit as error:
            raise Misfit(f"has an element that {error.what}") from error

    return array


def uncut(declared: str) -> str:
    """The type to cast a value to on its way into a column declared so: a cast to that one would cut a text off."""
    if is_array(declared):
        return f"{uncut(declared.removesuffix(_ARRAY))}{_ARRAY}"
    return _UNCUT.get(_read(declared)[0], declared)


def _numbers(length: int | None, scale: int, declared: str) -> Convert:
    if length is not None and 0 <= scale <= length <= _MOST_DIGITS:
        return taken((pa.decimal128 if length <= _SHORT else pa.decimal256)(length, scale))

    def exact(value: Any) -> Any:
        if isinstance(value, float):
            raise not_exact(value, "NUMERIC")
        last = None if length is None else _last_place(value)
        if last is not None and last < -scale:
            raise Misfit(f"is {shown(value)}, which no {declared} holds")
        return value

    return exact


def _last_place(number: Any) -> int | None:
    """The power of ten that the last digit counts which is not 0; None for 0, and for what is not a number here."""
    try:
        _, digits, exponent = Decimal(number).as_tuple()
    except (ArithmeticError, TypeError, ValueError):
        return None
    if not isinstance(exponent, int) or not any(digits):
        return None
    return exponent + next(place for place, digit in enumerate(reversed(digits)) if digit)


def _no_longer_text(value: Any, length: int, declared: str) -> Any:
    """A cast to a type without a length keeps the text, but the column drops blanks at the end without a word."""
    if value is not None and len(value) > length:
        raise Misfit(f"is {shown(value)}, which is too long for a {declared}")
    return value


def _no_finer(value: Any, digits: int, declared: str) -> Any:
    if value is not None and value.microsecond % 10 ** (6 - digits):
        raise Misfit(f"is {shown(value)}, which is finer than a {declared} holds")
    return value


def _no_finer_text(value: Any, digits: int, declared: str) -> Any:
    """A time of day comes as text, which the server reads and rounds."""
    if isinstance(value, str) and (found := _FRACTION.search(value)) and len(found[1]) > digits:
        raise Misfit(f"is {shown(value)}, which is finer than a {declared} holds")
    return value


def _between(cast: Way, most: int | Decimal) -> Way:
    """Values below `most`, either way: all that is lost is one value of the negative ones, which goes row by row."""
    limit = format(Decimal(most), "f")
    return Way(cast.cast, f"{{}} > -{limit} AND {{}} < {limit}", takes=lambda them: _are_below(them, most))


def _are_below(column: Column, most: int | Decimal) -> bool:
    try:
        found: Any = pc.min_max(column).as_py()
    except pa.ArrowNotImplementedError:  # of short decimals
        return False
    return found["min"] is None or -most < found["min"] <= found["max"] < most


def _no_longer(column: Column, length: int) -> bool:
    return (pc.max(pc.utf8_length(column)).as_py() or 0) <= length


def _are_uuids(column: Column) -> bool:
    return any(pc.all(pc.match_substring_regex(column, one)).as_py() is not False for one in _SPELLINGS)


def _is_boolean(type_: pa.DataType) -> bool:
    """Whether this is what Postgres calls a boolean."""
    return bool(types.is_boolean(_unwrapped(type_)))


def element_of(type_: pa.DataType) -> pa.DataType | None:
    """The type of the elements of a list of flat values; None for every other type."""
    is_list = types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    return type_.value_type if is_list and kind_of(type_.value_type) is not ColumnKind.JSON else None


def _unwrapped(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if types.is_dictionary(type_) else type_


def _without_zone_words(declared: str) -> str:
    return {"timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz"}.get(
        declared, declared
    )


def _read(declared: str) -> tuple[str, int | None, int | None]:
    """Name, length or precision, and scale of a declared type."""
    found = re.fullmatch(r"(.*?)(?:\((\d+)(?:,(-?\d+))?\))?", declared)
    assert found is not None
    length, scale = (None if text is None else int(text) for text in found.groups()[1:])
    return found[1], length, scale
