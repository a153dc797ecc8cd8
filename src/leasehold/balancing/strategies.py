"""Which partitions to claim next.

Owns the two strategies known from the Azure event processors; `planned` has a file of its own. With P partitions and
N instances everyone should own `P // N`, and `P % N` instances one more.

1. What is mine by record is always claimed again (see `view`), as far as my own maximum allows.
2. Free partitions come first, chosen at random, so that instances that start together rarely meet; those whose last
   owners came to a bad end after the others.
3. Only when nothing is free, and I have less than my share, is a partition stolen: at random from an instance
   that owns the most, and only if that brings the two closer, which is if it owns at least two more than I do.
4. Nobody is stolen below `P // N`. (Follows from rule 3 for one thief; kept as a rule of its own.)
5. `balanced` claims one partition a cycle beside rule 1, `greedy` claims until it has its fair share.
6. What I have asked for and not got yet counts as mine, and is asked for until it comes or is too much.
7. Where somebody takes no more than a maximum, the fair share is the quota that `quotas` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.balancing.quotas import quotas
from leasehold.balancing.view import View

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition to claim; `previous_owner` is the live owner it is stolen from, `""` if there is none."""

    partition: str
    previous_owner: str = ""


Strategy = Callable[[View, "Random"], list[Claim]]


def balanced(view: View, rng: Random) -> list[Claim]:
    """Claim at most one partition beside those that are mine already."""
    return _claims(view, rng, at_most=1)


def greedy(view: View, rng: Random) -> list[Claim]:
    """Claim until I have my fair share."""
    return _claims(view, rng, at_most=view.partition_count)


def _claims(view: View, rng: Random, *, at_most: int) -> list[Claim]:
    claims = [Claim(partition) for partition in within_maximum(view, view.reclaimable)]
    asked = [Claim(partition, owner) for partition, owner in view.asked.items()]
    minimum, extra = view.fair_share
    others = {owner: list(partitions) for owner, partitions in view.others}
    most = _most(view)
    mine = len(view.held) + len(claims)
    claims += asked[: max(0, (minimum + (extra > 0) if most is None else most) - mine)]
    mine = len(view.held) + len(claims)
    free = list(view.free)
    rng.shuffle(free)
    free.sort(key=lambda partition: partition not in view.doubtful)  # taken from the end
    for _ in range(at_most):
        above = sum(len(partitions) > minimum for partitions in others.values())
        quota = minimum + (1 if above < extra else 0) if most is None else most
        if mine >= quota:
            break
        if free:
            claims.append(Claim(free.pop()))
        elif claim := _steal(others, mine, minimum, rng):
            claims.append(claim)
        else:
            break
        mine += 1
    return claims


def within_maximum(view: View, reclaimable: Sequence[str]) -> Sequence[str]:
    """As much of what is mine by record as I have room for beside what I hold; the rest expires, and others take it."""
    maximum = view.members[view.me].maximum
    return reclaimable if maximum is None else reclaimable[: max(0, maximum - len(view.held))]


def _most(view: View) -> int | None:
    """My quota where somebody's maximum leaves others more than their even share; None where nobody has one."""
    if all(member.maximum is None for member in view.members.values()):
        return None
    held = {owner: len(partitions) for owner, partitions in view.others} | {view.me: view.mine_count}
    return quotas(view.partition_count, {m: held.get(m, 0) for m in view.members}, view.members)[view.me]


def _steal(holdings: dict[str, list[str]], own_count: int, minimum: int, rng: Random) -> Claim | None:
    """Take one partition off an instance that owns the most, if rules 3 and 4 allow it."""
    most = max((len(partitions) for partitions in holdings.values()), default=0)
    if most < own_count + 2 or most <= minimum:
        return None
    victim = rng.choice([owner for owner, partitions in holdings.items() if len(partitions) == most])
    partition = holdings[victim].pop(rng.randrange(most))
    return Claim(partition, victim)
