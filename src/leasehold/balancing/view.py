"""From a listing of ownership records to what matters for balancing.

Owns the sorting of partitions into mine, free and others', and the fair share:

1. A partition is *mine* if I hold it now, or if its record names my owner id: the reply to a claim of mine
   was lost, or my trust in it lapsed. It is claimed again, at a new owner level.
2. It is *mine* too if its record names my name with another incarnation and I have just started: my
   predecessor's. Later, such a record is a stranger's who took my name, and he is left alone.
3. It is *free* if it has no record, was relinquished, or its record is expired: older than the partition
   expiration by the store's own clock. When the store itself is suspected (it failed or hung a moment ago,
   so that live owners could not renew), nothing counts as expired.
4. Everything else is *others'*, by owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from leasehold.model import OwnerId, Ownership, OwnershipListing, owner_name


@dataclass(frozen=True, slots=True)
class View:
    """One instance's view of its group.

    `held` are the partitions I hold and trust; `reclaimable` those that are mine by record only (rules 1 and
    2); `free` those anybody may take; `others` those of live owners, by owner id. All sorted.
    """

    held: tuple[str, ...]
    reclaimable: tuple[str, ...]
    free: tuple[str, ...]
    others: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return self.mine_count + len(self.free) + sum(len(partitions) for _, partitions in self.others)

    @property
    def mine_count(self) -> int:
        """How many partitions are mine."""
        return len(self.held) + len(self.reclaimable)

    @property
    def instance_count(self) -> int:
        """How many instances share the partitions: the distinct live owners, and me."""
        return 1 + len(self.others)

    @property
    def fair_share(self) -> tuple[int, int]:
        """`(minimum, extra)`: every instance should own `minimum`, and `extra` of them one more."""
        return divmod(self.partition_count, self.instance_count)


def make_view(
    partition_ids: Iterable[str],
    listing: OwnershipListing,
    *,
    me: OwnerId,
    held: Collection[str],
    expiration: float,
    just_started: bool,
    store_suspected: bool,
) -> View:
    """Sort the partitions by the rules above. `expiration` in seconds."""
    records = {record.partition: record for record in listing.records}
    reclaimable, free = [], []
    others: dict[str, list[str]] = {}
    partitions = sorted(set(partition_ids) | set(held))
    for partition in partitions:
        if partition in held:
            continue
        record = records.get(partition)
        if record is None or not record.owner_id:
            free.append(partition)
        elif record.owner_id == str(me) or (just_started and owner_name(record.owner_id) == me.name):
            reclaimable.append(partition)
        elif not store_suspected and is_expired(record, listing.as_of, expiration):
            free.append(partition)
        else:
            others.setdefault(record.owner_id, []).append(partition)
    return View(
        held=tuple(partition for partition in partitions if partition in held),
        reclaimable=tuple(reclaimable),
        free=tuple(free),
        others=tuple((owner, tuple(theirs)) for owner, theirs in sorted(others.items())),
    )


def is_expired(record: Ownership, as_of: float, expiration: float) -> bool:
    """Whether a record has gone without renewal for longer than `expiration` seconds, by the store's clock."""
    return as_of - record.last_modified > expiration
