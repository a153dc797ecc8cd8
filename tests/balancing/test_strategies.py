"""The strategies: each rule alone, and whole fleets that must come to rest in balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leasehold.balancing import STRATEGIES, Claim, Limits, Me, Strategy, View, make_view
from leasehold.balancing.strategies import balanced, greedy
from leasehold.model import ConsumerGroup, OwnerId, Ownership, OwnershipListing, Presence

BOTH = pytest.mark.parametrize("strategy", [balanced, greedy])


def view(*, held: str = "", reclaimable: str = "", free: str = "", **others: str) -> View:
    """As it is without presence: I am known to others by what I own."""
    theirs = tuple((owner, tuple(partitions)) for owner, partitions in others.items())
    return View(tuple(held), tuple(reclaimable), tuple(free), theirs, known=bool(held or reclaimable))


def plan(strategy: Strategy, seen: View, seed: int = 0) -> list[Claim]:
    return strategy(seen, Random(seed))


# Rule 1


@BOTH
def test_what_is_mine_by_record_is_always_claimed_again(strategy: Strategy) -> None:
    seen = view(held="0", reclaimable="1234", a="56", b="78")
    assert plan(strategy, seen) == [Claim(p) for p in "1234"]


@BOTH
def test_what_i_hold_is_not_claimed(strategy: Strategy) -> None:
    assert plan(strategy, view(held="0123")) == []


# Rule 2


@BOTH
def test_free_partitions_come_before_stealing(strategy: Strategy) -> None:
    claims = plan(strategy, view(free="0", a="12345678"))
    assert claims[0] == Claim("0")


@BOTH
def test_while_something_is_free_nothing_is_stolen_beyond_the_share(strategy: Strategy) -> None:
    assert plan(strategy, view(held="01234", free="5", a="6789ABCDEF", b="")) == []


@BOTH
def test_free_partitions_are_chosen_at_random(strategy: Strategy) -> None:
    seen = view(free="01234567", a="")
    firsts = Counter(plan(strategy, seen, seed)[0].partition for seed in range(800))
    assert set(firsts) == set("01234567")
    assert max(firsts.values()) < 2 * min(firsts.values())


@BOTH
def test_a_free_partition_has_no_previous_owner(strategy: Strategy) -> None:
    assert {claim.previous_owner for claim in plan(strategy, view(free="0123"))} == {""}


# Rule 3


@BOTH
def test_stolen_from_one_that_owns_the_most(strategy: Strategy) -> None:
    victims = {plan(strategy, view(held="9", a="012", b="345", c="6"), seed)[0].previous_owner for seed in range(50)}
    assert victims == {"a", "b"}


@BOTH
def test_which_of_its_partitions_is_stolen_is_random(strategy: Strategy) -> None:
    stolen = {plan(strategy, view(a="0123"), seed)[0].partition for seed in range(100)}
    assert stolen == set("0123")


@BOTH
@pytest.mark.parametrize(("mine", "theirs"), [("", "0"), ("0", "12"), ("01", "234"), ("0", "1"), ("012", "3")])
def test_nothing_is_stolen_that_would_not_bring_the_two_closer(strategy: Strategy, mine: str, theirs: str) -> None:
    assert plan(strategy, view(held=mine, a=theirs)) == []


@BOTH
@pytest.mark.parametrize(("mine", "theirs"), [("", "01"), ("0", "123"), ("01", "2345")])
def test_something_is_stolen_from_one_that_owns_two_more(strategy: Strategy, mine: str, theirs: str) -> None:
    [claim] = plan(strategy, view(held=mine, a=theirs))
    assert claim.previous_owner == "a"
    assert claim.partition in theirs


@BOTH
def test_nobody_steals_beyond_its_share(strategy: Strategy) -> None:
    """It would bring the two closer, and yet be a move in vain: who is short comes for it in its turn."""
    assert plan(strategy, view(held="012", a="34567", b="8")) == []
    assert plan(strategy, view(held="012", a="34567", b="89")) == [], "the extra one is a's"
    assert len(plan(strategy, view(held="0", a="1234567", b="8"))) == (2 if strategy is greedy else 1)


# Rule 4


@BOTH
def test_nobody_is_stolen_below_the_minimum(strategy: Strategy) -> None:
    assert plan(strategy, view(a="0", b="1")) == []
    assert plan(strategy, view(held="0", a="12", b="34")) == []


# Rule 5


def test_balanced_claims_one_a_cycle() -> None:
    assert len(plan(balanced, view(free="01234567"))) == 1
    assert len(plan(balanced, view(a="01234567"))) == 1
    assert len(plan(balanced, view(reclaimable="01", free="234567"))) == 3


def test_balanced_claims_together_what_it_asked_for_one_by_one() -> None:
    """As docs/beside-official.md says: asks of earlier cycles may be answered together, with one of this cycle."""
    asked = {"0": "a", "1": "a", "2": "a"}
    seen = replace(view(a="34567", b="89AB"), asked=asked)
    claims = plan(balanced, seen)
    assert claims[:3] == [Claim(partition, "a") for partition in "012"]
    assert len(claims) <= 4, "and one of this cycle"
    assert len(plan(balanced, replace(view(held="012", a="567", b="89AB"), asked={"3": "a", "4": "a"}))) == 1, (
        "its share"
    )


def test_greedy_claims_its_fair_share() -> None:
    assert len(plan(greedy, view(free="01234567"))) == 8
    assert len(plan(greedy, view(a="01234567"))) == 4
    assert len(plan(greedy, view(free="0123", a="4567"))) == 4
    assert Counter(claim.previous_owner for claim in plan(greedy, view(a="0123456", b="789ABCD"))) == {"a": 2, "b": 2}


@BOTH
def test_one_more_than_the_minimum_only_while_others_leave_room_for_it(strategy: Strategy) -> None:
    assert len(plan(strategy, view(held="01", free="2", a="34"))) == 1, "five among two: the extra one is mine"
    assert plan(strategy, view(held="01", free="2", a="345", b="6")) == [], "seven among three: it is a's, b is short"


@BOTH
def test_nothing_to_do(strategy: Strategy) -> None:
    assert plan(strategy, view()) == []
    assert plan(strategy, view(a="0")) == []


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


@given(VIEWS, st.sampled_from([balanced, greedy]), st.integers(0, 2**32))
def test_every_plan_keeps_the_rules(seen: View, strategy: Strategy, seed: int) -> None:
    claims = plan(strategy, seen, seed)
    owner_of = {p: owner for owner, theirs in seen.others for p in theirs} | dict.fromkeys(
        (*seen.free, *seen.reclaimable), ""
    )
    assert all(owner_of[claim.partition] == claim.previous_owner for claim in claims)
    partitions = [claim.partition for claim in claims]
    assert len(set(partitions)) == len(partitions)
    assert partitions[: len(seen.reclaimable)] == list(seen.reclaimable)
    minimum, extra = seen.fair_share
    stolen = Counter(claim.previous_owner for claim in claims if claim.previous_owner)
    left = {owner: len(theirs) - stolen[owner] for owner, theirs in seen.others}
    assert all(left[owner] >= minimum for owner in stolen), "nobody is stolen below its share"
    mine = seen.mine_count + len(claims) - len(seen.reclaimable)
    assert all(left[owner] >= mine for owner in stolen), "each steal brings the two closer"
    from_free = set(partitions) & set(seen.free)
    if from_free or stolen:
        assert mine <= minimum + (1 if extra else 0), "nobody claims beyond its share"
    if stolen:
        assert not set(seen.free) - set(partitions), "nothing is stolen while something is free"
    assert strategy(seen, Random(seed)) == claims, "the same seed gives the same plan"


# Fleets


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
    """A fleet that owns everything: so many partitions each."""
    owners = [number for number, count in enumerate(counts) for _ in range(count)]
    return Fleet(list(strategies), len(owners), {str(p): owner for p, owner in enumerate(owners)})


KINDS = {"balanced": st.just(balanced), "greedy": st.just(greedy), "mixed": st.sampled_from([balanced, greedy])}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_fleet_that_takes_turns_comes_to_rest_in_balance(kind: str, data: st.DataObject, seed: int) -> None:
    """In turns the bound is hard: each steal brings the two closer, so none is in vain."""
    fleet, rng = data.draw(fleets(KINDS[kind])), Random(seed)
    rounds = 0
    while fleet.round(rng):
        rounds += 1
        assert rounds <= fleet.partitions + 2
    assert fleet.balanced, fleet.counts()


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_fleet_that_plans_at_the_same_moment_comes_to_rest_too(kind: str, data: st.DataObject, seed: int) -> None:
    """Here they race: all plan by the same listing, and who comes second finds the record changed."""
    fleet, rng = data.draw(fleets(KINDS[kind])), Random(seed)
    rounds = 0
    while fleet.round(rng, fleet.listing()):
        rounds += 1
        assert rounds <= 20 * fleet.partitions + 20
    assert fleet.balanced, fleet.counts()
    moves = fleet.moves
    assert not fleet.round(rng)
    assert fleet.moves == moves


@BOTH
@pytest.mark.parametrize("seed", range(50))
def test_three_five_and_one_come_to_rest_with_two_moves(strategy: Strategy, seed: int) -> None:
    """In whichever order: who owns three already takes nothing from who owns five."""
    fleet, rng = owned([strategy] * 3, [3, 5, 1]), Random(seed)
    while fleet.round(rng):
        pass
    assert fleet.counts() == [3, 3, 3]
    assert fleet.moves == 2


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), counts=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 2**32))
def test_no_move_is_in_vain(kind: str, data: st.DataObject, counts: list[int], seed: int) -> None:
    """Where everybody owns something, and so is counted by everybody, each steal is one of the fewest.

    Let A be the sum of what is owned above `minimum + 1`, D the sum of what is missing to `minimum`; the fewest moves
    are the larger of them, and A - D = `extra` - the number of instances above `minimum`. A thief below `minimum`
    lowers D by one, and A too unless A is 0. One at `minimum` is short only if fewer than `extra` are above it, so A is
    the larger; its victim owns two more than it, so A falls by one. Nobody is stolen down to nothing.
    """
    strategies = data.draw(st.lists(KINDS[kind], min_size=len(counts), max_size=len(counts)))
    fleet, rng = owned(strategies, counts), Random(seed)
    while fleet.round(rng):
        assert fleet.moves + fewest_moves(fleet.counts()) == fewest_moves(counts)
    assert fleet.balanced, fleet.counts()
    assert fleet.moves == fewest_moves(counts)


@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=8), seed=st.integers(0, 2**32))
def test_what_those_cost_who_are_not_seen_yet(counts: list[int], seed: int) -> None:
    """Who owns nothing is not counted by others, so that they, for one turn, take their share as if it were not there.

    No steal makes the fewest moves more, since its victim owns two more than the thief. It can fail to make them fewer
    only where the thief has its share of the whole fleet already, which is in its first turn: with `seen` instances of
    `P` partitions it then goes on to at most `P // seen`, and one more if `seen` does not divide `P`.
    """
    assume(sum(counts) >= len(counts))
    fleet, rng = owned([greedy] * len(counts), counts), Random(seed)
    share, slack = fleet.partitions // len(counts), 0
    for number in rng.sample(range(len(counts)), len(counts)):
        seen = len({*fleet.owners.values(), number})
        slack += max(0, -(-fleet.partitions // seen) - share)
        fleet.turn(number, rng)
    assert all(fleet.counts()), "after one turn of everybody, everybody is seen"
    while fleet.round(rng):
        pass
    assert fleet.balanced, fleet.counts()
    assert fewest_moves(counts) <= fleet.moves <= fewest_moves(counts) + (slack if 0 in counts else 0)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES.keys())
def test_who_joins_takes_from_the_others_just_its_share(strategy: Strategy) -> None:
    rng = Random(7)
    fleet = Fleet([strategy] * 3, 12, {str(p): p % 2 for p in range(12)})
    while fleet.turn(2, rng):
        pass
    assert fleet.counts() == [4, 4, 4]
    assert fleet.moves == 4


@pytest.mark.parametrize(("strategy", "rounds"), [(greedy, 1), (balanced, 5)])
def test_how_fast(strategy: Strategy, rounds: int) -> None:
    """One joins an owner of ten: greedy has its share after one cycle, balanced after one cycle a partition."""
    fleet, rng = Fleet([strategy] * 2, 10, {str(p): 0 for p in range(10)}), Random(3)
    for _ in range(rounds - 1):
        fleet.turn(1, rng)
        assert not fleet.balanced
    fleet.turn(1, rng)
    assert fleet.balanced
