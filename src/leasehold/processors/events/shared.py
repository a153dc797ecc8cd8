"""What the partitions of one processor have in common.

Owns the value that each partition's work is made with. Nothing in it belongs to one partition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from leasehold.clock import Clock
from leasehold.hubs.base import Hub
from leasehold.ownership.partition_manager import PartitionManager
from leasehold.processors.events.checkpointer import CheckpointPolicy
from leasehold.processors.events.delivery import DeliverySettings
from leasehold.processors.events.hub_watch import HubWatch, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedByPartitions:
    """What all partitions of a processor share. `closed` is called when the work on one has ended.

    `worked` is set once an event has been processed, of whatever partition. `fills_table`: the handlers write to a
    table, which has to know a place before a checkpoint does. `confirm` is called before the work on a partition, and
    raises `UsageError` where the table is not the group's.
    """

    hub: Hub
    group_name: str
    manager: PartitionManager
    watch: HubWatch
    delivery: DeliverySettings
    policy: CheckpointPolicy
    clock: Clock
    report: Report
    goes_on: Callable[[str], None]
    closed: Callable[[], None]
    confirm: Callable[[], None]
    fills_table: bool
    worked: threading.Event = field(default_factory=threading.Event)
