"""Records of ownership as the contract's tests make and read them."""

from __future__ import annotations

from leasehold.model import ConsumerGroup, Ownership
from leasehold.stores.base import OwnershipStore


def history(group: ConsumerGroup, level: int = 7) -> Ownership:
    """A claim of partition 0 that says all there is to say."""
    return Ownership(
        group,
        "0",
        "a/1",
        level,
        nonce="nonce",
        successor="é😀/'",
        claimed_at=4711,
        failures=3,
        last_error="ZeroDivisionError: by 'zero'\n%s",
    )


def claim(
    store: OwnershipStore, group: ConsumerGroup, partition: str = "0", *, owner: str = "me", level: int = 1
) -> Ownership:
    """Claim a partition that has no record yet."""
    [claimed] = store.claim_ownership([Ownership(group, partition, owner, level)])
    return claimed


def records(store: OwnershipStore, group: ConsumerGroup) -> dict[str, Ownership]:
    """The ownership records of a group by partition."""
    listed = store.list_ownership(group).records
    assert len({one.partition for one in listed}) == len(listed)
    return {one.partition: one for one in listed}
