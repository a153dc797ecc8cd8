"""What becomes of the messages that a process has in hand, as pure code: time and randomness are arguments.

    take ──▶ in its entity's line ──▶ at work ──▶ done ───────▶ Complete
                │    ▲                  │    └──▶ rejected ───▶ DeadLetter (so is what failed for the last time)
                │    └── busy, failed ──┘
                └──▶ leaving ──▶ GiveBack      (policy abandon; or the entity was busy for too long; or the end)

Messages that are parked in the sink are not in hand: `LookForParked` finds the entities whose first one is due, and
`Start` says of such an entity that they come first.

Rules:

1. One line an entity, in the order of the queue; at most one worker on it, which takes the first of it.
2. Whatever is in hand is renewed when it is due, wherever it stands, also once its trust has ended: whether its lock is
   held the service says. Work on a message is begun only while its lock is trusted. One whose lock is lost is dropped:
   it comes again. A worker's result counts all the same: whether it was committed the sink has decided, and whether it
   can be completed the service does.
3. Under `wait` a message that failed stays the first of its line, so that none overtakes it; under `abandon` it is
   given back. Either way it pauses, longer each time, and after the last delivery it is set aside.
4. That an entity is busy, or a store away, is no failure of a message. One in its last delivery is not given back for
   it: it would end among the dead letters without having been tried.
5. A message that comes again while it is in hand brings a new lock, and nothing else.
6. Under `park` a worker parks what is busy or has failed, and it is completed: the queue has it no more.
   Whatever the policy, parked messages are looked for, since another process may have parked them.

Owned by one thread. Only `HeldMessage.trusted` is read by others.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any

from leasehold.processors.queues.messages_in_hand import (
    FAILED_REASON,
    Complete,
    DeadLetter,
    Ending,
    GiveBack,
    HeldMessage,
    LookForParked,
    Renew,
    Start,
    Step,
    TryResult,
    completed_last,
)
from leasehold.processors.queues.settings import BusyPolicy, QueueDelivery, pause
from leasehold.queues.base import QueueMessage
from leasehold.queues.locks import LOST, LockTrust

_LOOK = 1.0
"""Seconds between two looks for parked messages."""


@dataclass(slots=True)
class _Line:
    """The messages of one entity; `again` counts what kept them waiting one after the other, since `since`."""

    held: list[HeldMessage] = field(default_factory=list)
    parked: tuple[Any, ...] | None = None
    """The entity, if it has parked messages that are due."""
    at_work: bool = False
    ready_at: float = 0.0
    again: int = 0
    since: float | None = None

    @property
    def waits(self) -> bool:
        """Whether there is something to do, and nobody does it."""
        return not self.at_work and (bool(self.held) or self.parked is not None)

    def may_start(self, now: float) -> bool:
        """Whether a worker may begin it."""
        return self.waits and self.ready_at <= now and (not self.held or self.held[0].trusted(now))


def _settled(held: HeldMessage, result: TryResult) -> Step:
    """What becomes of a message that the entity goes on behind."""
    if result.ending is Ending.REJECTED:
        return DeadLetter(held, result.reason, result.description)
    return Complete((held,))


class Room:
    """The messages in hand. `looks` says whether the sink may have parked ones."""

    def __init__(self, settings: QueueDelivery, rng: Random, *, looks: bool = False) -> None:
        self._settings, self._rng = settings, rng
        self._look_at = 0.0 if looks else math.inf
        self._looking = False
        self._lines: dict[str, _Line] = {}
        self._known: dict[str, HeldMessage] = {}
        self._leaving: list[HeldMessage] = []
        self._settle: list[Step] = []
        self._at_work = 0
        self.lost = 0
        """Messages whose lock was lost while they waited."""

    @property
    def free(self) -> int:
        """How many more messages may be received."""
        return max(0, self._settings.most - len(self._known))

    @property
    def empty(self) -> bool:
        """Whether nothing is in hand."""
        return not self._known and not self._settle

    @property
    def at_work(self) -> int:
        """How many entities are being worked on; a look at the sink counts as one."""
        return self._at_work + self._looking

    def trust_in(self, message: QueueMessage) -> LockTrust | None:
        """The trust in the lock of a message, where it is in hand."""
        known = self._known.get(message.identity)
        return None if known is None else known.trust

    def take(self, message: QueueMessage, key: str, content: Any, trust: LockTrust) -> None:
        """A message has come."""
        known = self._known.get(message.identity)
        if known is not None:  # rule 5
            known.message, known.trust = message, trust
            return
        held = HeldMessage(message, key, content, trust)
        self._known[message.identity] = held
        line = self._lines.setdefault(key, _Line())
        insort(line.held, held, lo=1 if line.at_work else 0, key=lambda each: each.place)

    def looked(self, entities: Mapping[str, tuple[Any, ...]]) -> None:
        """A look has ended: these entities have parked messages that are due, by the keys of their leases."""
        self._looking = False
        for key, entity in entities.items():
            line = self._lines.setdefault(key, _Line())
            line.parked = line.parked if line.at_work else entity

    def ended_parked(self, start: Start, result: TryResult, now: float) -> None:
        """A worker's try at a parked message, or at the entity for its sake, has ended."""
        line = self._lines[start.key]
        self._look_after(result, now)
        if result.goes_on:
            line.again, line.since = 0, None
        elif result.ending is not Ending.FAILED:  # which is tried when the sink says
            line.parked = start.parked
            self._pause(line, now)

    def _look_after(self, result: TryResult, now: float) -> None:
        """Look for parked messages when one of this process is due."""
        if result.after is not None and result.ending in (Ending.FAILED, Ending.PARKED):
            self._look_at = min(self._look_at, now + result.after)

    def renewed(self, held: HeldMessage, message: QueueMessage, trust: LockTrust) -> None:
        """Its lock was renewed."""
        held.message, held.trust = message, trust

    def ended(self, held: HeldMessage, result: TryResult, now: float) -> None:
        """A worker's try at the first of a line has ended."""
        line = self._lines[held.key]
        if result.ending is Ending.PARKED:
            self._look_after(result, now)
        if result.goes_on:
            line.again, line.since = 0, None
            self._out(held)
            self._settle.append(_settled(held, result))
        elif result.ending is Ending.FAILED:
            held.tries += 1
            if held.delivery > self._settings.max_deliveries:
                self._out(held)
                self._settle.append(DeadLetter(held, FAILED_REASON, result.description))
            elif self._settings.busy is BusyPolicy.ABANDON:
                self._leave(held, now)
            else:
                self._pause(line, now)
        else:
            self._kept_waiting(line, result.ending, now)

    def finished(self, key: str) -> None:
        """The worker has left the entity."""
        line = self._lines[key]
        line.at_work = False
        line.held.sort(key=lambda each: each.place)  # rule 1: an earlier one may have come behind the first
        self._at_work -= 1
        if not line.held and line.parked is None:
            del self._lines[key]

    def settled(self) -> list[Step]:
        """What is decided of messages, and to be done at once."""
        steps, self._settle = self._settle, []
        return steps

    def due(self, now: float, *, stopping: bool = False) -> list[Step]:
        """What is to be done now; `stopping` begins no work, and gives back what is not at work."""
        steps = self.settled()
        for held in [each for each in self._known.values() if each.trust is LOST and not self._is_at_work(each)]:
            self.lost += 1
            self._out(held)
        leaving = [each for each in self._leaving if stopping or (each.leaves_at or 0.0) <= now]
        if stopping:
            leaving += [each for line in self._lines.values() if not line.at_work for each in line.held]
        for held in leaving:
            self._out(held)
        if leaving:
            steps.append(GiveBack(tuple(leaving)))
        renew = tuple(each for each in self._known.values() if each.trust.renew_at <= now)
        if renew:
            steps.append(Renew(renew))
        if not stopping:
            steps += self._starts(now)
            if self._look_at <= now and not self._looking and self._at_work < self._settings.workers:
                self._looking, self._look_at = True, now + _LOOK
                steps.append(LookForParked(self._settings.workers))
        return completed_last(steps)

    def next_due(self, now: float) -> float:
        """Seconds until something is due, as far as is known now; at most 1."""
        times = [each.trust.renew_at for each in self._known.values()]
        times += [each.leaves_at for each in self._leaving if each.leaves_at is not None]
        times += [line.ready_at for line in self._lines.values() if line.waits]
        times += [] if self._looking else [self._look_at]
        return min(1.0, max(0.01, min(times, default=now + 1.0) - now))

    def _starts(self, now: float) -> Iterator[Start]:
        free = self._settings.workers - self._at_work
        if free <= 0:
            return
        ready = (key for key, line in self._lines.items() if line.may_start(now))
        keys = tuple(islice(ready, free + self._settings.workers))
        for key in keys[:free]:
            line = self._lines[key]
            line.at_work = True
            self._at_work += 1
            parked, line.parked = line.parked, None
            yield Start(key, tuple(line.held[: self._settings.at_once]), parked, keys)

    def _kept_waiting(self, line: _Line, ending: Ending, now: float) -> None:
        """Rule 4."""
        line.since = now if line.since is None else line.since
        self._pause(line, now)
        if ending is Ending.AWAY:
            return
        if self._settings.busy is BusyPolicy.ABANDON or now - line.since >= self._settings.wait_at_most:
            line.since = now
            for each in [each for each in line.held if not self._is_last(each)]:
                self._leave(each, now)

    def _is_at_work(self, held: HeldMessage) -> bool:
        """Whether a worker may have it: it is in the part of the line that was handed over, or counts as that."""
        line = self._lines.get(held.key)
        return line is not None and line.at_work and held in line.held[: self._settings.at_once]

    def _is_last(self, held: HeldMessage) -> bool:
        return held.message.delivery_count + 1 >= self._settings.max_deliveries

    def _pause(self, line: _Line, now: float) -> None:
        line.again += 1
        line.ready_at = now + self._length(line.again)

    def _leave(self, held: HeldMessage, now: float) -> None:
        """Keep it apart for a pause, and then give it back: whoever gets it next would find the same at once."""
        line = self._lines.get(held.key)
        if line is not None and held in line.held:
            line.held.remove(held)
        held.leaves_at = now + self._length(held.message.delivery_count + 1)
        self._leaving.append(held)

    def _length(self, times: int) -> float:
        return pause(self._settings, times, self._rng)

    def _out(self, held: HeldMessage) -> None:
        self._known.pop(held.message.identity, None)
        if held in self._leaving:
            self._leaving.remove(held)
        line = self._lines.get(held.key)
        if line is not None and held in line.held:
            line.held.remove(held)
            if not line.held and not line.at_work and line.parked is None:
                del self._lines[held.key]
