"""The view: each rule by which partitions are mine, free or another's, and the fair share."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import View, make_view
from leasehold.balancing.view import is_expired
from leasehold.model import ConsumerGroup, OwnerId, Ownership, OwnershipListing

GROUP = ConsumerGroup("n", "h")
ME = OwnerId("me", "now")
AS_OF = 1_000.0
EXPIRATION = 30.0


def record(partition: str, owner: str, age: float = 1.0, level: int = 1) -> Ownership:
    return Ownership(GROUP, partition, owner, level, "etag", AS_OF - age)


def view(
    *records: Ownership,
    partitions: tuple[str, ...] = ("0", "1", "2", "3"),
    held: tuple[str, ...] = (),
    just_started: bool = False,
    store_suspected: bool = False,
) -> View:
    return make_view(
        partitions,
        OwnershipListing(records, AS_OF),
        me=ME,
        held=held,
        expiration=EXPIRATION,
        just_started=just_started,
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
    seen = view(record("9", "other/x"), partitions=("0",))
    assert (seen.partition_count, seen.instance_count) == (1, 1)


def test_what_i_hold_counts_even_if_the_hub_does_not_name_it() -> None:
    assert view(partitions=("0",), held=("7",)).held == ("7",)


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


@given(
    RECORDS,
    st.sets(st.sampled_from("0123456789")),
    st.sets(st.sampled_from("0123456789")),
    st.booleans(),
    st.booleans(),
)
def test_every_partition_is_sorted_once(
    stored: dict[str, tuple[str, float]], known: set[str], held: set[str], just_started: bool, suspected: bool
) -> None:
    seen = view(
        *(record(partition, owner, age) for partition, (owner, age) in stored.items()),
        partitions=tuple(known),
        held=tuple(held),
        just_started=just_started,
        store_suspected=suspected,
    )
    sorted_out = [*seen.held, *seen.reclaimable, *seen.free, *(p for _, theirs in seen.others for p in theirs)]
    assert sorted(sorted_out) == sorted(known | held)
    assert len(sorted_out) == seen.partition_count
    assert set(seen.held) == held
    minimum, extra = seen.fair_share
    assert minimum * seen.instance_count + extra == seen.partition_count
    assert 0 <= extra < seen.instance_count
