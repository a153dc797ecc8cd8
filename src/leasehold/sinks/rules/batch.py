"""A batch as it arrives, and the order in which its rows are applied.

Owns the reading of the fence's columns. Promises one order, whatever order the rows arrive in: by hub and
partition (as text), owner level, sequence number; rows of one event keep the order they came in, and rows
that the caller could not parse come after those of the same event that it could. Refuses rows that do not
say which event they come from, and those of other events than the batch has read. Does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import true_places
from leasehold.errors import SchemaMismatch, StaleBatch
from leasehold.model import EventRange
from leasehold.sinks.rules.again import EventId
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.fence import FencePlan, Lane, Range, Watermark
from leasehold.sinks.rules.messages import MessageStep
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import Parking
from leasehold.sinks.rules.related import Related
from leasehold.sinks.rules.table_spec import (
    FENCE_COLUMNS,
    HUB,
    OWNER_LEVEL,
    PARTITION,
    SEQUENCE_NUMBER,
    RefusedRange,
    folded,
    repeated,
)
from leasehold.sinks.rules.values import Column, ColumnKind, kind_of

REJECTED_COLUMNS = (*FENCE_COLUMNS, "body", "reason")
"""The columns of rows that the caller could not parse; whatever else the source gave may come with them."""


IDENTITY_COLUMNS = ("hub", "partition", "sequenceNumber", "identity", "enqueuedTime")


@dataclass(frozen=True, slots=True)
class Identities:
    """What the events of a batch are known by to their producers: one row an event, with `IDENTITY_COLUMNS`.

    `expression` is what gave them, as text; of two events that are at most `window` seconds apart the second is dropped
    (`duplicates`).
    """

    rows: pa.Table
    expression: str
    window: float


OrderValue = int | float | str
"""A value of `sequence_by`, as it is compared (`values.order_values`)."""


@dataclass(frozen=True, slots=True)
class KnownEntity:
    """What is known of an entity; `version` 0 if it has never been seen. `waits` says that it has parked events."""

    version: int = 0
    latest: OrderValue | None = None
    state: Mapping[str, Any] | None = None
    waits: bool = False

    def __reduce__(self) -> tuple[Any, ...]:  # many go between processes, and a dataclass by itself is slow to pickle
        return KnownEntity, (self.version, self.latest, self.state, self.waits)


@dataclass(frozen=True, slots=True)
class Versioned:
    """What a batch of a spread table was computed from, and what its events leave.

    schema   of the states
    read     the version of each key that its events are about
    latest   of those that events have taken effect for, the highest value of `sequence_by`, also of earlier ones
    again    from what is known of the keys that have moved to the batch anew, of the same ranges; or to None if it
             has to be computed outside of the transaction. It may be called several times
    """

    schema: pa.Schema
    read: Mapping[Key, int]
    latest: Mapping[Key, OrderValue]
    again: Callable[[Mapping[Key, KnownEntity]], Batch | None] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with the columns to store and those of the fence, and what goes with them.

    `sequence_by` and `delete` have one value a row. `rejected` has the columns `REJECTED_COLUMNS`. `ranges` are what
    was read whole to make the rows, also where a transform has left none of them; without, the ranges go from the
    first to the last row of each partition and owner level. `identities` are what its events are known by, so that one
    that a producer has sent twice is applied once. `read_under` are the watermarks from before those rows of the
    table were read that the batch was computed from: if one has moved since, it is outdated (`fence`, rule 10).
    `parking` is what becomes of parked events with it; of one partition, whose range is the only one. `versioned` is
    what a batch of a spread table was computed from; all its rows are of one partition. `related` is what its events
    make of related tables; `rows` has the states that are left of their entities.
    `outbox` are the events that handlers have emitted for it, in order; it comes with `read_under`
    (`sinks.beside.outbox`).
    Without `ranges`, `times` has by partition the number of the last event read, and when it was enqueued.
    `read` is how many events were read for it; without, there was one for each number of its `ranges`.
    With `again`, it reads nothing: these rejected events are tried again (`sinks.set_aside`). It has all rows of
    them, in the order of the transform, and in `rejected` those that could not be read or computed.
    `unwritable` are rows that are set aside, by their places, and why (`unchanged`).
    With `messages` it has no rows: see `of_messages`.
    `beside` is what the same events give further tables, which are filled in the same transaction (`table_set`): each
    has rows, `sequence_by` and `delete`; all else is this batch's.
    """

    rows: pa.Table
    rejected: pa.Table | None = None
    sequence_by: Column | None = None
    delete: Column | None = None
    ranges: Sequence[EventRange] | None = None
    identities: Identities | None = None
    read_under: Mapping[Lane, Watermark] | None = None
    parking: Parking | None = None
    versioned: Versioned | None = None
    outbox: Sequence[EmittedEvent] = ()
    related: Related | None = None
    times: Mapping[Lane, tuple[int, float]] | None = None
    read: int | None = None
    again: Collection[EventId] | None = None
    unwritable: Mapping[int, str] = field(default_factory=dict)
    messages: MessageStep | None = None
    beside: tuple[Batch, ...] = ()

    def each(self) -> list[Batch]:
        """The batches of all tables that this one is for, each with what all of them share."""
        own = replace(self, beside=())
        rows = ((one.rows, one.sequence_by, one.delete) for one in self.beside)
        return [own, *(replace(own, rows=it, sequence_by=by, delete=delete) for it, by, delete in rows)]

    @staticmethod
    def of_messages(step: MessageStep) -> Batch:
        """What messages of a queue make of an entity (`sinks.beside.messages`)."""
        return Batch(step.schema.empty_table(), messages=step)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The ordered rows `[begin, end)` come from one partition under one owner level. A whole range may have none.

    `parked` says that they are of parked events, which were read before the range.
    """

    range: Range
    begin: int
    end: int
    parked: bool = False


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The rows of a batch in order: `source[i]` is where the i-th is, `numbers[i]` its sequence number.

    Rows that the caller could not parse have sources from the number of the other rows on. `more` are the places of
    rows that are not the first of their event.
    """

    source: pa.Array
    numbers: Sequence[int]
    stretches: tuple[Stretch, ...]
    more: Sequence[int] = ()

    def events(self, begin: int, end: int) -> int:
        """How many events the rows `[begin, end)` are of, the first of which is the first of its event."""
        return end - begin - (bisect_left(self.more, end) - bisect_left(self.more, begin))

    def admitted(self, plan: FencePlan) -> Kept:
        """The rows that `plan`, made for the ranges of this arrangement, lets through."""
        by_range = {stretch.range: stretch for stretch in self.stretches}
        pieces: list[pa.Array] = [self.source.slice(0, 0)]
        lanes: list[Lane] = []
        numbers: list[int] = []
        replayed = events = 0
        for admission in plan.admitted:
            stretch = by_range[admission.range]
            begin = stretch.begin
            if not stretch.parked:
                begin = bisect_right(self.numbers, admission.after, stretch.begin, stretch.end)
            replayed += self.events(stretch.begin, begin)
            events += self.events(begin, stretch.end)
            pieces.append(self.source.slice(begin, stretch.end - begin))
            lanes += [admission.range.lane] * (stretch.end - begin)
            numbers += self.numbers[begin : stretch.end]
        return Kept(pa.concat_arrays(pieces), lanes, numbers, events, replayed)

    def refused(self, plan: FencePlan) -> tuple[RefusedRange, ...]:
        """The ranges that `plan` refuses, with how many rows each has."""
        sizes = {stretch.range: stretch.end - stretch.begin for stretch in self.stretches}
        return tuple(
            RefusedRange(*each.range.lane, each.range.owner_level, each.watermark_level, sizes[each.range])
            for each in plan.refused
        )

    def refused_events(self, plan: FencePlan) -> int:
        """How many events have rows in the ranges that `plan` refuses."""
        refused = {each.range for each in plan.refused}
        return sum(self.events(one.begin, one.end) for one in self.stretches if one.range in refused)


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows that are new, in order, each with its partition and sequence number.

    `events` is how many events they are of, `replayed` how many have rows that are not new.
    """

    source: pa.Array
    lanes: list[Lane]
    numbers: list[int]
    events: int
    replayed: int

    def without(self, dropped: Collection[tuple[str, str, int]]) -> Kept:
        """These rows but for those of the events `dropped`: hub, partition and sequence number."""
        if not dropped:
            return self
        left, gone = [], set()
        for place, (lane, number) in enumerate(zip(self.lanes, self.numbers, strict=True)):
            if (*lane, number) in dropped:
                gone.add((*lane, number))
            else:
                left.append(place)
        return Kept(
            self.source.take(pa.array(left, pa.int64())),
            [self.lanes[place] for place in left],
            [self.numbers[place] for place in left],
            self.events - len(gone),
            self.replayed,
        )


NO_ROWS = Arrangement(pa.nulls(0, pa.uint64()), (), ())  # an array of Python's values would import pandas
"""The arrangement of a batch without rows."""


def arrange(batch: Batch) -> Arrangement:
    """Put the rows in order.

    Raises `SchemaMismatch` for rows that do not say where they come from, `StaleBatch` for rows outside `batch.ranges`.
    """
    fence = fence_of(batch.rows, "the DataFrame")
    if batch.rejected is not None:
        _check_rejected(batch.rejected)
        fence = pa.concat_tables([fence, fence_of(batch.rejected, "the DataFrame of rejected events")])
    made_of_rows = _in_order(fence)
    if batch.parking is not None and batch.parking.retried:
        return _parked(made_of_rows, batch.ranges or ())
    if batch.ranges is not None:
        return _within(made_of_rows, batch.ranges)
    return replace(made_of_rows, stretches=_timed(made_of_rows.stretches, batch.times or {}))


def _timed(stretches: Iterable[Stretch], times: Mapping[Lane, tuple[int, float]]) -> tuple[Stretch, ...]:
    """The same stretches; where one ends with the event of its partition in `times`, its range has that one's time."""
    found = []
    for one in stretches:
        number, at = times.get(one.range.lane, (None, None))
        found.append(replace(one, range=replace(one.range, enqueued_time=at)) if number == one.range.last else one)
    return tuple(found)


