"""Holding partitions: claims, renewals, trust, checkpoints.

Owns what this instance holds. Promises that a partition is reported as held only while nobody else can
have claimed it since (except by stealing it, which the fence makes harmless), that before anything of it
is read its owner level is in the checkpoint record, and that one owner level is held without a gap: after
a lapse of trust a partition comes back only at a higher level. Refuses to wait: `tick` is one dispatch
cycle, and who calls it decides when.

    free ──claim──▶ claimed ──level raised in the checkpoint──▶ held ──renew──▶ held
                       │ superseded, store away                  │ taken, lapsed, stalled, relinquished
                       ▼                                         ▼
                   not held                                   not held

Concurrency. One thread runs `tick`; any thread may call `held`, `update_checkpoint` and `note_progress`.
`_lock` guards the map of holds and no call to a store or hub is made under it. If this process stops for a
minute
- anywhere: its trust, counted from before the request, has run out when it wakes up; `held` is empty, and
  the next tick drops everything and claims what still is recorded as its own, at a higher level;
- between claim and raising the level: another has claimed meanwhile, at a higher level; raising returns that
  level and the partition is not held. If nobody has, trust has run out anyway;
- between raising the level and reading: another has raised it further; what is read is dropped by the sink's
  fence as soon as the new owner's first batch is there, and counted by its watermark before that.
If a store hangs in a renewal, `held` still shrinks on time, since trust is computed from this process's clock.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from leasehold.balancing import STRATEGIES, Claim, View, make_view, trust_duration
from leasehold.clock import Clock
from leasehold.config import OwnershipSettings
from leasehold.errors import HubUnavailable, StoreUnavailable, UsageError
from leasehold.hubs.base import Hub
from leasehold.model import (
    EARLIEST,
    Checkpoint,
    ConsumerGroup,
    OwnerId,
    Ownership,
    OwnershipListing,
    PositionKind,
    Positions,
)
from leasehold.notices import (
    CheckpointUpdated,
    CycleFailed,
    LossReason,
    Notices,
    OwnershipClaimed,
    OwnershipLost,
    OwnershipRelinquished,
)
from leasehold.stores.base import CheckpointStore, OwnershipStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hold:
    """A partition held: its record, the sequence number to start at, and when trust in it ends.

    `start` is the one that the checkpoint gave when this owner level was acquired.
    """

    record: Ownership
    start: int
    trusted_until: float

    @property
    def owner_level(self) -> int:
        """The owner level at which the partition is held."""
        return self.record.owner_level


class PartitionManager:
    """One instance's share of the partitions of a consumer group.

    `positions` say where to start in a group that has no checkpoint yet. Resolved starts are recorded for
    all partitions at once by the first instance of a group; a partition that appears later starts at
    earliest, since its events came after the group had started.
    """

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
        notices: Notices | None = None,
    ) -> None:
        self.owner_id = owner_id
        self.settings = settings
        self.notices = notices or Notices()
        self._hub = hub
        self._group = group
        self._ownership = ownership
        self._checkpoints = checkpoints
        self._positions = positions
        self._clock = clock
        self._rng = rng
        self._plan = STRATEGIES[settings.strategy]
        self._trust = trust_duration(settings.partition_expiration, settings.clock_rate_ratio, settings.margin)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._holds: dict[str, Hold] = {}
        self._cycles = 0
        self._partition_ids: tuple[str, ...] = ()
        self._just_started = True
        self._last_listing: float | None = None
        self._suspected_until = -math.inf
        self._last_progress = clock.monotonic()
        self._failure: UsageError | None = None

    # What others ask

    def held(self) -> dict[str, Hold]:
        """What is held and trusted at this moment, by partition.

        Raises the `UsageError` that keeps this instance from working, if there is one.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            now = self._clock.monotonic()
            return {partition: hold for partition, hold in self._holds.items() if now < hold.trusted_until}

    @property
    def cycles(self) -> int:
        """How many dispatch cycles have ended, well or not."""
        with self._lock:
            return self._cycles

    def wait_for_cycle(self, number: int, timeout: float) -> bool:
        """Wait until `number` dispatch cycles have ended, for at most `timeout` seconds. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._cycles >= number, timeout)

    def note_progress(self) -> bool:
        """Say that the work is going on; without it, renewal stops after the stall timeout.

        Returns whether it had stopped: what was held then is claimed again by the next cycle.
        """
        with self._lock:
            now = self._clock.monotonic()
            stalled = now - self._last_progress > self.settings.stall_timeout
            self._last_progress = now
        return stalled

    def update_checkpoint(
        self, partition: str, owner_level: int, sequence_number: int, offset: str | None = None
    ) -> bool:
        """Record that events up to `sequence_number` are processed, as the owner at `owner_level`.

        Does nothing and returns False when that level is not held (any more) or is refused by the store as
        superseded. May raise `StoreUnavailable`; the same call may be made again.
        """
        checkpoint = Checkpoint(self._group, partition, sequence_number, owner_level, offset)
        return bool(self.update_checkpoints([checkpoint]))

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """As `update_checkpoint`, for many partitions in one call to the store. Returns what was recorded."""
        held = self.held()
        mine = [c for c in checkpoints if c.partition in held and held[c.partition].owner_level == c.owner_level]
        if not mine:
            return []
        refused = {refusal.partition for refusal in self._checkpoints.update_checkpoints(mine)}
        if refused:
            logger.info("partitions %s have gone on to other owners", ", ".join(sorted(refused)))
        self._drop({partition: held[partition] for partition in refused}, LossReason.SUPERSEDED)
        recorded = [checkpoint for checkpoint in mine if checkpoint.partition not in refused]
        for checkpoint in recorded:
            self.notices.publish(
                CheckpointUpdated(checkpoint.partition, checkpoint.owner_level, checkpoint.sequence_number)
            )
        return recorded

    # The dispatch cycle

    def tick(self) -> bool:
        """Run one dispatch cycle: renew, list, plan, claim. Returns whether anything was won.

        A store or hub that is away ends the cycle with a `CycleFailed` notice and nothing else: what is held
        stays held as long as it is trusted.
        """
        try:
            return self._cycle()
        except (StoreUnavailable, HubUnavailable) as error:
            if isinstance(error, StoreUnavailable):
                self._suspect_store()
            self.notices.publish(CycleFailed(error))
            logger.warning("dispatch cycle failed: %s", error)
            return False
        except UsageError as error:
            with self._lock:
                self._failure = error
            self.notices.publish(CycleFailed(error))
            return False
        finally:
            with self._changed:
                self._cycles += 1
                self._changed.notify_all()

    def relinquish(self) -> None:
        """Give up everything held, as far as the store can be reached; what cannot be given up expires."""
        with self._lock:
            held, self._holds = self._holds, {}
        if not held:
            return
        self._ownership.relinquish_ownership([hold.record for hold in held.values()])
        for partition, hold in held.items():
            self.notices.publish(OwnershipRelinquished(partition, hold.owner_level))

    def _cycle(self) -> bool:
        self._drop_lapsed()
        if self._stalled():
            self._drop(dict(self._holds), LossReason.STALLED)
            return False
        unsure = self._renew()
        self._find_partitions()
        listing = self._list()
        self._settle(unsure, listing)
        claims = self._plan(self._view(listing), self._rng)
        won = self._claim(claims, listing)
        self._just_started = False
        return won

    def _drop_lapsed(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            lapsed = {partition: hold for partition, hold in self._holds.items() if now >= hold.trusted_until}
        self._drop(lapsed, LossReason.LAPSED)

    def _stalled(self) -> bool:
        with self._lock:
            return self._clock.monotonic() - self._last_progress > self.settings.stall_timeout

    def _renew(self) -> dict[str, Hold]:
        """Renew what is held. Returns the holds whose ETag has changed: lost, or renewed without our knowing."""
        with self._lock:
            before = dict(self._holds)
        if not before:
            return {}
        since = self._clock.monotonic()
        renewed = self._ownership.renew_ownership([hold.record for hold in before.values()])
        self._extend(before, renewed, since)
        kept = {record.partition for record in renewed}
        return {partition: hold for partition, hold in before.items() if partition not in kept}

    def _extend(self, before: dict[str, Hold], renewed: Sequence[Ownership], since: float) -> None:
        """Trust what was renewed for longer, unless trust had run out when the answer came."""
        lapsed = {}
        with self._lock:
            now = self._clock.monotonic()
            for record in renewed:
                hold = self._holds.get(record.partition)
                if hold is not None and hold.owner_level == record.owner_level:
                    if now < hold.trusted_until:
                        self._holds[record.partition] = replace(hold, record=record, trusted_until=since + self._trust)
                    else:
                        lapsed[record.partition] = hold
        self._drop(lapsed, LossReason.LAPSED)

    def _settle(self, unsure: dict[str, Hold], listing: OwnershipListing) -> None:
        """Tell what was lost from what only looked so, because an earlier answer went missing."""
        if not unsure:
            return
        records = {record.partition: record for record in listing.records}
        mine = {
            partition: records[partition]
            for partition, hold in unsure.items()
            if partition in records
            and (records[partition].owner_id, records[partition].owner_level) == (str(self.owner_id), hold.owner_level)
        }
        self._drop({p: hold for p, hold in unsure.items() if p not in mine}, LossReason.TAKEN)
        since = self._clock.monotonic()
        renewed = self._ownership.renew_ownership(list(mine.values()))
        self._extend(unsure, renewed, since)
        kept = {record.partition for record in renewed}
        self._drop({p: unsure[p] for p in mine if p not in kept}, LossReason.TAKEN)

    def _find_partitions(self) -> None:
        try:
            self._partition_ids = self._hub.partition_ids()
        except HubUnavailable as error:
            if not self._partition_ids:
                raise
            logger.warning("going on with the partitions known so far: %s", error)

    def _list(self) -> OwnershipListing:
        started = self._clock.monotonic()
        patience = 2 * self.settings.load_balancing_interval * self.settings.clock_rate_ratio
        paused = (
            self._last_listing is not None and started - self._last_listing > patience + self.settings.request_timeout
        )
        listing = self._ownership.list_ownership(self._group)
        self._last_listing = self._clock.monotonic()
        if paused or self._last_listing - started > self.settings.request_timeout:
            self._suspect_store()
        return listing

    def _suspect_store(self) -> None:
        """Live owners may not have been able to renew: give each the time for one more cycle."""
        grace = self.settings.load_balancing_interval * self.settings.clock_rate_ratio + self.settings.request_timeout
        self._suspected_until = self._clock.monotonic() + grace

    def _view(self, listing: OwnershipListing) -> View:
        return make_view(
            self._partition_ids,
            listing,
            me=self.owner_id,
            held=set(self._holds),
            expiration=self.settings.partition_expiration + self._ownership.features.clock_granularity,
            just_started=self._just_started,
            store_suspected=self._clock.monotonic() < self._suspected_until,
        )

    def _claim(self, claims: Sequence[Claim], listing: OwnershipListing) -> bool:
        if not claims:
            return False
        progress = {checkpoint.partition: checkpoint for checkpoint in self._checkpoints.list_checkpoints(self._group)}
        if not progress:
            # A group that has levels has started before: its checkpoints were lost, and only earliest skips nothing.
            new = not any(record.owner_level for record in listing.records)
            positions = self._positions if new else Positions(EARLIEST)
            progress = self._record_starts(self._partition_ids, positions)
        appeared = [claim.partition for claim in claims if claim.partition not in progress]
        progress |= self._record_starts(appeared, Positions(EARLIEST))
        records = {record.partition: record for record in listing.records}
        wanted = []
        for claim in claims:
            record = records.get(claim.partition) or Ownership(self._group, claim.partition, "", 0)
            level = 1 + max(record.owner_level, progress[claim.partition].owner_level)
            wanted.append(replace(record, owner_id=str(self.owner_id), owner_level=level))
        since = self._clock.monotonic()
        won = self._ownership.claim_ownership(wanted)
        if len(won) < len(wanted):
            logger.info("lost %d of %d claims to other instances", len(wanted) - len(won), len(wanted))
        self._take(won, progress, since, {claim.partition: claim.previous_owner for claim in claims})
        return bool(won)

    def _record_starts(self, partitions: Sequence[str], positions: Positions) -> dict[str, Checkpoint]:
        """Write resolved starts, at owner level 0, where there is no checkpoint; return what stands."""
        starts = []
        for partition in partitions:
            position = positions.of(partition)
            if position.kind is PositionKind.COMMITTED:
                position = EARLIEST
            start = self._hub.resolve(partition, position)
            starts.append(Checkpoint(self._group, partition, start - 1, 0))
        return {checkpoint.partition: checkpoint for checkpoint in self._checkpoints.raise_owner_level(starts)}

    def _take(
        self, won: Sequence[Ownership], progress: dict[str, Checkpoint], since: float, previous: dict[str, str]
    ) -> None:
        """Raise the owner level in the checkpoints, then hold what nobody has taken further."""
        announced = [replace(progress[record.partition], owner_level=record.owner_level) for record in won]
        standing = {checkpoint.partition: checkpoint for checkpoint in self._checkpoints.raise_owner_level(announced)}
        for record in won:
            checkpoint = standing[record.partition]
            if checkpoint.owner_level != record.owner_level:
                logger.info("partition %s went on to owner level %d", record.partition, checkpoint.owner_level)
                continue
            with self._lock:
                self._holds[record.partition] = Hold(record, checkpoint.next_sequence_number, since + self._trust)
            self.notices.publish(
                OwnershipClaimed(record.partition, record.owner_level, previous.get(record.partition, ""))
            )

    def _drop(self, lost: dict[str, Hold], reason: LossReason) -> None:
        """Hold these no longer, unless they have been acquired anew meanwhile."""
        for partition, hold in lost.items():
            with self._lock:
                current = self._holds.get(partition)
                if current is None or current.owner_level != hold.owner_level:
                    continue
                del self._holds[partition]
            self.notices.publish(OwnershipLost(partition, hold.owner_level, reason))
