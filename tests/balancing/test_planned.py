"""The strategy `planned`: its target by each rule, the fewest moves on random fleets, and fleets that run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import STRATEGIES, Claim, Member, Strategy, Target, View, target
from leasehold.balancing.planned import planned
from leasehold.balancing.strategies import balanced, greedy
from leasehold.errors import ConfigError
from tests.balancing.fleets import VIEWS, Fleet, fewest_moves, fleets, owned, plan, view
from tests.campaigns import first

Owned = dict[str, tuple[str, ...]]


def some(*names: str) -> dict[str, Member]:
    return dict.fromkeys(names, Member())


def partitions(number: int) -> tuple[str, ...]:
    return tuple(str(p) for p in range(number))


def held(*counts: int) -> Owned:
    """Owners i0, i1 … of this many partitions each."""
    names = iter(partitions(sum(counts)))
    return {f"i{number}": tuple(next(names) for _ in range(count)) for number, count in enumerate(counts)}


def sizes(found: Target) -> list[int]:
    return [len(share) for _, share in sorted(found.shares.items())]


def moves(before: Mapping[str, Collection[str]], found: Target) -> int:
    """How many partitions that were owned are to leave their owner."""
    return sum(len(set(theirs) - set(found.shares.get(owner, ()))) for owner, theirs in before.items())


# Rule 1


@pytest.mark.parametrize(
    ("total", "capacities", "expected"),
    [
        (12, (1, 1, 1), [4, 4, 4]),
        (12, (1, 2, 3), [2, 4, 6]),
        (12, (0.1, 0.2, 0.3), [2, 4, 6]),
        (10, (0.5, 0.25, 0.25), [5, 3, 2]),
        (32, (2.0, 1.0), [21, 11]),
        (7, (1e-300, 1.0), [0, 7]),
        (7, (1e300, 1e-300), [7, 0]),
        (3, (1, 1, 1, 1, 1, 5), [0, 0, 0, 0, 1, 2]),
    ],
)
def test_quotas_go_by_capacity(total: int, capacities: tuple[float, ...], expected: list[int]) -> None:
    members = {f"i{number}": Member(capacity) for number, capacity in enumerate(capacities)}
    found = sizes(target({}, partitions(total), members))
    assert sorted(zip(capacities, found, strict=True)) == sorted(zip(capacities, expected, strict=True))


@pytest.mark.parametrize(
    ("total", "maxima", "expected", "unserved"),
    [
        (12, (None, 2, None), [5, 2, 5], 0),
        (12, (1, 2, None), [1, 2, 9], 0),
        (12, (None, 4, 5), [4, 4, 4], 0),
        (12, (3, 3, 3), [3, 3, 3], 3),
        (12, (0, 0, 0), [0, 0, 0], 12),
        (12, (0, None, 0), [0, 12, 0], 0),
        (13, (3, 5, 5), [3, 5, 5], 0),
        (14, (3, 5, 5), [3, 5, 5], 1),
    ],
)
def test_maxima_are_respected(total: int, maxima: tuple[int | None, ...], expected: list[int], unserved: int) -> None:
    members = {f"i{number}": Member(maximum=maximum) for number, maximum in enumerate(maxima)}
    for before, free in (({}, partitions(total)), ({"i0": partitions(total)}, ())):
        found = target(before, free, members)
        assert sizes(found) == expected
        assert len(found.unserved) == unserved


def test_what_a_full_member_cannot_take_goes_to_the_others_by_capacity() -> None:
    members = {"a": Member(capacity=6, maximum=2), "b": Member(capacity=2), "c": Member()}
    assert sizes(target({}, partitions(20), members)) == [2, 12, 6]


def test_without_members_nothing_is_served() -> None:
    assert target({"gone": ("0",)}, ["1"], {}) == Target({}, ("0", "1"))


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan"), float("inf")])
def test_a_capacity_that_is_none(capacity: float) -> None:
    with pytest.raises(ConfigError, match=r"capacity = .*: a number above zero"):
        Member(capacity=capacity)


def test_a_maximum_that_is_none() -> None:
    with pytest.raises(ConfigError, match="maximum = -1: zero or more partitions"):
        Member(maximum=-1)


# Rule 2


@pytest.mark.parametrize("names", ["abc", "bca", "cab"])
def test_the_extra_ones_go_to_those_who_hold_more(names: str) -> None:
    most, more, least = list(names)
    before = {most: ("0", "1", "2", "3"), more: ("4", "5", "6"), least: ("7",)}
    found = target(before, (), some(*names))
    assert [len(found.shares[name]) for name in (most, more, least)] == [3, 3, 2]
    found = target(before, ("8", "9"), some(*names))
    assert [len(found.shares[name]) for name in (most, more, least)] == [4, 3, 3]


@pytest.mark.parametrize("salt", [str(salt) for salt in range(20)])
def test_of_those_who_hold_the_same_the_extra_one_goes_to_who_goes_by_quotas(salt: str) -> None:
    """Another SDK's processor has its share rounded down, and would leave the extra one where it is too much."""
    before = {"ours": ("0", "1", "2"), "another": ("3",), "official": ("4",)}
    members = {**some("ours", "another"), "official": Member(by_quota=False)}
    assert sizes(target(before, (), members, salt=salt)) == [2, 1, 2]
    before = {"ours": ("0", "1"), "another": ("2",), "official": ("3", "4")}
    assert sizes(target(before, (), members, salt=salt)) == [1, 2, 2], "nothing moves that need not"


