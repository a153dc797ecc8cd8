"""Parked events, and what a batch changes among them, as values. A sink keeps them: `sinks.beside.parking`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.sinks.rules.ordering import Key


@dataclass(frozen=True, slots=True)
class ParkedEvent:
    """An event that waits.

    key                of its entity: values of the key columns, in the order of the spec
    enqueued_time      when the hub received it, in seconds since 1970
    deliveries         how often its handler was called for it
    next_at            when it is tried again, in seconds since 1970, once it is the first of its entity; 0: at once
    error              what its handler raised last; empty if it was never called
    """

    key: Key
    body: bytes
    sequence_number: int
    enqueued_time: float
    deliveries: int = 0
    next_at: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Parking:
    """What a batch changes among the parked events of one partition: `put` is new, or in place of what was.

    `retried` says that the batch is of parked events: rule 3. `by_guest`: rule 4.
    """

    hub: str
    partition: str
    put: Sequence[ParkedEvent] = ()
    removed: Sequence[int] = ()
    retried: bool = False
    by_guest: bool = False

    @property
    def tried(self) -> frozenset[int]:
        """The events that were tried again, by their sequence numbers; none of a batch of new events."""
        return frozenset([*self.removed, *(one.sequence_number for one in self.put)] if self.retried else ())
