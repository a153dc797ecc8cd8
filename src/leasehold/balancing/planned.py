"""The strategy `planned`: everybody computes the same target, and goes straight to its own share of it.

Owns the quotas and who gets which partition. `target` is a pure function of who owns what and who takes part: it
depends on no order of its arguments, so that all who see the same compute the same, and no two of them chase the
same partition. It promises that nothing moves that need not:

1. Everybody keeps what it holds, up to its quota (`quotas`). So the moves are the sum of what is over quota, and no
   target with these quotas has fewer. An owner that is no member has no quota.
2. What no member has room for is left unserved, and said so.
3. What is over quota, and what is free, goes to those below theirs; what is free goes first.
4. Which partitions leave an owner, in which order they are given out and to whom first is decided by a hash of their
   names: always the same, spread over them, and still the same when some of the moves have been made.

The members may make their moves in any order, and some of them late: all in all the moves stay the fewest. Only an
extra one may change over from who is late to who has its own already, since it holds more; it takes one cycle more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from leasehold.balancing.quotas import Member, hashed, quotas
from leasehold.balancing.strategies import Claim, within_maximum

if TYPE_CHECKING:
    from random import Random

    from leasehold.balancing.view import View


@dataclass(frozen=True, slots=True)
class Target:
    """Who should hold what: the `shares` by member, and the partitions `unserved` for lack of room. All sorted."""

    shares: Mapping[str, tuple[str, ...]]
    unserved: tuple[str, ...]


def target(
    owned: Mapping[str, Collection[str]], free: Collection[str], members: Mapping[str, Member], *, salt: str = ""
) -> Target:
    """Share out the partitions that are owned, by owner, and those that are free, by the rules above.

    Another `salt` decides rule 4 in another way, and changes no quota but between equals.
    """
    held = {member: len(owned.get(member, ())) for member in members}
    total = sum(len(partitions) for partitions in owned.values()) + len(free)
    quota = quotas(total, held, members, salt=salt)
    shares: dict[str, list[str]] = {member: [] for member in members}
    surplus: list[tuple[bytes, str]] = []
    for owner, partitions in owned.items():
        over = len(partitions) - quota.get(owner, 0)
        kept = partitions
        if over > 0:
            ranked = _ranked(partitions, salt)
            surplus += ranked[:over]
            kept = [partition for _, partition in ranked[over:]]
        if owner in shares:
            shares[owner] += kept
    pool = (partition for _, partition in (*_ranked(free, salt), *sorted(surplus)))
    for _, member in _ranked([member for member in members if held[member] < quota[member]], salt):
        shares[member] += islice(pool, quota[member] - held[member])
    return Target({member: tuple(sorted(share)) for member, share in shares.items()}, tuple(sorted(pool)))


def planned(view: View, rng: Random) -> list[Claim]:
    """Claim what the target gives me: free partitions, and those that it moves from a live owner to me.

    Where there is no presence, who owns nothing is counted by nobody else: it takes its share with a salt of its own,
    so that several of them do not go for the same partitions.

    What is mine by record is claimed again even if it is over my quota, as by every strategy: until its taker
    comes, it is served, and I am counted once and not beside my predecessor.
    """
    salt = "" if view.known else str(rng.random())
    mine = {*view.held, *view.reclaimable, *view.asked}
    owned = dict(view.others) | {view.me: mine}
    share = target(owned, view.free, view.members, salt=salt).shares[view.me]
    owner_of = {partition: owner for owner, theirs in view.others for partition in theirs}
    gained = [partition for partition in share if partition not in mine]
    again = within_maximum(view, view.reclaimable)
    claims = [Claim(partition) for partition in (*again, *(p for p in gained if p not in owner_of))]
    asked = [Claim(partition, view.asked[partition]) for partition in share if partition in view.asked]
    return claims + asked + [Claim(partition, owner_of[partition]) for partition in gained if partition in owner_of]


def _ranked(names: Collection[str], salt: str) -> list[tuple[bytes, str]]:
    """Names in the order of their hashes, with these."""
    return sorted((hashed(name, salt), name) for name in names)
