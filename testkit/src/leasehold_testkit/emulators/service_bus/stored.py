"""A message as a queue holds it, and what changes of one queue look like to whoever keeps them.

Owns the values; `queue.py` owns every change of them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from leasehold_testkit.emulators.service_bus.content import Content


class MessageState(IntEnum):
    """As the service numbers them."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True)
class Lock:
    """A receiver's hold of a message, until a time in milliseconds."""

    token: UUID
    until: int


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message with what the queue has given it. Times are in milliseconds since the epoch."""

    sequence_number: int
    content: Content
    enqueued: int
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    expires: int | None = None
    lock: Lock | None = None
    source: str | None = None
    """Of a dead letter: the queue it comes from."""
    first_number: int | None = None
    """Of a subscription's message: its number in the topic."""


@dataclass(slots=True)
class Changes:
    """What has changed since the last look: `None` for what is gone."""

    messages: dict[int, QueuedMessage | None] = field(default_factory=dict)
    session_states: dict[str, bytes | None] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.messages or self.session_states or self.seen)
