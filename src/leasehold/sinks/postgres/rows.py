"""The rows of a batch on their way to staging, and those that are set aside before they get there.

Owns what is found out of rows before the database has seen them, and which rows have to be sent. Where no rule of the
table could see a row that a later one of its key replaces (`Layout.lets_last_alone`), the outcome is the same whether
all rows are written in their order, or the last one of each key alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import true_places
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.layout import Layout
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.staging import NUL, Encoded, Filled, Staging, encode, exact, flat, is_fit
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.content import SetAside, bodies_of, identified, parted, unfit_rows
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Claim, KeyOrder, Step, beside
from leasehold.sinks.rules.rows import Rows, key_numbers
from leasehold.sinks.rules.values import Converted, Unstorable, order_values

_PIECE = 20_000
"""Values that are brought into their form at once."""
_SILENCE = 0.1
"""Seconds without a word to the server, which ends a transaction that is silent for long."""


class Readied:
    """The rows that are kept of a batch, as they travel, and those that are set aside before any write.

    `data`, `encoded`, `gone` and `order` (values of sequence_by) have a value for each row to store, whose places among
    those kept are `at`; `unfit` says why those cannot be stored that are in it. `unparsed` are the other rows kept.
    `tell` is called now and then meanwhile. Rows are encoded once that is asked for.
    """

    def __init__(self, batch: Batch, columns: Layout, kept: Kept, tell: Callable[[], object]) -> None:
        self.at, source, self.unparsed = parted(batch, kept)
        self.data = batch.rows.select(columns.columns).take(source)
        gone: Any = pa.array([False] * self.data.num_rows, pa.bool_())
        if batch.delete is not None:
            gone = pc.fill_null(batch.delete.take(source), False)
        self.gone = flat(gone)
        self._ordering = None if batch.sequence_by is None else _ordering(batch.sequence_by.take(source))
        self.order = None if self._ordering is None else list(self._ordering.values)
        self._columns = columns
        self._deletes = batch.delete is not None
        self._tell = tell

    @cached_property
    def encoded(self) -> list[Encoded]:
        return encoded(self._columns, self.data, self._tell)

    @cached_property
    def unfit(self) -> dict[int, str]:
        problems = self._ordering.problems if self._ordering else ()
        keys = self._columns.keys
        if not problems and all(is_fit(one, place in keys) for place, one in enumerate(self.data.columns)):
            return {}
        deletes = self.gone.to_pylist() if self._deletes else None
        return unfit_rows(self._columns, [_unstorable(one) for one in self.encoded], deletes, self._ordering)

    def ordered_by(self, places: Sequence[int]) -> tuple[pa.Array, pa.Array]:
        """The values of sequence_by of these rows as numbers and as text; one of the two has them, none without."""
        if self.order is None:
            return pa.nulls(len(places), pa.string()), pa.nulls(len(places), pa.string())
        ordered = [self.order[place] for place in places]
        by_text = any(isinstance(value, str) for value in ordered)
        numbers = [None] * len(places) if by_text else ordered
        return _numbers(numbers), pa.array(ordered if by_text else [None] * len(places), pa.string())


@dataclass(frozen=True, slots=True)
class Judged:
    """What rows are compared by (`sequence_by`), and which of them count as long as nothing is known of their keys."""

    claims: Sequence[Claim]
    step: Step


@dataclass(frozen=True, slots=True)
class Last:
    """Rows that can be stored, and where the last one of each key is among them, in the order of keys.

    Where rows were `judged`, the last one is the highest, and what is known of its key may be higher.
    """

    rows: Rows
    places: pa.Array
    gone: pa.Array
    deletes: bool
    judged: Judged | None

    def beside(self, claims: Mapping[int, Claim]) -> tuple[Step, set[int]]:
        """Judge again beside `claims`, the earlier claims by the number of the key (its place in `places`).

        Returns the judgement, and the numbers of the keys of which no row counts.
        """
        assert self.judged is not None
        keys, places = self.rows.keys, self.places.to_pylist()
        before = {keys[places[kid]]: claim for kid, claim in claims.items()}
        step = beside(self.judged.step, keys, self.judged.claims, before)
        if step is self.judged.step:
            return step, set()
        return step, {kid for kid in claims if keys[places[kid]] not in step.written}


class BatchRows:
    """The new rows of a batch, in order."""

    def __init__(self, batch: Batch, layout: Layout, kept: Kept, session: PostgresSession) -> None:
        self._kept = kept
        self._layout = layout
        self._deletes = batch.delete is not None
        self._staging = Staging(session, layout)
        self._readied = Readied(batch, layout, kept, lambda: session.one("SELECT 1"))
        rows = self._readied.data.num_rows
        self._session = session
        self._places: Sequence[int] = range(rows)
        if self._readied.unfit:
            self._places = [place for place in range(rows) if place not in self._readied.unfit]

    def fill(self, bookkeeping: Bookkeeping) -> Filled:
        """Bring those that can be stored into the staging table."""
        staged = self.staged(bookkeeping)
        if not staged.num_rows:
            return Filled(0, 0)
        self._staging.fill(staged)
        return Filled(staged.num_rows, pc.max(staged["kid"]).as_py() + 1)

    def fill_table(self) -> int:
        """Bring those that can be stored straight into the entity table; returns how many they are."""
        values = [flat(one.values) for one in self._readied.encoded]
        if self._readied.unfit:
            taken = pa.array(self._places, pa.int64())
            values = [one.take(taken) for one in values]
        self._staging.fill_table(values)
        return len(self._places)

    def last(self) -> Last | None:
        """The last row of each key, if it alone has to be written; None if that cannot be told from the rows.

        Then a key comes from two partitions without `sequence_by`, or is deleted and comes again where the table has
        more columns, or a row that a later one replaces may break a rule of the table.
        """
        it, layout = self._readied, self._layout
        data, gone = it.data, it.gone
        if it.unfit:
            places = pa.array(self._places, pa.int64())
            data, gone = data.take(places), gone.take(places)
        if not data.num_rows or not layout.lets_replace(data):
            return None
        lanes, numbers = self._of_places()
        rows = Rows(data, layout.keys, gone.to_pylist() if self._deletes else None, lanes, numbers)
        judged = self._judged(rows)
        if judged is None:
            left = rows.last_of_keys(one_lane=True)
        else:
            left = rows.left_by(judged.step) if rows.tells_keys_apart else None
        if left is None:
            return None
        ends = pc.sum(gone.take(left.last)).as_py() if self._deletes else 0
        if len(left.deleted) > ends and not layout.gives_all:
            return None
        return Last(rows, left.last, gone, self._deletes, judged)

    def _judged(self, rows: Rows) -> Judged | None:
        """What `sequence_by` says of these rows alone; None without it."""
        order = self._readied.order
        if order is None:
            return None
        parts = zip(self._places, rows.lanes, rows.numbers, strict=True)
        claims = [(order[place], partition, hub, number) for place, (hub, partition), number in parts]
        return Judged(claims, KeyOrder(rows.keys, claims, {}, by_value=True).judge(0, len(rows)))

    def fill_last(self, last: Last, bookkeeping: Bookkeeping) -> None:
        """Bring the last row of each key into the staging table, in the order of keys."""
        lanes, numbers, count = last.rows.lanes, last.rows.numbers, len(last.places)
        ids = bookkeeping.lane_ids(sorted(set(lanes)))
        places = last.places.to_pylist()
        columns: dict[str, Any] = {
            "place": pa.array(range(count), pa.int32()),
            "kid": pa.array(range(count), pa.int32()),
            "lane": pa.array([ids[lanes[place]] for place in places], pa.int64()),
            "number": pa.array([numbers[place] for place in places], pa.int64()),
        }
        if last.judged is not None:
            columns["by_number"], columns["by_text"] = self._readied.ordered_by([self._places[one] for one in places])
        if self._deletes:
            columns["gone"] = last.gone.take(last.places)
        values = encoded(self._layout, last.rows.data.take(last.places), lambda: self._session.one("SELECT 1"))
        self._staging.fill(pa.table({**columns, **{f"c{place}": flat(one.values) for place, one in enumerate(values)}}))

    def staged(self, bookkeeping: Bookkeeping) -> pa.Table:
        """What goes into staging; without the columns that all rows have by default."""
        count, unfit = len(self._places), bool(self._readied.unfit)
        taken = pa.array(self._places, pa.int64()) if unfit else None
        lanes, numbers = self._of_places()
        distinct = sorted(set(lanes), key=lambda lane: (lane[1], lane[0]))
        ranks = {lane: rank for rank, lane in enumerate(distinct)}
        ids = bookkeeping.lane_ids(distinct)
        runs = [(lane, sum(1 for _ in run)) for lane, run in groupby(lanes)]
        values, gone = [flat(one.values) for one in self._readied.encoded], self._readied.gone
        if taken is not None:
            values, gone = [one.take(taken) for one in values], gone.take(taken)
        columns: dict[str, Any] = {
            "place": pa.array(range(count), pa.int32()),
            "kid": key_numbers([values[place] for place in self._layout.keys], count),
            "lane": _repeated([(ids[lane], times) for lane, times in runs], pa.int64()),
            "rank": _repeated([(ranks[lane], times) for lane, times in runs], pa.int32()),
            "number": pa.array(numbers, pa.int64()),
        }
        if self._readied.order is not None:
            columns["by_number"], columns["by_text"] = self._readied.ordered_by(self._places)
        if self._deletes:
            columns["gone"] = gone
        return pa.table({**columns, **{f"c{place}": one for place, one in enumerate(values)}})

    def _of_places(self) -> tuple[Sequence[Lane], Sequence[int]]:
        """Partition and sequence number of each row."""
        lanes, numbers, at = self._kept.lanes, self._kept.numbers, self._readied.at
        if len(self._places) == len(lanes):  # all rows, and they are in order
            return lanes, numbers
        return [lanes[at[place]] for place in self._places], [numbers[at[place]] for place in self._places]

    def rejected(self, broken: Mapping[int, str]) -> list[Any]:
        """All rows to set aside, in the order of the batch; `broken` are those that the table refused."""
        it = self._readied
        reasons = {**it.unfit, **{self._places[index]: reason for index, reason in broken.items()}}
        places = sorted(reasons)
        bodies = bodies_of(it.data.take(pa.array(places, pa.int64())))
        found = [SetAside(it.at[place], body, reasons[place], None) for place, body in zip(places, bodies, strict=True)]
        return list(identified(sorted([*it.unparsed, *found], key=lambda one: one.at), self._kept))


def encoded(layout: Layout, data: pa.Table, tell: Callable[[], object]) -> list[Encoded]:
    """The layout's columns as they travel."""
    found, said = [], time.monotonic()
    for target, column in zip(layout.targets, data.columns, strict=True):
        pieces: list[Any] = []
        problems: dict[int, str] = {}
        for start in range(0, max(len(column), 1), _PIECE):
            piece = column.slice(start, _PIECE)
            if types.is_nested(column.type):  # of a slice, Arrow shows the values of all of it
                piece = column.take(pa.array(range(start, start + len(piece)), pa.int64()))
            one = encode(piece, target.carrier)
            pieces.append(flat(one.values))
            problems |= {start + index: problem for index, problem in one.problems.items()}
            if time.monotonic() - said > _SILENCE:
                tell()
                said = time.monotonic()
        found.append(Encoded(pa.chunked_array(pieces), problems))
    return found


def _repeated(runs: Iterable[tuple[int, int]], type_: pa.DataType) -> pa.Array:
    """Each number this many times."""
    return pa.concat_arrays([pa.array([], type_), *(pa.repeat(pa.scalar(one, type_), times) for one, times in runs)])


def _unstorable(encoded: Encoded) -> Unstorable:
    return Unstorable(encoded.problems, true_places(pc.is_null(encoded.values)))


def _ordering(column: Any) -> Converted:
    """Values of `sequence_by`; text with a NUL has no place in the order."""
    found = order_values(column)
    nul = {place: NUL for place, value in enumerate(found.values) if isinstance(value, str) and "\0" in value}
    return Converted(found.values, {**nul, **found.problems}) if nul else found


def _numbers(values: Sequence[Any]) -> Any:
    """Numbers as text, with all their digits: a double as the number that it is."""
    return pa.array([None if value is None else format(exact(value)) for value in values], pa.string())