def _in_order(fence: pa.Table) -> Arrangement:
    """The rows in order, and the ranges that they make."""
    if not fence.num_rows:
        return NO_ROWS
    # One small number for hub, partition and level makes the sort, and finding the stretches, a matter of integers.
    code: Column = pa.array([0] * fence.num_rows, pa.int64())
    ranks: list[list[object]] = []
    for name in (HUB, PARTITION, OWNER_LEVEL):
        distinct = pc.unique(fence[name])
        distinct = distinct.take(pc.sort_indices(distinct))
        ranks.append(distinct.to_pylist())
        code = pc.add(pc.multiply(code, len(distinct)), pc.index_in(fence[name], distinct).cast(pa.int64()))
    keys = pa.table({"code": code, "number": fence[SEQUENCE_NUMBER]})
    source = pc.sort_indices(keys, [("code", "ascending"), ("number", "ascending")])  # stable
    ordered = keys.take(source)
    codes, numbers = ordered["code"].to_pylist(), ordered["number"].to_pylist()
    stretches = []
    for each in sorted(set(codes)):
        begin, end = bisect_left(codes, each), bisect_right(codes, each)
        rest, level = divmod(each, len(ranks[2]))
        hub, partition = divmod(rest, len(ranks[1]))
        # The ranks hold what the columns hold: text, text and an integer.
        range_ = Range(ranks[0][hub], ranks[1][partition], ranks[2][level], numbers[begin], numbers[end - 1])
        stretches.append(Stretch(range_, begin, end))
    return Arrangement(source, numbers, tuple(stretches), _repeated(ordered))


