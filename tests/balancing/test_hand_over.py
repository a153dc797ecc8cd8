"""The hand-over: every row of the two tables, and the sorting of a plan's claims by them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import Claim
from leasehold.balancing.hand_over import HandOverStep, Requests, Wish, asker_step, owner_step, requests
from leasehold.model import Ask, ConsumerGroup, Ownership

GROUP = ConsumerGroup("n", "h")
DEADLINE = 30.0
LATE = [DEADLINE, DEADLINE + 0.001, 1_000.0]
IN_TIME = [0.0, 0.001, DEADLINE - 0.001]


# The asker's half


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("waited", [*IN_TIME, *LATE])
def test_what_is_free_is_claimed(listens: bool, asked: bool, waited: float) -> None:
    assert asker_step(Wish(owned=False, listens=listens, asked=asked, waited=waited), DEADLINE) is HandOverStep.CLAIM


@pytest.mark.parametrize("waited", [*IN_TIME, *LATE])
def test_what_was_handed_over_to_another_is_waited_for(waited: float) -> None:
    """However long it was asked for: the reservation ends by itself, and then the partition is free."""
    assert asker_step(Wish(owned=False, reserved=True, waited=waited), DEADLINE) is HandOverStep.WAIT


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("waited", [*IN_TIME, *LATE])
def test_who_cannot_be_asked_is_stolen_from(asked: bool, waited: float) -> None:
    assert asker_step(Wish(owned=True, listens=False, asked=asked, waited=waited), DEADLINE) is HandOverStep.CLAIM


@pytest.mark.parametrize("waited", IN_TIME)
def test_a_live_owner_is_asked(waited: float) -> None:
    """Again where an ask of mine is void, since the level has risen: the waiting goes on from the first one."""
    assert asker_step(Wish(owned=True, waited=waited), DEADLINE) is HandOverStep.ASK


@pytest.mark.parametrize("waited", IN_TIME)
def test_while_my_ask_stands_it_is_waited_for(waited: float) -> None:
    assert asker_step(Wish(owned=True, asked=True, waited=waited), DEADLINE) is HandOverStep.WAIT


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("waited", LATE)
def test_at_the_deadline_it_is_stolen(asked: bool, waited: float) -> None:
    assert asker_step(Wish(owned=True, asked=asked, waited=waited), DEADLINE) is HandOverStep.CLAIM


# The owner's half


def test_what_nobody_asks_for_is_kept() -> None:
    assert owner_step(has_asker=False, drained=False) is HandOverStep.KEEP


def test_what_is_asked_for_is_drained() -> None:
    assert owner_step(has_asker=True, drained=False) is HandOverStep.DRAIN


def test_what_is_drained_is_handed_over() -> None:
    assert owner_step(has_asker=True, drained=True) is HandOverStep.HAND_OVER


def test_what_nobody_wants_any_more_is_relinquished() -> None:
    assert owner_step(has_asker=False, drained=True) is HandOverStep.RELINQUISH


def test_the_two_halves_are_total_and_meet_in_nothing_but_their_ends() -> None:
    asker = {
        asker_step(Wish(owned=owned, reserved=reserved, listens=listens, asked=asked, waited=waited), DEADLINE)
        for owned, reserved, listens, asked in product(*[[True, False]] * 4)
        for waited in (0.0, DEADLINE)
    }
    owner = {owner_step(has_asker=a, drained=d) for a, d in product(*[[True, False]] * 2)}
    assert asker == {HandOverStep.CLAIM, HandOverStep.ASK, HandOverStep.WAIT}
    assert owner == {HandOverStep.KEEP, HandOverStep.DRAIN, HandOverStep.HAND_OVER, HandOverStep.RELINQUISH}
    assert asker | owner == set(HandOverStep)


# From the claims of a plan to requests


def record(owner: str = "", level: int = 3, successor: str = "") -> Ownership:
    return Ownership(GROUP, "0", owner, level, "etag", successor=successor)


def asking(asker: str, level: int = 3) -> Ask:
    return Ask(GROUP, "0", level, asker)


def sort_out(
    claim: Claim | None,
    stored: Ownership | None,
    ask: Ask | None = None,
    *,
    listening: str = "owner/1 other/1",
    waited: float = 0.0,
) -> Requests:
    return requests(
        [claim] if claim else [],
        {"0": stored} if stored else {},
        {"0": ask} if ask else {},
        me="me/1",
        listening=listening.split(),
        waited={"0": waited} if waited else {},
        deadline=DEADLINE,
    )


FREE = Claim("0")
TO_TAKE = Claim("0", "owner/1")
NOTHING = Requests((), (), (), frozenset())
CLAIM_FREE = Requests((FREE,), (), (), frozenset())
STEAL = Requests((TO_TAKE,), (), (), frozenset())
ASK = Requests((), (asking("me/1"),), (), frozenset("0"))
WAIT = Requests((), (), (), frozenset("0"))


@pytest.mark.parametrize(
    "stored",
    [None, record(), record("owner/1"), record("me/1"), record("me/0"), record(successor="me/1")],
    ids=["no record", "relinquished", "expired", "mine", "my predecessor's", "handed over to me"],
)
def test_a_claim_without_an_owner_is_made(stored: Ownership | None) -> None:
    assert sort_out(FREE, stored) == CLAIM_FREE


def test_a_claim_on_what_was_handed_over_to_another_waits() -> None:
    assert sort_out(Claim("0", "other/1"), record(successor="other/1")) == WAIT
    assert sort_out(Claim("0", "other/1"), record(successor="other/1"), waited=99.0) == WAIT


def test_a_claim_on_an_owner_that_cannot_be_asked_is_a_steal() -> None:
    assert sort_out(TO_TAKE, record("owner/1"), listening="other/1") == STEAL


def test_a_claim_on_a_live_owner_is_an_ask() -> None:
    assert sort_out(TO_TAKE, record("owner/1")) == ASK


@pytest.mark.parametrize("stands", [asking("me/1", 2), asking("me/0", 3), asking("other/1", 3), asking("other/1", 2)])
def test_an_ask_at_another_level_or_of_another_is_not_mine(stands: Ask) -> None:
    """What the plan gives me in spite of another's ask is asked for: only the ask of one that is gone is void."""
    assert sort_out(TO_TAKE, record("owner/1"), stands) == ASK


