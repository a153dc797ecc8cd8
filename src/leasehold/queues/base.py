"""What a queue promises: messages that are received under a lock and then completed, at least once each.

A received message is its receiver's until `locked_until`, by the service's clock; then the queue gives it to another
receiver, its delivery counted. The service alone decides whether a lock is held, and no clock of this machine: `locks`
says how long one is trusted. A message is named by its sequence number together with its enqueued time: numbers of a
queue that was removed and made anew begin again. Every method may raise `QueueUnavailable`.

A queue extends `Queue`. Its abstract methods are what every queue does. The others have a default, which says what a
queue does without that ability.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leasehold.errors import QueueError

__all__ = ["NewMessage", "Queue", "QueueMessage"]


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """One message of a queue. Times are in seconds since the epoch, by the service's clock."""

    body: bytes | None
    """None where the sender put no bytes into it but an AMQP value or a sequence, and where it cannot be read."""
    sequence_number: int
    enqueued_time: float
    message_id: str | None = None
    """What its sender has named it by; a copy (`Queue.resubmit`) has that of its first."""
    session_id: str | None = None
    partition_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """The application properties as text."""
    delivery_count: int = 0
    """Deliveries that have failed so far."""
    locked_until: float = 0.0
    """When it is the queue's again; 0 for one that was only looked at."""
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    driver: Any = field(default=None, repr=False, compare=False)
    """The driver's own message, by which it is settled."""

    @property
    def identity(self) -> str:
        """Names the message among all that the queue, and one of its name before it, ever had."""
        return f"{self.sequence_number}@{round(self.enqueued_time * 1_000)}"


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be sent. `message_id` is what a queue that detects duplicates knows it by."""

    body: bytes
    key: str | None = None
    message_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class Queue(ABC):
    """One queue, or subscription, or the dead letters of either. Used by one thread at a time."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL that opens this queue, without secrets."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Names the queue wherever it is read from: namespace and path, in lower case."""

    @abstractmethod
    def receive(self, most: int, wait: float) -> list[QueueMessage]:
        """Lock up to `most` messages, the oldest that are free; wait up to `wait` seconds for the first of them."""

    @abstractmethod
    def complete(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """Remove messages from the queue for good; return those whose lock was lost: they come again."""

    @abstractmethod
    def abandon(self, messages: Sequence[QueueMessage]) -> None:
        """Give messages back at once, each with a failed delivery more. A lock that was lost is passed over."""

    @abstractmethod
    def dead_letter(self, message: QueueMessage, reason: str, description: str) -> bool:
        """Set a message aside for good; return whether its lock still held."""

    @abstractmethod
    def renew(self, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
        """Hold messages for another lock duration; return those that are still held, with their new `locked_until`."""

    @abstractmethod
    def peek(self, start: int, most: int) -> list[QueueMessage]:
        """Look at up to `most` messages from a sequence number on, of any state; nothing is locked."""

    @abstractmethod
    def resubmit(self, messages: Sequence[QueueMessage]) -> None:
        """Send copies of messages into the queue that these come from: of dead letters, the queue they died in.

        A copy has the `body` of the message as it is handed in, which may have been mended, and all else as it came.
        A queue that detects duplicates would drop a copy under its first's name, so that it has one of its own. All
        copies of one message have the same, so that such a queue drops a second copy, and only that.
        """

    @abstractmethod
    def dead_letters(self) -> Queue:
        """The queue's dead letters, as a queue. To be closed like any."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this object holds. Closing twice is fine."""

    # What a queue may do beside

    @property
    def shortest_lock(self) -> float:
        """The shortest time, in seconds, for which this queue may lock a message; 0 where that is not known.

        Without an override it is not known.
        """
        return 0.0

    @property
    def takes_messages(self) -> bool:
        """Whether `send` puts messages into this queue. Without an override it takes none."""
        return False

    def send(self, messages: Sequence[NewMessage]) -> None:
        """Send messages; returns when the queue has them. Those of one key are sent in their order.

        Raises `SchemaMismatch` for what the queue never takes, one of them or several together, and `QueueUnavailable`;
        then any number of the first of them, of each key, may be there. Without an override it raises `QueueError`.
        """
        raise QueueError(
            f"{self.url}: {len(messages)} messages were to be sent, and this queue takes none. Send them to a hub, or "
            "to a queue that takes messages"
        )
