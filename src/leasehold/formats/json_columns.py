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

Refused: vouching for more than it knows. A body that is left out is not a bad one: `json_rows` decides. Bodies that
stand in the way of the others are found by what Arrow's error says of its row, by reading all of them as looser
types, or else by bisection. All of that is only ever a hint, since the others are read again without them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, types

from leasehold.arrow_masks import true_places
from leasehold.formats.json_column_types import holds, loosely_read_as, read_as, strict, unfit
from leasehold.formats.json_rows import MARK, SPACE
from leasehold.formats.shapes import DEPTH, Vouched

_ROW = re.compile(r" in row ([0-9]+)$")
_VALUE = re.compile(r"couldn't parse:(.+)$", re.DOTALL)
_UNKNOWN_FIELD = "JSON parse error: unexpected field"
_LONG_NUMBER = r"[eE][+-]?0*(?:[4-9][0-9]|[1-9][0-9]{2})|[0-9]{30}|\\u"
"""What may become a decimal of a scale beyond Arrow's table of 76 powers, also behind escapes in a string."""
_NOT_JSON = "NaN|Inf"
_BLOCK = 32 << 20  # bytes that are read at once
_TURNS = 4
"""How many times to look for one kind of body that blocks the reader, before bisecting the rest."""
_FEW = 48
"""Up to this many bodies are read one by one in less time than it takes to find the one that blocks the reader."""
_PIECES = 8
"""The number of parts of a chunk; a part in which nothing is left over for the rescue column is read as a whole."""
_CALL = 75
"""Calling Arrow's reader takes as long as reading this many bodies."""
_TIMES = 12
"""How many times all bodies are read before the rest go one by one, which takes about as long."""
_ONE_IN = 12
"""If more than each twelfth body is one that Arrow stops at, it takes less time to read all of them one by one."""


class _Doubt(Exception):
    """Not to be vouched for: because of `rows`, or of the row that Arrow's reader `stopped` at or its `value`."""

    def __init__(self, rows: Sequence[int] = (), stopped: int | None = None, value: str | None = None) -> None:
        super().__init__(rows, stopped, value)
        self.rows, self.stopped, self.value = rows, stopped, value


class _UnknownField(_Doubt):
    """There is a field that the schema does not know."""


class _Work:
    """What has been read of a chunk of `count` bodies, and what may still be read until one by one is faster.

    `closed` tells whether a field that the schema does not know stops Arrow's reader.
    """

    def __init__(self, count: int, *, closed: bool) -> None:
        self.read: list[Vouched] = []
        self.closed = closed
        self.piece = count // _PIECES
        self._left = _TIMES * count + _TIMES * _CALL

    def has_read(self, count: int) -> None:
        """This many more bodies have been read, or something that takes as long was done."""
        self._left -= count

    @property
    def is_spent(self) -> bool:
        """Whether it has taken about as long as one by one would have."""
        return self._left <= 0


