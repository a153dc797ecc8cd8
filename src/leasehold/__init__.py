"""Several Spark applications, one partitioned event stream, one correct table of entities.

This is the part of Leasehold that needs nothing but Python: the words as values, errors, settings, notices,
the plain event processor, and the doors to hubs and stores. `leasehold.spark` has the source and the entity table.
"""

from leasehold._version import __version__
from leasehold.config import OwnershipSettings
from leasehold.errors import LeaseholdError
from leasehold.hubs import Hub, open_hub
from leasehold.model import (
    EARLIEST,
    LATEST,
    Checkpoint,
    ConsumerGroup,
    Event,
    EventPosition,
    Lease,
    LeaseSession,
    OwnerId,
    Ownership,
    OwnershipListing,
    PartitionProperties,
    PositionKind,
    Positions,
)
from leasehold.notices import Notice, Notices
from leasehold.processor import (
    EACH_BATCH,
    MANUAL,
    ON_STOP,
    Cancellation,
    CheckpointPolicy,
    DeliverySettings,
    EventBatch,
    EventProcessor,
    PartitionClient,
    PartitionContext,
    PartitionManager,
    StopReason,
    every,
)
from leasehold.stores import CheckpointStore, LeaseStore, OwnershipStore, open_lease_store, open_store

__all__ = [
    "EACH_BATCH",
    "EARLIEST",
    "LATEST",
    "MANUAL",
    "ON_STOP",
    "Cancellation",
    "Checkpoint",
    "CheckpointPolicy",
    "CheckpointStore",
    "ConsumerGroup",
    "DeliverySettings",
    "Event",
    "EventBatch",
    "EventPosition",
    "EventProcessor",
    "Hub",
    "Lease",
    "LeaseSession",
    "LeaseStore",
    "LeaseholdError",
    "Notice",
    "Notices",
    "OwnerId",
    "Ownership",
    "OwnershipListing",
    "OwnershipSettings",
    "OwnershipStore",
    "PartitionClient",
    "PartitionContext",
    "PartitionManager",
    "PartitionProperties",
    "PositionKind",
    "Positions",
    "StopReason",
    "__version__",
    "every",
    "open_hub",
    "open_lease_store",
    "open_store",
]
