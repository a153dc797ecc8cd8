"""What one instance of a consumer group is made of.

Owns the one value that holds them: hub and group, stores, settings, what it is for, and its runtime. Whoever works
for the instance is given the value, and takes from it what it needs. Promises that nothing of it changes while the
instance lives, but what its stores, hub and clock do. Refuses nothing: what does not go together is refused by
`PartitionManager`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from leasehold.balancing import trust_duration
from leasehold.clock import Clock
from leasehold.config import OwnershipSettings
from leasehold.hubs.base import Hub
from leasehold.model import ConsumerGroup, OwnerId, Positions
from leasehold.notices import Notices
from leasehold.ownership.purpose import Purpose
from leasehold.runtime import Runtime
from leasehold.stores.base import CheckpointStore, OwnershipStore


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceParts:
    """All that a `PartitionManager` was given, with its stores measured."""

    hub: Hub
    group: ConsumerGroup
    ownership: OwnershipStore
    checkpoints: CheckpointStore
    owner_id: OwnerId
    settings: OwnershipSettings
    positions: Positions
    runtime: Runtime
    purpose: Purpose
    last_error: str

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.runtime.clock

    @property
    def rng(self) -> Random:
        """Chance."""
        return self.runtime.rng

    @property
    def notices(self) -> Notices:
        """Where notices go."""
        return self.runtime.notices

    @property
    def trust(self) -> float:
        """For how many seconds from the start of its request a renewal or claim is trusted."""
        settings = self.settings
        return trust_duration(settings.partition_expiration, settings.clock_rate_ratio, settings.margin)
