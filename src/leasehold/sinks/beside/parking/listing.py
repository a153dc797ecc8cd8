"""Parked events for an operator: which there are, to be tried at once, or dropped.

Owns the contract of a sink that lets them be listed, `ListsParked`. Whoever changes parked events here has the lock of
their partitions' watermarks and raises the count of changes: what the owner has computed of them meanwhile is outdated,
and it looks at them anew. Beside running instances, and any number of operators. Killed before the commit, nothing is
changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from leasehold.sinks.beside.set_aside.contract import EventId, Selection
from leasehold.sinks.rules.parking import ParkedEvent

__all__ = ["ListsParked", "ParkedRow"]


@dataclass(frozen=True, slots=True)
class ParkedRow:
    """A parked event, where it comes from, and since when it is parked, in seconds since 1970.

    `first` says whether it is the first of its entity, so that it is tried at its `next_at`.
    """

    id: EventId
    event: ParkedEvent
    parked_at: float
    first: bool


@runtime_checkable
class ListsParked(Protocol):
    """What a sink may do beside `KeepsParked`."""

    def parked_rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[ParkedRow]:
        """At most `limit` parked events behind `after`, by hub, partition and sequence number.

        The reason of a selection is a part of the error. Empty where nothing has ever been parked.
        """
        ...

    def hurry_parked(self, events: Collection[EventId]) -> int:
        """Let these events be tried at once, each as soon as it is the first of its entity. How many there were."""
        ...

    def drop_parked(self, events: Sequence[EventId], reason: str) -> int:
        """Remove these events for good, and note each with `reason` among the dropped ones, without its body.

        How many there were. Their entities go on as if they had never been. Raises `ConfigError` without a reason.
        """
        ...
