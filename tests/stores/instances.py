"""An instance that takes all partitions of a small hub, on whatever stores."""

from __future__ import annotations

from random import Random
from typing import Any

from leasehold.clock import Clock, SystemClock
from leasehold.config import OwnershipSettings
from leasehold.model import ConsumerGroup, OwnerId, Positions
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores import Store
from tests.processor.fleet import Hub
from tests.waiting import NEVER, until

PARTITIONS = 8


def manager(
    ownership: Store, checkpoints: Store, group: ConsumerGroup, name: str, clock: Clock | None = None, **settings: Any
) -> PartitionManager:
    """An instance that claims whatever is free. Nothing of it expires, unless its settings say otherwise."""
    return PartitionManager(
        Hub(PARTITIONS),
        group,
        ownership,
        checkpoints,
        owner_id=OwnerId(name),
        settings=OwnershipSettings(
            **{"strategy": "greedy", "settle_delay": 0, "partition_expiration": NEVER, **settings}
        ),
        positions=Positions(),
        runtime=Runtime(clock=clock or SystemClock(), rng=Random(1)),
    )


def hold_all(one: PartitionManager) -> int:
    """Let it run until it holds all partitions; return the owner level that it holds them at."""

    def holds_all() -> bool:
        one.tick()
        return len(one.held()) == PARTITIONS

    until(holds_all, "all partitions to be held")
    [level] = {hold.owner_level for hold in one.held().values()}
    return level
