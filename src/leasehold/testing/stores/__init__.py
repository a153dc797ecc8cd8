"""The contract of stores, as tests: at least one for each sentence of `leasehold.stores.base` and `.lease_base`."""

from leasehold.testing.stores.contracts import (
    CheckpointStoreContract,
    LeaseHoldsContract,
    LeaseStoreContract,
    LeaseTimesAtOnce,
    LeaseTimesContract,
    LinearizableLeases,
    LinearizableOwnership,
    OwnershipStoreContract,
    PoisonedStoreContract,
)

__all__ = [
    "CheckpointStoreContract",
    "LeaseHoldsContract",
    "LeaseStoreContract",
    "LeaseTimesAtOnce",
    "LeaseTimesContract",
    "LinearizableLeases",
    "LinearizableOwnership",
    "OwnershipStoreContract",
    "PoisonedStoreContract",
]
