"""The offsets of the Spark source, and how a batch is planned and cut: pure.

Owns the form of an offset and the rules by which one follows another:

1. An offset is self-contained: `{"hub": identity, "ranges": {partition: [start, end, owner level]}}`, half-open
   ranges. Spark logs only end offsets, and a replay must read the same ranges whatever is owned by then. Beside them,
   where it is known, `"enqueued": {partition: microseconds}`, when the last event of a range was enqueued.
2. It names every partition held, also those with nothing new (`start == end`), so that the offset of the last
   committed batch is a full account of what has been committed.
3. A partition goes on where its last range ended if it is held at the level which that range carries.
   Otherwise it has left and come back, or is new here, and starts from its checkpoint.
4. "Nothing new" is said by returning the offset unchanged, as Spark compares offsets by their text.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leasehold.errors import DataLoss, EndWentBack, UsageError
from leasehold.model import PartitionProperties


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Events `[start, end)` of a partition, read at an owner level.

    `enqueued` is when the hub received the last of them, in seconds since 1970, None where that is not known.
    """

    partition: str
    start: int
    end: int
    owner_level: int
    enqueued: float | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Plannable:
    """A partition that may be planned: its owner level, and where its checkpoint says to start."""

    owner_level: int
    start: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Events `[start, end)` that were to be read next, and that the hub no longer has."""

    partition: str
    start: int
    end: int


IN_LOOP = (
    "To go on from the first event that is left: fail_on_data_loss = false in the section [source] of the pipeline "
    "file, or fail_on_data_loss=False of MicroBatches."
)
"""What a reader of a loop can do about a loss."""


def data_loss(losses: Sequence[Loss], remedy: str = "") -> DataLoss:
    """The error for all of these losses."""
    first, *others = losses
    return DataLoss(first.partition, first.start, first.end, remedy, [one.partition for one in others])


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of the next offset, and what was found missing while planning them."""

    ranges: tuple[ReadRange, ...]
    losses: tuple[Loss, ...]

    @property
    def news(self) -> tuple[ReadRange, ...]:
        """What is to be committed: ranges with events, and those behind a loss, which may have none."""
        lost = {one.partition for one in self.losses}
        return tuple(one for one in self.ranges if len(one) or one.partition in lost)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to read, or to move past."""
        return bool(self.news)


def encode(hub: str, ranges: Sequence[ReadRange]) -> dict[str, Any]:
    """The offset of these ranges."""
    ordered = sorted(ranges, key=lambda one: one.partition)
    offset = {"hub": hub, "ranges": {one.partition: [one.start, one.end, one.owner_level] for one in ordered}}
    times = {one.partition: round(one.enqueued * 1e6) for one in ordered if one.enqueued is not None}
    return {**offset, "enqueued": times} if times else offset


def decode(offset: Mapping[str, Any], hub: str) -> tuple[ReadRange, ...]:
    """The ranges of an offset. Raises `UsageError` if it is of another hub: ranges mean nothing there."""
    if offset.get("hub", hub) != hub:
        raise UsageError(
            f"the Spark checkpoint folder belongs to hub {offset['hub']}, and this is hub {hub}: the hub was made "
            "anew, or its URL now names another. Use another checkpoint folder, or delete this one: progress is "
            "kept in the checkpoint store, not in the folder."
        )
    times = {partition: at / 1e6 for partition, at in offset.get("enqueued", {}).items()}
    return tuple(
        ReadRange(partition, start, end, level, times.get(partition))
        for partition, (start, end, level) in offset.get("ranges", {}).items()
    )


def plan(
    last: Sequence[ReadRange],
    held: Mapping[str, Plannable],
    properties: Mapping[str, PartitionProperties],
    *,
    limit: int | None,
    bounds: Mapping[str, int] | None = None,
    waited: Mapping[str, int] | None = None,
    weights: Weights | None = None,
    applied: Mapping[str, int] | None = None,
) -> Plan:
    """The ranges that follow `last`: every held partition that the hub knows, at most `limit` events in all.

    `bounds` are ends not to be passed, by partition; a partition without one is not read. `waited` says how many
    batches in a row have given a partition nothing. What has been removed by retention is reported as a loss and
    passed over, but for what the table holds: `applied` is the first event behind that, by partition. Raises
    `EndWentBack` if the hub ends before `last`.
    """
    committed = {one.partition: one for one in last}
    nexts, losses, available = [], [], {}
    for partition in sorted(set(held) & set(properties)):
        mine, known = held[partition], properties[partition]
        before = committed.get(partition)
        start = before.end if before is not None and before.owner_level == mine.owner_level else mine.start
        if start < known.begin and applied is not None:
            start = max(start, applied.get(partition, start))
        if start > known.end:
            raise EndWentBack(partition, start, known.end)
        end = known.end if bounds is None else min(known.end, bounds.get(partition, known.begin))
        if start < known.begin:
            losses.append(Loss(partition, start, known.begin))
            start = known.begin
        available[partition] = max(0, end - start)
        nexts.append(ReadRange(partition, start, start, mine.owner_level))
    granted = share(limit, available, waited)
    if weights is not None:
        granted = weights.fit(granted, waited)
    return Plan(tuple(replace(one, end=one.start + granted[one.partition]) for one in nexts), tuple(losses))


def share(limit: int | None, available: Mapping[str, int], waited: Mapping[str, int] | None = None) -> dict[str, int]:
    """Divide `limit` events among partitions: evenly, and what some do not need goes to the others.

    Where there are more partitions with something unread than events to give, those that have `waited` longest come
    first, so that each moves within a bounded number of batches whatever comes elsewhere.
    """
    if limit is None:
        return dict(available)
    granted = dict.fromkeys(available, 0)
    hungry = _longest_first((partition for partition in available if available[partition]), waited)[:limit]
    hungry.sort(key=lambda partition: (available[partition], partition))
    left = limit
    for position, partition in enumerate(hungry):
        granted[partition] = min(available[partition], -(-left // (len(hungry) - position)))
        left -= granted[partition]
    return granted


def next_waited(granted: Mapping[str, int], unread: Mapping[str, int], waited: Mapping[str, int]) -> dict[str, int]:
    """`waited` after a batch that has given each partition `granted` of its `unread` events."""
    return {p: waited.get(p, 0) + 1 for p, there in unread.items() if there and not granted.get(p)}


def _longest_first(partitions: Iterable[str], waited: Mapping[str, int] | None) -> list[str]:
    known = waited or {}
    return sorted(partitions, key=lambda partition: (-known.get(partition, 0), partition))


@dataclass(frozen=True, slots=True)
class Weights:
    """What events weigh: mean bytes by partition as far as known, and the most that a batch may weigh."""

    most_bytes: int
    mean: Mapping[str, float]

    def fit(self, granted: Mapping[str, int], waited: Mapping[str, int] | None = None) -> dict[str, int]:
        """`granted`, cut to the weight: in proportion, and at least an event for each partition that still fits.

        A partition of which nothing is known counts like the mean of the others, and as nothing if there is none: then
        a task that finds too much says so. The first partition gets an event whatever it weighs.
        """
        known = sum(self.mean.values()) / len(self.mean) if self.mean else 0.0
        of = {partition: self.mean.get(partition, known) for partition in granted}
        total = sum(count * of[partition] for partition, count in granted.items())
        if total <= self.most_bytes:
            return dict(granted)
        factor = self.most_bytes / total
        fitted = dict.fromkeys(granted, 0)
        left = float(self.most_bytes)
        for partition in _longest_first((p for p, count in granted.items() if count), waited):
            count = max(1, int(granted[partition] * factor))
            if count * of[partition] > left and left < self.most_bytes:
                count = 0
            fitted[partition] = count
            left -= count * of[partition]
        return fitted


def pack(
    ranges: Sequence[ReadRange], *, events_per_task: int, at_least: int, cut: bool = True
) -> list[tuple[ReadRange, ...]]:
    """Group ranges into tasks of about equal size: as few as `events_per_task` allows, at least `at_least`.

    A range larger than a task is cut, unless a partition may have one reader only (`cut=False`). Every task of Spark
    costs tens of milliseconds, so small ranges share.
    """
    wanted = [one for one in ranges if len(one)]
    total = sum(map(len, wanted))
    if not total:
        return []
    count = min(total if cut else len(wanted), max(at_least, -(-total // events_per_task)))
    size = -(-total // count)
    pieces = [piece for one in wanted for piece in _cut(one, size)] if cut else wanted
    bins: list[tuple[int, int, list[ReadRange]]] = [(0, number, []) for number in range(count)]
    for piece in sorted(pieces, key=len, reverse=True):
        load, number, content = bins[0]
        heapq.heapreplace(bins, (load + len(piece), number, [*content, piece]))
    return [
        tuple(sorted(content, key=lambda one: (one.partition, one.start)))
        for _, _, content in sorted(bins, key=lambda b: b[1])
        if content
    ]


def _cut(range_: ReadRange, size: int) -> list[ReadRange]:
    parts = -(-len(range_) // size)
    edges = [range_.start + len(range_) * part // parts for part in range(parts + 1)]
    return [replace(range_, start=start, end=end) for start, end in itertools.pairwise(edges)]
