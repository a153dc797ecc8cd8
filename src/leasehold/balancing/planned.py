"""The strategy `planned`: everybody computes the same target, and goes straight to its own share of it.

Owns the quotas and who gets which partition. `target` is a pure function of who owns what and who takes part: it
depends on no order of its arguments, so that all who see the same compute the same, and no two of them chase the
same partition. It promises that nothing moves that need not:

1. A quota is a member's share of all partitions by its capacity. What members with a `maximum` cannot take goes to
   the others in the same way; what nobody can take is left unserved, and said so.
2. Shares are rounded down; the partitions left over by that go, one each, first to the largest remainders and, where
   these are equal, to those who hold more.
3. Everybody keeps what it holds, up to its quota. So the moves are the sum of what is over quota, and no target with
   these quotas has fewer. An owner that is no member has no quota.
4. What is over quota, and what is free, goes to those below theirs; what is free goes first.
5. Which partitions leave an owner, in which order they are given out and to whom first is decided by a hash of their
   names: always the same, spread over them, and still the same when some of the moves have been made.

The members may make their moves in any order, and some of them late: all in all the moves stay the fewest. Only an
extra one may change over, by rule 2, from who is late to who has its own already; it takes one cycle more.

Shares are compared as whole numbers, exactly: a sum of fractions would depend on the order of the members.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

from leasehold.balancing.strategies import Claim
from leasehold.errors import ConfigError

if TYPE_CHECKING:
    from random import Random

    from leasehold.balancing.view import View


@dataclass(frozen=True, slots=True)
class Member:
    """What an instance declares: its `capacity` beside that of others, and the `maximum` of partitions it takes."""

    capacity: float = 1.0
    maximum: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.capacity) and self.capacity > 0):
            raise ConfigError("capacity", self.capacity, "a number above zero", "1 is the default")
        if self.maximum is not None and self.maximum < 0:
            raise ConfigError("maximum", self.maximum, "zero or more partitions", "Leave it out for no limit")


@dataclass(frozen=True, slots=True)
class Target:
    """Who should hold what: the `shares` by member, and the partitions `unserved` for lack of room. All sorted."""

    shares: Mapping[str, tuple[str, ...]]
    unserved: tuple[str, ...]


def target(
    owned: Mapping[str, Collection[str]], free: Collection[str], members: Mapping[str, Member], *, salt: str = ""
) -> Target:
    """Share out the partitions that are owned, by owner, and those that are free, by the rules above.

    Another `salt` decides rule 5 in another way, and changes no quota but between equals.
    """
    held = {member: len(owned.get(member, ())) for member in members}
    total = sum(len(partitions) for partitions in owned.values()) + len(free)
    quotas = _quotas(total, held, members, salt)
    shares: dict[str, list[str]] = {member: [] for member in members}
    surplus: list[tuple[bytes, str]] = []
    for owner, partitions in owned.items():
        over = len(partitions) - quotas.get(owner, 0)
        kept = partitions
        if over > 0:
            ranked = _ranked(partitions, salt)
            surplus += ranked[:over]
            kept = [partition for _, partition in ranked[over:]]
        if owner in shares:
            shares[owner] += kept
    pool = (partition for _, partition in (*_ranked(free, salt), *sorted(surplus)))
    for _, member in _ranked([member for member in members if held[member] < quotas[member]], salt):
        shares[member] += islice(pool, quotas[member] - held[member])
    return Target({member: tuple(sorted(share)) for member, share in shares.items()}, tuple(sorted(pool)))


def planned(view: View, rng: Random) -> list[Claim]:
    """Claim what the target gives me: free partitions, and those that it moves from a live owner to me.

    Without presence, the members are the live owners and me. Who owns something is known to all by the first
    partition it owns, so that all name it alike. Who owns nothing is counted by nobody else: it takes its share as
    `greedy` does, with a salt of its own, so that several of them do not go for the same partitions; that is why
    `greedy` is the default until there is presence.

    What is mine by record is claimed again even if it is over my quota, as by every strategy: until its taker
    comes, it is served, and I am counted once and not beside my predecessor.
    """
    mine = (*view.held, *view.reclaimable)
    me = min(mine, default="")
    salt = "" if mine else str(rng.random())
    owned = {min(theirs, default=owner): theirs for owner, theirs in view.others} | {me: mine}
    share = target(owned, view.free, dict.fromkeys(owned, Member()), salt=salt).shares[me]
    owner_of = {partition: owner for owner, theirs in view.others for partition in theirs}
    gained = sorted(set(share) - set(mine))
    claims = [Claim(partition) for partition in (*view.reclaimable, *(p for p in gained if p not in owner_of))]
    return claims + [Claim(partition, owner_of[partition]) for partition in gained if partition in owner_of]


def _quotas(total: int, held: Mapping[str, int], members: Mapping[str, Member], salt: str) -> dict[str, int]:
    """How many partitions each member should hold, by rules 1 and 2."""
    weights = _weights(members)
    left, weight = total, sum(weights.values())
    quotas = {}
    # Who is full first comes first: when one has room for its share of what is left, so have all after it.
    for member, maximum in _limits(members, weights):
        if left * weights[member] < maximum * weight:
            break
        quotas[member] = maximum
        left -= maximum
        weight -= weights[member]
    rounded = []
    for member in members.keys() - quotas.keys():
        quotas[member], remainder = divmod(left * weights[member], weight)
        rounded.append((-remainder, quotas[member] - held[member], _hash(member, salt), member))
    extra = left - sum(quotas[member] for *_, member in rounded)
    # A remainder of zero gets none: there are more of the others than are left over. So none goes above its maximum.
    for *_, member in sorted(rounded)[:extra]:
        quotas[member] += 1
    return quotas


def _weights(members: Mapping[str, Member]) -> dict[str, int]:
    """The capacities as whole numbers, in exactly their proportions: a float is a fraction by a power of two."""
    ratios = {member: declared.capacity.as_integer_ratio() for member, declared in members.items()}
    scale = max((denominator for _, denominator in ratios.values()), default=1)
    return {member: numerator * (scale // denominator) for member, (numerator, denominator) in ratios.items()}


def _limits(members: Mapping[str, Member], weights: Mapping[str, int]) -> list[tuple[str, int]]:
    """Members with a maximum, from the smallest maximum for its weight."""

    def compare(one: tuple[str, int], two: tuple[str, int]) -> int:
        return one[1] * weights[two[0]] - two[1] * weights[one[0]]

    limits = [(member, declared.maximum) for member, declared in members.items() if declared.maximum is not None]
    return sorted(limits, key=cmp_to_key(compare))


def _ranked(names: Collection[str], salt: str) -> list[tuple[bytes, str]]:
    """Names in the order of their hashes, with these."""
    return sorted((_hash(name, salt), name) for name in names)


def _hash(name: str, salt: str) -> bytes:
    """Python's own `hash` differs from process to process."""
    return blake2b(f"{salt}/{name}".encode(), digest_size=8).digest()
