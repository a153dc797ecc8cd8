"""The checker of histories, against histories whose verdict is known, and against stores that do wrong."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.model import Ownership
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.contracts.stores.groups import new_group
from leasehold_testkit.contracts.stores.histories import (
    Acquire,
    Change,
    Close,
    LeaseAction,
    LeaseModel,
    Look,
    Read,
    Record,
    RecordAction,
    RecordModel,
    Release,
    Renew,
    Write,
    joined,
    use_leases,
    use_ownership,
)
from leasehold_testkit.contracts.stores.linear import KEYS, judge
from leasehold_testkit.contracts.stores.linearizability import Model, Operation, violation

S = TypeVar("S")


class Register:
    """A number that is written and read."""

    initial = 0

    def step(self, state: int, action: tuple[str, int], answered: bool) -> int | None:
        kind, value = action
        if kind == "write":
            return value
        return state if answered and value == state else None


def history(*calls: tuple[int, int | None, Any]) -> list[Operation[Any]]:
    return [Operation(f"p{n}", called, returned, action) for n, (called, returned, action) in enumerate(calls)]


def fits(model: Model[S, Any], *calls: tuple[int, int | None, Any]) -> bool:
    return violation(history(*calls), model) is None


# The checker


def test_what_overlaps_may_have_any_order() -> None:
    write, old, new = ("write", 1), ("read", 0), ("read", 1)
    assert fits(Register(), (0, 10, write), (1, 2, old), (3, 4, new))
    assert fits(Register(), (0, 10, write), (1, 5, new), (2, 6, old))
    assert fits(Register())


def test_a_stale_read_is_found() -> None:
    write, old, new = ("write", 1), ("read", 0), ("read", 1)
    assert not fits(Register(), (0, 1, write), (2, 3, old))
    assert not fits(Register(), (0, 10, write), (1, 2, new), (3, 4, old))


def test_without_an_answer_it_may_have_happened_late_or_never() -> None:
    write, old, new = ("write", 1), ("read", 0), ("read", 1)
    assert fits(Register(), (0, None, write), (1, 2, old), (3, 4, new))
    assert fits(Register(), (0, None, write), (1, 2, old), (3, 4, old))
    assert fits(Register(), (0, None, write))
    assert not fits(Register(), (0, None, write), (1, 2, new), (3, 4, old))
    assert not fits(Register(), (5, None, write), (1, 2, new))


def test_a_violation_is_shown_with_what_is_around_it() -> None:
    found = violation(history((0, 1, ("write", 1)), (2, 3, ("read", 0))), Register())
    assert found is not None
    assert found.startswith("no order fits: after 1 of 2 operations the state was 1")
    assert "→ p1 [2, 3] ('read', 0)" in found


def by_trying_all(operations: Sequence[Operation[tuple[str, int]]]) -> bool:
    """The definition itself: some order of all answered and some others, in which nothing precedes its past."""
    model = Register()
    answered = [one for one in operations if one.returned is not None]
    open_ended = [one for one in operations if one.returned is None]
    for count in range(len(open_ended) + 1):
        for some in itertools.combinations(open_ended, count):
            for order in itertools.permutations([*answered, *some]):
                if any(
                    later.returned is not None and later.returned < one.called
                    for one, later in itertools.combinations(order, 2)
                ):
                    continue
                state = model.initial
                for one in order:
                    new = model.step(state, one.action, one.returned is not None)
                    if new is None:
                        break
                    state = new
                else:
                    return True
    return False


def test_the_verdict_is_that_of_trying_all_orders() -> None:
    rng, verdicts = Random(4711), set[bool]()
    for _ in range(1500):
        operations = []
        for n in range(rng.randint(1, 5)):
            called = rng.randrange(12)
            returned = None if rng.random() < 0.15 else called + rng.randint(1, 8)
            action = (rng.choice(("write", "read")), rng.randrange(3))
            operations.append(Operation(f"p{n}", 2 * called, returned and 2 * returned + 1, action))
        expected = by_trying_all(operations)
        assert (violation(operations, Register()) is None) is expected, operations
        verdicts.add(expected)
    assert verdicts == {True, False}


# The models


MINE, YOURS = Record("a", "me", 1), Record("b", "you", 2)
CLAIM_A, CLAIM_B = Write(None, "me", 1, "a"), Write("a", "you", 2, "b")


@pytest.mark.parametrize(
    "calls",
    [
        [(0, 9, CLAIM_A), (0, 9, Write(None, "you", 1, "b"))],
        [(0, 1, CLAIM_A), (2, 9, CLAIM_B), (2, 9, Write("a", "third", 2, "c"))],
        [(0, 1, CLAIM_A), (2, 3, CLAIM_B), (4, 5, Write("a", "me", 1, "c"))],
        [(0, 1, CLAIM_A), (2, 3, Write("a", "you", 2, None))],
        [(0, 1, Write(None, "me", 1, None))],
        [(0, 1, CLAIM_A), (2, 3, Read())],
        [(0, 1, CLAIM_A), (2, 3, CLAIM_B), (4, 5, Read(MINE))],
        [(0, 1, CLAIM_A), (2, 3, Read(dataclasses.replace(MINE, level=7)))],
        [(0, None, Write(None, "me", 1)), (1, 2, Read(MINE)), (3, 4, Read())],
        [(0, None, Write(None, "me", 1)), (1, 2, Read(dataclasses.replace(MINE, owner="you")))],
    ],
    ids=[
        "two first claims",
        "two winners of an ETag",
        "a stale ETag renews",
        "lost by the right ETag",
        "lost where there is nothing",
        "a record vanishes",
        "an old record comes back",
        "another level than was written",
        "a lost reply is undone",
        "a record that nobody wrote",
    ],
)
def test_bad_histories_of_a_record_are_found(calls: list[tuple[int, int | None, RecordAction]]) -> None:
    assert not fits(RecordModel(), *calls)


def test_good_histories_of_a_record_fit() -> None:
    assert fits(
        RecordModel(), (0, 9, CLAIM_A), (0, 9, Write(None, "you", 1, None)), (3, 10, Read()), (5, 9, Read(MINE))
    )
    lost = (0, None, Write(None, "me", 1))
    assert fits(RecordModel(), lost, (1, 2, Read(MINE)), (3, 4, CLAIM_B), (5, 6, Read(YOURS)))
    assert fits(RecordModel(), lost, (1, 2, Write(None, "you", 1, None)), (3, 4, Read(MINE)))
    assert fits(RecordModel(), lost, (1, 2, Read()), (3, 4, Write(None, "you", 1, "z")))


@pytest.mark.parametrize(
    "calls",
    [
        [(0, 9, Acquire("s", 1)), (0, 9, Acquire("t", 2))],
        [(0, 1, Acquire("s", None))],
        [(0, 1, Acquire("s", 5)), (2, 3, Release("s", 5)), (4, 5, Acquire("t", 5))],
        [(0, 1, Acquire("s", 5)), (2, 3, Release("s", 5)), (4, 5, Acquire("t", 4))],
        [(0, 1, Acquire("s", 5)), (2, 3, Change("s", 5, "t", 5))],
        [(0, 1, Acquire("s", 5)), (2, 3, Change("s", 5, "t", 6)), (4, 5, Renew("s", 5))],
        [(0, 1, Acquire("s", 5)), (2, 3, Change("s", 5, "t", 6)), (4, 5, Acquire("s", 7))],
        [(0, 1, Acquire("s", 5)), (2, 3, Release("s", 5, False))],
        [(0, 1, Acquire("s", 5)), (2, 3, Look("s", 5, broken=True)), (4, 5, Release("s", 5))],
        [(0, 1, Acquire("s", 5)), (2, 3, Look())],
        [(0, 1, Acquire("s", 5)), (2, 3, Close("s")), (4, 5, Look("s", 5))],
        [(0, 1, Acquire("s", 5)), (2, 3, Close("t")), (4, 5, Acquire("t", 6))],
        [(0, None, Acquire("s")), (1, 2, Look("s", 5)), (3, 4, Release("s", 5)), (5, 6, Acquire("t", 5))],
    ],
    ids=[
        "two winners",
        "lost where it is free",
        "a fence given twice",
        "a fence that falls",
        "a change without a new fence",
        "renewed after a change",
        "free after a change",
        "a release that is not done",
        "released after a break",
        "nobody where somebody is",
        "held by a session that was closed",
        "free since another session was closed",
        "a fence that was untold is given again",
    ],
)
def test_bad_histories_of_a_lease_are_found(calls: list[tuple[int, int | None, LeaseAction]]) -> None:
    assert not fits(LeaseModel(), *calls)


def test_good_histories_of_a_lease_fit() -> None:
    assert fits(
        LeaseModel(),
        (0, 9, Acquire("s", 1)),
        (0, 9, Acquire("t", None)),
        (10, 11, Change("s", 1, "t", 2)),
        (12, 13, Release("s", 1, False)),
        (14, 15, Renew("t", 2)),
        (16, 17, Look("t", 2, broken=True)),
        (18, 19, Renew("t", 2, False)),
        (20, 30, Acquire("s", 7)),
        (21, 29, Close("s")),
        (31, 32, Acquire("t", 8)),
    )
    lost = (0, None, Acquire("s"))
    assert fits(LeaseModel(), lost, (1, 2, Acquire("t", None)), (3, 4, Look("s", 5)), (5, 6, Release("s", 5)))
    assert fits(LeaseModel(), lost, (1, 2, Acquire("t", 1)), (3, 4, Release("t", 1)), (5, 6, Look("s", 2)))


# Stores that do wrong, and one whose replies are lost


class TwoWinners(MemoryStore):
    """Does not compare ETags now and then."""

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        current = {one.partition: one.etag for claim in claims for one in self.list_ownership(claim.group).records}
        return super().claim_ownership([dataclasses.replace(one, etag=current.get(one.partition)) for one in claims])


def test_a_store_that_does_not_compare_is_found() -> None:
    store, group = TwoWinners(), new_group()
    recorders = [use_ownership(store, group, KEYS, 40, 1, name) for name in "abcdefgh"]
    with pytest.raises(pytest.fail.Exception, match=r"seed 1, key .: no order fits"):
        judge(recorders, RecordModel(), 1)


class FencesFall(MemoryLeaseStore):
    """Gives a fence a second time when its key was free in between."""

    def _held(self, scope: str, key: str) -> None:
        self._fence = 0
        return super()._held(scope, key)  # type: ignore[return-value]


def test_a_store_whose_fences_fall_is_found() -> None:
    recorder = use_leases(FencesFall(), "scope", KEYS, 60, 1, "one")
    with pytest.raises(pytest.fail.Exception, match="no order fits"):
        judge([recorder], LeaseModel(), 1)


class LosesReplies(MemoryStore):
    """Every third claim gets no answer: half of these were made, half were not."""

    asked = 0

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        self.asked += 1
        if self.asked % 6 == 0:
            raise StoreUnavailable("the request was lost")
        won = super().claim_ownership(claims)
        if self.asked % 6 == 3:
            raise StoreUnavailable("the reply was lost")
        return won


def test_lost_replies_are_no_violation() -> None:
    store, group = LosesReplies(), new_group()
    recorders = [use_ownership(store, group, KEYS, 80, seed, f"worker-{seed}") for seed in range(3)]
    judge(recorders, RecordModel(), 0)
    assert any(one.returned is None for some in joined(recorders).values() for one in some)