def test_a_larger_remainder_comes_before_who_holds_more() -> None:
    members = {"a": Member(capacity=2), "b": Member(capacity=1)}
    assert sizes(target({"a": partitions(32)}, (), members)) == [21, 11], "of 21 1/3 and 10 2/3"


def test_the_extra_ones_are_not_always_the_same_ones() -> None:
    found = [target({}, ["0"], some(*"abcd"), salt=str(salt)).shares for salt in range(200)]
    winners = Counter(member for shares in found for member in shares if shares[member])
    assert set(winners) == set("abcd")
    assert max(winners.values()) < 2 * min(winners.values())


# Rule 3


def test_everybody_keeps_what_it_holds_up_to_its_quota() -> None:
    before = {"a": partitions(6), "b": ("6", "7"), "c": ()}
    found = target(before, ("8",), some(*"abc"))
    assert sizes(found) == [3, 3, 3]
    assert set(found.shares["a"]) < set(before["a"])
    assert set(before["b"]) < set(found.shares["b"])


def test_who_is_no_member_keeps_nothing() -> None:
    found = target({"gone": ("0", "1", "2"), "long gone": (), "a": ("3",)}, (), some("a", "b"))
    assert set(found.shares) == {"a", "b"}
    assert sizes(found) == [2, 2]
    assert "3" in found.shares["a"]


# Rule 4


def test_what_is_free_goes_first() -> None:
    """Two of the five that a is to lose have nowhere to go: the free ones are served before them."""
    members = {"a": Member(maximum=3), "b": Member(maximum=5)}
    for salt in map(str, range(20)):
        found = target({"a": partitions(8)}, ("8", "9"), members, salt=salt)
        assert {"8", "9"} < set(found.shares["b"])
        assert len(found.unserved) == 2
        assert set(found.unserved) < set(partitions(8))


# Rule 5


def test_what_leaves_and_where_it_goes_is_spread() -> None:
    """Over the names, over the victims, over the takers: none of the lists is a run of neighbours."""
    before = {"a": partitions(64), "b": tuple(f"{p:02}x" for p in range(64))}
    found = target(before, (), some(*"abcd"))
    for taker in "cd":
        taken = found.shares[taker]
        assert len(set(taken) & set(before["a"])) in range(8, 25)
        numbers = sorted(int(p.rstrip("x")) for p in taken)
        assert numbers[0] < 16
        assert numbers[-1] >= 48


def test_another_salt_spreads_in_another_way() -> None:
    before = {"a": partitions(64)}
    chosen = [target(before, (), some("a", "b"), salt=str(salt)).shares["b"] for salt in range(4)]
    assert all(len(share) == 32 for share in chosen)
    assert all(8 <= len(set(one) & set(two)) <= 24 for one in chosen for two in chosen if one is not two)


def test_it_is_the_same_in_every_process() -> None:
    """Python hashes text in another way in each process, and walks through sets of it in another order."""
    script = (
        "from leasehold.balancing import Member, target\n"
        "names = {f'i{n}' for n in range(20)}\n"
        "free, owned = {str(p) for p in range(50)}, {'i1': {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}, 'i2': {'x'}}\n"
        "found = target(owned, free, {name: Member() for name in names})\n"
        "print(sorted(found.shares.items()), found.unserved)\n"
    )
    run = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert run[0] == run[1]
    assert "'i19'" in run[0]


