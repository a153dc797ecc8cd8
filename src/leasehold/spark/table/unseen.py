"""What of a batch an entity table has not seen: for another sink beside the table.

Owns names for rows that are right in every instance and after every restart. The number that `foreachBatch` gives is
not (each instance counts from 0), and a batch's ranges are not either: after a take-over batches are cut anew, and
overlap those that were written and not applied. What does not change before the table's commit is the watermark, so
rows are named by the partition and the *watermark they stand on*, with the owner level:

    events of a partition   … 97  98 │ 99  100  101  102  103
    watermark of the table ──────────┘
    written, then killed              place …-99, level 4: [99, 102)
    the next owner, other cuts        place …-99, level 5: [99, 104)    of one place the highest level counts

Promises that every step of the table's watermark, from one place to the next, belongs to one piece: that with the
highest level of its place. To that end the table's watermarks are raised to the levels of the batch before they are
read, so that from then on no former owner can move them; and the rows are evaluated once, for both sinks.

Concurrency: if this process stops for a minute before the levels are raised, another has raised them further, and there
are no pieces of its partitions; after it, another owner writes the same places at a higher level, whatever is written
here later, and the table refuses what is applied here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.errors import UsageError
from leasehold.sinks.rules import fence
from leasehold.sinks.rules.batch import Arrangement, Batch, arrange
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.table_spec import BatchResult

_TRIES = 5
"""How often levels are raised anew, when another owner's come between."""


class KeepsWatermarks(Protocol):
    """What is asked of the table."""

    def watermarks(self, hub: str) -> Mapping[str, Watermark]: ...

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> Mapping[str, Watermark]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """The new rows of one partition: of its events `[begin, end)`, read under `owner_level`.

    `begin` is the event behind the watermark that they stand on. `rows` is an Arrow table with the columns that the
    table was given, those of the fence included, in the order of events; it may be empty where a filter has left
    nothing, and is to be written all the same.
    """

    hub: str
    partition: str
    owner_level: int
    begin: int
    end: int
    rows: pa.Table = field(repr=False, compare=False)

    @property
    def place(self) -> str:
        """Where the piece begins, as a text for file names: the same for all owners that stood there."""
        lane = hashlib.sha256(json.dumps([self.hub, self.partition]).encode()).hexdigest()[:12]
        return f"{lane}-{re.sub('[^0-9A-Za-z]', '_', self.partition)}-{self.begin:020d}"

    @property
    def name(self) -> str:
        """The place and the owner level: `PLACE.LEVEL`. Names of one place sort by level; the last one counts."""
        return f"{self.place}.{self.owner_level:010d}"


@dataclass(frozen=True, slots=True)
class Unseen:
    """What a table has not seen of a batch: write the pieces elsewhere, then `apply`. Iterates over the pieces.

    `id` is made of the pieces' events, watermarks and levels: 32 hexadecimal digits, the same in every process. It is
    empty where there is nothing new, or the batch could not be read whole and comes again.
    """

    pieces: tuple[Piece, ...]
    _apply: Callable[[], BatchResult] = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[Piece]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def id(self) -> str:
        """A name for all of it."""
        told = sorted([one.hub, one.partition, one.owner_level, one.begin, one.end] for one in self.pieces)
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32] if told else ""

    def apply(self) -> BatchResult:
        """Apply the batch to the table: just the rows that the pieces are of. As `EntityTable.apply`."""
        return self._apply()


def pieces_of(batch: Batch, table: KeepsWatermarks) -> tuple[Piece, ...]:
    """The pieces of a batch that has been evaluated. Raises the levels in the table first."""
    arrangement = arrange(batch)
    ranges = [stretch.range for stretch in arrangement.stretches]
    marks: dict[Lane, Watermark] = {}
    for hub in sorted({one.hub for one in ranges}):
        levels = {one.partition: one.owner_level for one in sorted(ranges) if one.hub == hub}
        marks.update({(hub, partition): mark for partition, mark in _raised(table, hub, levels).items()})
    plan = fence.plan(marks, ranges)
    return tuple(
        Piece(
            *one.range.lane,
            one.range.owner_level,
            one.after + 1,
            one.range.last + 1,
            _rows(batch, arrangement, one),
        )
        for one in plan.admitted
        if one.range.last > one.after
    )


def _raised(table: KeepsWatermarks, hub: str, levels: Mapping[str, int]) -> Mapping[str, Watermark]:
    """The watermarks of `hub`, after these levels have been announced where no higher one has been."""
    for _ in range(_TRIES):
        marks = table.watermarks(hub)
        nobody = Watermark()
        higher = {p: level for p, level in levels.items() if level > marks.get(p, nobody).owner_level}
        if not higher:
            return marks
        try:
            return table.raise_owner_levels(hub, higher)
        except UsageError:  # another owner's level came between the two: it is seen at the next look
            continue
    raise UsageError(f"the owner levels of hub {hub} change faster than they can be read: try again")


def _rows(batch: Batch, arrangement: Arrangement, admission: fence.Admission) -> pa.Table:
    """The rows that are new, in order, without those that are rejected."""
    (stretch,) = [one for one in arrangement.stretches if one.range == admission.range]
    source = arrangement.source.slice(stretch.begin, stretch.end - stretch.begin)
    numbers: Sequence[int] = arrangement.numbers[stretch.begin : stretch.end]
    new = pa.array([number > admission.after for number in numbers], pa.bool_())
    good = pc.and_(new, pc.less(source, pa.scalar(batch.rows.num_rows, source.type)))
    return batch.rows.take(source.filter(good))