def test_a_claim_that_was_asked_for_waits() -> None:
    assert sort_out(TO_TAKE, record("owner/1"), asking("me/1"), waited=DEADLINE - 0.1) == WAIT


def test_a_claim_that_was_asked_for_too_long_is_a_steal_and_the_ask_is_taken_back() -> None:
    expected = Requests((TO_TAKE,), (), (asking("me/1"),), frozenset())
    assert sort_out(TO_TAKE, record("owner/1"), asking("me/1"), waited=DEADLINE) == expected


def test_the_deadline_holds_where_the_ask_was_lost() -> None:
    assert sort_out(TO_TAKE, record("owner/1"), waited=DEADLINE) == STEAL


def test_an_ask_that_the_plan_has_no_use_for_is_taken_back() -> None:
    assert sort_out(None, record("owner/1"), asking("me/1")) == Requests((), (), (asking("me/1"),), frozenset())


def test_the_asks_of_others_are_left_alone() -> None:
    assert sort_out(None, record("owner/1"), asking("other/1")) == NOTHING
    assert sort_out(FREE, record(), asking("other/1")) == CLAIM_FREE


OWNERS = st.sampled_from(["", "me/1", "owner/1", "other/1"])


@given(
    claims=st.dictionaries(st.sampled_from("012345"), st.sampled_from(["", "owner/1", "other/1"])),
    owners=st.dictionaries(st.sampled_from("012345"), OWNERS),
    askers=st.dictionaries(
        st.sampled_from("012345"), st.tuples(st.sampled_from(["me/1", "other/1"]), st.integers(2, 4))
    ),
    listening=st.sets(st.sampled_from(["owner/1", "other/1"])),
    waited=st.dictionaries(st.sampled_from("012345"), st.floats(0, 60)),
)
def test_every_claim_is_made_asked_for_or_waited_for(
    claims: dict[str, str],
    owners: dict[str, str],
    askers: dict[str, tuple[str, int]],
    listening: set[str],
    waited: dict[str, float],
) -> None:
    plan = [Claim(partition, owner) for partition, owner in claims.items()]
    records = {p: Ownership(GROUP, p, owner, 3, "etag", successor="other/1") for p, owner in owners.items()}
    asks = {p: Ask(GROUP, p, level, asker) for p, (asker, level) in askers.items()}
    found = requests(plan, records, asks, me="me/1", listening=listening, waited=waited, deadline=DEADLINE)
    assert {claim.partition for claim in found.claims} | found.waiting == set(claims)
    assert not {claim.partition for claim in found.claims} & found.waiting
    for ask in found.asks:
        assert ask.partition in found.waiting
        assert (ask.asker, ask.owner_level) == ("me/1", 3)
        assert asks.get(ask.partition) != ask, "asked for twice"
        assert records[ask.partition].owner_id in listening, "asked of one that does not listen"
    mine = {partition for partition, ask in asks.items() if ask.asker == "me/1"}
    assert {ask.partition for ask in found.withdrawn} == mine - found.waiting
    for claim in found.claims:
        held = records.get(claim.partition)
        if claim.previous_owner and held and held.owner_id and held.owner_id in listening:
            assert waited.get(claim.partition, 0.0) >= DEADLINE, "stolen from one that could be asked"