# The moves of the issue


@pytest.mark.parametrize(
    ("before", "free", "instances", "expected"),
    [
        pytest.param(held(), 32, 8, 0, id="cold start of 8 over 32"),
        pytest.param(held(32), 0, 8, 28, id="one owner of 32, 7 join"),
        pytest.param(held(8, 8, 8, 8), 0, 5, 6, id="4 x 8, one joins"),
        pytest.param(held(32), 0, 32, 31, id="32 instances, one owns all 32"),
    ],
)
def test_the_moves_of_known_changes(before: Owned, free: int, instances: int, expected: int) -> None:
    members = some(*(f"i{number}" for number in range(instances)))
    found = target(before, partitions(free), members)
    assert moves(before, found) == expected == fewest_moves([len(before.get(member, ())) for member in members])
    assert max(sizes(found)) - min(sizes(found)) <= 1
    assert sum(sizes(found)) == 32


def test_in_a_cold_start_no_two_go_for_the_same_partition() -> None:
    for total, instances in product((0, 1, 7, 32, 100), (1, 2, 8, 33)):
        members = some(*(f"i{number}" for number in range(instances)))
        computed = [target({}, partitions(total), members) for _ in members]
        claimed = [p for found, me in zip(computed, members, strict=True) for p in found.shares[me]]
        assert sorted(claimed) == sorted(partitions(total)), "each once, and all of them at once"


# The lower bound, computed in another way


def shares_of(total: int, members: Mapping[str, Member]) -> dict[str, Fraction]:
    """The exact share of each: over and over, who would exceed its maximum is set to it, and the rest shared anew."""
    full: dict[str, int] = {}
    while True:
        rest = {name: Fraction(member.capacity) for name, member in members.items() if name not in full}
        left, weight = total - sum(full.values()), sum(rest.values())
        shares = {name: left * capacity / weight for name, capacity in rest.items()}
        over = {n: limit for n, share in shares.items() if (limit := members[n].maximum) is not None and share > limit}
        if not over:
            return shares | {name: Fraction(limit) for name, limit in full.items()}
        full |= over


def least_over(total: int, counts: Mapping[str, int], members: Mapping[str, Member]) -> int:
    """The least sum of what is over quota, among all ways to give the extra ones to the largest remainders.

    Who gets one of those that go to equal remainders is left open, and found by trying both for each in turn.
    """
    shares = shares_of(total, members)
    extra = int(sum(shares.values())) - sum(int(share) for share in shares.values())
    remainders = sorted((share % 1 for share in shares.values()), reverse=True)
    last = remainders[extra - 1] if extra else Fraction(1)
    costs = {extra: 0}
    for name, share in shares.items():
        step: dict[int, int] = {}
        for given_up in {share % 1 > last, share % 1 >= last}:
            cost = max(0, counts.get(name, 0) - int(share) - given_up)
            for left, so_far in costs.items():
                step[left - given_up] = min(so_far + cost, step.get(left - given_up, so_far + cost))
        costs = step
    return costs[0] + sum(count for owner, count in counts.items() if owner not in members)


