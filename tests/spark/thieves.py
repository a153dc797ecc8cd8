"""Who takes a partition of an event hub from its owner in the middle of a batch."""

from __future__ import annotations

from pathlib import Path

from leasehold.hubs import open_hub
from leasehold.model import Checkpoint, Ownership
from leasehold.stores.sqlite.store import SqliteStore


class Thief:
    """Takes partition 0 as another owner would, in the store and at the hub, and gives it up again at once."""

    def __init__(self, url: str, store: Path) -> None:
        self.hub = open_hub(url)
        self.group = self.hub.consumer_group("$Default")
        self.store = SqliteStore(store)
        self.steals = 0

    def steal(self) -> None:
        record = {one.partition: one for one in self.store.list_ownership(self.group).records}.get("0")
        if record is None or not record.owner_id:
            return
        level = record.owner_level + 1
        won = self.store.claim_ownership([Ownership(self.group, "0", "thief/1", level, record.etag)])
        if not won:
            return
        (before,) = [one for one in self.store.list_checkpoints(self.group) if one.partition == "0"]
        self.store.update_checkpoints([Checkpoint(self.group, "0", before.sequence_number, level, before.offset)])
        assert self.hub.one_reader_per_partition("$Default"), "the hub tells owners apart"
        next(self.hub.read_as_owner("0", 0, 1, level), None)
        self.store.relinquish_ownership(won)
        self.steals += 1
