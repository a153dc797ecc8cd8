"""Which event of an entity counts: the order of events that share a key.

Owns these rules and does no I/O. Events are judged one after the other, in the order in which they are
given: by hub and partition, and by sequence number within. What is known of a key is kept in a memory that
outlives the batch, also for keys whose entity was deleted.

1. Without `sequence_by` a later event of a key replaces an earlier one. Sequence numbers of different
   partitions cannot be compared, so an event whose key was last written from another partition or hub is a
   conflict; nobody can say which of the two is later.
2. With `sequence_by` the higher value wins. On a tie the later sequence number wins within a partition, and
   the higher partition id, then hub, across partitions. What has lost is superseded. So the last word on a
   key is the same whatever order its events arrive in.
3. An event that could not be written has not written its key: whoever acts on a step calls `accept` only
   for what was written.
4. What was remembered without a value of `sequence_by` is older than anything that has one.
5. An event that comes after its time (it was rejected, and is tried again) is judged like any other with
   `sequence_by`. Without, it counts if what is known of its key is an event of its partition that is not later.

A claim is what events are compared by: `(hub, partition)` without `sequence_by`, and
`(value, partition, hub, sequence number)` with it; for rule 5 `(hub, partition, sequence number)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[Any, ...]
Claim = tuple[Any, ...]

UNKNOWN: Claim = ()
"""Rule 4: a claim below every other."""


@dataclass(frozen=True, slots=True)
class Step:
    """The judgement on a stretch of events.

    `winners` are to be written, in this order. `stop` is where the judgement ended; if it is before the end
    of the stretch, the event at `stop` is in conflict with what is known of its key, provided that all
    winners can be written. `written` is the memory of those keys that the winners write.
    """

    winners: Sequence[int]
    superseded: int
    stop: int
    written: Mapping[Key, int]


class KeyOrder:
    """The memory of keys while a batch is applied. Not for several threads.

    `keys[i]` and `claims[i]` belong to event `i`; `memory` is what earlier batches left behind.
    """

    def __init__(
        self, keys: Sequence[Key], claims: Sequence[Claim], memory: Mapping[Key, Claim], *, by_value: bool
    ) -> None:
        self._keys = keys
        self._claims = [*claims, *memory.values()]
        self._events = len(claims)
        # From a key to the event that wrote it last; what earlier batches left counts on from the last event.
        self._latest: dict[Key, int] = dict(zip(memory, range(self._events, len(self._claims)), strict=True))
        self._by_value = by_value

    def judge(self, start: int, end: int) -> Step:
        """Judge the events `[start, end)` as if all that win will be written. Changes nothing."""
        return self._judge_by_value(start, end) if self._by_value else self._judge_by_lane(start, end)

    def accept(self, step: Step) -> None:
        """Remember that all winners of `step` have been written."""
        self._latest.update(step.written)

    def known_claim(self, index: int) -> Claim:
        """The claim that event `index` is in conflict with."""
        return self._claims[self._latest[self._keys[index]]]

    def written(self) -> dict[Key, int]:
        """The keys that this batch has written, each with the event that did so last."""
        return {key: index for key, index in self._latest.items() if index < self._events}

    def _judge_by_lane(self, start: int, end: int) -> Step:
        keys, claims, latest = self._keys, self._claims, self._latest
        fresh: dict[Key, int] = {}
        for index in range(start, end):
            key = keys[index]
            last = fresh.get(key)
            if last is None:
                last = latest.get(key)
            if last is not None and claims[last] != claims[index]:
                return Step(range(start, index), 0, index, fresh)
            fresh[key] = index
        return Step(range(start, end), 0, end, fresh)

    def _judge_by_value(self, start: int, end: int) -> Step:
        keys, claims, latest = self._keys, self._claims, self._latest
        fresh: dict[Key, int] = {}
        winners: list[int] = []
        for index in range(start, end):
            key = keys[index]
            last = fresh.get(key)
            if last is None:
                last = latest.get(key)
            # Not `<=`: the rows of an exploded event have equal claims, and the last of them counts.
            if last is not None and claims[index] < claims[last]:
                continue
            fresh[key] = index
            winners.append(index)
        return Step(winners, end - start - len(winners), end, fresh)


def beside(step: Step, keys: Sequence[Key], claims: Sequence[Claim], memory: Mapping[Key, Claim]) -> Step:
    """The judgement by value on a stretch whose `step` was found with nothing known, where this is known of keys.

    A winner was not below any event before it. So it still wins if it is not below what is known. An event that lost to
    a winner is below that one, or else both are below what is known.
    """
    lowest = min(map(claims.__getitem__, step.winners), default=UNKNOWN)
    if max(memory.values(), default=UNKNOWN) <= lowest:  # as where events come in their order
        return step
    winners = [index for index in step.winners if claims[index] >= memory.get(keys[index], UNKNOWN)]
    written = {key: index for key, index in step.written.items() if claims[index] >= memory.get(key, UNKNOWN)}
    return Step(winners, step.superseded + len(step.winners) - len(winners), step.stop, written)


class PastOrder(KeyOrder):
    """Rule 5 without `sequence_by`: the claims, and what is known, are `(hub, partition, sequence number)`.

    `conflicts` are the events judged so far that are in conflict with another partition, each with that one: they are
    neither winners nor superseded, and the judgement goes on behind them.
    """

    def __init__(self, keys: Sequence[Key], claims: Sequence[Claim], memory: Mapping[Key, Claim]) -> None:
        super().__init__(keys, claims, memory, by_value=False)
        self.conflicts: dict[int, tuple[str, str]] = {}

    def judge(self, start: int, end: int) -> Step:
        """Judge the events `[start, end)` as if all that win will be written. Changes nothing but `conflicts`."""
        keys, claims, latest = self._keys, self._claims, self._latest
        fresh: dict[Key, int] = {}
        winners: list[int] = []
        superseded = 0
        for index in range(start, end):
            self.conflicts.pop(index, None)
            key = keys[index]
            last = fresh.get(key, latest.get(key))
            if last is not None and claims[last][:2] != claims[index][:2]:
                hub, partition, _ = claims[last]
                self.conflicts[index] = (hub, partition)
            elif last is not None and claims[index] < claims[last]:
                superseded += 1
            else:
                fresh[key] = index
                winners.append(index)
        return Step(winners, superseded, end, fresh)
