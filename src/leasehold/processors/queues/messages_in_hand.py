"""The words in which a queue processor's parts speak of messages in hand: how tries end, and what is to be done. Pure.

Owns these types and no rule but one: what is done is completed together, behind all else that is to be done at the same
time, since the service is waited for, and workers need not wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from leasehold.queues.base import QueueMessage
from leasehold.queues.locks import LockTrust

FAILED_REASON = "HandlerFailed"


class Ending(StrEnum):
    """How a worker's try at a message ended."""

    APPLIED = "applied"
    REPEATED = "repeated"
    """It was done before."""
    REJECTED = "rejected"
    FAILED = "failed"
    BUSY = "busy"
    """The entity's lease is another's, was lost, or another has changed the entity."""
    AWAY = "away"
    """A store or the sink could not be reached."""
    PARKED = "parked"
    """It waits in the sink's database."""
    SET_ASIDE = "set_aside"
    """A parked one that was given up: a rejected row of the table."""
    BEHIND = "behind"
    """An earlier message of the entity is parked. Workers alone see it."""


TRIES = (Ending.FAILED, Ending.BUSY, Ending.AWAY)
"""The tries that are counted, since nothing has come of them."""
_COUNTED = {Ending.APPLIED: ("used", "applied"), Ending.REPEATED: ("duplicates",), Ending.PARKED: ("parked",)}
_COUNTED_AGAIN = {Ending.APPLIED: ("retried",), Ending.SET_ASIDE: ("retried", "retried_rejected")}


def counted_as(ending: Ending, *, in_hand: bool) -> tuple[str, ...]:
    """What the end of a try counts as (`leasehold.counts`), of a message in hand or of one that was parked.

    A rejected message counts once it is decided that it is to be a dead letter: also one that has failed too often.
    """
    if ending in TRIES:
        return (ending,)
    return (_COUNTED if in_hand else _COUNTED_AGAIN).get(ending, ())


_GOES_ON = (Ending.APPLIED, Ending.REPEATED, Ending.REJECTED, Ending.SET_ASIDE, Ending.PARKED)


@dataclass(frozen=True, slots=True)
class TryResult:
    """A try's ending; for what is rejected or failed, why. `after` is the pause in seconds until the next one, if that
    is known: a handler has asked for it, or the sink keeps it."""

    ending: Ending
    reason: str = ""
    description: str = ""
    after: float | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the entity's next message may follow."""
        return self.ending in _GOES_ON


@dataclass(slots=True, eq=False)
class HeldMessage:
    """A message in hand. `content` is what the worker needs of it; `tries` those that failed here."""

    message: QueueMessage
    key: str
    content: Any
    trust: LockTrust
    tries: int = 0
    leaves_at: float | None = None

    def trusted(self, now: float) -> bool:
        """Whether its lock is trusted."""
        return now < self.trust.until

    @property
    def delivery(self) -> int:
        """Which delivery, or try of one, this is, from 1."""
        return self.message.delivery_count + self.tries + 1

    @property
    def place(self) -> tuple[float, int]:
        """Its place in the queue."""
        return self.message.enqueued_time, self.message.sequence_number


@dataclass(frozen=True, slots=True)
class Start:
    """Work through these messages of an entity, and its parked ones if it is named; `ahead` are those that are next."""

    key: str
    held: tuple[HeldMessage, ...]
    parked: tuple[Any, ...] | None = None
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookForParked:
    """Look for this many entities whose parked messages are due."""

    at_most: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the locks of these."""

    held: tuple[HeldMessage, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """Remove these from the queue."""

    held: tuple[HeldMessage, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Abandon these."""

    held: tuple[HeldMessage, ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Dead-letter this one."""

    held: HeldMessage
    reason: str
    description: str


Step = Start | LookForParked | Renew | Complete | GiveBack | DeadLetter


def completed_last(steps: Iterable[Step]) -> list[Step]:
    """The same steps, with one to complete all that is done behind the others."""
    others: list[Step] = []
    done: list[HeldMessage] = []
    for step in steps:
        if isinstance(step, Complete):
            done += step.held
        else:
            others.append(step)
    return [*others, Complete(tuple(done))] if done else others