@dataclass
class Group:
    """A group in the course of its changes, each followed by what the target makes of it."""

    rng: Random
    weighted: bool
    owned: Owned = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)
    named: int = 0

    def start(self) -> None:
        """Members and partitions in any state."""
        for _ in range(self.rng.randint(1, 12)):
            self.join()
        crowd = self.rng.sample(sorted(self.members), self.rng.randint(1, len(self.members)))
        owners: list[str | None] = [*crowd, None] if self.rng.random() < 0.5 else [*crowd]
        for _ in range(self.rng.randint(0, 48)):
            self.add(self.rng.choice(owners))

    def join(self) -> None:
        self.named += 1
        member = Member()
        if self.weighted:
            capacity = self.rng.choice([0.1, 0.3, 0.5, 1.0, 1.0, 2.0, 3.0, self.rng.uniform(0.01, 10)])
            member = Member(capacity, self.rng.choice([None, None, 0, 1, 3, 8, 20]))
        self.members[f"{self.rng.randrange(10)}-{self.named}"] = member

    def add(self, owner: str | None) -> None:
        partition = str(sum(map(len, self.owned.values())) + len(self.free))
        if owner is None:
            self.free.add(partition)
        else:
            self.owned[owner] = (*self.owned.get(owner, ()), partition)

    def change(self) -> None:
        kind = self.rng.choice(["join", "joins", "crash", "leave", "grow", "capacity", "late"])
        name = self.rng.choice(sorted(self.members))
        if kind in ("join", "joins"):
            for _ in range(1 if kind == "join" else self.rng.randint(2, 8)):
                self.join()
        elif kind == "crash" and len(self.members) > 1:
            del self.members[name]
            self.free.update(self.owned.pop(name, ()))
        elif kind == "leave" and len(self.members) > 1:
            del self.members[name]  # no member any more, and still an owner
        elif kind == "grow":
            for _ in range(self.rng.randint(1, 16)):
                self.add(None)
        elif kind == "capacity" and self.weighted:
            self.members[name] = replace(self.members[name], capacity=self.rng.choice([0.5, 1.0, 4.0]))
        elif kind == "late":
            gone = self.rng.sample(sorted(self.owned), self.rng.randint(0, len(self.owned)))
            for owner in gone:
                self.free.update(self.owned.pop(owner))

    def shuffled(self) -> tuple[Owned, list[str], dict[str, Member]]:
        """The same state in another order."""
        owners, members = list(self.owned), list(self.members)
        self.rng.shuffle(owners)
        self.rng.shuffle(members)
        theirs = {o: tuple(self.rng.sample(self.owned[o], len(self.owned[o]))) for o in owners}
        return theirs, self.rng.sample(sorted(self.free), len(self.free)), {m: self.members[m] for m in members}

    def check(self) -> int:
        """Hold the target to all that it promises, and go there. Returns how many moves it took."""
        found = target(self.owned, self.free, self.members)
        assert target(*self.shuffled()) == found, "the same for all, in whatever order they see it"
        everything = sorted([*self.free, *(p for theirs in self.owned.values() for p in theirs)])
        assert sorted([*found.unserved, *(p for share in found.shares.values() for p in share)]) == everything
        shares = shares_of(len(everything), self.members)
        for name, member in self.members.items():
            size = len(found.shares[name])
            assert abs(size - shares[name]) < 1, "its share, rounded down or up"
            assert member.maximum is None or size <= member.maximum
            kept = set(self.owned.get(name, ()))
            assert kept <= set(found.shares[name]) or kept > set(found.shares[name]), "who loses some gains none"
        room = sum(member.maximum or 0 for member in self.members.values())
        limited = all(member.maximum is not None for member in self.members.values())
        assert len(found.unserved) == (max(0, len(everything) - room) if limited else 0)
        made = moves(self.owned, found)
        counts = {owner: len(theirs) for owner, theirs in self.owned.items()}
        assert made == least_over(len(everything), counts, self.members)
        if not self.weighted and not self.free and set(counts) <= set(self.members):
            assert made == fewest_moves([counts.get(name, 0) for name in self.members])
        self.owned = {owner: share for owner, share in found.shares.items() if share}
        self.free = set(found.unserved)
        if not self.free:
            assert target(self.owned, self.free, self.members) == found, "at rest"
        return made


@pytest.mark.more
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("begin", first(1, range(0, 1_500, 500)))
def test_the_moves_are_the_fewest_on_ten_thousand_fleets_and_changes(weighted: bool, begin: int) -> None:
    checked = made = 0
    for seed in range(begin, begin + 500):
        group = Group(Random(seed), weighted)
        group.start()
        made += group.check()
        for _ in range(3):
            group.change()
            made += group.check()
        checked += 4
    assert checked == 2_000, "of each kind"
    assert made > 3_000, "they are not all at rest"


def test_no_assignment_at_all_has_fewer_moves() -> None:
    """Tried are all that leave three instances with five partitions in balance, from every state they can be in."""
    in_balance = [after for after in product(range(3), repeat=5) if sorted(Counter(after).values()) == [1, 2, 2]]
    for owners in product(range(-1, 3), repeat=5):
        before = {f"i{n}": tuple(str(p) for p, owner in enumerate(owners) if owner == n) for n in range(3)}
        free = [str(p) for p, owner in enumerate(owners) if owner == -1]
        fewest = min(sum(was not in (-1, now) for was, now in zip(owners, after, strict=True)) for after in in_balance)
        assert moves(before, target(before, free, some("i0", "i1", "i2"))) == fewest


