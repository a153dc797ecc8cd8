"""The watermark rules: which events of a batch are new, and which come from a former owner.

Owns these rules and does no I/O: watermarks and ranges in, a plan out.

1. A watermark is kept per hub and partition: the sequence number of the last event applied, the highest
   owner level that has been here, and whether the last event is known from a range that was read whole.
   Neither number ever goes back, except by a person's reset.
2. Ranges of one partition are taken in the order of their levels.
3. A range whose level is below the watermark's is refused, all of it. Its owner had lost the partition
   before it wrote; the next owner starts where the watermark says.
4. Of any other range the events at or below the watermark are dropped: they were applied before, by this
   owner or another.
5. A range that is not refused raises the watermark to its level and to its last event, also when all its
   events were dropped, and whatever becomes of the events (applied, superseded, rejected).
6. A refused range is a zombie's only if the ownership record has a level above the range's. If not, the
   range is the current owner's, and levels went back: a store was wiped or restored.
   That does not wear off: the partition is in dispute from then on, and every range of it is refused, at any
   level, until a person's reset. Or else each claim would raise the level by one until it is the table's, and
   be let in, at a place that no person has looked at.
7. A range is either made of the rows that a transform has left (from the first to the last of them), or it is stated by
   the reader that has read it whole. A range that was read whole raises the watermark to its own end, whatever rows are
   left of it. All rows of its batch have to lie within the ranges of their partition and level: others come from
   another batch, and nothing of the batch is applied (`batch.arrange` sees to that).
8. A range that was read whole and begins above the event behind the watermark leaves a gap: a person took
   the table back behind the stores' back, or set a checkpoint forward. Nothing of the batch is applied.
9. Nothing is missing, and the range is taken as it comes, where the partition has no watermark; where its
   reader says which events it leaves out on purpose, and those begin at or below the event behind the
   watermark; and where the last batch of the table was one whose ranges were made of rows, since then the last
   events before the range may have been filtered, in any partition: such a batch leaves no watermark whole.
10. A batch that was computed from rows of the table is outdated if a watermark is not as it was before they were read:
   in place, or in its count of changes, which everything raises that writes or forgets an entity outside of a batch.
   Nothing of it is applied, and whoever brought it computes again. One of a former owner is left to rule 3.
11. A watermark that is below the highest that this process has seen committed, at the same owner level or a lower
   one, went back: a file was moved over the table's, or the database was restored, or a standby took over that had
   fallen behind. A range that begins above the event behind it leaves a gap, as in rule 8, also where its batch is made
   of rows. Whoever starts anew has seen nothing.

A sink that acts on a plan must hold the lock on the watermarks from before they were read until after the new
ones are written, or a plan is stale by the time it is carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from leasehold.errors import EventsMissing, OwnerLevelWentBack
from leasehold.model import BEFORE_FIRST, EventRange

Lane = tuple[str, str]
"""A hub and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a partition has been applied, and the highest owner level that has been there.

    `whole` says that every event up to `sequence_number` has been read, and those behind it have not: rules 8 and 9.
    `disputed` says that levels went back: rule 6. `changes` is counted by the sink, and never set: rule 10.
    `enqueued_time` is when the hub received the last event applied, in seconds since 1970, None where nobody has told.
    """

    sequence_number: int = BEFORE_FIRST
    owner_level: int = 0
    whole: bool = False
    disputed: bool = False
    changes: int = field(default=0, compare=False)
    enqueued_time: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The events of a batch that were read from one partition under one owner level: `first` to `last`, inclusive.

    A `whole` range is what was read (rule 7), and may be empty: then `last` is `first - 1`. Its reader leaves out
    events `[left_out_from, first)` on purpose, if it says so.
    """

    hub: str
    partition: str
    owner_level: int
    first: int
    last: int
    whole: bool = False
    left_out_from: int | None = field(default=None, compare=False)
    enqueued_time: float | None = field(default=None, compare=False)

    @classmethod
    def read_whole(cls, read: EventRange) -> Range:
        """The range that its reader has read to the end."""
        numbers = read.begin, read.end - 1
        told = read.left_out_from, read.enqueued_time
        return cls(read.hub, read.partition, read.owner_level, *numbers, True, *told)

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
    """`range` comes from an owner whose level is below `watermark_level`, or the partition is in dispute."""

    range: Range
    watermark_level: int
    disputed: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """The table has been given no events between `after` and the first of `range`, or has them no more."""

    range: Range
    after: int


@dataclass(frozen=True, slots=True)
class FencePlan:
    """What a batch may do: `admitted` in the order to apply it, and the watermarks that it leaves behind.

    A plan with `gaps` may do nothing: see `check_gaps`.
    """

    admitted: tuple[Admission, ...]
    refused: tuple[Refusal, ...]
    watermarks: Mapping[Lane, Watermark]
    gaps: tuple[Gap, ...] = ()


class SeenMarks:
    """The watermarks that one process has seen committed: rule 11. Threads share it, and note what they commit or read.

    A thread that stops before it notes leaves an older one, by which less is found.
    """

    def __init__(self) -> None:
        self._marks: dict[Lane, Watermark] = {}

    def note(self, marks: Mapping[Lane, Watermark]) -> None:
        """These were committed."""
        for lane, mark in marks.items():
            if lane not in self._marks or not went_back(mark, self._marks[lane]):
                self._marks[lane] = mark

    def forget(self, lanes: Iterable[Lane]) -> None:
        """These are set anew, by a person's reset."""
        for lane in lanes:
            self._marks.pop(lane, None)

    def lost(self, stored: Mapping[Lane, Watermark]) -> set[Lane]:
        """The partitions whose watermarks went back."""
        marks = list(self._marks.items())  # at once: another thread may note meanwhile
        return {lane for lane, mark in marks if went_back(stored.get(lane, Watermark()), mark)}