def _repeated(ordered: pa.Table) -> Sequence[int]:
    """The places of rows that are of the same event as the one before."""
    before, behind = ordered.slice(0, ordered.num_rows - 1), ordered.slice(1)
    same = pc.and_(*(pc.equal(before[name], behind[name]) for name in ("number", "code")))
    return [place + 1 for place in true_places(same)]


def _within(made_of_rows: Arrangement, ranges: Iterable[EventRange]) -> Arrangement:
    """The same rows, each in the first of the given ranges that has its event."""
    numbers = made_of_rows.numbers
    left = {_place(stretch.range): (stretch.begin, stretch.end) for stretch in made_of_rows.stretches}
    stretches = []
    for each in sorted({Range.read_whole(one) for one in ranges}):
        start, stop = left.get(_place(each), (0, 0))
        begin = bisect_left(numbers, each.first, start, stop)
        end = bisect_right(numbers, each.last, begin, stop)
        if begin > start:
            raise _stale(each, numbers[start:begin], ranges)
        left[_place(each)] = (end, stop)
        stretches.append(Stretch(each, begin, end))
    for stretch in made_of_rows.stretches:
        begin, end = left[_place(stretch.range)]
        if begin < end:
            raise _stale(stretch.range, numbers[begin:end], ranges)
    return replace(made_of_rows, stretches=tuple(stretches))


