"""Entities whose events are in several partitions: each has a version, which every commit about it raises.

Owns the rules of a table with `TableSpec.spread`, and of what `KeepsStates` says of versions.

1. `read_entities` gives an entity's version, and its state and whether it has parked events as of that version or
   later. A batch that was computed from these says which versions it has read (`Batch.versioned`).
2. Its transaction locks the watermark row of its partition, then the versions of all its keys, in the order of their
   texts, and compares. For the keys whose version has moved it asks for the batch anew (`Versioned.again`), with what
   is known of them under the lock, so from the last state there is. Then it writes, and raises all these versions.
3. `latest` of an entity is the highest value of `sequence_by` that has taken effect: what is lower comes late.
4. Events of an entity are parked in one order over all partitions, that of their commits: those of one commit by
   sequence number. `parked_entities` and `parked_events` leave out what waits behind another partition's event. An
   entity that has parked events is changed by the owner of the first of them alone: all others park behind it. So a
   batch of parked events compares nothing (`again` is None). Where entities are leased, the holder changes it, and
   compares (`parking`, rule 4): `first_parked` tells it whose event is the first.

So what takes effect is what one commit after the other would have made of it, however many processes compute from one
state at once. No commit waits for another one in a circle: watermarks first, by hub and partition, then versions by
key. A process that stops after it has read has done nothing, and its keys move on; one that stops in its transaction,
or in a handler that `again` calls, holds up those who want its keys until the server ends it (Postgres), or all
writers until their time-outs (SQLite). Killed there, it has done nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.sinks.rules.batch import OrderValue

__all__ = ["latest_of"]


def latest_of(kept: object) -> OrderValue | None:
    """What was kept as `latest`, as JSON; None where it says nothing, also what nobody here has written."""
    try:
        value = json.loads(kept) if isinstance(kept, str | bytes) else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, int | float | str) and value == value else None
