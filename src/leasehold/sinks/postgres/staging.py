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

For each exclusion constraint of the table there is one more, with an index by which rows that meet are found.

A value that Postgres has no form for is a problem of that row, never altered: text that is not UTF-8 or has a NUL, a
year outside 1 to 9999.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, types

from leasehold.arrow_masks import nulled, true_places
from leasehold.database.postgres.connections import Connection
from leasehold.database.statements import sent, unsent
from leasehold.sinks.postgres import array_text
from leasehold.sinks.postgres.catalog import Exclusion
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.names import quoted
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.types import is_array
from leasehold.sinks.rules.batch import OrderValue
from leasehold.sinks.rules.values import Column, ColumnKind, convert, kind_of, nested_parts, out_of_range, timestamps

STAGE, KEYS, KNOWN, FRESH, APART, ROWS = (
    f"pg_temp.leasehold_{name}" for name in ("stage", "keys", "known", "fresh", "apart", "rows")
)
_CLAIM = (
    'lane bigint, rank integer, number bigint, by_number numeric, by_text text COLLATE "C", gone boolean DEFAULT false'
)
_BYTES = 1 << 18
_MEMORY = "64MB"
_SORTING = (
    "SELECT set_config('work_mem', %(memory)s, true) "
    "WHERE pg_size_bytes(current_setting('work_mem')) < pg_size_bytes(%(memory)s)"
)
NUL = "has a NUL character, which Postgres cannot hold in text"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A column as it travels; what is wrong with rows is None in `values`."""

    values: Column
    problems: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Filled:
    """How many rows were staged, and of how many keys."""

    rows: int
    keys: int


@dataclass(slots=True)
class StagedTables:
    """Which temporary tables a connection has, by `Staging.signature`; the tables of one transaction share it."""

    signature: tuple[str, ...] | None = None


def meeting(place: int) -> str:
    """What the batch has for the exclusion constraint of this place: `kid`, and its elements `v0`, `v1`, …"""
    return f"pg_temp.leasehold_meeting_{place}"


def encode(column: Column, carrier: str = "") -> Encoded:
    """A column whose type has a `ColumnKind`, as booleans, numbers or text that Postgres reads as this carrier."""
    kind = kind_of(column.type)
    if kind is ColumnKind.JSON and is_array(carrier):
        return _arrays(flat(column))
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = flat(column)
    problems: dict[int, str] = dict(out_of_range(column))
    if problems:
        column = _without(column, problems)
    if kind is ColumnKind.TEXT:
        return _text(column)
    if kind is ColumnKind.JSON:
        return _json(column)
    if kind is ColumnKind.BLOB:
        return Encoded(
            pa.array([None if one is None else "\\x" + one.hex() for one in column.to_pylist()], pa.string()), {}
        )
    if kind is ColumnKind.REAL:
        # Minus zero is zero to Postgres, and each NaN is the same: as keys they would be several.
        column = pc.add(column.cast(pa.float64()), 0.0)
        return Encoded(pc.if_else(pc.is_nan(column), float("nan"), column), {})
    if kind is ColumnKind.DATE:
        column = column.cast(pa.date32()).cast(pa.string())
    elif kind is ColumnKind.TIMESTAMP:
        column = timestamps(column)
    elif kind is ColumnKind.DECIMAL or kind is ColumnKind.NOTHING:
        column = column.cast(pa.string())
    return Encoded(column, problems)


def flat(column: Column) -> Column:
    """The column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def is_fit(column: Column, is_key: bool) -> bool:
    """Whether Postgres has a form for every value of a column, at a glance; False where each has to be looked at."""
    if is_key and column.null_count:
        return False
    if kind_of(column.type) is ColumnKind.TEXT:
        return _is_text(column)
    if kind_of(column.type) is ColumnKind.JSON:
        return not is_key and all(is_fit(part, False) for part in nested_parts(column))
    return not types.is_dictionary(column.type) and not out_of_range(column)


def _is_text(column: Column) -> bool:
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        return False
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return False
    return not pc.any(pc.match_substring(column, "\0")).as_py()


def split(value: OrderValue | Decimal | None) -> tuple[Decimal | int | None, str | None]:
    """A value of sequence_by as `by_number` and `by_text`, one of which has it."""
    return (None, value) if isinstance(value, str) else (exact(value), None)


def exact(value: Any) -> Any:
    """A number with all its digits: a double as the number that it is."""
    return Decimal(value) if isinstance(value, float) else value


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
        nul = dict.fromkeys(true_places(with_nul), NUL)
        problems = {**nul, **problems}
        column = _without(column, nul)
    return Encoded(column, problems)


def _arrays(column: Column) -> Encoded:
    lengths = pc.list_value_length(column)
    elements = encode(column.flatten())  # leaves out what is below a null
    ends = list(accumulate(length or 0 for length in lengths.to_pylist()))
    wrong = {bisect_right(ends, at): f"has an element that {what}" for at, what in elements.problems.items()}
    values = array_text.texts(lengths, elements.values)
    return Encoded(_without(values, wrong) if wrong else values, wrong)


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
    return nulled(column, mask)


