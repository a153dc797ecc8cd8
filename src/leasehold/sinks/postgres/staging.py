"""From Arrow columns to a temporary table: the rows of a batch as the server sees them before they are merged.

Owns the temporary tables of a connection, and the text in which values travel. They are made once for a layout and
emptied for each batch, so that the catalogue does not grow; a connection that is lost takes them along. A row has

    place       where it is among the rows that can be stored, in the order of events
    kid         a number that stands for its key, 0 in a table without keys
    lane        the `id` of its partition's watermark; `rank` orders the batch's partitions, then hubs, by name
    number      its sequence number
    by_number, by_text   its value of sequence_by, one of them; none without
    gone        whether it deletes its entity
    c0, c1, …   its values, each of the carrier's type (`types`)

A value that Postgres has no form for is a problem of that row, never altered: text that is not UTF-8 or has a NUL, a
year outside 1 to 9999.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, types

from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.values import Column, Kind, convert, kind_of, out_of_range, timestamps

STAGE, KEYS, KNOWN, FRESH, APART, ROWS = (
    f"pg_temp.leasehold_{name}" for name in ("stage", "keys", "known", "fresh", "apart", "rows")
)
_CLAIM = 'lane bigint, rank integer, number bigint, by_number numeric, by_text text COLLATE "C", gone boolean'
_BYTES = 1 << 18
NUL = "has a NUL character, which Postgres cannot hold in text"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A column as it travels; what is wrong with rows is None in `values`."""

    values: Column
    problems: Mapping[int, str]


def encode(column: Column) -> Encoded:
    """A column whose type has a `Kind`, as booleans, numbers or text that Postgres reads."""
    kind = kind_of(column.type)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    problems: dict[int, str] = dict(out_of_range(column))
    if problems:
        column = _without(column, problems)
    if kind is Kind.TEXT:
        return _text(column)
    if kind is Kind.JSON:
        return _json(column)
    if kind is Kind.BLOB:
        return Encoded(
            pa.array([None if one is None else "\\x" + one.hex() for one in column.to_pylist()], pa.string()), {}
        )
    if kind is Kind.REAL:
        # Minus zero is zero to Postgres, and each NaN is the same: as keys they would be several.
        column = pc.add(column.cast(pa.float64()), 0.0)
        return Encoded(pc.if_else(pc.is_nan(column), float("nan"), column), {})
    if kind is Kind.DATE:
        column = column.cast(pa.date32()).cast(pa.string())
    elif kind is Kind.TIMESTAMP:
        column = timestamps(column)
    elif kind is Kind.DECIMAL or kind is Kind.NOTHING:
        column = column.cast(pa.string())
    return Encoded(column, problems)


def _text(column: Column) -> Encoded:
    problems: dict[int, str] = {}
    try:
        column.validate(full=True)
        column = column.cast(pa.large_string())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        problems = dict(convert(column).problems)
        column = _without(column.cast(pa.large_binary()), problems).cast(pa.large_string())
    with_nul = pc.match_substring(column, "\0")
    if pc.any(with_nul).as_py():
        nul = dict.fromkeys(pc.indices_nonzero(with_nul).to_pylist(), NUL)
        problems = {**nul, **problems}
        column = _without(column, nul)
    return Encoded(column, problems)


def _json(column: Column) -> Encoded:
    converted = convert(column)
    values = list(converted.values)
    problems = dict(converted.problems)
    for index, value in enumerate(values):
        if value is not None and "\\u0000" in value and _has_nul(json.loads(value)):
            values[index], problems[index] = None, NUL
    return Encoded(pa.array(values, pa.large_string()), problems)


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _without(column: Column, indices: Mapping[int, str]) -> Column:
    """The column with nulls at these places."""
    mask = pa.array([index in indices for index in range(len(column))], pa.bool_())
    return pc.if_else(mask, pa.scalar(None, column.type), column)


def key_numbers(columns: Sequence[Column], rows: int) -> pa.Array:
    """A number for each row that is the same where all of these columns are, counted from 0 as keys first appear."""
    numbers: Any = pa.array([0] * rows, pa.int64())
    for column in columns:
        codes = _codes(column)
        numbers = pc.add(pc.multiply(numbers, rows + 1), codes)
        numbers = _codes(numbers)
    return numbers


def _codes(column: Column) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.dictionary_encode().indices.cast(pa.int64())


class Staging:
    """The temporary tables of one connection for one layout."""

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout

    @property
    def signature(self) -> tuple[str, ...]:
        """What they depend on."""
        layout = self._layout
        return (*(target.carrier for target in layout.targets), *(key.declared for key in layout.key_targets), "")

    def make(self) -> None:
        """Make them in place of any that are there."""
        layout, run = self._layout, self._session.run
        for name in (STAGE, KEYS, KNOWN, FRESH, APART, ROWS):
            run(f"DROP TABLE IF EXISTS {name}")
        values = "".join(f", c{place} {target.carrier}" for place, target in enumerate(layout.targets))
        run(f"CREATE TEMPORARY TABLE leasehold_stage (place integer PRIMARY KEY, kid integer, {_CLAIM}{values})")
        run(f"CREATE TEMPORARY TABLE leasehold_rows (place integer PRIMARY KEY, kid integer, {_CLAIM}{values})")
        keys = "".join(f", key_{place} {key.declared}" for place, key in enumerate(layout.key_targets, 1))
        run(f"CREATE TEMPORARY TABLE leasehold_keys (kid integer PRIMARY KEY, place integer, {_CLAIM}{keys})")
        run(
            "CREATE TEMPORARY TABLE leasehold_known (kid integer PRIMARY KEY, lane bigint, number bigint, "
            'by_number numeric, by_text text COLLATE "C")'
        )
        run("CREATE TEMPORARY TABLE leasehold_fresh (kid integer PRIMARY KEY)")
        run("CREATE TEMPORARY TABLE leasehold_apart (kid integer PRIMARY KEY, lost boolean)")

    def empty(self) -> None:
        """Empty them for the next batch."""
        self._session.run(f"TRUNCATE {', '.join((STAGE, KEYS, KNOWN, FRESH, APART, ROWS))}")

    def fill(self, rows: pa.Table) -> None:
        """Copy rows into the staging table; `rows` has its columns, in their order."""
        with self._session.connection.cursor() as cursor, cursor.copy(f"COPY {STAGE} FROM STDIN (FORMAT csv)") as copy:
            for some in rows.to_batches(max_chunksize=20_000):
                text = io.BytesIO()
                csv.write_csv(some, text, csv.WriteOptions(include_header=False, quoting_style="needed"))
                view = text.getbuffer()
                for start in range(0, len(view), _BYTES):
                    copy.write(view[start : start + _BYTES])
        self.analyze()

    def analyze(self) -> None:
        """Have the server look at what is in the staging table."""
        self._session.run(f"ANALYZE {STAGE} (place, kid, lane)")  # what it is joined by
