"""Many JSON bodies to columns at once, by Arrow's own reader, as far as it certainly says what `json_rows` says.

Owns the knowledge of where the two differ:

1. Arrow's reader takes objects with anything blank between them, or nothing. The bodies are joined by line feeds,
   which no JSON string may hold; each begins with `{` and ends with `}`; and there are as many objects as bodies. So
   an object ends where a body ends, each body holds at least one, and hence exactly one.
2. It takes NaN, Inf and Infinity for numbers, and any depth. Where it met no field that the schema does not know,
   only FLOAT and DOUBLE can hold the former, and are looked through; otherwise bodies with these words, or with too
   many brackets, are left out.
3. It makes a FLOAT infinite that is too large: looked through.
4. For a DECIMAL of many digits or a long exponent it reads memory that is not its own, and it does not check what it
   made against the precision: such bodies are left out, and values are read as wider ones and looked through.
5. It shifts a TIMESTAMP_NTZ by a zone, takes numbers for a DATE and plain text for a BINARY: these are read as text
   and cast. Years outside 1 to 9999 are left out.
6. It reads no MAP from an object, and no STRUCT without fields: `reads` tells.

Refused: vouching for more than it knows. A body that is left out is not a bad one: `json_rows` decides. Where a
body stands in the way of the others, it is found by what Arrow's error says of its row, or else by bisection; what
the error says is only ever a hint, since the others are read again without it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, types

from leasehold.formats.json_rows import DEPTH, SPACE

_ROW = re.compile(r" in row ([0-9]+)$")
_UNKNOWN_FIELD = "JSON parse error: unexpected field"
_WIDE = 76  # digits of the widest decimal
_LONG_NUMBER = r"[eE][+-]?[0-9]{2}|[0-9]{30}|\\u"
_NOT_JSON = r"NaN|Inf"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
_DAY = 86_400_000_000  # microseconds
_BLOCK = 32 << 20  # bytes that are read at once
_FEW = 48
"""So many bodies are read one by one in less time than it takes to find the one that stands in the way."""
_ONE_IN = 12
"""If more than each twelfth body stands in the way, it takes less time to read all of them one by one."""

Strict = Callable[[Any], tuple[Any, list[int]]]
"""From what Arrow's reader made to the column, and the positions of values that are not to be vouched for."""


class _Doubt(Exception):
    """Not to be vouched for, because of `rows`, as far as that is known."""

    def __init__(self, rows: Sequence[int] = ()) -> None:
        super().__init__(rows)
        self.rows = rows


class _UnknownField(_Doubt):
    """A field that the schema does not know."""


