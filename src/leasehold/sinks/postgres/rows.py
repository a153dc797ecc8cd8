"""The rows of a batch on their way to staging, and those that are set aside before they get there.

Owns what is found out of rows before the database has seen them, in the driver as in a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.sinks.batch import Batch, Kept
from leasehold.sinks.content import Columns, SetAside, bodies_of, identified, parted, unfit_rows
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.postgres.staging import NUL, Encoded, Staging, encode, key_numbers
from leasehold.sinks.values import Converted, order_values

_PIECE = 20_000
"""Values that are brought into their form at once; a transaction in which nothing is said for long is ended."""
_SILENCE = 0.1


class Readied:
    """The rows that are kept of a batch, as they travel, and those that are set aside before any write.

    `data`, `encoded`, `gone` and `order` (values of sequence_by) have a value for each row to store, whose places among
    those kept are `at`; `unfit` says why those cannot be stored that are in it. `unparsed` are the other rows kept.
    `tell` is called now and then meanwhile.
    """

    def __init__(self, batch: Batch, columns: Columns, kept: Kept, tell: Callable[[], object]) -> None:
        self.at, source, self.unparsed = parted(batch, kept)
        self.data = batch.rows.take(source).select(columns.columns)
        self.encoded = _encoded([self.data[name] for name in columns.columns], tell)
        gone: Any = pa.array([False] * self.data.num_rows, pa.bool_())
        if batch.delete is not None:
            gone = pc.fill_null(batch.delete.take(source), False)
        self.gone = flat(gone)
        ordering = None if batch.sequence_by is None else _ordering(batch.sequence_by.take(source))
        self.order = None if ordering is None else list(ordering.values)
        self.unfit = unfit_rows(
            columns,
            [_converted(one, is_key=place in columns.keys) for place, one in enumerate(self.encoded)],
            None if batch.delete is None else self.gone.to_pylist(),
            ordering,
        )

    def ordered_by(self, places: Sequence[int]) -> tuple[pa.Array, pa.Array]:
        """The values of sequence_by of these rows as numbers and as text; one of the two has them, none without."""
        ordered = [None] * len(places) if self.order is None else [self.order[place] for place in places]
        by_text = any(isinstance(value, str) for value in ordered)
        numbers = [None] * len(places) if by_text else ordered
        return _numbers(numbers), pa.array(ordered if by_text else [None] * len(places), pa.string())


class BatchRows:
    """The new rows of a batch that are here, in order."""

    def __init__(self, batch: Batch, layout: Layout, kept: Kept, session: Session) -> None:
        self._kept = kept
        self._layout = layout
        self._readied = Readied(batch, layout, kept, lambda: session.one("SELECT 1"))
        rows = self._readied.data.num_rows
        self._places = [place for place in range(rows) if place not in self._readied.unfit]

    def fill(self, staging: Staging, bookkeeping: Bookkeeping) -> int:
        """Bring those that can be stored into the staging table; returns how many."""
        staged = self.staged(bookkeeping)
        if staged.num_rows:
            staging.fill(staged)
        count: int = staged.num_rows
        return count

    def staged(self, bookkeeping: Bookkeeping) -> pa.Table:
        """What goes into staging."""
        taken = pa.array(self._places, pa.int64())
        count = len(self._places)
        at = self._readied.at
        lanes = [self._kept.lanes[at[place]] for place in self._places]
        numbers = [self._kept.numbers[at[place]] for place in self._places]
        distinct = sorted(set(lanes), key=lambda lane: (lane[1], lane[0]))
        ranks = {lane: rank for rank, lane in enumerate(distinct)}
        ids = bookkeeping.lane_ids(distinct)
        values = [flat(one.values).take(taken) for one in self._readied.encoded]
        columns: list[Any] = [
            pa.array(range(count), pa.int32()),
            key_numbers([values[place] for place in self._layout.keys], count),
            pa.array([ids[lane] for lane in lanes], pa.int64()),
            pa.array([ranks[lane] for lane in lanes], pa.int32()),
            pa.array(numbers, pa.int64()),
            *self._readied.ordered_by(self._places),
            self._readied.gone.take(taken),
            *values,
        ]
        return pa.table(columns, names=[str(place) for place in range(len(columns))])

    def end(self) -> None:
        """The rows are merged: nothing is left of them elsewhere."""

    def rejected(self, broken: Mapping[int, str]) -> list[Any]:
        """All rows to set aside, in the order of the batch; `broken` are those that the table refused."""
        it = self._readied
        reasons = {**it.unfit, **{self._places[index]: reason for index, reason in broken.items()}}
        places = sorted(reasons)
        bodies = bodies_of(it.data.take(pa.array(places, pa.int64())))
        found = [SetAside(it.at[place], body, reasons[place], None) for place, body in zip(places, bodies, strict=True)]
        return list(identified(sorted([*it.unparsed, *found], key=lambda one: one.at), self._kept))


def _encoded(columns: Iterable[Any], tell: Callable[[], object]) -> list[Encoded]:
    """The columns as they travel."""
    found, said = [], time.monotonic()
    for column in columns:
        pieces: list[Any] = []
        problems: dict[int, str] = {}
        for start in range(0, max(len(column), 1), _PIECE):
            one = encode(column.take(pa.array(range(start, min(start + _PIECE, len(column))), pa.int64())))
            pieces.append(flat(one.values))
            problems |= {start + index: problem for index, problem in one.problems.items()}
            if time.monotonic() - said > _SILENCE:
                tell()
                said = time.monotonic()
        found.append(Encoded(pa.chunked_array(pieces), problems))
    return found


def flat(column: Any) -> Any:
    """The column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _converted(encoded: Encoded, *, is_key: bool) -> Converted:
    values = flat(encoded.values)
    return Converted(values.to_pylist() if is_key and values.null_count else (), encoded.problems)


def _ordering(column: Any) -> Converted:
    """Values of `sequence_by`; text with a NUL has no place in the order."""
    found = order_values(column)
    nul = {place: NUL for place, value in enumerate(found.values) if isinstance(value, str) and "\0" in value}
    return Converted(found.values, {**nul, **found.problems}) if nul else found


def _numbers(values: Sequence[Any]) -> Any:
    """Numbers as text, with all their digits: a double as the number that it is."""
    return pa.array([None if value is None else format(_exact(value)) for value in values], pa.string())


def _exact(value: Any) -> Any:
    return Decimal(value) if isinstance(value, float) else value
