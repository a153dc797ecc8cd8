"""What an outbox offers an operator: the events that their receiver has refused are listed, sent again or dropped.

Owns the contract.

1. They are listed in the order of their numbers, each with the reason.
2. One that is to be sent again is marked no more. Its partition's owner sends it before what waits there, under the id
   that it had, and behind all that was sent since: also of its key.
3. One that is dropped is gone.

Any number of operators at once, beside senders: these touch none that is refused, and an operator none that is not. Who
stops at any line has changed nothing, or all that was asked for in one call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from leasehold.sinks.beside.kept_values import seconds
from leasehold.sinks.beside.outbox.contract import WaitingEvent, waiting_event

__all__ = ["ListsRefused", "RefusedEvent"]


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that its receiver has refused: which `hub` and `partition` its cause came from, since when it is in the
    outbox (seconds since 1970), and why it is refused."""

    event: WaitingEvent
    hub: str
    partition: str
    emitted_at: float
    reason: str


@runtime_checkable
class ListsRefused(Protocol):
    """What an outbox may do beside."""

    def refused(self, limit: int, after: int = 0) -> list[RefusedEvent]:
        """At most `limit` refused events behind the number `after`: rule 1. Makes nothing."""
        ...

    def send_again(self, numbers: Collection[int]) -> int:
        """Let these be sent, as far as they are refused: rule 2. How many there were."""
        ...

    def drop_refused(self, numbers: Collection[int]) -> int:
        """Remove these, as far as they are refused: rule 3. How many there were."""
        ...


def refused_event(
    hub: object, partition: object, emitted_at: object, reason: object, number: int, *kept: object
) -> RefusedEvent:
    """An event as it was kept, whoever has written it: see `waiting_event`. Raises nothing."""
    its = [one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in (hub, partition, reason)]
    event = waiting_event(number, its[0], its[1], *kept)  # type: ignore[arg-type]  # whatever it is
    return RefusedEvent(event, its[0], its[1], seconds(emitted_at), its[2])
