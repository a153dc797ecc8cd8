"""From the claims of a plan to partitions that may be read.

Owns the way from a claim to a hold: which claims to make now (suspects wait), at which owner level, where to start,
and the announcing of the level in the checkpoint before anything is read. Promises that a claim whose reply was
lost is known again by its nonce, and then is trusted from the start of its request, not from when it was found. And
that what this instance has once seen of the group counts, also when a store has lost it: a store that was wiped under
running instances does not make the group a new one, and no level is given a second time.

Concurrency: one thread uses it; others may tell it what they have written (`see`). If it stops for a minute between the
claim and the announcing, either trust has run out when it goes on, or another has announced a higher level, and the
partition is not held.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from leasehold.balancing import Claim
from leasehold.balancing.suspects import SUSPECT_AFTER, ended_badly, failures, patient, stands_still
from leasehold.errors import HubUnavailable
from leasehold.model import (
    BEFORE_FIRST,
    EARLIEST,
    HIGHEST,
    Checkpoint,
    Ownership,
    OwnershipListing,
    PositionKind,
    Positions,
)
from leasehold.notices import OwnershipClaimed, PartitionSuspected
from leasehold.ownership.attaching import Attaching
from leasehold.ownership.holds import Hold, Holds
from leasehold.ownership.parts import InstanceParts
from leasehold.ownership.unusable_records import Skipping
from leasehold.stores.stand_ins import NoCheckpoints

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A claim that was sent: what it would write, the checkpoint it found, and when its request started."""

    record: Ownership
    checkpoint: Checkpoint
    since: float
    previous_owner: str