@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("begin", first(1, range(0, 400, 200)))
def test_in_whatever_order_the_moves_are_made_they_stay_the_fewest(weighted: bool, begin: int) -> None:
    """Each time one goes for some of its share, by the target of that moment; another has died before it could."""
    for seed in range(begin, begin + 200):
        group, rng = Group(Random(seed), weighted), Random(seed)
        group.start()
        counts = {owner: len(theirs) for owner, theirs in group.owned.items()}
        bound = least_over(sum(counts.values()) + len(group.free), counts, group.members)
        made, now = 0, {p: owner for owner, theirs in group.owned.items() for p in theirs}
        everything = {*now, *group.free}
        while True:
            before = regroup(now)
            found = target(before, everything - set(now), group.members)
            gains = {m: set(share) - set(before.get(m, ())) for m, share in found.shares.items()}
            takers = sorted(member for member, gained in gains.items() if gained)
            if not takers:
                break
            taker = rng.choice(takers)
            for partition in rng.sample(sorted(gains[taker]), rng.randint(1, len(gains[taker]))):
                made += partition in now
                now[partition] = taker
        assert made + len(set(found.unserved) & set(now)) == bound


def regroup(owners: Mapping[str, str]) -> Owned:
    return {owner: tuple(p for p, o in owners.items() if o == owner) for owner in set(owners.values())}


@given(
    st.integers(0, 40), st.lists(st.floats(1e-300, 1e300) | st.sampled_from([1.0, 0.1, 1 / 3]), min_size=1, max_size=8)
)
def test_a_capacity_of_any_size_is_exact(total: int, capacities: list[float]) -> None:
    members = {f"i{number}": Member(capacity) for number, capacity in enumerate(capacities)}
    weight = sum(map(Fraction, capacities))
    for size, capacity in zip(sizes(target({}, partitions(total), members)), capacities, strict=True):
        assert abs(size - total * Fraction(capacity) / weight) < 1


# The plan


def test_free_ones_come_before_those_to_be_stolen() -> None:
    claims = plan(planned, view(held="0", reclaimable="1", free="23", a="456789ABCDEF"))
    assert claims[0] == Claim("1")
    assert {claim.partition for claim in claims[1:3]} == {"2", "3"}
    assert [claim.previous_owner for claim in claims[1:]] == ["", "", *["a"] * 4]


def test_what_is_mine_by_record_is_claimed_again_even_if_it_is_too_much() -> None:
    assert plan(planned, view(reclaimable="123456", a="0")) == [Claim(p) for p in "123456"]
    assert plan(planned, view(held="012345", a="6")) == []


def test_nothing_to_do() -> None:
    assert plan(planned, view()) == []
    assert plan(planned, view(a="0")) == []
    assert plan(planned, view(held="01", a="23")) == []


def test_who_owns_something_takes_no_chances() -> None:
    seen = view(held="0", free="123", a="456789AB", b="CD")
    assert len({tuple(plan(planned, seen, seed)) for seed in range(20)}) == 1


def test_who_owns_nothing_does_not_go_for_the_same_ones_as_others_like_it() -> None:
    firsts = Counter(claim.partition for seed in range(100) for claim in plan(planned, view(a="01234567"), seed))
    assert set(firsts) == set("01234567")
    assert max(firsts.values()) < 2 * min(firsts.values())


@given(VIEWS, st.integers(0, 2**32))
def test_every_plan_is_what_the_target_gives_me(seen: View, seed: int) -> None:
    claims = plan(planned, seen, seed)
    owner_of = {p: owner for owner, theirs in seen.others for p in theirs}
    names = [claim.partition for claim in claims]
    assert len(set(names)) == len(names)
    assert names[: len(seen.reclaimable)] == list(seen.reclaimable)
    gained = claims[len(seen.reclaimable) :]
    assert all(claim.previous_owner == owner_of.get(claim.partition, "") for claim in gained)
    assert not set(names) & set(seen.held)
    minimum, extra = seen.fair_share
    mine = seen.mine_count + len(gained)
    assert mine >= minimum
    assert not gained or mine <= minimum + (extra > 0)
    stolen = Counter(claim.previous_owner for claim in gained if claim.previous_owner)
    assert all(len(theirs) - stolen[owner] >= max(minimum, mine - 1) for owner, theirs in seen.others if stolen[owner])


def views(owners: Mapping[str, Iterable[str]], free: tuple[str, ...]) -> list[View]:
    """What each of these sees."""
    return [
        View(tuple(mine), (), free, tuple((other, tuple(p)) for other, p in owners.items() if other != me), me=me)
        for me, mine in owners.items()
    ]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=10), st.integers(0, 20), st.randoms(use_true_random=False))
