"""A batch whose rows are in the database before it is applied: what those who brought them there tell of it.

Owns the values, and the form in which they travel. Does no I/O. The driver makes a token for each try of a batch, and
each attempt of a task one of its own, since Spark repeats its numbers. An attempt stages its rows under both, commits,
and gives a *receipt*. The driver applies exactly the attempts whose receipts it got: rows under any other token mean
nothing, whoever left them (an attempt that was killed, a second one, a speculative one, a zombie).
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa

from leasehold.errors import SinkUnavailable, UsageError
from leasehold.sinks.rules.batch import Arrangement, Batch, Kept, Stretch, timed
from leasehold.sinks.rules.fence import Plan, Range


class StagedRowsGone(SinkUnavailable):
    """Rows that were staged are not there any more. The batch is to be staged again."""


def new_token() -> str:
    """A token that nobody else has: 16 hexadecimal digits."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True, order=True)
class Tally:
    """How many rows were staged of a range: of one that was read whole, or from the first to the last of its rows."""

    hub: str
    partition: str
    owner_level: int
    first: int
    last: int
    rows: int


@dataclass(frozen=True, slots=True)
class StageReceipt:
    """What one attempt of a task has staged and committed: this many `rows`, of which `set_aside` have a reason."""

    batch: str
    attempt: str
    task: int
    rows: int
    set_aside: int
    tallies: tuple[Tally, ...]

    def text(self) -> str:
        """The receipt as it travels."""
        return json.dumps(asdict(self))


def receipt_of(text: str) -> StageReceipt:
    """The receipt of this text."""
    told = json.loads(text)
    return StageReceipt(**{**told, "tallies": tuple(Tally(**one) for one in told["tallies"])})


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """What was staged under the token `batch`, by its receipts; each task is among them once.

    `shape` is the batch without its rows: their schema, the types of `sequence_by` and `delete`, and the ranges.
    """

    batch: str
    shape: Batch
    receipts: tuple[StageReceipt, ...]

    def __post_init__(self) -> None:
        if any(one.batch != self.batch for one in self.receipts):
            raise UsageError("the receipts are of another batch than the one that is applied")
        if len({one.task for one in self.receipts}) < len(self.receipts):
            raise UsageError("two receipts are of one task: apply the one that Spark has returned")

    @property
    def rows(self) -> int:
        """How many rows were staged, with those that are to be set aside."""
        return sum(one.rows for one in self.receipts)


def tallied(arrangements: Iterable[Arrangement]) -> tuple[Tally, ...]:
    """What the pieces of one attempt have, by range; ranges of which there is nothing are left out."""
    whole: Counter[Range] = Counter()
    of_rows: dict[tuple[str, str, int], Tally] = {}
    for arrangement in arrangements:
        for stretch in arrangement.stretches:
            it, rows = stretch.range, stretch.end - stretch.begin
            if it.whole:
                whole[it] += rows
            else:
                _add(of_rows, Tally(it.hub, it.partition, it.owner_level, it.first, it.last, rows))
    read = [Tally(it.hub, it.partition, it.owner_level, it.first, it.last, rows) for it, rows in whole.items() if rows]
    return tuple(sorted([*read, *of_rows.values()]))


def _add(found: dict[tuple[str, str, int], Tally], one: Tally) -> None:
    place = (one.hub, one.partition, one.owner_level)
    before = found.get(place, one)
    rows = one.rows + (0 if place not in found else before.rows)
    found[place] = Tally(*place, min(one.first, before.first), max(one.last, before.last), rows)


def tallies_of(staged: StagedBatch) -> list[Tally]:
    """What the attempts that count have staged of each range."""
    return [tally for receipt in staged.receipts for tally in receipt.tallies]


def stretches_of(staged: StagedBatch) -> tuple[Stretch, ...]:
    """The ranges of the batch in order, each with as many rows as were staged of it. See `batch.arrange`."""
    tallies = tallies_of(staged)
    if staged.shape.ranges is not None:
        rows: Counter[tuple[object, ...]] = Counter()
        for one in tallies:
            rows[one.hub, one.partition, one.owner_level, one.first, one.last] += one.rows
        ranges = sorted({Range.read_whole(each) for each in staged.shape.ranges})
        return tuple(Stretch(it, 0, rows[it.hub, it.partition, it.owner_level, it.first, it.last]) for it in ranges)
    of_rows: dict[tuple[str, str, int], Tally] = {}
    for one in tallies:
        _add(of_rows, one)
    made_of_rows = (
        Stretch(Range(one.hub, one.partition, one.owner_level, one.first, one.last), 0, one.rows)
        for one in sorted(of_rows.values())
    )
    return timed(made_of_rows, staged.shape.times or {})


_NO_ROWS = pa.nulls(0, pa.uint64())  # not pa.array, which imports pandas: every command would wait for it


@dataclass(frozen=True, slots=True)
class StagedKept(Kept):
    """The staged rows that are new by `plan`, but for those of the events `dropped`; none of them is here."""

    staged: StagedBatch
    plan: Plan
    dropped: frozenset[tuple[str, str, int]] = frozenset()

    def without(self, dropped: Collection[tuple[str, str, int]]) -> StagedKept:
        return replace(self, dropped=self.dropped | frozenset(dropped))


@dataclass(frozen=True, slots=True)
class StagedArrangement(Arrangement):
    """What of a staged batch is in which range."""

    staged: StagedBatch = field(kw_only=True)

    def replayed(self, plan: Plan) -> tuple[int, dict[Range, int]]:
        """How many rows `plan` drops, as far as that can be told; the ranges where not, with their last old event."""
        rows = {stretch.range: stretch.end for stretch in self.stretches}
        dropped, split = 0, {}
        for one in plan.admitted:
            if one.after >= one.range.last:
                dropped += rows[one.range]
            elif one.after >= one.range.first and rows[one.range]:
                split[one.range] = one.after
        return dropped, split

    def kept(self, plan: Plan, replayed: int) -> StagedKept:
        """What is applied by `plan`, which drops this many rows."""
        return StagedKept(_NO_ROWS, [], [], replayed, self.staged, plan)


def arranged(staged: StagedBatch) -> StagedArrangement:
    """What of a staged batch is in which range."""
    return StagedArrangement(_NO_ROWS, (), stretches_of(staged), staged=staged)


def shape_of(like: Batch) -> Batch:
    """The batch without its rows."""
    sequence_by, delete = like.sequence_by, like.delete
    return Batch(
        like.rows.schema.empty_table(),
        None,
        None if sequence_by is None else pa.chunked_array([], sequence_by.type),
        None if delete is None else pa.chunked_array([], delete.type),
        like.ranges,
    )


def attempts_of(staged: StagedBatch) -> Sequence[str]:
    """The tokens of the attempts that count."""
    return [one.attempt for one in staged.receipts]
