"""How many partitions each instance should hold.

Owns what an instance declares of itself, and the quotas that follow from it:

1. A quota is a member's share of all partitions by its capacity. What members with a `maximum` cannot take goes to
   the others in the same way; what nobody can take is left over.
2. Shares are rounded down; the partitions left over by that go, one each, first to the largest remainders and, where
   these are equal, to those who hold more. Where that is equal too, those who go by quotas come first: another SDK's
   processor that has its share rounded down takes none from anybody, so the extra one would stay where it is too much.

Shares are compared as whole numbers, exactly: a sum of fractions would depend on the order of the members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from hashlib import blake2b

from leasehold.config import check_number


@dataclass(frozen=True, slots=True)
class Member:
    """What an instance declares: its `capacity` beside that of others, and the `maximum` of partitions it takes.

    `by_quota` says whether it goes by what is declared here, as far as one can tell.
    """

    capacity: float = 1.0
    maximum: int | None = None
    by_quota: bool = True

    def __post_init__(self) -> None:
        check_number("capacity", self.capacity, above=0, rule="a number above zero", remedy="1 is the default")
        if self.maximum is not None:
            rule = "zero or more partitions"
            check_number("maximum", self.maximum, least=0, rule=rule, remedy="Leave it out for no limit")


def quotas(total: int, held: Mapping[str, int], members: Mapping[str, Member], *, salt: str = "") -> dict[str, int]:
    """How many of `total` partitions each member should hold, by the rules above; `held` is how many it does."""
    weights = _weights(members)
    left, weight = total, sum(weights.values())
    shares = {}
    # Who is full first comes first: when one has room for its share of what is left, so have all after it.
    for member, maximum in _limits(members, weights):
        if left * weights[member] < maximum * weight:
            break
        shares[member] = maximum
        left -= maximum
        weight -= weights[member]
    rounded = []
    for member in members.keys() - shares.keys():
        shares[member], remainder = divmod(left * weights[member], weight)
        rank = (-remainder, shares[member] - held[member], not members[member].by_quota, hashed(member, salt))
        rounded.append((*rank, member))
    extra = left - sum(shares[member] for *_, member in rounded)
    # A remainder of zero gets none: there are more of the others than are left over. So none goes above its maximum.
    for *_, member in sorted(rounded)[:extra]:
        shares[member] += 1
    return shares


def _weights(members: Mapping[str, Member]) -> dict[str, int]:
    """The capacities as whole numbers, in exactly their proportions: a float is a fraction by a power of two."""
    ratios = {member: declared.capacity.as_integer_ratio() for member, declared in members.items()}
    scale = max((denominator for _, denominator in ratios.values()), default=1)
    return {member: numerator * (scale // denominator) for member, (numerator, denominator) in ratios.items()}


def _limits(members: Mapping[str, Member], weights: Mapping[str, int]) -> list[tuple[str, int]]:
    """Members with a maximum, from the smallest maximum for its weight."""

    def compare(first: tuple[str, int], second: tuple[str, int]) -> int:
        return first[1] * weights[second[0]] - second[1] * weights[first[0]]

    limits = [(member, declared.maximum) for member, declared in members.items() if declared.maximum is not None]
    return sorted(limits, key=cmp_to_key(compare))


def hashed(name: str, salt: str) -> bytes:
    """A hash that is the same in every process; Python's own differs from one to the next."""
    return blake2b(f"{salt}/{name}".encode(), digest_size=8).digest()