def copy_csv(connection: Connection, into: str, rows: pa.Table) -> None:
    """Copy rows, as they travel, into a table, which `into` names with its columns."""
    with connection.cursor() as cursor, cursor.copy(f"COPY {into} FROM STDIN (FORMAT csv)".encode()) as copy:
        for some in rows.to_batches(max_chunksize=20_000):
            text = pa.BufferOutputStream()
            csv.write_csv(some, text, csv.WriteOptions(include_header=False, quoting_style="needed"))
            view = memoryview(text.getvalue())
            for start in range(0, len(view), _BYTES):
                copy.write(view[start : start + _BYTES])


class Staging:
    """The temporary tables of one connection for one layout."""

    def __init__(self, session: PostgresSession, layout: Layout) -> None:
        self._session = session
        self._layout = layout

    @property
    def signature(self) -> tuple[str, ...]:
        """What they depend on."""
        layout = self._layout
        excluding = (repr(layout.relation.exclusions), *(target.declared for target in layout.targets))
        return (
            *(target.carrier for target in layout.targets),
            *(key.declared for key in layout.key_targets),
            *excluding,
        )

    def make(self) -> None:
        """Make them in place of any that are there."""
        layout, run = self._layout, self._session.run
        for name in (STAGE, KEYS, KNOWN, FRESH, APART, ROWS):
            run(f"DROP TABLE IF EXISTS {name}")
        values = "".join(f", c{place} {target.carrier}" for place, target in enumerate(layout.targets))
        run(f"CREATE TEMPORARY TABLE leasehold_stage (place integer PRIMARY KEY, kid integer, {_CLAIM}{values})")
        run(f"CREATE TEMPORARY TABLE leasehold_rows (place integer PRIMARY KEY, kid integer, {_CLAIM}{values})")
        keys = "".join(f", key_{place} {sent(key.declared)}" for place, key in enumerate(layout.key_targets, 1))
        run(f"CREATE TEMPORARY TABLE leasehold_keys (kid integer PRIMARY KEY, place integer, {_CLAIM}{keys})")
        run(
            "CREATE TEMPORARY TABLE leasehold_known (kid integer, at tid, now bigint, lane bigint, number bigint, "
            'by_number numeric, by_text text COLLATE "C")'
        )
        run("CREATE TEMPORARY TABLE leasehold_fresh (kid integer PRIMARY KEY)")
        run("CREATE TEMPORARY TABLE leasehold_apart (kid integer PRIMARY KEY, lost boolean)")
        for place, exclusion in enumerate(self._excluding):
            values = ", ".join(f"{sent(element)} AS v{n}" for n, element in enumerate(exclusion.elements))
            classes = ", ".join(f"v{n} {sent(name)}" for n, name in enumerate(exclusion.classes))
            run(f"DROP TABLE IF EXISTS {meeting(place)}")
            run(
                f"CREATE TEMPORARY TABLE leasehold_meeting_{place} AS SELECT 0 AS kid, {values} "
                f"FROM {self._session.names.table} LIMIT 0"
            )
            run(f"CREATE INDEX ON {meeting(place)} USING {quoted(exclusion.method)} ({classes})")

    def sort_in_memory(self) -> None:
        """Until the transaction ends, what is sorted and joined has room in memory: a large batch comes to 20 MB."""
        self._session.run(_SORTING, memory=_MEMORY)

    def empty(self) -> None:
        """Empty them for the next batch."""
        more = (meeting(place) for place in range(len(self._excluding)))
        self._session.run(f"TRUNCATE {', '.join((STAGE, KEYS, KNOWN, FRESH, APART, ROWS, *more))}")

    @property
    def _excluding(self) -> tuple[Exclusion, ...]:
        """Those that rows of the layout are judged by."""
        return self._layout.relation.exclusions if self._layout.keys else ()

    def fill(self, rows: pa.Table) -> None:
        """Copy rows into the staging table; `rows` has its columns by their names, but for those left to defaults."""
        copy_csv(self._session.connection, f"{STAGE} ({', '.join(rows.schema.names)})", rows)

    def fill_table(self, values: Sequence[Column]) -> None:
        """Copy rows of the layout's columns, as they travel, straight into the entity table."""
        names = ", ".join(quoted(target.name) for target in self._layout.targets)
        rows = pa.table({str(place): column for place, column in enumerate(values)})
        copy_csv(self._session.connection, unsent(f"{self._session.names.table} ({names})"), rows)

    def analyze(self) -> None:
        """Have the server look at what the staging table is joined by."""
        layout = self._layout
        keys = {target.name for target in layout.key_targets}
        unique = {name for index in layout.relation.unique if index.columns != keys for name in index.columns}
        joined = [f"c{place}" for place, target in enumerate(layout.targets) if target.name in unique]
        self._session.run(f"ANALYZE {STAGE} ({', '.join(['place', 'kid', 'lane', *joined])})")
