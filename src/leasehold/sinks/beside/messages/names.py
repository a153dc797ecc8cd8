"""What a message of a queue is known by. Owns these values, which what is done and what waits have in common."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MessageName", "SentAs"]


@dataclass(frozen=True, slots=True)
class SentAs:
    """What its sender names a message by, as a digest, and for how many seconds another one of that name is the same.

    The seconds are counted from when the first took effect to when the other was enqueued.
    """

    digest: str
    remember: float


@dataclass(frozen=True, slots=True)
class MessageName:
    """Names a message for good. `identity` is unique in the queue; the others say where it stands there.

    `sent_as` is None for a message that is no other's duplicate.

    `enqueued_time` is in seconds since the epoch, by the service's clock.
    """

    queue: str
    identity: str
    sequence_number: int
    enqueued_time: float
    sent_as: SentAs | None = None
