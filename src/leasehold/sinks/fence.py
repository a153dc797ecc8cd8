"""The watermark rules: which events of a batch are new, and which come from somebody who lost the partition.

Owns these rules and does no I/O: watermarks and ranges in, a plan out.

1. A watermark is kept per hub and partition: the sequence number of the last event applied and the highest
   owner level that has been here. Neither ever goes back, except by a person's reset.
2. Ranges of one partition are taken in the order of their levels.
3. A range whose level is below the watermark's is refused, all of it. Its owner had lost the partition
   before it wrote; whoever came after starts where the watermark says.
4. Of any other range the events at or below the watermark are dropped: they were applied before, by this
   owner or another.
5. A range that is not refused raises the watermark to its level and to its last event, also when all its
   events were dropped, and whatever becomes of the events (applied, superseded, rejected).
6. A refused range is a zombie's only if the ownership record has a level above the range's. If not, the
   range is the current owner's, and levels went back: a store was wiped or restored.

Whoever acts on a plan must hold the lock on the watermarks from before they were read until after the new
ones are written, or a plan is stale by the time it is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from leasehold.errors import OwnerLevelWentBack
from leasehold.model import BEFORE_FIRST

Lane = tuple[str, str]
"""A hub and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a partition has been applied, and the highest owner level that has been there."""

    sequence_number: int = BEFORE_FIRST
    owner_level: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The events of a batch that were read from one partition under one owner level: `first` to `last`, inclusive."""

    hub: str
    partition: str
    owner_level: int
    first: int
    last: int

    @property
    def lane(self) -> Lane:
        return self.hub, self.partition


@dataclass(frozen=True, slots=True)
class Admission:
    """The events of `range` above sequence number `after` are new; those up to it were applied before."""

    range: Range
    after: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """`range` comes from an owner whose level is below `watermark_level`."""

    range: Range
    watermark_level: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch may do: `admitted` in the order to apply it, and the watermarks that it leaves behind."""

    admitted: tuple[Admission, ...]
    refused: tuple[Refusal, ...]
    watermarks: Mapping[Lane, Watermark]


def plan(stored: Mapping[Lane, Watermark], ranges: Iterable[Range]) -> Plan:
    """Rules 2 to 5. `stored` lacks the partitions that have no watermark yet."""
    admitted: list[Admission] = []
    refused: list[Refusal] = []
    now: dict[Lane, Watermark] = {}
    for each in sorted(ranges):
        before = now.get(each.lane) or stored.get(each.lane)
        if before is None:
            before = Watermark()
        elif each.owner_level < before.owner_level:
            refused.append(Refusal(each, before.owner_level))
            continue
        admitted.append(Admission(each, before.sequence_number))
        now[each.lane] = Watermark(max(before.sequence_number, each.last), each.owner_level)
    return Plan(tuple(admitted), tuple(refused), now)


def judge(refusal: Refusal, record_level: int | None) -> None:
    """Rule 6: return if the refused range is a zombie's, raise `OwnerLevelWentBack` if it is the owner's.

    `record_level` is the level in the partition's ownership record, `None` where there is no record.
    """
    mine = refusal.range.owner_level
    if record_level is not None and record_level > mine:
        return
    record = "has no record of it" if record_level is None else f"says level {record_level}"
    raise OwnerLevelWentBack(
        f"partition {refusal.range.partition}: a batch was read under owner level {mine}, but the table has seen "
        f"level {refusal.watermark_level}, while the ownership store {record}. So levels went back: the store was "
        "wiped or restored after the table had been written. Nothing of the batch was applied. Stop all instances "
        "and run `leasehold reset PIPELINE.toml --to sink`, which makes the checkpoints follow the table."
    )