def test_those_who_own_something_all_plan_for_the_same_target(counts: list[int], free: int, rng: Random) -> None:
    """Each by itself, and yet each partition is claimed once, all that is free is, and the fleet is in balance."""
    names = [f"{p:02}" for p in range(sum(counts) + free)]
    rng.shuffle(names)
    left = iter(names)
    owners = {f"i{number}": sorted(next(left) for _ in range(count)) for number, count in enumerate(counts)}
    plans = [planned(seen, Random(n)) for n, seen in enumerate(views(owners, tuple(sorted(left))))]
    claims = [claim for claims in plans for claim in claims]
    assert len({claim.partition for claim in claims}) == len(claims)
    assert sum(not claim.previous_owner for claim in claims) == free
    stolen = Counter(claim.previous_owner for claim in claims)
    after = [len(p) - stolen[me] + len(mine) for (me, p), mine in zip(owners.items(), plans, strict=True)]
    assert max(after) - min(after) <= 1


# Fleets

KINDS: dict[str, st.SearchStrategy[Strategy]] = {
    "all three": st.sampled_from(list(STRATEGIES.values())),
    "planned": st.just(planned),
    "planned and greedy": st.sampled_from([planned, greedy]),
    "planned and balanced": st.sampled_from([planned, balanced]),
}


@pytest.mark.more
@pytest.mark.parametrize("kind", first(2, KINDS))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_fleet_that_takes_turns_comes_to_rest_in_balance(kind: str, data: st.DataObject, seed: int) -> None:
    fleet, rng = data.draw(fleets(KINDS[kind])), Random(seed)
    rounds = 0
    while fleet.round(rng):
        rounds += 1
        assert rounds <= (3 if kind == "planned" else fleet.partitions + 2)
    assert fleet.balanced, fleet.counts()


@pytest.mark.more
@pytest.mark.parametrize("kind", first(2, KINDS))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_fleet_that_plans_at_the_same_moment_comes_to_rest_too(kind: str, data: st.DataObject, seed: int) -> None:
    """Here those who own nothing race: nobody counts them, and all plan by the same listing."""
    fleet, rng = data.draw(fleets(KINDS[kind])), Random(seed)
    rounds = 0
    while fleet.round(rng, fleet.listing()):
        rounds += 1
        assert rounds <= (len(fleet.strategies) + 2 if kind == "planned" else 20 * fleet.partitions + 20)
    assert fleet.balanced, fleet.counts()
    moved = fleet.moves
    assert not fleet.round(rng)
    assert fleet.moves == moved


@pytest.mark.more
@pytest.mark.parametrize("rounds", [1, 2], ids=["at the same moment", "in turns"])
@given(counts=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 2**32))
def test_who_are_all_seen_need_the_fewest_moves(rounds: int, counts: list[int], seed: int) -> None:
    """At once if they plan by one listing. In turns an extra one may change over to who has been there already."""
    fleet, rng = owned([planned] * len(counts), counts), Random(seed)
    for _ in range(rounds):
        fleet.round(rng, fleet.listing() if rounds == 1 else None)
    assert fleet.balanced, fleet.counts()
    assert fleet.moves == fewest_moves(counts)
    assert not fleet.round(rng)


@pytest.mark.more
@given(data=st.data(), counts=st.lists(st.integers(1, 20), min_size=1, max_size=8), seed=st.integers(0, 2**32))
def test_among_others_too_no_move_is_in_vain(data: st.DataObject, counts: list[int], seed: int) -> None:
    strategies = data.draw(st.lists(KINDS["all three"], min_size=len(counts), max_size=len(counts)))
    fleet, rng = owned(strategies, counts), Random(seed)
    while fleet.round(rng):
        assert fleet.moves + fewest_moves(fleet.counts()) == fewest_moves(counts)
    assert fleet.balanced, fleet.counts()


@pytest.mark.more(but=1)
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_many_that_start_together_and_are_not_seen_yet(strategy: Strategy) -> None:
    """Nobody sees anybody at first: the first one claims all, and the others take their shares from it."""
    fleet, rng = Fleet([strategy] * 40, 256), Random(5)
    rounds = 0
    while fleet.round(rng, fleet.listing()):
        rounds += 1
        assert rounds <= (12 if strategy is planned else 1_000)
    assert fleet.balanced, fleet.counts()
