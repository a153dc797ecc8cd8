"""The contract of stores, as tests: at least one for each sentence of `leasehold.stores.base` and `.lease_base`.

A store is done when it passes. Subclass the classes in a test module and give each a fixture `store`, which
may be used by many threads at once:

    class TestOwnership(OwnershipStoreContract):
        @pytest.fixture
        def store(self, tmp_path): return MyStore(tmp_path)

Override `reopen` to open the store anew, as another process would: what is promised to be on disk is read
through it. Override `wait` where time can be moved, on a clock or in the records, and `hung` where a backend may
not answer. What a store's `features` say that it cannot do is not asked of it. Where a short lease is long and time
cannot be moved, `LeaseHoldsContract` and `LeaseTimesAtOnce` are `LeaseStoreContract` with one wait instead of seven.
The two `Linearizable…` classes ask for `reopen`, and for the `url` at which other processes find the store. Every test
makes a group of its own, so that a server may be shared by all of them. `PoisonedStoreContract` asks for `spoil`, the
ways to spoil a record.
"""

from __future__ import annotations

from leasehold_testkit.contracts.stores.checkpoints import CheckpointStoreContract
from leasehold_testkit.contracts.stores.lease_times import LeaseTimesAtOnce, LeaseTimesContract
from leasehold_testkit.contracts.stores.leases import LeaseHoldsContract, LeaseStoreContract
from leasehold_testkit.contracts.stores.linear import LinearizableLeases, LinearizableOwnership
from leasehold_testkit.contracts.stores.ownership import OwnershipStoreContract
from leasehold_testkit.contracts.stores.poisoned import PoisonedStoreContract

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
