"""The table `leasehold_dropped`: what a person has dropped of rejected and parked events, without its body.

Owns this table, one for all entity tables of a database. Runs inside a transaction of the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.sinks.beside.kept_values import time_text
from leasehold.sinks.beside.session import Session, mine_of
from leasehold.sinks.set_aside import EventId

DROPPED = "leasehold_dropped"


@dataclass(frozen=True, slots=True)
class Removal:
    """What was removed: why and when (as text) it was set aside."""

    event: EventId
    place: int
    reason: str
    rejected_at: str


def note(session: Session, gone: Sequence[Removal], reason: str, now: float) -> None:
    """Note what was dropped for this reason. The table is there."""
    session.many(
        f"INSERT INTO {session.of(DROPPED)} (pipeline, entity_table, hub, partition, sequence_number, place, reason, "
        "rejected_at, dropped_for, dropped_at) VALUES (%(pipeline)s, %(name)s, %(hub)s, %(partition)s, %(number)s, "
        "%(place)s, %(reason)s, %(rejected_at)s, %(dropped_for)s, %(dropped_at)s)",
        [
            {
                **mine_of(session.spec, (one.event.hub, one.event.partition)),
                "number": one.event.sequence_number,
                "place": one.place,
                "reason": session.storable(one.reason),
                "rejected_at": one.rejected_at,
                "dropped_for": session.storable(reason),
                "dropped_at": time_text(now),
            }
            for one in gone
        ],
    )