class ColumnReader:
    """Reads bodies by a schema; `rescue` leaves out those with fields that the schema does not know.

    `cut` cuts timestamps to microseconds.
    """

    def __init__(self, schema: pa.Schema, *, rescue: bool, cut: bool = False) -> None:
        self.reads = len(schema) > 0 and not any(holds(_is_beyond_arrow, field.type) for field in schema)
        self._schema = schema
        self._rescue, self._cut = rescue, cut
        if self.reads:
            self._read_as = pa.schema([pa.field(field.name, read_as(field.type, cut)) for field in schema])
            self._loosely = pa.schema([pa.field(field.name, loosely_read_as(field.type, cut)) for field in schema])
            self._strict = [strict(field.type, cut) for field in schema]
            self._decimals = any(holds(types.is_decimal, field.type) for field in schema)

    def read(self, bodies: pa.Array) -> list[Vouched]:
        """What is surely good among `bodies`, which are binary."""
        if not self.reads:
            return []
        bodies, rows = _objects(*_texts(bodies))
        if self._decimals:
            bodies, rows = _without(pc.match_substring_regex(bodies, _LONG_NUMBER), bodies, rows)
        work = _Work(len(bodies), closed=True)
        try:
            self._vouch(bodies, rows, work)
        except _UnknownField:
            bodies, rows = _plain(bodies, rows)
            work = _Work(len(bodies), closed=False)
            self._vouch(bodies, rows, work)
        return work.read

    def _vouch(self, bodies: pa.Array, rows: pa.Array, work: _Work) -> None:
        """Read as many of these as can be had without taking longer than one by one would."""
        for _ in range(_TURNS if bodies.nbytes < _BLOCK else 0):
            if not len(bodies) or work.is_spent:
                return
            try:
                work.read.append((rows, self._attempt(bodies, work)))
                return
            except _Doubt as doubt:
                if isinstance(doubt, _UnknownField) and not self._rescue:
                    raise
                if len(bodies) <= (work.piece if isinstance(doubt, _UnknownField) else _FEW):
                    return
                in_the_way = self._in_the_way(bodies, work, doubt)
            if in_the_way is None:
                return
            if not in_the_way:
                break
            bodies, rows = _without(_mask(in_the_way, len(bodies)), bodies, rows)
        half = len(bodies) // 2
        if half:
            self._vouch(bodies[:half], rows[:half], work)
            self._vouch(bodies[half:], rows[half:], work)

    def _attempt(self, bodies: pa.Array, work: _Work) -> pa.RecordBatch:
        table = self._table(_lines(bodies), self._read_as, work)
        work.has_read(len(bodies))
        if table.num_rows != len(bodies):
            raise _Doubt
        made = [strict(column) for column, strict in zip(_whole(table), self._strict, strict=True)]
        doubtful = {row for _, rows in made for row in rows}
        if doubtful:
            raise _Doubt(sorted(doubtful))
        return pa.RecordBatch.from_arrays([column for column, _ in made], schema=self._schema)

    def _in_the_way(self, bodies: pa.Array, work: _Work, doubt: _Doubt) -> Sequence[int] | None:
        """Bodies because of which the others could not be read; none if they are not known, None if they are many."""
        if doubt.rows or isinstance(doubt, _UnknownField):
            return doubt.rows
        if doubt.stopped is not None:
            return self._stops(bodies, work, doubt.stopped)
        work.has_read(len(bodies))
        found = self._unfit(bodies, work)
        if not found:
            hint = pc.match_substring(bodies, doubt.value) if doubt.value else _uneven(bodies)
            found = true_places(hint)
        return found

    def _stops(self, bodies: pa.Array, work: _Work, first: int) -> list[int] | None:
        """The bodies that Arrow's reader stops at: it reads the others up to there."""
        found = [first]
        lines = _lines(bodies)
        starts = memoryview(bodies.buffers()[1]).cast("i")[bodies.offset :]
        work.has_read(first)
        while (after := found[-1] + 1) < len(bodies):
            if len(found) > _FEW // _ONE_IN + after // _ONE_IN:
                return None
            try:
                self._table(lines[starts[after] - starts[0] + after :], self._read_as, work)
                break
            except _Doubt as doubt:
                if isinstance(doubt, _UnknownField) and not self._rescue:
                    raise
                if doubt.stopped is None:
                    break
                found.append(after + doubt.stopped)
                work.has_read(doubt.stopped)
        work.has_read(len(bodies) - after)
        return [row for row in found if row < len(bodies)]

    def _unfit(self, bodies: pa.Array, work: _Work) -> list[int]:
        """The bodies with numbers and times that are out of range, or the like."""
        long = true_places(pc.match_substring_regex(bodies, _LONG_NUMBER))
        if long:  # not to be read as a decimal
            return long
        work.has_read(2 * len(bodies))
        try:
            columns = _whole(self._table(_lines(bodies), self._loosely, work))
            each = [unfit(column, field.type, self._cut) for column, field in zip(columns, self._schema, strict=True)]
        except (_Doubt, pa.ArrowInvalid):
            return []
        return [row for row in sorted({row for rows in each for row in rows}) if row < len(bodies)]

    def _table(self, lines: pa.Buffer, schema: pa.Schema, work: _Work) -> pa.Table:
        work.has_read(_CALL)
        try:
            return json.read_json(
                pa.BufferReader(lines),
                read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                parse_options=json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="error" if work.closed else "ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            said = str(error)
        if said.startswith(_UNKNOWN_FIELD):
            raise _UnknownField
        row, value = _ROW.search(said), _VALUE.search(said)
        raise _Doubt(stopped=int(row[1]) if row else None, value=value[1] if value else None)


def _is_beyond_arrow(type_: pa.DataType) -> bool:
    return bool(types.is_map(type_) or (types.is_struct(type_) and not type_.num_fields))


def _texts(bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those bodies that are text, and which rows they are."""
    rows = pa.array(range(len(bodies)), pa.int32())
    if bodies.null_count:
        rows = rows.filter(bodies.is_valid())
        bodies = bodies.drop_null()
    try:
        return bodies.cast(pa.string()), rows
    except pa.ArrowInvalid:
        is_text = pa.array([_is_text(body) for body in bodies.to_pylist()], pa.bool_())
        return bodies.filter(is_text).cast(pa.string()), rows.filter(is_text)


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _objects(bodies: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those that begin and end as an object does, without a byte order mark and blanks around them."""
    fit = _braced(bodies)
    if not pc.all(fit).as_py():
        if pc.any(pc.starts_with(bodies, MARK)).as_py():
            bodies = pc.replace_substring_regex(bodies, f"^{MARK}", "")
        bodies = pc.ascii_trim(bodies, SPACE)
        bodies, rows = _without(pc.invert(_braced(bodies)), bodies, rows)
    return bodies, rows


def _braced(bodies: pa.Array) -> pa.Array:
    return pc.and_(pc.starts_with(bodies, "{"), pc.ends_with(bodies, "}"))


def _plain(bodies: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Those in which nothing can be hidden in fields that nobody looks at."""
    text = _lines(bodies).to_pybytes()
    if any(word.encode() in text for word in _NOT_JSON.split("|")):
        bodies, rows = _without(pc.match_substring_regex(bodies, _NOT_JSON), bodies, rows)
    if (pc.max(pc.binary_length(bodies)).as_py() or 0) > 2 * DEPTH:
        brackets = pc.add(pc.count_substring(bodies, "{"), pc.count_substring(bodies, "["))
        bodies, rows = _without(pc.greater(brackets, DEPTH), bodies, rows)
    return bodies, rows


def _uneven(bodies: pa.Array) -> pa.Array:
    """Those that may well be more than one object: Arrow's reader does not say where it met the end of one."""
    braces = pc.not_equal(pc.count_substring(bodies, "{"), pc.count_substring(bodies, "}"))
    return pc.or_(braces, pc.match_substring_regex(bodies, r"\}\s*\{"))


def _without(mask: pa.Array, bodies: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    if not pc.any(mask).as_py():
        return bodies, rows
    others = pc.invert(mask)
    return bodies.filter(others), rows.filter(others)


def _mask(positions: Sequence[int], length: int) -> pa.Array:
    marked = bytearray(length)
    for position in positions:
        marked[position] = 1
    return pa.array(marked, pa.uint8()).cast(pa.bool_())


def _lines(bodies: pa.Array) -> pa.Buffer:
    """The bodies, each with a line feed after it."""
    ended = pa.concat_arrays([bodies, pa.array([""], pa.string())])
    whole = pa.ListArray.from_arrays(pa.array([0, len(ended)], pa.int32()), ended)
    return pc.binary_join(whole, "\n")[0].as_buffer()


def _whole(table: pa.Table) -> list[pa.Array]:
    return [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
