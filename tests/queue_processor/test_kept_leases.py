"""Leases for workers: how many calls of the store they take, and how long others wait."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.clock import SystemClock
from leasehold.errors import StoreUnavailable
from leasehold.leases import EntityLeases
from leasehold.processors.queues.kept_leases import KEPT, LONGEST, KeptLeases
from leasehold_testkit.clock import ManualClock
from tests.queue_processor.counted import CountedLeases
from tests.waiting import NEVER, PATIENCE, until


@pytest.fixture
def at(tmp_path: Path) -> str:
    return f"sqlite:////{tmp_path}/leases.db"


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def leases(at: str, calls: Counter[str]) -> Iterator[EntityLeases]:
    store: Any = CountedLeases(at, calls)
    with closing(EntityLeases(store, scope="s", holder="one", duration=NEVER)) as leases:
        yield leases


@pytest.fixture
def other(at: str) -> Iterator[EntityLeases]:
    with closing(EntityLeases(at, scope="s", holder="other", duration=NEVER)) as other:
        yield other


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kept(leases: EntityLeases, clock: ManualClock) -> Iterator[KeptLeases]:
    """Nothing is given up before the clock is moved."""
    with closing(KeptLeases(leases, clock)) as kept:
        yield kept


def test_those_that_are_next_are_taken_and_given_up_in_one_call(
    kept: KeptLeases, calls: Counter[str], clock: ManualClock, other: EntityLeases
) -> None:
    keys = ("a", "b", "c", "d")
    for key in keys:
        lease = kept.take(key, keys)
        assert lease is not None
        lease.check()
        kept.give_back(lease)
    assert calls["lease"] == 1
    assert other.acquire_many(keys) == []
    clock.advance(KEPT)
    until(lambda: [lease.key for lease in other.acquire_many(["d"])] == ["d"], "a lease that is given up")
    assert [lease.key for lease in other.acquire_many(keys)] == ["a", "b", "c"]
    assert calls["lease"] == 2


def test_one_that_another_process_has_is_busy_and_the_others_are_had(kept: KeptLeases, other: EntityLeases) -> None:
    with other.hold("a"):
        assert kept.take("a", ["b"]) is None
        lease = kept.take("b")
        assert lease is not None
    again = kept.take("a")
    assert again is not None
    assert again.key == "a"


def test_a_lease_in_use_is_given_up_by_nobody(
    kept: KeptLeases, clock: ManualClock, calls: Counter[str], other: EntityLeases
) -> None:
    lease, idle = kept.take("a", ["b"]), "b"
    assert lease is not None
    clock.advance(LONGEST * 2)
    until(lambda: other.try_acquire(idle) is not None, "a lease that is given up")
    assert other.try_acquire("a") is None
    kept.give_back(lease)
    until(lambda: other.try_acquire("a") is not None, "a lease that is given up")


def test_one_that_is_used_again_and_again_is_given_up_at_last(
    kept: KeptLeases, clock: ManualClock, other: EntityLeases
) -> None:
    fences = set()
    for _ in range(int(LONGEST / KEPT * 4) - 1):
        lease = kept.take("a")
        assert lease is not None
        fences.add(lease.fence)
        kept.give_back(lease)
        clock.advance(KEPT / 4)
    assert len(fences) == 1
    assert other.try_acquire("a") is None
    clock.advance(KEPT / 4)
    until(lambda: other.try_acquire("a") is not None, "a lease that is given up")


def test_where_turns_are_long_nothing_is_taken_ahead(kept: KeptLeases, clock: ManualClock, other: EntityLeases) -> None:
    lease = kept.take("a")
    assert lease is not None
    clock.advance(KEPT)
    kept.give_back(lease)
    assert kept.take("b", ["c"]) is not None
    assert other.try_acquire("c") is not None


def test_a_lease_that_was_lost_while_it_was_kept_is_taken_anew(
    kept: KeptLeases, leases: EntityLeases, other: EntityLeases
) -> None:
    lease = kept.take("a")
    assert lease is not None
    kept.give_back(lease)
    lease.release()  # as a break by a person would, or the end of its time
    with other.hold("a"):
        assert kept.take("a") is None
    again = kept.take("a")
    assert again is not None
    assert again.fence > lease.fence


def test_who_wants_what_is_being_taken_or_given_up_waits_for_that(leases: EntityLeases) -> None:
    """Else a worker would find busy what its own process has."""
    store: Any = leases._store
    may, held = threading.Event(), threading.Event()
    release = store.release

    def slow(told: Any) -> Any:
        held.set()
        may.wait(PATIENCE)
        return release(told)

    found: list[Any] = []
    with closing(KeptLeases(leases, SystemClock())) as made:
        lease = made.take("a")
        assert lease is not None
        store.release = slow
        made.give_back(lease)
        assert held.wait(PATIENCE)
        thread = threading.Thread(target=lambda: found.append(made.take("a")))
        thread.start()
        changed: Any = made._changed
        until(lambda: changed._waiters or found, "who takes to wait")
        assert not found, "it waits"
        may.set()
        thread.join(PATIENCE)
        (again,) = found
        assert again is not None
        assert again.fence > lease.fence


def test_a_store_that_is_away_raises_and_nothing_is_held_for_it(kept: KeptLeases, leases: EntityLeases) -> None:
    store: Any = leases._store
    acquire = store.acquire

    def away(*_: object) -> object:
        raise StoreUnavailable("away")

    store.acquire = away
    with pytest.raises(StoreUnavailable):
        kept.take("a", ["b"])
    store.acquire = acquire
    for key in ("a", "b"):
        assert kept.take(key) is not None
