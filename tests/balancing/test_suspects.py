"""Suspects: what a bad end is, how they are counted, and the patience with them, by rule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import Claim
from leasehold.balancing.suspects import (
    LONGEST_BACKOFF,
    SUSPECT_AFTER,
    backoff,
    ended_badly,
    failures,
    patient,
    stands_still,
)
from leasehold.model import BEFORE_FIRST, Checkpoint, ConsumerGroup, Ownership

GROUP = ConsumerGroup("n", "h")


def record(
    owner: str = "", *, level: int = 1, claimed_at: int = 7, count: int = 0, error: str = "", successor: str = ""
) -> Ownership:
    return Ownership(
        GROUP, "0", owner, level, "e", claimed_at=claimed_at, failures=count, last_error=error, successor=successor
    )


# Rule 1


def test_an_owner_whose_ownership_expired_came_to_a_bad_end() -> None:
    assert ended_badly(record("a/1"), Claim("0"), "me/2")


def test_so_did_one_that_its_new_incarnation_takes_over_from() -> None:
    assert ended_badly(record("me/1"), Claim("0"), "me/2")


@pytest.mark.parametrize("error", ["", "how the one before it ended"])
def test_being_relieved_is_no_bad_end(error: str) -> None:
    assert not ended_badly(record("a/1", error=error), Claim("0", "a/1"), "me/2"), "a steal"
    assert not ended_badly(record("", error=error, successor="me/2"), Claim("0"), "me/2"), "a hand-over"
    assert not ended_badly(record("", error=error), Claim("0"), "me/2"), "a clean stop"


def test_my_own_lapse_of_trust_is_none() -> None:
    assert not ended_badly(record("me/2"), Claim("0"), "me/2")


# Rule 2


@pytest.mark.parametrize(
    ("claimed_at", "now", "still"), [(7, 7, True), (7, 8, False), (7, 6, True), (BEFORE_FIRST, BEFORE_FIRST, True)]
)
def test_it_stands_still_where_it_was_claimed(claimed_at: int, now: int, still: bool) -> None:
    assert stands_still(record("a/1", claimed_at=claimed_at), Checkpoint(GROUP, "0", now, 1)) == still


def test_what_was_never_claimed_does_not_stand_still() -> None:
    assert not stands_still(record(level=0, claimed_at=BEFORE_FIRST), Checkpoint(GROUP, "0", BEFORE_FIRST, 0))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_bad_ends_count_while_it_stands_still_and_events_wait(count: int) -> None:
    before = record(count=count)
    assert failures(before, still=True, badly=True, waiting=True) == count + 1
    assert failures(before, still=True, badly=False, waiting=True) == count, "relieved: neither more nor fewer"
    for badly in (True, False):
        assert failures(before, still=False, badly=badly, waiting=True) == 0, "it has moved"
        assert failures(before, still=True, badly=badly, waiting=False) == 0, "there is nothing to fail at"


# Rule 3


def test_the_backoff_doubles_up_to_a_limit() -> None:
    assert [backoff(count, 10.0) for count in range(5)] == [0.0, 0.0, 10.0, 20.0, 40.0]
    waits = [backoff(count, 10.0) for count in range(SUSPECT_AFTER, 100)]
    assert all(two in (2 * one, 10.0 * LONGEST_BACKOFF) for one, two in pairwise(waits))
    assert waits[-1] == backoff(10_000, 10.0) == 10.0 * LONGEST_BACKOFF


CLAIMS = [Claim(p) for p in "01234"]
LONG = dict.fromkeys("01234", 1e6)


def names(claims: list[Claim]) -> str:
    return "".join(claim.partition for claim in claims)


def test_what_is_no_suspect_is_claimed_as_planned() -> None:
    counts = {"0": 1, "1": 0, "2": 1}
    assert patient(CLAIMS, counts, {}, interval=10, unproven=False) == CLAIMS
    assert patient(CLAIMS, counts, {}, interval=10, unproven=True) == CLAIMS


def test_suspects_come_last_those_with_the_fewest_first_and_one_at_a_time() -> None:
    assert names(patient(CLAIMS, {"0": 3, "2": 2, "3": 9}, LONG, interval=10, unproven=False)) == "142"
    assert names(patient(CLAIMS, {"0": 2, "2": 2}, LONG, interval=10, unproven=False)) == "1340"


def test_who_holds_an_unproven_suspect_takes_no_other() -> None:
    assert names(patient(CLAIMS, {"0": 3, "2": 2}, LONG, interval=10, unproven=True)) == "134"


@pytest.mark.parametrize(("age", "taken"), [(0.0, False), (39.999, False), (40.0, True)])
def test_a_suspect_is_left_alone_for_its_backoff(age: float, taken: bool) -> None:
    assert bool(patient(CLAIMS[:1], {"0": 4}, {"0": age}, interval=10, unproven=False)) == taken


def test_who_waits_does_not_keep_a_riper_one_waiting() -> None:
    ages = {"0": 5.0, "1": 100.0}
    assert names(patient(CLAIMS[:2], {"0": 2, "1": 4}, ages, interval=10, unproven=False)) == "1"


@given(
    counts=st.dictionaries(st.sampled_from("01234"), st.integers(0, 12)),
    ages=st.lists(st.floats(0, 1_000), min_size=5, max_size=5),
    unproven=st.booleans(),
)
def test_suspects_never_cost_the_others_anything(counts: dict[str, int], ages: list[float], unproven: bool) -> None:
    chosen = patient(CLAIMS, counts, dict(zip("01234", ages, strict=True)), interval=10, unproven=unproven)
    fit = [claim for claim in CLAIMS if counts.get(claim.partition, 0) < SUSPECT_AFTER]
    assert chosen[: len(fit)] == fit
    assert len(chosen) <= len(fit) + (not unproven)
