"""Ownership records that cannot be read: whose partitions are they?

Owns the rule, between two dangers. To take such a partition for free at once would let two owners work on it, since its
owner may be alive and of a newer release; to leave it alone for ever would let any writer stop a partition with one bad
write. So:

1. A live owner renews its record, which changes it. A record that has not been written for the partition expiration, by
   the store's clock, has no live owner: the partition is free, and is claimed by the record's ETag. As long as live
   owners may not have been able to renew, no partition is.
2. The level that the record carried is lost, and the checkpoint has it: levels are announced there before anything is
   read. Where there is no checkpoint either, no instance can tell which level is new, and the partition is not claimed.
3. Until then, and where not even ETag and age can be read, the partition is set aside: it is in no instance's share,
   and the others are dealt with as ever. Its owner finds its record gone at the next renewal, and stops.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from leasehold.model import Ownership, OwnershipListing, RecordKind


@dataclass(frozen=True, slots=True)
class Sorted:
    """A listing whose `records` have free ones in place of those that cannot be read and have no live owner.

    `aside` are the partitions that no instance may claim now, `levelless` those that may be, if there is a checkpoint.
    """

    listing: OwnershipListing
    aside: frozenset[str]
    levelless: frozenset[str]


def sort_out(listing: OwnershipListing, expiration: float, *, store_suspected: bool) -> Sorted:
    """Sort the partitions of unreadable ownership records by the rules above. `expiration` in seconds."""
    owned = [one for one in listing.unreadable if one.kind is RecordKind.OWNERSHIP]
    if not owned:
        return Sorted(listing, frozenset(), frozenset())
    ripe = [
        one
        for one in owned
        if one.etag is not None and not store_suspected and listing.as_of - one.last_modified > expiration
    ]
    free = [Ownership(one.group, one.name, "", 0, one.etag, one.last_modified) for one in ripe]
    levelless = frozenset(one.name for one in ripe)
    aside = frozenset(one.name for one in owned) - levelless
    return Sorted(replace(listing, records=(*listing.records, *free)), aside, levelless)
