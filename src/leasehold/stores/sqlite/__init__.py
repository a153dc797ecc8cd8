"""Stores in one SQLite file, for all processes of one host."""

from leasehold.stores.sqlite.leases import SqliteLeaseStore
from leasehold.stores.sqlite.store import SqliteStore

__all__ = ["SqliteLeaseStore", "SqliteStore"]