def _parked(made_of_rows: Arrangement, ranges: Iterable[EventRange]) -> Arrangement:
    """The same rows, of parked events: they lie before the one range of their partition, which is empty."""
    (it,) = map(Range.read_whole, ranges)
    for stretch in made_of_rows.stretches:
        if _place(stretch.range) != _place(it) or stretch.range.last >= it.first:
            raise _stale(stretch.range, made_of_rows.numbers[stretch.begin : stretch.end], ranges)
    count = len(made_of_rows.numbers)
    return replace(made_of_rows, stretches=(Stretch(it, 0, count, parked=True),))


def _place(range_: Range) -> tuple[Lane, int]:
    return range_.lane, range_.owner_level


def _stale(range_: Range, numbers: Sequence[int], ranges: Iterable[EventRange]) -> StaleBatch:
    mine = [each for each in ranges if (each.hub, each.partition) == range_.lane]
    read = ", ".join(f"[{each.begin}, {each.end}) at level {each.owner_level}" for each in sorted(mine)[:5])
    return StaleBatch(
        f"the DataFrame holds rows of other events than this batch's: {len(numbers)} of partition {range_.partition}, "
        f"from event {numbers[0]} to {numbers[-1]}, read at owner level {range_.owner_level}. Of this partition the "
        f"batch has read {read or 'nothing'}. Nothing of it was applied. Make the DataFrame anew from batch.events of "
        "this very batch: one that was kept from an earlier batch, or cached, gives the earlier batch's events again"
    )


def find(schema: pa.Schema, name: str) -> str | None:
    """The column of this name as the schema writes it; names are compared as SQLite does."""
    return next((each for each in schema.names if folded(each) == folded(name)), None)


def check_names(names: Sequence[str]) -> None:
    """Refuse a DataFrame that has a column twice, before anything tries to convert it."""
    if twice := repeated(names):
        raise SchemaMismatch(
            f"the DataFrame has the column {twice[0]} twice, and SQLite makes no difference between capital and "
            "small letters. Drop one of them, or give it another name with withColumnRenamed or an alias"
        )


