"""From the rows that are new to what is bound: values, keys, claims, and the rows that cannot be stored at all.

Owns the rules for rows that are set aside before any write: those that the caller could not parse, those
with a null key (NaN is null to SQLite), without a place in the order of `sequence_by`, or with a value that
has no form (`rules.values`). A delete binds its key only, so nothing else of it is looked at. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.arrow_masks import true_places
from leasehold.errors import ConfigError
from leasehold.sinks.rules.batch import REJECTED_COLUMNS, Batch, Kept, find
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Claim, Key, KeyOrder
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.row_by_row import EveryEvent, RowOrder
from leasehold.sinks.rules.rows import Rows
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, folded
from leasehold.sinks.rules.values import Converted, Unstorable, as_json, convert, order_kind, order_values, unstorable


class Columns(Protocol):
    """Which columns are bound, and which of them are keys."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def keys(self) -> tuple[int, ...]: ...


class SetAside(NamedTuple):
    """A row to reject: where it is among the kept rows, its body, why, and what else it was given with, as JSON."""

    at: int
    body: object
    reason: str
    source: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """A batch's new rows, ready to be written.

    `data` is what they were made of and `places[i]` where row `i` is in it, since some are left out; those
    are in `unfit`, by place and with a reason. `unparsed` are the rows that the caller could not parse. All are
    among the rows `kept`, those of `data` at the places `at`.
    """

    kept: Kept
    data: pa.Table
    at: Sequence[int]
    lanes: Sequence[Lane]
    numbers: Sequence[int]
    rows: Rows
    places: Sequence[int]
    order_values: Sequence[Any] | None
    unfit: Mapping[int, str]
    unparsed: Sequence[SetAside]

    def order(self, load: Callable[[Sequence[Key]], Mapping[Key, Claim]], *, keyed: bool) -> RowOrder:
        """What decides which rows count; `load` is asked for what is known of the keys, each once."""
        if not keyed:
            return EveryEvent()
        lanes, values = self.rows.lanes, self.order_values
        claims: Sequence[Claim] = lanes
        if values is not None:
            claims = [
                (value, partition, hub, number)
                for value, (hub, partition), number in zip(values, lanes, self.rows.numbers, strict=True)
            ]
        known = load(list(dict.fromkeys(self.rows.keys)))
        return KeyOrder(self.rows.keys, claims, known, by_value=values is not None)

    def rejected(self, broken: Mapping[int, str]) -> list[Rejected]:
        """All rows to set aside, in the order of the batch; `broken` are those that the table refused."""
        reasons = {**self.unfit, **{self.places[index]: reason for index, reason in broken.items()}}
        places = sorted(reasons)
        bodies = bodies_of(self.data.take(pa.array(places, pa.int64())))
        found = [
            SetAside(self.at[place], body, reasons[place], None) for place, body in zip(places, bodies, strict=True)
        ]
        return list(identified(sorted([*self.unparsed, *found], key=attrgetter("at")), self.kept))

    def remembered(self, order: RowOrder) -> Iterator[tuple[object, ...]]:
        """What to note of each key that was written."""
        if not isinstance(order, KeyOrder):
            return
        rows, values = self.rows, self.order_values
        for key, index in sorted(order.written().items()):
            value = None if values is None else values[index]
            deleted = int(rows.deletes is not None and rows.deletes[index])
            yield (*key, *rows.lanes[index], rows.numbers[index], value, deleted)


def content_of(batch: Batch, layout: Columns, kept: Kept) -> Content:
    """The rows that are kept, in their order; what cannot be stored is left out of `rows`."""
    at, source, unparsed = parted(batch, kept)
    data = batch.rows if _is_whole(source, batch.rows.num_rows) else batch.rows.take(source)
    data = data.select(layout.columns)
    deletes = None if batch.delete is None else pc.fill_null(batch.delete.take(source), False).to_pylist()
    if deletes is not None and not any(deletes):
        deletes = None
    ordering = None if batch.sequence_by is None else order_values(batch.sequence_by.take(source))
    lanes = kept.lanes if len(at) == len(kept.lanes) else [kept.lanes[index] for index in at]
    numbers = kept.numbers if len(at) == len(kept.numbers) else [kept.numbers[index] for index in at]

    unfit = unfit_rows(layout, [unstorable(column) for column in data.columns], deletes, ordering)
    rows = Rows(data, layout.keys, deletes, lanes, numbers)
    places: Sequence[int] = range(len(rows))
    ordered = None if ordering is None else ordering.values
    if unfit:
        places = [place for place in places if place not in unfit]
        rows = rows.some(places)
        ordered = ordered and [ordered[place] for place in places]
    return Content(kept, data, at, lanes, numbers, rows, places, ordered, unfit, unparsed)


