"""The end of a processor that was asked to consume what the hub has at its start, and no more.

Owns when that end has come: when each partition's checkpoint, whoever wrote it, has reached the end that the partition
had at the start, or no event is between the two (`Hub.has_gaps`: marks of transactions). Promises that a store or hub
which is away for a while is waited for, and said once.

Concurrency: one thread of its own asks hub and store, under no lock, since either may hang. If it stops for a minute,
the processor ends a minute later, and goes on consuming until then. Other instances may hold any of the partitions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leasehold.clock import Clock
from leasehold.errors import HubError, StoreError, Verdict
from leasehold.hubs.base import FirstEvent, Hub
from leasehold.model import ConsumerGroup
from leasehold.ownership.consumed import unconsumed
from leasehold.stores.base import CheckpointStore
from leasehold.told import Outage

logger = logging.getLogger(__name__)

_LOOK = 0.5
"""Seconds between two looks."""
_PATIENCE = 5.0
"""Seconds to wait for what a hub with gaps has next."""
_SAID = 10.0
"""Seconds between two lines that say what is waited for."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """A hub that a consumer group consumes, as its checkpoints tell. `ours` says which partitions concern this one."""

    hub: Hub
    group: ConsumerGroup
    checkpoints: CheckpointStore
    ours: Callable[[tuple[str, ...]], tuple[str, ...]]
    _next: dict[tuple[str, int], FirstEvent | None] = field(default_factory=dict, init=False)
    """Where partitions stood at the last look, and what comes next there, once that was asked; of a hub with gaps."""

    def ends(self) -> dict[str, int]:
        """The end of each partition now."""
        known = self.hub.partition_properties()
        return {partition: known[partition].end for partition in self.ours(tuple(known))}

    def left(self, ends: Mapping[str, int]) -> list[str]:
        """The partitions that are not consumed up to these ends."""
        stand = unconsumed(ends, self.checkpoints.list_checkpoints(self.group), self.hub.partition_properties())
        if not self.hub.has_gaps:
            return list(stand)
        known = {at: self._next[at] for at in stand.items() if at in self._next}
        asked = dict(at for at, first in known.items() if first is None)  # they stand still: the hub is worth asking
        found = self.hub.first_events(asked, _PATIENCE) if asked else {}
        self._next.clear()
        self._next.update({at: known.get(at) or found.get(at[0]) for at in stand.items()})
        return [
            partition
            for (partition, _), first in self._next.items()
            if first is None or first.sequence_number < ends[partition]
        ]


class AvailableNow:
    """Calls `end` once all is consumed, or `fail` with what a person has to mend before that can be told."""

    def __init__(
        self, consumption: Consumption, clock: Clock, end: Callable[[], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._consumption, self._clock, self._end, self._fail = consumption, clock, end, fail
        self._ends: Mapping[str, int] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leasehold-available-now", daemon=True)

    def note_ends(self) -> None:
        """Remember what the hub has now. Raises `HubError`."""
        self._ends = self._consumption.ends()

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more. Waits for nothing."""
        self._closed.set()

    def _run(self) -> None:
        outage = Outage(logger, "whether all is consumed cannot be told: %s", "what is left can be told again")
        said = self._clock.monotonic()
        while not self._closed.wait(_LOOK):
            try:
                left = self._consumption.left(self._ends)
            except Exception as error:  # noqa: BLE001 - nobody else would end the processor
                if self._closed.is_set():
                    return
                if not isinstance(error, StoreError | HubError) or error.verdict is not Verdict.PASSES:
                    self._fail(error)
                    return
                outage.note(error)
                continue
            outage.note(None)
            if not left:
                self._end()
                return
            if self._clock.monotonic() - said >= _SAID:
                said = self._clock.monotonic()
                logger.warning("waiting for partitions %s, which are not consumed yet", ", ".join(left[:20]))
