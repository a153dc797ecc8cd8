"""What a sink keeps of parked events: those whose handler has raised, and those of the same entity behind them.

Owns the rules of what `KeepsStates` says of parked events.

1. An event is parked by the batch that moves the watermark past it, in the same transaction, with all that its handler
   is given.
2. Parked events are changed by batches alone (`Batch.parking`), under the lock of the watermark row and at its level,
   and by persons (a reset, `forget`). A batch whose range is refused changes none of them. One that says which
   watermark it read them under (`Batch.read_under`) finds out whether anybody else has changed them since: whoever
   does so moves that watermark, or its count of changes.
3. A batch that tries parked events again (`Parking.retried`) has an empty range, where the watermark stands: so it is
   fenced like every other. Its rows and rejected events are those of parked events, and are written in the transaction
   that removes them: none takes effect twice, and none is lost.
   The commit finds every one of them there, or is outdated: somebody else has applied it, or removed it.
4. The holder of an entity's lease may try parked events of a partition that another process owns (`Parking.by_guest`),
   at the owner level and under the watermark that are there. It changes nothing that the owner's batch at hand was
   computed from, but for its own entity, whose version tells; so no change is counted, and that batch goes through.
5. A reset removes the parked events that will be read again, those above the place that it sets, and leaves the others.
   They are gone with a table that was dropped and is reset.

Any number of threads and processes may bring batches of one partition at once: they follow one another by its watermark
row. Who stops between reading parked events and the commit has done nothing; its commit is refused, or outdated, once
another owner has been there.

An operator lists parked events, has them tried at once, or drops them, beside running instances and any number of
operators. That changes them under the lock of their partitions' watermarks and raises the count of changes: what the
owner has computed of them meanwhile is outdated, and it looks at them anew. An operator who is killed before the commit
has changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.set_aside import EventId

__all__ = ["ParkedRow"]


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """A parked event, where it comes from, and since when it is parked, in seconds since 1970.

    `first` says whether it is the first of its entity, so that it is tried at its `next_at`.
    """

    id: EventId
    event: ParkedEvent
    parked_at: float
    first: bool
