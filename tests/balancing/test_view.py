"""The view: each rule by which partitions are mine, free or another's, and the fair share."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import Limits, Me, Member, View, make_view
from leasehold.balancing.view import is_expired
from leasehold.model import Ask, ConsumerGroup, OwnerId, Ownership, OwnershipListing, Presence

GROUP = ConsumerGroup("n", "h")
ME = OwnerId("me", "now")
AS_OF = 1_000.0
EXPIRATION = 30.0
RESERVATION = 13.0


def record(partition: str, owner: str, age: float = 1.0, level: int = 1, successor: str = "") -> Ownership:
    return Ownership(GROUP, partition, owner, level, "etag", AS_OF - age, successor=successor)


def presence(
    owner: str,
    age: float = 1.0,
    *,
    since: float = 100.0,
    strategy: str = "planned",
    capacity: float = 1.0,
    maximum: int | None = None,
    pipeline: str = "",
) -> Presence:
    """One that was renewed `age` seconds ago, and first written `since` seconds ago."""
    return Presence(GROUP, owner, pipeline, strategy, capacity, maximum, AS_OF - since, AS_OF - age, "etag")


def ask(partition: str, asker: str, level: int = 1) -> Ask:
    return Ask(GROUP, partition, level, asker)


def view(
    *records: Ownership,
    partitions: tuple[str, ...] = ("0", "1", "2", "3"),
    held: tuple[str, ...] = (),
    just_started: bool = False,
    store_suspected: bool = False,
    presences: tuple[Presence, ...] = (),
    asks: tuple[Ask, ...] = (),
    mine: Presence | None = None,
    foreign: float | None = None,
) -> View:
    mine = mine or presence("me/now")
    return make_view(
        partitions,
        OwnershipListing(records, AS_OF, presences, asks),
        me=Me(owner_id=ME, held=held, presence=mine, just_started=just_started),
        limits=Limits(expiration=EXPIRATION, reservation=RESERVATION, foreign=foreign),
        store_suspected=store_suspected,
    )


# Rule 1


def test_what_i_hold_is_mine_whatever_the_record_says() -> None:
    seen = view(record("0", "other/x"), record("1", "me/now", age=99), held=("0", "1", "2"))
    assert (seen.held, seen.reclaimable, seen.others) == (("0", "1", "2"), (), ())


@pytest.mark.parametrize("age", [0.0, 29.0, 31.0, math.inf])
@pytest.mark.parametrize("just_started", [True, False])
@pytest.mark.parametrize("store_suspected", [True, False])
def test_a_record_of_mine_that_i_do_not_hold_is_reclaimable_at_any_age(
    age: float, just_started: bool, store_suspected: bool
) -> None:
    seen = view(record("1", "me/now", age), just_started=just_started, store_suspected=store_suspected)
    assert seen.reclaimable == ("1",)
    assert seen.mine_count == 1


# Rule 2


def test_my_predecessors_partitions_are_mine_when_i_have_just_started() -> None:
    seen = view(record("0", "me/before"), record("1", "me/long ago"), just_started=True)
    assert (seen.reclaimable, seen.others) == (("0", "1"), ())
    assert seen.instance_count == 1


def test_later_who_has_my_name_is_a_stranger() -> None:
    seen = view(record("0", "me/before"))
    assert (seen.reclaimable, seen.others) == ((), (("me/before", ("0",)),))


@pytest.mark.parametrize("stranger", ["me too/now", "m/now", "Me/now", "x/me/now", "now", ""])
def test_a_name_alike_is_a_stranger_too(stranger: str) -> None:
    assert view(record("0", stranger), just_started=True).reclaimable == ()


# Rule 3


@pytest.mark.parametrize(("age", "free"), [(31.0, ("1",)), (179.0, ("1",)), (181.0, ("0", "1"))])
def test_what_another_sdks_processor_wrote_expires_by_its_own_time(age: float, free: tuple[str, ...]) -> None:
    """It renews every 30 s or more, and knows no nonce."""
    theirs = record("0", "5c8e4a52-0d0c-4b0f-9d8e-27f3b1e2a001", age)
    ours = dataclasses.replace(record("1", "other/x", age), nonce="6b61")
    seen = view(theirs, ours, partitions=("0", "1"), foreign=180.0)
    assert seen.free == free
    assert view(theirs, ours, partitions=("0", "1")).free == ("0", "1")


def test_a_partition_without_a_record_is_free() -> None:
    assert view().free == ("0", "1", "2", "3")


@pytest.mark.parametrize("store_suspected", [True, False])
def test_a_relinquished_partition_is_free(store_suspected: bool) -> None:
    assert "0" in view(record("0", "", age=0.0), store_suspected=store_suspected).free


@pytest.mark.parametrize(
    ("age", "free"), [(0.0, False), (29.99, False), (30.0, False), (30.01, True), (math.inf, True), (-5.0, False)]
)
def test_an_expired_record_is_free(age: float, free: bool) -> None:
    seen = view(record("0", "other/x", age))
    assert ("0" in seen.free) == free
    assert is_expired(record("0", "other/x", age), AS_OF, EXPIRATION) == free


@pytest.mark.parametrize("age", [31.0, math.inf])
def test_nothing_expires_while_the_store_is_suspected(age: float) -> None:
    seen = view(record("0", "other/x", age), store_suspected=True)
    assert seen.others == (("other/x", ("0",)),)


# Rule 4


def test_all_else_is_others_by_owner() -> None:
    seen = view(record("3", "b/1"), record("0", "b/1"), record("2", "a/1"))
    assert seen.others == (("a/1", ("2",)), ("b/1", ("0", "3")))
    assert seen.free == ("1",)
    assert seen.instance_count == 3


def test_records_of_partitions_that_the_hub_does_not_have_do_not_count() -> None:
    """But they say who lives: who renews one is an instance like any other."""
    seen = view(record("9", "other/x"), partitions=("0",))
    assert (seen.partition_count, seen.instance_count, seen.others) == (1, 2, ())
    seen = view(record("9", "other/x", age=31.0), partitions=("0",))
    assert (seen.partition_count, seen.instance_count, seen.others) == (1, 1, ())


def test_what_i_hold_counts_even_if_the_hub_does_not_name_it() -> None:
    assert view(partitions=("0",), held=("7",)).held == ("7",)


# What was handed over


def test_what_was_handed_over_to_me_is_mine_at_any_age() -> None:
    for age in (0.0, 29.0, 1_000.0):
        assert view(record("0", "", age, successor="me/now")).reclaimable == ("0",)


def test_what_was_handed_over_to_my_predecessor_is_mine_when_i_have_just_started() -> None:
    handed_over = record("0", "", successor="me/before")
    assert view(handed_over, just_started=True).reclaimable == ("0",)
    assert view(handed_over).free == ("0", "1", "2", "3")


@pytest.mark.parametrize(("age", "reserved"), [(0.0, True), (RESERVATION, True), (RESERVATION + 0.01, False)])
def test_what_was_handed_over_to_a_live_instance_is_its_own_for_a_while(age: float, reserved: bool) -> None:
    seen = view(record("0", "", age, successor="a/1"), presences=(presence("a/1"),))
    assert ("0" in seen.free) != reserved
    assert seen.others == ((("a/1", ("0",)),) if reserved else ())


def test_what_was_handed_over_to_one_that_is_gone_is_free() -> None:
    assert "0" in view(record("0", "", 0.0, successor="a/1")).free
    assert "0" in view(record("0", "", 0.0, successor="a/1"), presences=(presence("a/1", 31.0),)).free


# Asks


def test_what_i_have_asked_for_counts_as_mine() -> None:
    seen = view(record("0", "a/1"), asks=(ask("0", "me/now"),))
    assert (seen.asked, seen.others, seen.mine_count, seen.partition_count) == ({"0": "a/1"}, (), 1, 4)


def test_what_a_live_instance_has_asked_for_counts_as_its_own() -> None:
    seen = view(record("0", "a/1"), record("1", "a/1"), presences=(presence("b/1"),), asks=(ask("0", "b/1"),))
    assert seen.others == (("a/1", ("1",)), ("b/1", ("0",)))
    seen = view(record("0", "me/now"), held=("0",), presences=(presence("b/1"),), asks=(ask("0", "b/1"),))
    assert (seen.held, seen.others) == ((), (("b/1", ("0",)),))


@pytest.mark.parametrize(
    "void",
    [ask("0", "b/1", level=2), ask("0", "b/1", level=0), ask("0", "gone/1"), ask("0", "a/1")],
    ids=["at a later level", "at an earlier level", "of one that is gone", "of the owner"],
)
def test_a_void_ask_means_nothing(void: Ask) -> None:
    seen = view(record("0", "a/1"), presences=(presence("b/1"), presence("gone/1", 31.0)), asks=(void,))
    assert seen.others == (("a/1", ("0",)),)


def test_an_ask_for_what_is_free_means_nothing() -> None:
    for stored in (record("0", ""), record("0", "a/1", age=31.0)):
        assert "0" in view(stored, presences=(presence("b/1"),), asks=(ask("0", "b/1"), ask("1", "b/1"))).free


# Rule 5


def test_the_members_are_those_that_are_present_and_those_that_own_something_and_i() -> None:
    seen = view(
        record("0", "a/1"),
        record("1", "b/1", age=31.0),
        presences=(presence("c/1"), presence("d/1", 31.0), presence("me/now")),
    )
    assert set(seen.members) == {"me/now", "a/1", "c/1"}
    assert seen.announced == {"c/1", "me/now"}, "they can be asked"
    assert seen.instance_count == 3


@pytest.mark.parametrize("store_suspected", [True, False])
def test_presence_does_not_expire_while_the_store_is_suspected(store_suspected: bool) -> None:
    seen = view(presences=(presence("c/1", 31.0),), store_suspected=store_suspected)
    assert ("c/1" in seen.members) == store_suspected


@pytest.mark.parametrize(("heard", "replaced"), [(51.0, True), (50.0, False), (10.0, False)])
def test_one_of_the_same_name_that_came_since_it_was_last_heard_of_is_its_successor(
    heard: float, replaced: bool
) -> None:
    both = presence("a/1", heard, since=99.0), presence("a/2", since=50.0)
    seen = view(record("0", "a/1"), presences=both, store_suspected=True)
    assert set(seen.members) == ({"me/now", "a/2"} if replaced else {"me/now", "a/1", "a/2"})
    assert seen.others == ((("a/2" if replaced else "a/1", ("0",)),))
    assert ("a/1" in seen.announced) != replaced


def test_my_predecessor_does_not_count_beside_me() -> None:
    seen = view(record("0", "me/before"), presences=(presence("me/before", 60.0), presence("me/now", since=50.0)))
    assert set(seen.members) == {"me/now"}
    assert seen.reclaimable == ("0",), "also when I have not just started: its successor by name am I"


def test_instances_of_another_pipeline_do_not_count() -> None:
    others = presence("a/1", pipeline="q"), presence("b/1", pipeline="p"), presence("c/1")
    assert set(view(presences=others, mine=presence("me/now", pipeline="p")).members) == {"me/now", "b/1", "c/1"}
    assert set(view(presences=others).members) == {"me/now", "a/1", "b/1", "c/1"}, "where I name none"


def test_i_am_known_to_others_by_my_presence_or_by_what_i_own() -> None:
    assert not view().known
    assert view(presences=(presence("me/now"),)).known
    assert view(record("0", "me/now")).known
    assert view(held=("0",)).known


# Rule 6


def test_capacities_count_where_all_run_planned() -> None:
    mine, a, b = presence("me/now", capacity=3), presence("a/1", capacity=2), presence("b/1", strategy="greedy")
    assert view(presences=(mine, a), mine=mine).members == {"me/now": Member(3), "a/1": Member(2)}
    mixed = view(presences=(mine, a, b), mine=mine).members
    assert mixed == dict.fromkeys(["me/now", "a/1", "b/1"], Member())
    silent = view(record("0", "c/1"), presences=(mine, a), mine=mine).members
    assert silent == {"me/now": Member(), "a/1": Member(), "c/1": Member(by_quota=False)}, "c may run anything"
    unheard = view(record("0", "c/1"), mine=mine).members
    assert unheard == dict.fromkeys(["me/now", "c/1"], Member()), "where nobody announces itself, it may be ours"


def test_maxima_count_always() -> None:
    mine = presence("me/now", maximum=1)
    others = presence("a/1", maximum=0), presence("b/1", strategy="greedy", capacity=9, maximum=2)
    seen = view(presences=others, mine=mine).members
    assert {owner: member.maximum for owner, member in seen.items()} == {"me/now": 1, "a/1": 0, "b/1": 2}


# Everybody seems to be gone


def test_those_whose_partitions_count_as_free_are_named_if_nobody_else_lives() -> None:
    gone = record("0", "a/1", age=31.0), record("1", "b/1", age=40.0)
    assert view(*gone).expired == {"a/1", "b/1"}
    assert view(*gone, record("2", "c/1")).expired == frozenset(), "one that lives has been able to renew"
    assert view(*gone, store_suspected=True).expired == frozenset()
    assert view(record("0", ""), record("1", "me/now", age=99.0)).expired == frozenset()


def test_a_predecessor_of_mine_that_expired_is_not_doubted() -> None:
    before = record("0", "me/before", age=99.0)
    assert view(before, just_started=True).expired == frozenset()
    assert view(before).expired == {"me/before"}


# The fair share


@pytest.mark.parametrize(
    ("partitions", "others", "share"),
    [(0, 0, (0, 0)), (1, 0, (1, 0)), (8, 1, (4, 0)), (8, 2, (2, 2)), (2, 4, (0, 2)), (32, 6, (4, 4))],
)
def test_fair_share(partitions: int, others: int, share: tuple[int, int]) -> None:
    names = tuple(str(p) for p in range(partitions))
    owners = tuple((f"o{n}", names[n : n + 1]) for n in range(others))
    taken = {p for _, theirs in owners for p in theirs}
    seen = View((), (), tuple(p for p in names if p not in taken), owners)
    assert seen.fair_share == share


OWNERS = st.sampled_from(["", "me/now", "me/before", "a/1", "b/1", "c/1"])
RECORDS = st.dictionaries(st.sampled_from("0123456789"), st.tuples(OWNERS, st.floats(0, 60)))
PRESENCES = st.dictionaries(OWNERS.filter(bool), st.tuples(st.floats(0, 60), st.floats(0, 60)))
ASKS = st.dictionaries(st.sampled_from("0123456789"), st.tuples(OWNERS.filter(bool), st.integers(0, 2)))


@given(
    RECORDS,
    PRESENCES,
    ASKS,
    st.sets(st.sampled_from("0123456789")),
    st.sets(st.sampled_from("0123456789")),
    st.booleans(),
    st.booleans(),
)
def test_every_partition_is_sorted_once(
    stored: dict[str, tuple[str, float]],
    present: dict[str, tuple[float, float]],
    asked: dict[str, tuple[str, int]],
    known: set[str],
    held: set[str],
    just_started: bool,
    suspected: bool,
) -> None:
    seen = view(
        *(record(partition, owner, age, successor="b/1") for partition, (owner, age) in stored.items()),
        presences=tuple(presence(owner, age, since=age + since) for owner, (age, since) in present.items()),
        asks=tuple(ask(partition, asker, level) for partition, (asker, level) in asked.items()),
        partitions=tuple(known),
        held=tuple(held),
        just_started=just_started,
        store_suspected=suspected,
    )
    theirs = [partition for _, partitions in seen.others for partition in partitions]
    sorted_out = [*seen.held, *seen.reclaimable, *seen.asked, *seen.free, *theirs]
    assert sorted(sorted_out) == sorted(known | held)
    assert len(sorted_out) == seen.partition_count
    wanted = {p for p in held if p in asked and p in theirs}
    assert set(seen.held) == held - wanted, "but for what a live instance has asked for"
    assert {owner for owner, _ in seen.others} <= set(seen.members) - {"me/now"}
    assert set(seen.asked.values()) <= set(seen.members)
    minimum, extra = seen.fair_share
    assert minimum * seen.instance_count + extra == seen.partition_count
    assert 0 <= extra < seen.instance_count