class ColumnReader:
    """Reads bodies by a schema; `rescue` leaves out those with fields that the schema does not know."""

    def __init__(self, schema: pa.Schema, *, rescue: bool) -> None:
        self.reads = len(schema) > 0 and not any(_holds(_is_beyond_arrow, field.type) for field in schema)
        self._schema = schema
        self._rescue = rescue
        if self.reads:
            self._read_as = pa.schema([pa.field(field.name, _read_as(field.type)) for field in schema])
            self._strict = [_strict(field.type) for field in schema]
            self._decimals = any(_holds(types.is_decimal, field.type) for field in schema)

    def read(self, bodies: pa.Array, rows: pa.Array) -> list[tuple[pa.Array, pa.RecordBatch]]:
        """What is surely good among `bodies`, which are strings without nulls, with the `rows` that it is of."""
        read: list[tuple[pa.Array, pa.RecordBatch]] = []
        if self.reads:
            bodies, rows = _objects(bodies, rows)
            if self._decimals:
                bodies, rows = _without(pc.match_substring_regex(bodies, _LONG_NUMBER), bodies, rows)
            try:
                self._vouch(bodies, rows, True, read)
            except _UnknownField:
                read.clear()
                self._vouch(*_plain(bodies, rows), False, read)
        return read

    def _vouch(
        self, bodies: pa.Array, rows: pa.Array, closed: bool, read: list[tuple[pa.Array, pa.RecordBatch]]
    ) -> None:
        """Read all of these, or as many as can be had without taking longer than one by one would."""
        if not len(bodies):
            return
        if bodies.nbytes > _BLOCK:
            self._halves(bodies, rows, closed, read)
            return
        try:
            read.append((rows, self._attempt(bodies, closed)))
        except _UnknownField:
            raise
        except _Doubt as doubt:
            if len(bodies) <= _FEW:
                return
            in_the_way = doubt.rows and self._in_the_way(bodies, closed, doubt.rows)
            if not in_the_way:
                self._halves(bodies, rows, closed, read)
            elif len(in_the_way) * _ONE_IN < len(bodies):
                others = _without(_mask(in_the_way, len(bodies)), bodies, rows)
                try:
                    read.append((others[1], self._attempt(others[0], closed)))
                except _UnknownField:
                    raise
                except _Doubt:
                    self._halves(*others, closed, read)

    def _halves(self, bodies: pa.Array, rows: pa.Array, closed: bool, read: list[Any]) -> None:
        half = len(bodies) // 2
        if half:
            self._vouch(bodies[:half], rows[:half], closed, read)
            self._vouch(bodies[half:], rows[half:], closed, read)

    def _attempt(self, bodies: pa.Array, closed: bool) -> pa.RecordBatch:
        table = self._table(_lines(bodies), closed)
        if table.num_rows != len(bodies):
            raise _Doubt
        columns, doubtful = [], set()
        for column, strict in zip(table.columns, self._strict, strict=True):
            made, positions = strict(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
            columns.append(made)
            doubtful.update(positions)
        if doubtful:
            raise _Doubt(sorted(doubtful))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _in_the_way(self, bodies: pa.Array, closed: bool, first: Sequence[int]) -> list[int]:
        """Those bodies because of which the others could not be read; more than enough of them if there are many."""
        found = list(first)
        if len(found) > 1:  # told by the columns, hence all
            return found
        lines = _lines(bodies)
        starts = memoryview(bodies.buffers()[1]).cast("i")[bodies.offset :]
        while (after := found[-1] + 1) < len(bodies) and len(found) * _ONE_IN < len(bodies):
            try:
                self._table(lines[starts[after] - starts[0] + after :], closed)
            except _Doubt as doubt:
                if not doubt.rows:
                    break
                found.append(after + doubt.rows[0])
            else:
                break
        return [row for row in found if row < len(bodies)]

    def _table(self, lines: pa.Buffer, closed: bool) -> pa.Table:
        try:
            return json.read_json(
                pa.BufferReader(lines),
                read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=json.ParseOptions(
                    explicit_schema=self._read_as, unexpected_field_behavior="error" if closed else "ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            said = str(error)
        if said.startswith(_UNKNOWN_FIELD) and not self._rescue:
            raise _UnknownField
        found = _ROW.search(said)
        raise _Doubt([int(found[1])] if found else [])


def _holds(test: Callable[[pa.DataType], bool], type_: pa.DataType) -> bool:
    inner = range(type_.num_fields)
    return test(type_) or any(_holds(test, type_.field(place).type) for place in inner)


def _is_beyond_arrow(type_: pa.DataType) -> bool:
    return bool(types.is_map(type_) or (types.is_struct(type_) and not type_.num_fields))


def _objects(bodies: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those that begin and end as an object does, without blanks around them."""
    fit = _braced(bodies)
    if not pc.all(fit).as_py():
        bodies = pc.ascii_trim(bodies, SPACE)
        bodies, rows = _without(pc.invert(_braced(bodies)), bodies, rows)
    return bodies, rows


def _braced(bodies: pa.Array) -> pa.Array:
    return pc.and_(pc.starts_with(bodies, "{"), pc.ends_with(bodies, "}"))


def _plain(bodies: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those in which nothing can be hidden in fields that nobody looks at."""
    hidden = pc.match_substring_regex(bodies, _NOT_JSON)
    lengths = pc.binary_length(bodies)
    if (pc.max(lengths).as_py() or 0) > 2 * DEPTH:
        brackets = pc.add(pc.count_substring(bodies, "{"), pc.count_substring(bodies, "["))
        hidden = pc.or_(hidden, pc.greater(brackets, DEPTH))
    return _without(hidden, bodies, rows)


def _without(mask: pa.Array, bodies: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    if not pc.any(mask).as_py():
        return bodies, rows
    others = pc.invert(mask)
    return bodies.filter(others), rows.filter(others)


def _mask(positions: Iterable[int], length: int) -> pa.Array:
    marked = bytearray(length)
    for position in positions:
        marked[position] = 1
    return pa.array(marked, pa.uint8()).cast(pa.bool_())


def _lines(bodies: pa.Array) -> pa.Buffer:
    """The bodies, each with a line feed after it."""
    ended = pa.concat_arrays([bodies, pa.array([""], pa.string())])
    whole = pa.ListArray.from_arrays(pa.array([0, len(ended)], pa.int32()), ended)
    return pc.binary_join(whole, "\n")[0].as_buffer()


def _read_as(type_: pa.DataType) -> pa.DataType:
    """The type that Arrow's reader is asked for in place of this one."""
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, _read_as(field.type)) for field in type_])
    if types.is_list(type_):
        return pa.list_(_read_as(type_.value_type))
    if types.is_decimal(type_):
        return pa.decimal256(_WIDE - type_.scale, type_.scale)
    if types.is_date(type_) or types.is_binary(type_) or (types.is_timestamp(type_) and type_.tz is None):
        return pa.string()
    return type_


def _strict(type_: pa.DataType) -> Strict:
    if types.is_struct(type_):
        return partial(_strict_struct, type_=type_, inner=[_strict(field.type) for field in type_])
    if types.is_list(type_):
        return partial(_strict_list, type_=type_, inner=_strict(type_.value_type))
    if types.is_floating(type_):
        return _finite
    if types.is_decimal(type_):
        return partial(_within_precision, type_=type_)
    if types.is_binary(type_):
        return _from_base64
    if types.is_date(type_):
        return partial(_cast, type_=type_, number=pa.int32(), least=_FIRST_DAY, most=_LAST_DAY)
    if types.is_timestamp(type_):
        return partial(_cast, type_=type_, number=pa.int64(), least=_FIRST_DAY * _DAY, most=(_LAST_DAY + 1) * _DAY - 1)
    return lambda column: (column, [])


def _strict_struct(column: Any, type_: pa.DataType, inner: list[Strict]) -> tuple[Any, list[int]]:
    parts = []
    for place, strict in enumerate(inner):
        made, doubtful = strict(column.field(place))
        if doubtful:
            raise _Doubt
        parts.append(made)
    return pa.StructArray.from_arrays(parts, fields=list(type_), mask=column.is_null()), []


def _strict_list(column: Any, type_: pa.DataType, inner: Strict) -> tuple[Any, list[int]]:
    made, doubtful = inner(column.values)
    if doubtful:
        raise _Doubt
    return pa.ListArray.from_arrays(column.offsets, made, type=type_, mask=column.is_null()), []


def _positions(doubtful: pa.Array) -> list[int]:
    positions: list[int] = pc.indices_nonzero(pc.fill_null(doubtful, False)).to_pylist()
    return positions


def _finite(column: Any) -> tuple[Any, list[int]]:
    finite = pc.is_finite(column)
    return column, [] if pc.all(finite).as_py() is not False else _positions(pc.invert(finite))


def _within_precision(column: Any, type_: pa.DataType) -> tuple[Any, list[int]]:
    bound = pa.scalar(Decimal(10 ** (type_.precision - type_.scale)), pa.decimal256(_WIDE, type_.scale))
    doubtful = _positions(pc.greater_equal(pc.abs(column), bound))
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


def _cast(column: Any, type_: pa.DataType, number: pa.DataType, least: int, most: int) -> tuple[Any, list[int]]:
    doubtful = _uncastable(column, type_)
    if doubtful:
        return column, doubtful
    made = column.cast(type_)
    numbers = made.cast(number)
    return made, _positions(pc.or_(pc.less(numbers, least), pc.greater(numbers, most)))


def _uncastable(column: Any, type_: pa.DataType, first: int = 0) -> list[int]:
    try:
        column.cast(type_)
    except pa.ArrowInvalid:
        half = len(column) // 2
        if not half:
            return [first]
        return _uncastable(column[:half], type_, first) + _uncastable(column[half:], type_, first + half)
    return []