def went_back(now: Watermark, before: Watermark) -> bool:
    """Rule 11: whether a watermark is below another, and no person's reset has made it so, which raises the level."""
    return now.owner_level <= before.owner_level and now.sequence_number < before.sequence_number


def plan(stored: Mapping[Lane, Watermark], ranges: Iterable[Range], lost: Collection[Lane] = ()) -> FencePlan:
    """Rules 2 to 5, 7 to 9, 11. `stored` lacks the partitions that have no watermark yet; `lost` are of `SeenMarks`."""
    admitted: list[Admission] = []
    refused: list[Refusal] = []
    gaps: list[Gap] = []
    now: dict[Lane, Watermark] = {}
    for each in sorted(ranges):
        before = now.get(each.lane) or stored.get(each.lane, Watermark())
        if before.disputed:
            refused.append(Refusal(each, before.owner_level, disputed=True))
            continue
        if each.owner_level < before.owner_level:
            refused.append(Refusal(each, before.owner_level))
            continue
        if _leaves_a_gap(before, each, lost=each.lane in lost):
            gaps.append(Gap(each, before.sequence_number))
            continue
        admitted.append(Admission(each, before.sequence_number))
        now[each.lane] = _raised(before, each)
    return FencePlan(tuple(admitted), tuple(refused), now, tuple(gaps))


def at_new_levels(stored: Mapping[Lane, Watermark], plan: FencePlan) -> dict[Lane, Watermark]:
    """The watermarks at the batch's owner levels, where these are new, and at the places where they are."""
    nowhere = Watermark()
    return {
        lane: replace(stored.get(lane, nowhere), owner_level=mark.owner_level)
        for lane, mark in plan.watermarks.items()
        if lane not in stored or mark.owner_level > stored[lane].owner_level
    }


def outdated(stored: Mapping[Lane, Watermark], read_under: Mapping[Lane, Watermark]) -> bool:
    """Rule 10, for what was computed from rows that were read after the watermarks `read_under`."""
    for lane, before in read_under.items():
        now = stored.get(lane, Watermark())
        moved = (now.sequence_number, now.changes) != (before.sequence_number, before.changes)
        if moved and now.owner_level <= before.owner_level:
            return True
    return False


def _leaves_a_gap(before: Watermark, range_: Range, *, lost: bool) -> bool:
    following = before.sequence_number + 1
    left_out = range_.left_out_from is not None and range_.left_out_from <= following
    return (lost or (before.whole and range_.whole)) and range_.first > following and not left_out


def _raised(before: Watermark, range_: Range) -> Watermark:
    """Whole is what was whole, and stays so, or is brought to its end by a range that is."""
    whole = range_.whole and (before.whole or range_.last >= before.sequence_number)
    last = max(before.sequence_number, range_.last)
    at = range_.enqueued_time if range_.last > before.sequence_number else before.enqueued_time
    return Watermark(last, range_.owner_level, whole, changes=before.changes, enqueued_time=at)


def check_disputes(plan: FencePlan) -> None:
    """Rule 6: raise `OwnerLevelWentBack` again, where it has been raised before."""
    for refusal in plan.refused:
        if refusal.disputed:
            judge(refusal, None)


def check_gaps(table: str, plan: FencePlan) -> None:
    """Rule 8: raise `EventsMissing` if events of `table` would be left out."""
    for gap in plan.gaps:
        it = gap.range
        raise EventsMissing(
            f"partition {it.partition}: the batch begins at event {it.first}, and the table {table} has been given no "
            f"event behind {gap.after}: [{gap.after + 1}, {it.first}) would be missing for good. Either the table was "
            "restored from an older copy, or a checkpoint was set forward. Nothing of the batch was applied. Stop all "
            "instances and run `leasehold reset PIPELINE.toml --to sink`, which makes the checkpoints follow the "
            "table; or name the place in --to, if these events are to be left out. A query without leases: delete its "
            "checkpoint folder and start its program again, and it goes on where the table is."
        )


def judge(refusal: Refusal, record_level: int | None) -> None:
    """Rule 6: return if the refused range is a zombie's, raise `OwnerLevelWentBack` if it is the owner's.

    `record_level` is the level in the partition's ownership record, `None` where there is no record. The sink that gets
    the error marks the watermark as `disputed`, if it still is at `refusal.watermark_level`.
    """
    mine = refusal.range.owner_level
    if not refusal.disputed and record_level is not None and record_level > mine:
        return
    if refusal.disputed:
        found = (
            f"an earlier batch was refused, since the table had seen level {refusal.watermark_level}, and its owner not"
        )
    else:
        record = "has no record of it" if record_level is None else f"says level {record_level}"
        found = f"the table has seen level {refusal.watermark_level}, while the ownership store {record}"
    raise OwnerLevelWentBack(
        f"partition {refusal.range.partition}: a batch was read under owner level {mine}, and {found}. So levels went "
        "back: the store was wiped or restored after the table had been written. Nothing of the batch was applied. "
        "Stop all instances and run `leasehold reset PIPELINE.toml --to sink`, which makes the checkpoints follow the "
        "table."
    )
