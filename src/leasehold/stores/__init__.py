"""Stores of ownership and checkpoints, and of leases, found by URL.

`open_store(url)` and `open_lease_store(url)` map the URL's scheme to a backend and import it only then.
Packages of others add schemes through the entry point groups `leasehold.stores` and `leasehold.lease_stores`:
a callable `(url, base, timeout) -> store`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from leasehold.backends import load_backend, masked
from leasehold.config import check_seconds
from leasehold.errors import UsageError
from leasehold.stores.base import (
    CheckpointStore,
    KnowsNamesakes,
    OwnershipStore,
    PipelineBinding,
    SchemaChange,
    SchemaKeeper,
    StoreFeatures,
    TellsWhetherMade,
)
from leasehold.stores.lease_base import ClearsLeases, LeaseStatus, LeaseStore, ListsLeases

__all__ = [
    "CheckpointStore",
    "ClearsLeases",
    "KnowsNamesakes",
    "LeaseStatus",
    "LeaseStore",
    "ListsLeases",
    "OwnershipStore",
    "PipelineBinding",
    "SchemaChange",
    "SchemaKeeper",
    "Store",
    "StoreFeatures",
    "TellsWhetherMade",
    "open_existing",
    "open_lease_store",
    "open_store",
]


class Store(OwnershipStore, CheckpointStore, Protocol):
    """What `open_store` returns: every backend so far serves both protocols."""


BACKENDS = {
    "azblob": "leasehold.stores.azure.blob:open_blob_store",
    "aztable": "leasehold.stores.azure.table:open_table_store",
    "memory": "leasehold.stores.memory.store:open_memory_store",
    "postgresql": "leasehold.stores.postgres.store:open_postgres_store",
    "redis": "leasehold.stores.redis.store:open_redis_store",
    "rediss": "leasehold.stores.redis.store:open_redis_store",
    "sqlite": "leasehold.stores.sqlite.store:open_sqlite_store",
}

LEASE_BACKENDS = {
    "azblob": "leasehold.stores.azure.blob_leases:open_blob_leases",
    "aztable": "leasehold.stores.azure.table_leases:open_table_leases",
    "memory": "leasehold.stores.memory.leases:open_memory_leases",
    "postgresql": "leasehold.stores.postgres.leases:open_postgres_leases",
    "redis": "leasehold.stores.redis.leases:open_redis_leases",
    "rediss": "leasehold.stores.redis.leases:open_redis_leases",
    "sqlite": "leasehold.stores.sqlite.leases:open_sqlite_leases",
}


def open_store(url: str, *, base: Path | None = None, timeout: float = 3.0) -> Store:
    """Open the store at `url`: `memory://NAME`, `sqlite:///PATH`, `postgresql://…`, `redis://…`, `rediss://…`,
    `azblob://ACCOUNT/CONTAINER` or `aztable://ACCOUNT/TABLE`.

    Three slashes: PATH is relative to `base` (default: the working directory); four: it is absolute.
    `timeout` is the longest that one call may take, in seconds. Raises `ConfigError` for a URL that cannot
    be read and `MissingDependency` for a driver that is not installed.
    """
    check_seconds("timeout", timeout, or_zero=True)
    opener = load_backend(url, "store", BACKENDS, "leasehold.stores")
    store: Store = opener(url, base or Path.cwd(), timeout)
    return store


def open_existing(url: str, *, base: Path | None = None, timeout: float = 3.0) -> Store:
    """As `open_store(url, base=base, timeout=timeout)`, for a caller that only reads, and makes nothing.

    Raises `UsageError` where nothing is at the URL. Looks once; what is removed later is the store's to notice.
    """
    store = open_store(url, base=base, timeout=timeout)
    if isinstance(store, TellsWhetherMade) and not store.is_made():
        raise UsageError(
            f"there is no store at {masked(url)}, and none was made: no instance has used it yet, or the URL is not "
            "the one that they use. `leasehold init` of the pipeline file, or of the URL, makes an empty one"
        )
    return store


def open_lease_store(url: str, *, base: Path | None = None, timeout: float = 3.0) -> LeaseStore:
    """Open the store of leases at `url`, with `base` and `timeout` as for `open_store`. One URL may serve both."""
    check_seconds("timeout", timeout, or_zero=True)
    opener = load_backend(url, "store", LEASE_BACKENDS, "leasehold.lease_stores")
    store: LeaseStore = opener(url, base or Path.cwd(), timeout)
    return store
