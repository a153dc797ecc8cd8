"""What a table's process remembers of a partition between two batches, at one owner level. Owns no rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from leasehold.handlers.applying import written_steps
from leasehold.handlers.calling.limits import TimeLimit
from leasehold.handlers.contract import Computed, Key
from leasehold.handlers.exclusive import Busy
from leasehold.handlers.parking.left_behind import LeftBehind
from leasehold.handlers.parking.policy import Outcomes
from leasehold.handlers.places import CallingOwner
from leasehold.handlers.spread import BEHIND
from leasehold.leases.lease import EntityLease
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.features import KeepsNotes, KeepsStates
from leasehold.sinks.rules.fence import Watermark


@dataclass(slots=True)
class KnownPartition:
    """What this process knows of a partition at one owner level, for the one thread that works on it.

    `waiting` are the entities that have parked events, with when to try the first, as of the count `changes`; None if
    they have to be read. `noted` are the events to be skipped, as of the count `noted_at`. `not_before`, after
    `outages` in a row, is when parked events are tried again. Those behind another partition's are looked at after
    `behind` seconds. `refused` are the events of the batch at hand that the database refuses; with `by_steps` it is
    given the state that each of them leaves. `limit` is how long the calls of a batch may hang, `leases` are those
    that it holds, `left` is what others have left.
    """

    owner_level: int
    context: CallingOwner | None = None
    end: int = 0
    tried: tuple[int, int] = (BEFORE_FIRST, 0)
    outcomes: Outcomes = field(default_factory=Outcomes)
    waiting: dict[Key, float] | None = None
    changes: int = 0
    noted: frozenset[int] | None = None
    noted_at: int = 0
    outages: int = 0
    not_before: float = 0.0
    behind: float = BEHIND[0]
    refused: Mapping[int, str] = field(default_factory=dict)
    by_steps: bool = False
    limit: TimeLimit = field(default_factory=TimeLimit)
    leases: dict[Key, EntityLease] = field(default_factory=dict)
    busy: Busy = field(default_factory=Busy)
    left: LeftBehind = field(default_factory=LeftBehind)

    def entities_waiting(
        self, parks: KeepsStates, hub: str, partition: str, mark: Watermark, now: float
    ) -> Mapping[Key, float]:
        """The entities that have parked events, as of `mark` or later: then a commit under `mark` is outdated."""
        if self.waiting is None or self.changes != mark.changes:
            found = parks.parked_entities(hub, partition)
            behind = now + self.behind  # another partition's event
            self.waiting = {
                key: self.busy.not_before(key, min(at, behind) if at == math.inf else at) for key, at in found.items()
            }
            self.changes = mark.changes
        return self.waiting

    def to_skip(self, skips: KeepsNotes | None, hub: str, partition: str, mark: Watermark) -> frozenset[int]:
        """The events that a person has noted to be skipped, as of `mark` or later: then a commit under `mark` is
        outdated. Those that were skipped since may be among them."""
        if self.noted is None or self.noted_at != mark.changes:
            self.noted = frozenset() if skips is None else skips.noted(hub).get(partition, frozenset())
            self.noted_at = mark.changes
        return self.noted

    def for_guest(self, owner_level: int) -> KnownPartition:
        """What is known of another partition, by who holds the leases of this one's batch."""
        return KnownPartition(owner_level, limit=self.limit, leases=self.leases, busy=self.busy)

    def nothing_refused(self) -> None:
        """Other events are at hand."""
        self.refused, self.by_steps = {}, False

    def note_refused(self, done: Computed, violations: Mapping[int, str]) -> None:
        """The database refuses these events; of an entity of which it was given the last state alone, one of them."""
        steps = {step.number for step in written_steps(done)}
        named = {number: why for number, why in violations.items() if number in steps}
        self.refused = {**self.refused, **named}
        self.by_steps = self.by_steps or len(named) < len(violations)
