"""The ownership records that an entity table looks at where no `MicroBatches` brings them: with `foreachBatch`.

Owns the question to the ownership store whether a refused range is a zombie's. Refuses rows of several hubs, since the
records are those of one.
"""

from __future__ import annotations

import pyarrow.compute as pc

from leasehold.errors import ConfigError
from leasehold.model import ConsumerGroup
from leasehold.sinks.rules.batch import Batch, find
from leasehold.sinks.rules.table_spec import HUB
from leasehold.stores import OwnershipStore


class GroupRecords:
    """The ownership records of `group` in `store`. May be used by several threads."""

    def __init__(self, store: OwnershipStore, group: ConsumerGroup) -> None:
        self._store, self._group = store, group

    def owner_level(self, hub: str, partition: str) -> int | None:
        """The owner level on record for a partition, None if there is none."""
        records = self._store.list_ownership(self._group).records
        return next((each.owner_level for each in records if each.partition == partition), None)

    def check_hub(self, batch: Batch) -> None:
        """The store is asked about one hub, so there may be no rows of another."""
        hubs: set[str] = set()
        for table in (batch.rows, batch.rejected):
            if table is not None and (name := find(table.schema, HUB)) is not None:
                hubs.update(pc.unique(table[name]).to_pylist())
        if len(hubs) > 1:
            raise ConfigError(
                "group",
                str(self._group),
                f"the DataFrame has rows of {len(hubs)} hubs, and store and group are for one",
                "Give each hub an EntityTable of its own, or leave ownership out",
            )
