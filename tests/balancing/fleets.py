"""What the tests of strategies are made of: what one instance sees, and whole fleets that plan by what they see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st

from leasehold.balancing import STRATEGIES, Claim, Limits, Me, Strategy, View, make_view
from leasehold.model import ConsumerGroup, OwnerId, Ownership, OwnershipListing, Presence


def view(*, held: str = "", reclaimable: str = "", free: str = "", **others: str) -> View:
    """As it is without presence: I am known to others by what I own."""
    theirs = tuple((owner, tuple(partitions)) for owner, partitions in others.items())
    return View(tuple(held), tuple(reclaimable), tuple(free), theirs, known=bool(held or reclaimable))


def plan(strategy: Strategy, seen: View, seed: int = 0) -> list[Claim]:
    return strategy(seen, Random(seed))


VIEWS = st.builds(
    lambda owners, known: View(
        tuple(str(p) for p, who in enumerate(owners) if who == 0),
        tuple(str(p) for p, who in enumerate(owners) if who == 1),
        tuple(str(p) for p, who in enumerate(owners) if who == 2),
        tuple(
            (f"o{other}", tuple(str(p) for p, who in enumerate(owners) if who == other))
            for other in set(owners) - {0, 1, 2}
        ),
        known=known,
    ),
    st.lists(st.integers(0, 8), max_size=64),
    st.booleans(),
)


GROUP = ConsumerGroup("n", "h")


@dataclass
class Fleet:
    """Instances that plan in turn against a perfect store, where all is handed over at once; `announced`: by presence.

    `maxima` are those of the instances, for those who have one.
    """

    strategies: list[Strategy]
    partitions: int
    owners: dict[str, int] = field(default_factory=dict)
    moves: int = 0
    announced: bool = False
    maxima: dict[int, int] = field(default_factory=dict)

    def turn(self, number: int, rng: Random, listing: OwnershipListing | None = None) -> list[Claim]:
        """One instance plans by what it sees (default: what is), and claims what nobody has claimed since."""
        seen = listing or self.listing()
        before = {record.partition: record.owner_id for record in seen.records}
        view = make_view(
            [str(p) for p in range(self.partitions)],
            seen,
            me=Me(
                owner_id=OwnerId(f"i{number}", "x"),
                held=[p for p, owner in self.owners.items() if owner == number],
                presence=self.presence(number),
            ),
            limits=Limits(expiration=30, reservation=13),
            store_suspected=False,
        )
        claims = self.strategies[number](view, rng)
        minimum = self.partitions // len(self.strategies)
        for claim in claims:
            owner = self.owners.get(claim.partition)
            if (f"i{owner}/x" if owner is not None else None) == before.get(claim.partition):
                self.owners[claim.partition] = number
                self.moves += 1
                if listing is None and owner is not None:
                    assert self.counts()[owner] >= minimum, "somebody was stolen below its share"
        return claims

    def round(self, rng: Random, listing: OwnershipListing | None = None) -> bool:
        """Everybody's turn, in random order. Returns whether anybody claimed anything."""
        order = rng.sample(range(len(self.strategies)), len(self.strategies))
        return any(claims for claims in [self.turn(number, rng, listing) for number in order])

    def presence(self, number: int) -> Presence:
        [name] = [name for name, strategy in STRATEGIES.items() if strategy is self.strategies[number]]
        return Presence(GROUP, f"i{number}/x", strategy=name, maximum=self.maxima.get(number))

    def listing(self) -> OwnershipListing:
        records = tuple(Ownership(GROUP, p, f"i{o}/x", 1, "e") for p, o in self.owners.items())
        everybody = range(len(self.strategies)) if self.announced else ()
        return OwnershipListing(records, 0.0, tuple(self.presence(number) for number in everybody))

    def counts(self) -> list[int]:
        owned = Counter(self.owners.values())
        return [owned[number] for number in range(len(self.strategies))]

    @property
    def balanced(self) -> bool:
        counts = self.counts()
        return sum(counts) == self.partitions and max(counts) - min(counts) <= 1


def fleets(strategies: st.SearchStrategy[Strategy]) -> st.SearchStrategy[Fleet]:
    """Fleets in any state, as crashes and joins leave them."""

    def build(strategies: list[Strategy], owners: list[int]) -> Fleet:
        known = {str(p): owner for p, owner in enumerate(owners) if 0 <= owner < len(strategies)}
        return Fleet(list(strategies), len(owners), known)

    return st.builds(build, st.lists(strategies, min_size=1, max_size=8), st.lists(st.integers(-2, 7), max_size=40))


def fewest_moves(counts: list[int]) -> int:
    """How many partitions have to change hands to balance these: no plan can do with fewer.

    Whoever owns more than `minimum + 1` must lose what is above it, whoever owns less than `minimum` must gain what
    is missing, and the larger of the two sums suffices.
    """
    minimum, extra = divmod(sum(counts), len(counts))
    surplus = sorted(counts, reverse=True)
    return sum(max(0, count - minimum - (place < extra)) for place, count in enumerate(surplus))


def owned(strategies: Sequence[Strategy], counts: list[int]) -> Fleet:
    """A fleet that owns everything: this many partitions each."""
    owners = [number for number, count in enumerate(counts) for _ in range(count)]
    return Fleet(list(strategies), len(owners), {str(p): owner for p, owner in enumerate(owners)})
