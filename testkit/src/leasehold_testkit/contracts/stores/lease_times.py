"""The part of the contract of `LeaseStore` that takes time: what lives on, what dies, and what is free then.

Let `wait` move time wherever it can be moved: on a clock by hand, or by setting back what the store has written. Then
`short` may be long, and no machine is too slow. Else a session that is kept alive has three fifths of `short` in hand
at each heartbeat; and where a short lease is long (15 s for a blob's), `LeaseTimesAtOnce` waits for all at once.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from leasehold.model import Lease, LeaseSession
from leasehold.stores.lease_base import LeaseStore
from leasehold_testkit.contracts.stores.groups import at_once, same
from leasehold_testkit.contracts.stores.lease_fixtures import LONG, LeaseFixtures, Names


class LeaseTimesContract(LeaseFixtures):
    """What every `LeaseStore` must do as time passes."""

    def test_a_session_lives_as_long_as_it_has_a_heartbeat(
        self, store: LeaseStore, wait: Callable[[float], None], short: float
    ) -> None:
        session = store.open_session("me", short)
        for _ in range(3):
            wait(0.4 * short)
            assert store.heartbeat(session)

    def test_a_session_without_a_heartbeat_is_dead_for_good(
        self, store: LeaseStore, wait: Callable[[float], None], short: float, scope: str
    ) -> None:
        session = store.open_session("me", short)
        [lease] = store.acquire(session, scope, ["a"])
        wait(1.2 * short)
        assert not store.heartbeat(session)
        assert not store.heartbeat(session)
        assert store.acquire(session, scope, ["a", "b"]) == []
        assert store.renew([lease]) == store.release([lease]) == store.holders(scope, ["a"]) == []
        store.close_session(session)

    def test_a_session_without_an_end_needs_no_heartbeat(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        other: LeaseSession,
    ) -> None:
        session = store.open_session("me", None)
        leases = store.acquire(session, scope, ["a"])
        wait(1.2 * short)
        assert reopen().holders(scope, ["a"]) == leases
        assert store.acquire(other, scope, ["a"]) == []
        assert store.heartbeat(session)
        store.close_session(session)
        assert len(store.acquire(other, scope, ["a"])) == 1

    def test_one_heartbeat_renews_all_leases_of_a_session(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        names: Names,
    ) -> None:
        session = store.open_session("me", short)
        keys = names(3000)
        leases = []
        for half in (keys[::2], keys[1::2]):
            leases += store.acquire(session, scope, half)
            assert store.heartbeat(session)  # this many take a busy machine a while
        leases += store.acquire(session, f"{scope}, another", keys[:2])
        for _ in range(3):
            wait(0.4 * short)
            assert store.heartbeat(session)
        assert same(reopen().holders(scope, keys) + reopen().holders(f"{scope}, another", keys), leases)

    def test_leases_of_a_dead_session_are_free_without_a_sweep(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        names: Names,
        other: LeaseSession,
    ) -> None:
        keys = names(1000)
        session = store.open_session("me", short)
        dead = store.acquire(session, scope, keys)
        alive = store.acquire(other, scope, ["alive"])
        wait(0.4 * short)
        assert reopen().holders(scope, keys) == dead, "to look changes nothing"
        wait(0.8 * short)
        if not store.heartbeat(other):
            pytest.fail("the duration waited for is to be less than the long one")
        assert reopen().holders(scope, [*keys, "alive"]) == alive
        again = reopen().acquire(other, scope, [*keys, "alive"])
        assert [one.key for one in again] == keys
        assert all(new.fence > old.fence for new, old in zip(again, dead, strict=True))

    def test_a_fence_only_rises(
        self,
        store: LeaseStore,
        reopen: Callable[[], LeaseStore],
        wait: Callable[[float], None],
        short: float,
        scope: str,
        session: LeaseSession,
        other: LeaseSession,
    ) -> None:
        def acquire(by: LeaseSession, through: LeaseStore | None = None) -> Lease:
            [lease] = (through or reopen()).acquire(by, scope, ["a"])
            fences.append(lease.fence)
            return lease

        fences: list[int] = []
        store.release([acquire(session)])
        [changed] = reopen().change([acquire(session)], other)
        fences.append(changed.fence)
        store.break_leases(scope, ["a"])
        closing = store.open_session("me", LONG)
        acquire(closing, store)  # the same object closes it: where leases are native, only that one knows of its lease
        store.close_session(closing)
        acquire(store.open_session("me", short))
        wait(1.2 * short)
        store.release([acquire(store.open_session("me", LONG))])
        acquire(store.open_session("me", None))
        assert fences == sorted(set(fences)), "lower, or given twice"

    def test_renewing_keeps_what_is_held_alive(
        self, store: LeaseStore, wait: Callable[[float], None], short: float, scope: str, names: Names
    ) -> None:
        """All leases of the sessions that those renewed hang on, also those that are not named."""
        keys = names(200)
        sessions = [store.open_session("me", short) for _ in range(2)]
        held = [store.acquire(session, f"{scope} {n}", keys) for n, session in enumerate(sessions)]
        some = [leases[0] for leases in held]
        assert store.renew(some) == some  # this many take a busy machine a while
        for _ in range(3):
            wait(0.4 * short)
            assert store.renew(some) == some
        for n, leases in enumerate(held):
            assert store.holders(f"{scope} {n}", keys) == leases


class LeaseTimesAtOnce(LeaseFixtures):
    """`LeaseTimesContract` as one test: each of its tests in a thread of its own, with a store of its own."""

    def test_what_time_does(
        self, reopen: Callable[[], LeaseStore], wait: Callable[[float], None], short: float, names: Names
    ) -> None:
        contract = LeaseTimesContract()
        tests = [getattr(contract, name) for name in dir(contract) if name.startswith("test_")]
        outcomes = at_once([_alone(test, reopen, wait, short, names) for test in tests])
        if failures := [outcome for outcome in outcomes if outcome]:
            raise ExceptionGroup("of the contract's tests of time", failures)


def _alone(
    test: Callable[..., None],
    reopen: Callable[[], LeaseStore],
    wait: Callable[[float], None],
    short: float,
    names: Names,
) -> Callable[[], Exception | None]:
    """The test, with what it asks for; it returns how it failed."""

    def run() -> Exception | None:
        store = reopen()
        given: dict[str, Any] = {
            "store": store,
            "reopen": reopen,
            "wait": wait,
            "short": short,
            "names": names,
            "scope": f"tests {uuid.uuid4()}",
            "session": store.open_session("me", LONG),
            "other": store.open_session("other", LONG),
        }
        try:
            test(**{name: given[name] for name in inspect.signature(test).parameters})
        except Exception as failure:  # noqa: BLE001 — told with those of the others
            failure.add_note(f"in {test.__name__}")
            return failure
        return None

    return run