class Acquisition:
    """One instance's way of acquiring partitions."""

    def __init__(self, parts: InstanceParts, holds: Holds, skipping: Skipping, attaching: Attaching) -> None:
        self._parts = parts
        self._holds = holds
        self._skipping = skipping
        self._attaching = attaching
        self._attempts: dict[str, _Attempt] = {}
        self._suspected: dict[str, int] = {}
        # What has been seen of the group: the highest level in each ownership record, and the latest checkpoints.
        self._levels: dict[str, int] = {}
        self._places: dict[str, Checkpoint] = {}

    def recognise(self, listing: OwnershipListing) -> bool:
        """Hold what was won by claims whose replies were lost. Returns whether there was any."""
        self._see_levels(listing.records)
        attempts, self._attempts = self._attempts, {}
        if not attempts:
            return False
        now = self._parts.clock.monotonic()
        found = {}
        for record in listing.records:
            attempt = attempts.get(record.partition)
            if attempt is None or record.owner_id != str(self._parts.owner_id) or record.nonce != attempt.record.nonce:
                continue
            if now < attempt.since + self._parts.trust:
                found[record.partition] = replace(attempt, record=record)
        return self._hold(found)

    def see(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Remember checkpoints of the group that are there, or were just written."""
        for checkpoint in checkpoints:
            known = self._places.get(checkpoint.partition)
            if known is None or checkpoint.owner_level >= known.owner_level:  # a higher level may have stepped back
                self._places[checkpoint.partition] = checkpoint

    def place_of(self, partition: str) -> Checkpoint | None:
        """The last checkpoint of a partition that this instance has seen or written."""
        return self._places.get(partition)

    def _see_levels(self, records: Iterable[Ownership]) -> None:
        for record in records:
            self._levels[record.partition] = max(record.owner_level, self._levels.get(record.partition, 0))

    def claim(
        self,
        claims: Sequence[Claim],
        listing: OwnershipListing,
        progress: Mapping[str, Checkpoint],
        partition_ids: Sequence[str],
        *,
        levelless: Collection[str] = (),
    ) -> bool:
        """Claim, announce and hold. `progress` are the checkpoints there are. Returns whether anything was won.

        Of `levelless` partitions the ownership record has lost its level: they are claimed only if a checkpoint has it.
        """
        self.see(progress.values())
        for claim in claims:
            if claim.partition in levelless and claim.partition not in progress:
                self._skipping.tell_level(
                    self._parts.group, claim.partition, "there is no checkpoint that knows its level"
                )
        claims = [claim for claim in claims if claim.partition not in levelless or claim.partition in progress]
        if not claims:
            return False
        progress = self._with_starts(claims, listing, progress, partition_ids)
        records = {record.partition: record for record in listing.records}
        claims = [claim for claim in claims if self._can_be_claimed(claim.partition, records, progress)]
        wanted = self._wanted(claims, records, progress)
        claims = self._patient(claims, wanted, listing)
        if not claims:
            return False
        since = self._parts.clock.monotonic()
        for claim in claims:
            partition = claim.partition
            self._attempts[partition] = _Attempt(wanted[partition], progress[partition], since, claim.previous_owner)
        won = self._parts.ownership.claim_ownership([wanted[claim.partition] for claim in claims])
        self._see_levels(won)
        if len(won) < len(claims):
            logger.info("lost %d of %d claims to other instances", len(claims) - len(won), len(claims))
        self._attempts = {record.partition: replace(self._attempts[record.partition], record=record) for record in won}
        return self._hold(dict(self._attempts))

    def _can_be_claimed(
        self, partition: str, records: Mapping[str, Ownership], progress: Mapping[str, Checkpoint]
    ) -> bool:
        """Whether there is a place to start at, and a level above those that were."""
        if partition not in progress:
            self._skipping.tell_checkpoint(self._parts.group, partition)
            return False
        if self._next_level(partition, records.get(partition), progress[partition]) > HIGHEST:
            self._skipping.tell_level(self._parts.group, partition, f"its level is {HIGHEST}, and there is none above")
            return False
        return True

    def _with_starts(
        self,
        claims: Sequence[Claim],
        listing: OwnershipListing,
        progress: Mapping[str, Checkpoint],
        partition_ids: Sequence[str],
    ) -> dict[str, Checkpoint]:
        """The checkpoints of what is to be claimed, made where there is none yet."""
        places = [progress.get(claim.partition) for claim in claims]
        if not all(place and place.owner_level for place in places):  # as far as the stores know, nobody has been there
            self._ask_table()
        if isinstance(self._parts.checkpoints, NoCheckpoints):  # nothing is remembered, so each start is the first
            return self._record_starts([claim.partition for claim in claims], self._parts.positions)
        if not progress:
            # A group that has, or had, levels has started before: its checkpoints were lost, and what nobody here has
            # seen the place of skips nothing only if it starts at earliest.
            new = not (any(self._levels.values()) or self._places or listing.unreadable)
            positions = self._parts.positions if new else Positions(EARLIEST)
            progress = self._record_starts(partition_ids, positions)
        appeared = [claim.partition for claim in claims if claim.partition not in progress]
        return {**progress} | self._record_starts(appeared, Positions(EARLIEST))

    def _ask_table(self) -> None:
        """Remember what the table knows: a partition that it has seen is not new, and goes on behind what it holds."""
        if self._parts.purpose.table is None:
            return
        for partition, mark in self._parts.purpose.table.watermarks(self._parts.hub.identity).items():
            self._levels[partition] = max(mark.owner_level, self._levels.get(partition, 0))
            known = self._places.get(partition)
            if mark.sequence_number > (known.sequence_number if known else BEFORE_FIRST):
                offset = self._parts.hub.offset_of(partition, mark.sequence_number)
                self._places[partition] = Checkpoint(
                    self._parts.group, partition, mark.sequence_number, mark.owner_level, offset
                )

    def _record_starts(self, partitions: Sequence[str], positions: Positions) -> dict[str, Checkpoint]:
        """Write resolved starts, at owner level 0, where there is no checkpoint; return what stands."""
        if not partitions:
            return {}
        lost = [self._places[partition] for partition in partitions if partition in self._places]
        starts = [replace(checkpoint, owner_level=0) for checkpoint in lost]
        partitions = [partition for partition in partitions if partition not in self._places]
        # In one go: a hub may have thousands of partitions.
        places = self._parts.hub.partition_properties(partitions) if partitions else {}
        for partition in partitions:
            position = positions.of(partition)
            match position.kind:
                case PositionKind.EARLIEST | PositionKind.COMMITTED:
                    start = places[partition].begin
                case PositionKind.LATEST:
                    start = places[partition].end
                case _:
                    start = self._parts.hub.resolve(partition, position)
            starts.append(
                Checkpoint(self._parts.group, partition, start - 1, 0, self._parts.hub.offset_of(partition, start - 1))
            )
        return {checkpoint.partition: checkpoint for checkpoint in self._parts.checkpoints.raise_owner_level(starts)}

    def _wanted(
        self, claims: Sequence[Claim], records: Mapping[str, Ownership], progress: Mapping[str, Checkpoint]
    ) -> dict[str, Ownership]:
        """The records that the claims would write."""
        me = str(self._parts.owner_id)
        found = {
            c.partition: records.get(c.partition) or Ownership(self._parts.group, c.partition, "", 0) for c in claims
        }
        still = {partition for partition, record in found.items() if stands_still(record, progress[partition])}
        if isinstance(self._parts.checkpoints, NoCheckpoints):
            still = set()  # nobody can tell whether a former owner got anywhere
        badly = {claim.partition for claim in claims if ended_badly(found[claim.partition], claim, me)}
        behind = self._work_waits(
            [progress[p] for p in still if p in badly or found[p].failures or found[p].last_error]
        )
        wanted = {}
        for partition, record in found.items():
            # While the hub is away nobody can tell whether events wait: the count stays as it is.
            bad = partition in badly and behind is not None
            waiting = behind is None or partition in behind
            count = failures(record, still=partition in still, badly=bad, waiting=waiting)
            wanted[partition] = replace(
                record,
                owner_id=me,
                owner_level=self._next_level(partition, record, progress[partition]),
                nonce=f"{self._parts.rng.getrandbits(64):016x}",
                successor="",
                claimed_at=progress[partition].sequence_number,
                failures=count,
                last_error=self._last_error_of(record, bad) if count or (partition in still and waiting) else "",
            )
        return wanted

    def _next_level(self, partition: str, record: Ownership | None, checkpoint: Checkpoint) -> int:
        """One above the highest that there is, or that has been seen, whatever the stores have lost since."""
        place = self._places.get(partition, checkpoint)
        there = max(record.owner_level if record else 0, checkpoint.owner_level)
        return 1 + max(there, self._levels.get(partition, 0), place.owner_level)

    def _work_waits(self, checkpoints: Sequence[Checkpoint]) -> set[str] | None:
        """In which of these partitions an owner would find something; None while the hub is away.

        Events behind the checkpoint, or an end of the hub before it, at which each owner gives the partition up.
        """
        if not checkpoints:
            return set()
        try:
            known = self._parts.hub.partition_properties([checkpoint.partition for checkpoint in checkpoints])
        except HubUnavailable as error:
            logger.warning("going on without knowing where events wait: %s", error)
            return None
        waits = set()
        for checkpoint in checkpoints:
            place = known[checkpoint.partition]
            if place.end != max(checkpoint.next_sequence_number, place.begin):
                waits.add(checkpoint.partition)
        return waits

    def _last_error_of(self, record: Ownership, bad: bool) -> str:
        """How the last owner ended. An error that begins with an owner id is all that this owner could say."""
        if record.owner_id and not bad:
            return record.last_error
        predecessors = f"{self._parts.owner_id.name}/"
        if self._parts.last_error and (record.owner_id or record.last_error).startswith(predecessors):
            return self._parts.last_error
        return record.last_error if not record.owner_id else f"{record.owner_id} ended without giving it up"

    def _patient(
        self, claims: Sequence[Claim], records: Mapping[str, Ownership], listing: OwnershipListing
    ) -> list[Claim]:
        counts = {partition: record.failures for partition, record in records.items()}
        for partition, count in counts.items():
            if count >= SUSPECT_AFTER and self._suspected.get(partition) != count:
                self._parts.notices.publish(PartitionSuspected(partition, count, records[partition].last_error))
        self._suspected |= counts
        self._holds.prove_survived(self._parts.clock.monotonic() - self._parts.settings.partition_expiration)
        relieved = {claim.partition for claim in claims if claim.previous_owner}
        relieved |= {record.partition for record in listing.records if record.successor == str(self._parts.owner_id)}
        return patient(
            claims,
            counts,
            {
                record.partition: math.inf if record.partition in relieved else listing.as_of - record.last_modified
                for record in listing.records
            },
            interval=self._parts.settings.load_balancing_interval,
            unproven=not all(hold.proven for hold in self._holds.all().values()),
        )

    def _hold(self, won: Mapping[str, _Attempt]) -> bool:
        """Attach, raise the owner level in the checkpoints, then hold what nobody has taken further.

        In this order: what stands in a checkpoint then is the last that a former owner has been given, but for what it
        is working on.
        """
        if not won:
            return False
        self._attaching.attach({partition: one.checkpoint.next_sequence_number for partition, one in won.items()})
        announced = [replace(one.checkpoint, owner_level=one.record.owner_level) for one in won.values()]
        self._attempts |= won  # until it is announced, it would be found again like a claim whose reply was lost
        standing = {
            checkpoint.partition: checkpoint for checkpoint in self._parts.checkpoints.raise_owner_level(announced)
        }
        self._attaching.begin()
        self._attempts = {p: attempt for p, attempt in self._attempts.items() if p not in won}
        now = self._parts.clock.monotonic()
        for partition, attempt in won.items():
            if partition not in standing:  # it was read before it was claimed
                self._skipping.tell_unannounced(self._parts.group, partition)
                continue
            checkpoint, record = standing[partition], attempt.record
            if checkpoint.owner_level != record.owner_level:
                logger.info("partition %s went on to owner level %d", partition, checkpoint.owner_level)
                continue
            proven = record.failures < SUSPECT_AFTER
            trusted_until = attempt.since + self._parts.trust
            start, data = checkpoint.next_sequence_number, checkpoint.data
            self._holds.add(Hold(record, start, trusted_until, proven=proven, acquired=now, data=data))
            self._parts.notices.publish(OwnershipClaimed(partition, record.owner_level, attempt.previous_owner))
        return True
