"""Several Spark applications, one partitioned event stream, one correct table of entities.

This is the part of Leasehold that needs nothing but Python: the words as values, errors, settings, notices,
and the doors to hubs and stores. `leasehold.spark` has the source and the entity table.
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
    Positions,
)
from leasehold.notices import Notice, Notices
from leasehold.processor import PartitionManager
from leasehold.stores import CheckpointStore, LeaseStore, OwnershipStore, open_lease_store, open_store

__all__ = [
    "EARLIEST",
    "LATEST",
    "Checkpoint",
    "CheckpointStore",
    "ConsumerGroup",
    "Event",
    "EventPosition",
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
    "PartitionManager",
    "PartitionProperties",
    "Positions",
    "__version__",
    "open_hub",
    "open_lease_store",
    "open_store",
]
