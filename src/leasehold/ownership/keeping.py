"""Keeping what is held, and giving it up.

Owns the renewal of holds, and the writing down of what was let go. Promises that trust counts from before the request
that renewed it, that a hold whose answer went missing is told from one that was taken by the next listing, and that
what was let go is written down once, for who asked for it or for whoever's share it is. Refuses to acquire: see
`acquisition`.

Concurrency: one thread uses it, beside any number that let go (see `holds`). If it stops for a minute between the
request and the extension, trust has run out and the hold is dropped; between letting go and writing that down, nobody
reads the partition until this goes on, or the record has expired, or who asked for it has waited long enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leasehold.balancing.hand_over import HandOverStep, owner_step
from leasehold.model import Ownership, OwnershipListing, Presence
from leasehold.notices import LossReason, OwnershipLost, OwnershipRelinquished
from leasehold.ownership.holds import Hold, Holds
from leasehold.ownership.parts import InstanceParts


class Keeping:
    """One instance's way of keeping what it holds."""

    def __init__(self, parts: InstanceParts, holds: Holds) -> None:
        self._parts = parts
        self._holds = holds

    def renew(self, presence: Presence) -> dict[str, Hold]:
        """Renew what is held, and announce `presence` in the same request.

        Returns the holds whose ETag has changed: lost, or renewed without our knowing.
        """
        before = self._holds.all()
        since = self._parts.clock.monotonic()
        renewed = self._parts.ownership.renew_ownership([hold.record for hold in before.values()], presence)
        self._extend(renewed, since)
        kept = {record.partition for record in renewed}
        return {partition: hold for partition, hold in before.items() if partition not in kept}

    def settle(self, unsure: Mapping[str, Hold], listing: OwnershipListing) -> None:
        """Tell what was lost from what only looked so, because an earlier answer went missing."""
        if not unsure:
            return
        records = {record.partition: record for record in listing.records}
        mine = {
            partition: records[partition]
            for partition, hold in unsure.items()
            if partition in records and _same_acquisition(records[partition], hold.record)
        }
        self.drop({p: hold for p, hold in unsure.items() if p not in mine}, LossReason.TAKEN)
        since = self._parts.clock.monotonic()
        renewed = self._parts.ownership.renew_ownership(list(mine.values()))
        self._extend(renewed, since)
        kept = {record.partition for record in renewed}
        self.drop({p: unsure[p] for p in mine if p not in kept}, LossReason.TAKEN)

    def write_down_leaving(self) -> None:
        """Hand over or relinquish what was let go. What the store refuses waits for the listing: see below."""
        leaving = self._holds.leaving()
        if not leaving:
            return
        records = []
        for hold in leaving.values():
            step = owner_step(has_asker=bool(hold.asked_by) and not hold.error, drained=True)
            successor = hold.asked_by if step is HandOverStep.HAND_OVER else ""
            records.append(_given_up(hold, hold.error, successor))
        given = self._parts.ownership.relinquish_ownership(records)
        self._holds.gone([record.partition for record in given])
        for record in given:
            self._parts.notices.publish(OwnershipRelinquished(record.partition, record.owner_level, record.successor))

    def settle_leaving(self, listing: OwnershipListing) -> bool:
        """Forget what was let go and is another's by now.

        Returns whether there is some of which only the ETag was not known, and which can be written down at once.
        """
        records = {record.partition: record for record in listing.records}
        found = False
        for partition, hold in self._holds.leaving().items():
            record = records.get(partition)
            if record is None or not _same_acquisition(record, hold.record):
                self._holds.gone([partition])
            elif self._holds.found_leaving(record):
                found = True
        return found

    def give_up_all(self, errors: Mapping[str, str]) -> dict[str, Hold]:
        """Give up everything, held or on its way out, whoever asked for it. Returns what it was.

        `errors` say what ended the work on a partition, where no better reason is on record.
        """
        leaving = self._holds.leaving()
        held = self._holds.take_all()
        records = [
            _given_up(hold, hold.error if partition in leaving else errors.get(partition, ""))
            for partition, hold in held.items()
        ]
        if records:
            self._parts.ownership.relinquish_ownership(records)
        return held

    def drop(self, lost: Mapping[str, Hold], reason: LossReason) -> None:
        """Hold these no longer, and tell why."""
        for partition, hold in self._holds.drop(lost).items():
            self._parts.notices.publish(OwnershipLost(partition, hold.owner_level, reason))

    def _extend(self, renewed: Sequence[Ownership], since: float) -> None:
        """Trust what was renewed for longer, unless trust had run out when the answer came."""
        self.drop(self._holds.extend(renewed, since + self._parts.trust), LossReason.LAPSED)


def _same_acquisition(first: Ownership, second: Ownership) -> bool:
    return (first.owner_id, first.owner_level, first.nonce) == (second.owner_id, second.owner_level, second.nonce)


def _given_up(hold: Hold, error: str, successor: str = "") -> Ownership:
    """The record of what is given up. With an `error` that is a bad end, which is counted here, unless blameless."""
    record = replace(hold.record, successor=successor)
    if not error:
        return record
    return replace(record, failures=record.failures + (not hold.blameless), last_error=error)
