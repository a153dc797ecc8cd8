"""The load balancing of the Azure SDKs' event processors, re-implemented from how they are described and published.

Each cycle lists, renews what is owned and claims. Owners are the distinct ones alive in the listing, and I: who
owns nothing yet is counted by nobody else. A partition of a live owner is stolen plainly, from who has most, when
nothing is free and I own less than the whole part of the fair share. `balanced` claims one partition a
cycle, `greedy` all free ones up to its fair share; both steal one at a time. There is no trust, no owner level to be
announced, no ask and no hand-over: the former owner learns of it in its next cycle.

It shows the interface of a `PartitionManager`, so that the simulation runs it in the same fleet.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from leasehold.clock import Clock
from leasehold.config import OwnershipSettings
from leasehold.errors import HubUnavailable, StoreUnavailable
from leasehold.hubs.base import Hub
from leasehold.model import Checkpoint, ConsumerGroup, OwnerId, Ownership, Positions
from leasehold.notices import CycleFailed, Notices
from leasehold.ownership import Hold
from leasehold.stores.base import CheckpointStore, OwnershipStore
from leasehold_testkit.simulation.judge import Judge
from leasehold_testkit.simulation.rules import Rule


class PublishedManager:
    """One event processor. `strategy` `greedy` or `balanced`, from the settings."""

    def __init__(
        self,
        hub: Hub,
        group: ConsumerGroup,
        ownership: OwnershipStore,
        checkpoints: CheckpointStore,
        *,
        owner_id: OwnerId,
        settings: OwnershipSettings,
        positions: Positions,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.owner_id = owner_id
        self.settings = settings
        self.notices = Notices()
        self.attention = threading.Event()
        self.due = clock.monotonic()
        self._me = str(owner_id)
        self._hub, self._group, self._ownership, self._checkpoints = hub, group, ownership, checkpoints
        self._clock, self._rng = clock, rng
        self._holds: dict[str, Hold] = {}

    def held(self) -> dict[str, Hold]:
        return dict(self._holds)

    def note_progress(self) -> bool:
        return False

    def let_go(self, partition: str, owner_level: int, error: str = "") -> bool:
        return False

    def retire(self) -> None:
        pass

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        mine = [one for one in checkpoints if one.partition in self._holds]
        refused = {refusal.partition for refusal in self._checkpoints.update_checkpoints(mine)} if mine else set()
        return [one for one in mine if one.partition not in refused]

    def tick(self) -> bool:
        started = self._clock.monotonic()
        try:
            self._cycle()
        except (StoreUnavailable, HubUnavailable) as error:
            self.notices.publish(CycleFailed(error))
        spent = self._clock.monotonic() - started
        interval = self.settings.load_balancing_interval
        self.due = started + spent + max(0.0, interval * (1 - 0.1 * self._rng.random()) - spent)
        return False

    def relinquish(self, error: str = "") -> None:
        held, self._holds = self._holds, {}
        if held:
            self._ownership.relinquish_ownership([hold.record for hold in held.values()])

    def _cycle(self) -> None:
        partitions = self._hub.partition_ids()
        listing = self._ownership.list_ownership(self._group)
        records = {record.partition: record for record in listing.records}
        expiration = self.settings.partition_expiration
        alive = {p: r for p, r in records.items() if r.owner_id and listing.as_of - r.last_modified <= expiration}
        claims = self._claims(partitions, alive)
        mine = [record for record in alive.values() if record.owner_id == self._me]
        wanted = [
            replace(
                records.get(partition) or Ownership(self._group, partition, "", 0),
                owner_id=self._me,
                owner_level=1 + (records[partition].owner_level if partition in records else 0),
                nonce=f"{self._rng.getrandbits(64):016x}",
            )
            for partition in claims
        ]
        renewed = self._ownership.renew_ownership(mine)
        won = self._ownership.claim_ownership(wanted) if wanted else []
        self._hold(renewed, won)

    def _hold(self, renewed: Sequence[Ownership], won: Sequence[Ownership]) -> None:
        holds: dict[str, Hold] = {}
        for record in renewed:
            known = self._holds.get(record.partition)
            if known is not None and known.owner_level == record.owner_level:
                holds[record.partition] = replace(known, record=record, trusted_until=math.inf)
        if won:
            starts = [Checkpoint(self._group, record.partition, -1, record.owner_level) for record in won]
            standing = {one.partition: one for one in self._checkpoints.raise_owner_level(starts)}
            for record in won:
                start = standing[record.partition].next_sequence_number
                holds[record.partition] = Hold(record, start, math.inf)
        self._holds = holds

    def _claims(self, partitions: Sequence[str], alive: dict[str, Ownership]) -> list[str]:
        by_owner: defaultdict[str, list[str]] = defaultdict(list)
        for partition, record in alive.items():
            by_owner[record.owner_id].append(partition)
        mine = len(by_owner[self._me])
        least, most = len(partitions) // len(by_owner), math.ceil(len(partitions) / len(by_owner))
        free = [partition for partition in partitions if partition not in alive]
        if mine >= most:
            return []
        if free:
            at_most = min(len(free), most - mine if self.settings.strategy == "greedy" else 1)
            return self._rng.sample(free, at_most)
        if mine < least:
            largest = max(by_owner, key=lambda owner: len(by_owner[owner]))
            return [self._rng.choice(by_owner[largest])]
        return []


class Uncritical(Judge):
    """Counts, and lets pass what these algorithms do not promise."""

    def fail(self, rule: Rule, text: str) -> None:
        pass