def kind_of_order(batch: Batch) -> str | None:
    """What the values of `sequence_by` are compared as, `None` without it. Raises `ConfigError`."""
    if batch.sequence_by is None:
        return None
    kind = order_kind(batch.sequence_by.type)
    if kind is None:
        raise ConfigError(
            "sequence_by",
            None,
            f"gives a {batch.sequence_by.type}, and an order is an integer, a floating point number, a string, a "
            "date or a timestamp",
            "Cast it, for example CAST(version AS BIGINT)",
        )
    return kind


def identified(rows: Iterable[SetAside], kept: Kept) -> Iterator[Rejected]:
    """The rows with their place among all rows of their event, which stand together and are kept together."""
    event, first = None, 0
    for row in rows:
        its = kept.lanes[row.at], kept.numbers[row.at]
        if its != event:
            event, first = its, row.at
            while first and (kept.lanes[first - 1], kept.numbers[first - 1]) == its:
                first -= 1
        yield Rejected(*its[0], its[1], row.at - first, row.body, row.reason, row.source)


def parted(batch: Batch, kept: Kept) -> tuple[Sequence[int], pa.Array, list[SetAside]]:
    """Where among the kept rows those to store are, their sources, and the unparsed rows with their places."""
    if (batch.rejected is None or not batch.rejected.num_rows) and not batch.unwritable:
        return range(len(kept.source)), kept.source, []
    is_row = pc.less(kept.source, pa.scalar(batch.rows.num_rows, kept.source.type))
    is_stored = is_row
    if batch.unwritable:
        is_stored = pc.and_not(is_row, pc.is_in(kept.source, pa.array(list(batch.unwritable), kept.source.type)))
    aside = [*_unparsed(batch, kept, pc.invert(is_row)), *_unwritable(batch, kept, pc.and_not(is_row, is_stored))]
    return true_places(is_stored), kept.source.filter(is_stored), sorted(aside, key=attrgetter("at"))


def _unparsed(batch: Batch, kept: Kept, these: pa.Array) -> list[SetAside]:
    if batch.rejected is None or not pc.any(these).as_py():
        return []
    sources = kept.source.filter(these)
    table = batch.rejected.take(pc.subtract(sources, pa.scalar(batch.rows.num_rows, sources.type)))
    bodies, reasons = (convert(table[find(table.schema, name)]).values for name in ("body", "reason"))
    rows = zip(true_places(these), bodies, reasons, sources_of(table), strict=True)
    return [SetAside(at, body, reason or "no reason was given", source) for at, body, reason, source in rows]


def _unwritable(batch: Batch, kept: Kept, these: pa.Array) -> list[SetAside]:
    if not batch.unwritable:
        return []
    sources = kept.source.filter(these)
    fence = {folded(name) for name in FENCE_COLUMNS}
    own = [name for name in batch.rows.schema.names if folded(name) not in fence]
    bodies = bodies_of(batch.rows.select(own).take(sources))
    rows = zip(true_places(these), bodies, sources.to_pylist(), strict=True)
    return [SetAside(at, body, batch.unwritable[source], None) for at, body, source in rows]


def sources_of(table: pa.Table) -> Sequence[str]:
    """What rows were given with besides what has a column of its own, as JSON objects."""
    others = [name for name in table.schema.names if folded(name) not in map(folded, REJECTED_COLUMNS)]
    return as_json({name: table[name] for name in others}) if others else ["{}"] * table.num_rows


def _is_whole(source: pa.Array, rows: int) -> bool:
    """Whether the rows are all wanted, and in the order in which they are: then nothing has to be copied."""
    return len(source) == rows and bool(source.equals(pa.array(range(rows), source.type)))


def unfit_rows(
    layout: Columns,
    columns: Sequence[Unstorable],
    deletes: Sequence[bool] | None,
    ordering: Converted | None,
) -> dict[int, str]:
    """What is wrong with rows before any write; of several things the first column's, keys first."""
    unfit: dict[int, str] = {}
    for place in (*layout.keys, *(place for place in range(len(columns)) if place not in layout.keys)):
        name, column, is_key = layout.columns[place], columns[place], place in layout.keys
        for index, problem in column.problems.items():
            if is_key or deletes is None or not deletes[index]:
                unfit.setdefault(index, f"{name} {problem}")
        for index in column.nulls if is_key else ():
            unfit.setdefault(index, f"the key {name} is null")
    for index, problem in ordering.problems.items() if ordering else ():
        unfit.setdefault(index, f"sequence_by {problem}")
    return unfit


def bodies_of(data: pa.Table) -> Sequence[object]:
    """What to keep of rows that are set aside: their body if they have one, else all of them as JSON."""
    if not data.num_rows:
        return []
    rows = as_json({name: data[name] for name in data.schema.names})
    body = next((name for name in data.schema.names if folded(name) == "body"), None)
    if body is None:
        return rows
    bodies = convert(data[body]).values
    return [row if given is None else given for given, row in zip(bodies, rows, strict=True)]
