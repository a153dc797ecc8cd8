"""How the consumer group of a loop is doing, asked from outside of it: nothing has to be running.

Owns the opening of hub and stores for one look. Reads only, and makes no store that is not there.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

from leasehold.combinations import is_mixed
from leasehold.hubs import open_hub
from leasehold.operations.progress import GroupProgress, group_progress
from leasehold.ownership.starting import KnowsWatermarks
from leasehold.spark.plan.options import SourceOptions, require_stores
from leasehold.store_choice import TablePlaces, open_stores
from leasehold.stores import Store, open_existing
from leasehold.stores.closing import close_store


def progress_of(source: SourceOptions, table: KnowsWatermarks | None) -> GroupProgress:
    """All partitions of the group. `table` is asked where no checkpoints are kept.

    Raises `HubUnavailable`, `StoreUnavailable`, and `UsageError` for a store that no instance has made yet.
    """
    with ExitStack() as opened:
        hub = opened.enter_context(closing(open_hub(source.hub)))

        def existing(url: str) -> Store:
            store = open_existing(url)
            opened.callback(close_store, store)
            return store

        places = None if table is None else TablePlaces(table, hub.identity)
        stores = open_stores(*require_stores(source), source.partitions, existing, places=places)
        return group_progress(
            hub,
            hub.consumer_group(source.consumer_group),
            stores.ownership,
            stores.checkpoints,
            source.settings.partition_expiration,
            stores.ours,
            foreign_expiration=source.settings.expiration_of_others(mixed=is_mixed(source.hub)),
            positions=source.starting_position,
        )
