"""The strategies: each rule alone, and whole fleets that must come to rest in balance."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leasehold.balancing import STRATEGIES, Claim, Strategy, View
from leasehold.balancing.strategies import balanced, greedy
from tests.balancing.fleets import VIEWS, Fleet, fewest_moves, fleets, owned, plan, view
from tests.campaigns import first

BOTH = pytest.mark.parametrize("strategy", [balanced, greedy])


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
    """As docs/event-hubs.md says: asks of earlier cycles may be answered together, with one of this cycle."""
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


KINDS = {"mixed": st.sampled_from([balanced, greedy]), "balanced": st.just(balanced), "greedy": st.just(greedy)}


@pytest.mark.parametrize("kind", first(1, KINDS))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_fleet_that_takes_turns_comes_to_rest_in_balance(kind: str, data: st.DataObject, seed: int) -> None:
    """In turns the bound is hard: each steal brings the two closer, so none is in vain."""
    fleet, rng = data.draw(fleets(KINDS[kind])), Random(seed)
    rounds = 0
    while fleet.round(rng):
        rounds += 1
        assert rounds <= fleet.partitions + 2
    assert fleet.balanced, fleet.counts()


@pytest.mark.parametrize("kind", first(1, KINDS))
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


@pytest.mark.more(but=43)
@BOTH
@pytest.mark.parametrize("seed", range(50))
def test_three_five_and_one_come_to_rest_with_two_moves(strategy: Strategy, seed: int) -> None:
    """In whichever order: who owns three already takes nothing from who owns five."""
    fleet, rng = owned([strategy] * 3, [3, 5, 1]), Random(seed)
    while fleet.round(rng):
        pass
    assert fleet.counts() == [3, 3, 3]
    assert fleet.moves == 2


@pytest.mark.more
@pytest.mark.parametrize("kind", first(1, KINDS))
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