def check_fence_names(names: Sequence[str]) -> None:
    """Refuse a DataFrame that lacks columns of the fence."""
    there = {folded(name) for name in names}
    if missing := [name for name in FENCE_COLUMNS if folded(name) not in there]:
        others = [name for name in names if folded(name) not in map(folded, FENCE_COLUMNS)] or ["…"]
        shown = ", ".join(f'"{name}"' for name in (*others[:3], *FENCE_COLUMNS))
        raise SchemaMismatch(
            f"the DataFrame has no column {', '.join(missing)}. An entity table needs to know which event a row "
            "comes from, to apply it exactly once; the source gives the columns, so carry them through every "
            f"projection: .select({shown})"
        )


def check_fence(schema: pa.Schema, what: str) -> None:
    """Refuse rows that lack columns of the fence, or have others. Raises `SchemaMismatch` about `what`."""
    check_names(schema.names)
    check_fence_names(schema.names)
    for name in FENCE_COLUMNS:
        wanted, type_ = _fence_kind(name), schema.field(find(schema, name)).type
        if kind_of(type_) is not wanted or types.is_boolean(type_):
            raise SchemaMismatch(
                f"{what}: {name} is of type {type_}, and has to be {_wanted(wanted)} as the source gives it. To keep "
                "another form of it, give that one a name of its own"
            )


def _fence_kind(name: str) -> ColumnKind:
    return ColumnKind.TEXT if name in (HUB, PARTITION) else ColumnKind.INTEGER


def fence_of(table: pa.Table, what: str) -> pa.Table:
    """The columns of the fence, by their names. Raises `SchemaMismatch` that says `what` lacks them."""
    check_fence(table.schema, what)
    columns = {}
    for name in FENCE_COLUMNS:
        column, wanted = table[find(table.schema, name)], _fence_kind(name)
        if column.null_count:
            raise SchemaMismatch(
                f"{what}: {name} is null in {column.null_count} rows, so it cannot be told which events they come "
                "from. Is there an outer join? The transform has to keep the columns of the source as they are"
            )
        columns[name] = column.cast(pa.string() if wanted is ColumnKind.TEXT else pa.int64())
    _check_values(columns, what)
    return pa.table(columns)


def _check_values(columns: Mapping[str, Column], what: str) -> None:
    """Refuse values that no hub and no store gives: the watermark of such a partition or level would be nobody's."""
    for name in (HUB, PARTITION):
        if pc.any(pc.equal(pc.utf8_trim_whitespace(columns[name]), "")).as_py():
            raise SchemaMismatch(
                f"{what}: {name} is empty in some rows, so it cannot be told which events they come from. The "
                "transform has to keep the columns of the source as they are"
            )
    for name, first in ((SEQUENCE_NUMBER, "the first event of a hub is 0"), (OWNER_LEVEL, "levels begin at 0")):
        lowest = pc.min(columns[name]).as_py()
        if lowest is not None and lowest < 0:
            raise SchemaMismatch(
                f"{what} has the {name} {lowest}: {first}. "
                "The transform has to keep the columns of the source as they are"
            )


def _wanted(kind: ColumnKind) -> str:
    return "a string" if kind is ColumnKind.TEXT else "a long"


def _check_rejected(table: pa.Table) -> None:
    missing = [name for name in REJECTED_COLUMNS if find(table.schema, name) is None]
    if missing:
        raise SchemaMismatch(
            f"the DataFrame of rejected events has no column {', '.join(missing)}; it needs "
            f"{', '.join(REJECTED_COLUMNS)}"
        )
    for name, kinds in (
        ("body", (ColumnKind.BLOB, ColumnKind.TEXT, ColumnKind.NOTHING)),
        ("reason", (ColumnKind.TEXT,)),
    ):
        type_ = table[find(table.schema, name)].type
        if kind_of(type_) not in kinds:
            raise SchemaMismatch(f"the DataFrame of rejected events: {name} is of type {type_}, not {kinds[0]}")
    for one in table.schema:
        if kind_of(one.type) is None:
            raise SchemaMismatch(
                f"the DataFrame of rejected events: {one.name} is of type {one.type}, which cannot be kept: cast "
                "it to a string, or leave it out"
            )
