"""Messages of a queue that wait in the sink: those that could not be processed, and later ones of their entity.

Owns the contract. It is what `KeepsStates.parked_messages` gives, and goes by these rules too:

1. A message is parked in a transaction of its own, with all that its handler is given. The processor completes it after
   that. One that is done is not parked.
2. Parked messages of an entity stand in the order of their queue: by enqueued time, then number. Messages of two queues
   do not wait for each other.
3. `read_messages` says whether an earlier message of the entity is parked (`behind`), and a batch with
   it then does nothing (`OVERTAKEN`): so none overtakes what has been parked before its commit, whoever parks it.
4. Such a batch removes what is parked of its message in its transaction, also if it finds it done: so one that was
   parked and comes again has one effect.

Any number of threads and processes may do all of it at once: whoever parks a message and whoever applies one of its
entity follow one another. Who stops before a commit has done nothing; killed between parking and completing, the queue
brings the message again, and it is found parked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from leasehold.sinks.rules.messages import MessageName

__all__ = ["ParkedMessage", "ParkedMessages"]

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that waits.

    key         of its entity: values of the key columns, in the order of the spec
    about       what else is kept of it, as its processor has written it
    deliveries  how often its handler was called for it
    next_at     when it is tried again, in seconds since 1970, once it is the first of its entity; 0: at once
    error       what its handler raised last; empty if it was not called
    """

    name: MessageName
    key: Key
    body: bytes
    about: str
    deliveries: int = 0
    next_at: float = 0.0
    error: str = ""

    @property
    def place(self) -> tuple[float, int]:
        """Its place in the queue."""
        return self.name.enqueued_time, self.name.sequence_number


class ParkedMessages(Protocol):
    """The parked messages of one table. Used from any thread."""

    def park(self, message: ParkedMessage) -> bool:
        """Park a message, or note a later try of one that is parked; whether it is parked now: else it is done."""
        ...

    def first(self, queue: str, key: Key, at_most: int) -> list[ParkedMessage]:
        """The first this many parked messages of an entity, in their order. Their names are without `sent_as`."""
        ...

    def due(self, queue: str, at_most: int) -> Sequence[Key]:
        """At most this many entities whose first parked message is to be tried now."""
        ...

    def waiting(self) -> dict[str, tuple[int, float]]:
        """How many messages of each queue are parked, and since when the oldest, in seconds since 1970. For people:
        `check_messages` need not have come before."""
        ...

    def remove(self, message: ParkedMessage) -> None:
        """Remove a message that is done."""
        ...

    def set_aside(self, message: ParkedMessage, reason: str) -> bool:
        """Give a message up: it is done, without effect, and a rejected row of the table. Whether it was not done."""
        ...
