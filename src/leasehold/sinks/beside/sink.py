"""What every sink with transactions offers beside its table, on the ways into its database.

Owns which table each of these needs, and what is locked first. A database brings an `Access`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence

from leasehold.sinks.beside.outbox.contract import Outbox
from leasehold.sinks.beside.outbox.sending import KeptOutbox
from leasehold.sinks.beside.parking import table as parked
from leasehold.sinks.beside.parking.listing import ParkedRow
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.session import Access, BesideTransaction, Session
from leasehold.sinks.beside.set_aside.contract import EventId, Selection
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent


class BesideSink(ABC):
    """Of a sink, what it offers beside its table."""

    @property
    @abstractmethod
    def _access(self) -> Access: ...

    @property
    def outbox(self) -> Outbox:
        """See `KeepsOutbox`."""
        return KeptOutbox(self._access)

    def check_parked(self) -> None:
        """See `KeepsParked`."""
        self._access.changed(lambda transaction: None, PARKED)

    def parked_entities(self, hub: str, partition: str) -> dict[Key, float]:
        """See `KeepsParked`."""
        with self._access.looking(PARKED) as session:
            return parked.entities(session, (hub, partition))

    def parked_events(self, hub: str, partition: str, keys: Collection[Key], at_most: int) -> list[ParkedEvent]:
        """See `KeepsParked`."""
        with self._access.looking(PARKED) as session:
            return parked.events(session, (hub, partition), keys, at_most)

    def first_parked(self, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
        """See `KeepsVersions`."""
        with self._access.looking(PARKED) as session:
            return parked.firsts(session, keys)

    def parked_rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[ParkedRow]:
        """See `ListsParked`."""
        with self._access.looking(PARKED) as session:
            return parked.listed(session, selection, limit, after)

    def hurry_parked(self, events: Collection[EventId]) -> int:
        """See `ListsParked`."""
        return self._change_parked(events, lambda session: parked.hurry(session, events))

    def drop_parked(self, events: Sequence[EventId], reason: str) -> int:
        """See `ListsParked`."""
        now = self._access.wall()
        return self._change_parked(events, lambda session: parked.drop(session, events, reason, now), DROPPED)

    def _change_parked(self, events: Collection[EventId], change: Callable[[Session], int], *needed: str) -> int:
        lanes = {(event.hub, event.partition) for event in events}

        def once(transaction: BesideTransaction) -> int:
            if not transaction.has(PARKED):
                return 0
            transaction.lock_partitions(lanes)
            transaction.count_change(lanes)
            return change(transaction.session)

        return self._access.changed(once, *needed)
