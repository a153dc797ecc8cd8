"""The real store in memory, which can be looked into, wiped and restored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from leasehold.clock import Clock
from leasehold.model import Ask, Checkpoint, Ownership, Presence
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.simulation.hub import GROUP

_CONTENT = ("_ownership", "_presences", "_asks", "_checkpoints", "written")


class SimulatedStore(MemoryStore):
    """A `MemoryStore` whose records can be seen without a request. `written`: when each ownership was, truly."""

    def __init__(self, clock: Clock, features: StoreFeatures, truth: Callable[[], float]) -> None:
        super().__init__(clock, features)
        self._now_truly = truth
        self.written: dict[str, float] = {}

    def record(self, partition: str) -> Ownership | None:
        """The ownership record of a partition."""
        return self._ownership.get((GROUP, partition))

    def records(self) -> list[Ownership]:
        """All ownership records."""
        return list(self._ownership.values())

    def checkpoint(self, partition: str) -> Checkpoint | None:
        """The checkpoint of a partition."""
        return self._checkpoints.get((GROUP, partition))

    def presence(self, owner_id: str) -> Presence | None:
        """The presence of an instance."""
        return self._presences.get((GROUP, owner_id))

    def standing_asks(self) -> list[Ask]:
        """The asks that are not void."""
        asks = [(ask, self.record(ask.partition)) for ask in self._asks.values()]
        return [ask for ask, one in asks if one and one.owner_id and one.owner_level == ask.owner_level]

    def clear_out(self) -> None:
        """Free every partition, and forget everybody."""
        self.relinquish_ownership(list(self._ownership.values()))
        self._presences.clear()

    def asks_for(self, partition: str, owner_level: int) -> list[Ask]:
        """The asks for a partition at that level."""
        return [ask for ask in self._asks.values() if (ask.partition, ask.owner_level) == (partition, owner_level)]

    def backup(self) -> dict[str, Any]:
        """All that is in the store."""
        return {name: copy.copy(getattr(self, name)) for name in _CONTENT}

    def restore(self, backup: dict[str, Any]) -> None:
        """Put all back as it was."""
        for name, content in backup.items():
            setattr(self, name, copy.copy(content))

    def wipe(self) -> None:
        """Lose all that is in the store."""
        self.restore({name: {} for name in _CONTENT})

    def _write(self, records: Sequence[Ownership], *, renewing: bool = False) -> list[Ownership]:
        written = super()._write(records, renewing=renewing)
        now = self._now_truly()
        for record in written:
            self.written[record.partition] = now
        return written
