"""Stores in the memory of one process."""

from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold.stores.memory.store import MemoryStore

__all__ = ["MemoryLeaseStore", "MemoryStore"]
