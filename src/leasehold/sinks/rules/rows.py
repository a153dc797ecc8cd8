"""The rows of a batch that are to be written, in their order, and which of them are the last ones of their keys.

Owns the way from Arrow to the tuples that a statement binds: each row is converted when it is asked for, and those that
nobody asks for never are. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key, Step
from leasehold.sinks.rules.values import stored

_AS_STORED = (
    *(types.is_string, types.is_large_string, types.is_binary, types.is_large_binary),
    *(types.is_integer, types.is_boolean, types.is_date32, types.is_decimal),
    types.is_timestamp,  # what is finer than microseconds is set aside
)
"""Types of which what is equal in Arrow is equal in the table, and the other way round."""


@dataclass(frozen=True, slots=True)
class LastRows:
    """What is left when rows are written one after the other: the last row of each key, in the order of the keys.

    `deleted` has one row of each key that is deleted on the way, or at the end.
    """

    last: pa.Array
    deleted: pa.Array


@dataclass(frozen=True)
class Rows:
    """Rows of the columns that are bound, all of which can be stored, with what decides about them.

    `data` has them in Arrow, for a database that takes them so; `values` and `keys` as `rules.values` stores them.
    `key_columns` are the places of the key columns. `deletes` says which rows are deletes, None if none is.
    """

    data: pa.Table
    key_columns: tuple[int, ...]
    deletes: Sequence[bool] | None
    lanes: Sequence[Lane]
    numbers: Sequence[int]

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def some(self, indices: Sequence[int]) -> Rows:
        """These rows alone."""
        return Rows(
            self.data.take(pa.array(indices, pa.int64())),
            self.key_columns,
            None if self.deletes is None else [self.deletes[index] for index in indices],
            [self.lanes[index] for index in indices],
            [self.numbers[index] for index in indices],
        )

    @cached_property
    def values(self) -> list[tuple[Any, ...]]:
        """What is bound for each row."""
        return _tuples(self.data)

    @cached_property
    def keys(self) -> list[Key]:
        """The key of each row."""
        return _tuples(self.data.select(list(self.key_columns)))

    def columns_of(self, indices: pa.Array) -> list[list[Any]]:
        """What is bound for these rows, column by column."""
        return [stored(column) for column in self.data.take(indices).columns]

    def keys_of(self, indices: pa.Array) -> list[Key]:
        """The keys of these rows."""
        return _tuples(self.data.select(list(self.key_columns)).take(indices))

    @property
    def tells_keys_apart(self) -> bool:
        """Whether keys that differ here differ in the table, and the other way round."""
        kinds = [self.data.schema.field(place).type for place in self.key_columns]
        return all(any(is_one(kind) for is_one in _AS_STORED) for kind in kinds)

    def left_by(self, step: Step) -> LastRows:
        """What is left once the winners of a step were written in their order."""
        last = [index for _, index in sorted(step.written.items())]
        gone: dict[Key, int] = {}
        if self.deletes is not None:
            gone = {self.keys[index]: index for index in step.winners if self.deletes[index]}
        return LastRows(pa.array(last, pa.int64()), pa.array(gone.values(), pa.int64()))

    def last_of_keys(self, *, one_lane: bool) -> LastRows | None:
        """The last row of each key. None where the rows have to be looked at one after the other.

        That is so if `one_lane` and a key comes from two partitions, and where keys that differ in Arrow may be one in
        the table.
        """
        if not len(self) or not self.tells_keys_apart:
            return None
        keys = [self.data.column(place) for place in self.key_columns]
        ids = {lane: number for number, lane in enumerate(dict.fromkeys(self.lanes))}
        lanes = pa.array([ids[lane] for lane in self.lanes], pa.int64())
        gone = pa.array([False] * len(self) if self.deletes is None else self.deletes, pa.bool_())
        places = pa.array(range(len(self)), pa.int64())
        rows = pa.table({"key": key_numbers(keys, len(self)), "place": places, "lane": lanes, "gone": gone})
        groups = rows.group_by("key", use_threads=False).aggregate(
            [("place", "max"), ("lane", "min"), ("lane", "max"), ("gone", "any")]
        )
        if one_lane and not groups["lane_min"].equals(groups["lane_max"]):
            return None
        last = groups["place_max"]
        named = pa.table({str(number): key.take(last) for number, key in enumerate(keys)})
        groups = groups.take(pc.sort_indices(named, [(name, "ascending") for name in named.schema.names]))
        return LastRows(groups["place_max"], groups.filter(groups["gone_any"])["place_max"])

    def remembered(self, last_rows: LastRows) -> list[list[Any]]:
        """What to note of each key, column by column, where its last row is not chosen by a value."""
        places = last_rows.last.to_pylist()
        keys = self.data.select(list(self.key_columns)).take(last_rows.last)
        lanes = [self.lanes[place] for place in places]
        deleted = [0] * len(places) if self.deletes is None else [int(self.deletes[place]) for place in places]
        return [
            *(stored(column) for column in keys.columns),
            [hub for hub, _ in lanes],
            [partition for _, partition in lanes],
            [self.numbers[place] for place in places],
            [None] * len(places),
            deleted,
        ]


def _tuples(data: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(stored(column) for column in data.columns), strict=True))


def key_numbers(columns: Sequence[Any], rows: int) -> pa.Array:
    """A number for each row that is the same where all of these columns are, counted from 0 as keys first appear."""
    numbers: Any = pa.repeat(pa.scalar(0, pa.int64()), rows)
    for column in columns:
        # Small again after each column: no product overflows.
        numbers = _codes(pc.add(pc.multiply(numbers, rows + 1), _codes(column)))
    return numbers


def _codes(column: Any) -> Any:
    encoded = pc.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.indices.cast(pa.int64())
