"""The contract of `LeaseStore`, as tests. See `leasehold_testkit.contracts.stores` for how to use it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from leasehold.errors import ConfigError, StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.lease_base import LeaseStore
from leasehold_testkit.contracts.stores.groups import at_once, ending_by_itself, same
from leasehold_testkit.contracts.stores.lease_fixtures import LONG, Names
from leasehold_testkit.contracts.stores.lease_listings import LeaseListingsContract
from leasehold_testkit.contracts.stores.lease_names import LeaseNamesContract
from leasehold_testkit.contracts.stores.lease_times import LeaseTimesContract
from leasehold_testkit.contracts.stores.lease_turns import LeaseTurnsContract
from leasehold_testkit.contracts.stores.schema_keepers import assert_made_once

ACQUIRERS = 100
"""How many threads acquire the same keys at once."""


class LeaseHoldsContract(LeaseNamesContract, LeaseTurnsContract, LeaseListingsContract):
    """What every `LeaseStore` must do that takes no time. Keys are few where leases are native: each is a request."""

    def test_is_a_lease_store(self, store: LeaseStore) -> None:
        assert isinstance(store, LeaseStore)

    # Sessions

    def test_every_session_is_another(self, store: LeaseStore) -> None:
        sessions = [store.open_session("me", LONG) for _ in range(3)]
        assert len({uuid.UUID(one.id) for one in sessions}) == 3
        assert {(one.owner, one.duration) for one in sessions} == {("me", LONG)}

    def test_durations_that_a_store_cannot_give_are_refused(self, store: LeaseStore) -> None:
        features = store.features
        beyond = [features.longest_lease + 1, features.shortest_lease - 1]
        for duration in (0.0, -1.0, float("inf"), float("nan"), *beyond):
            with pytest.raises(ConfigError, match=r"duration.* last .* or have no end"):
                store.open_session("me", duration)

    def test_closing_a_session_frees_all_its_leases(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], scope: str, names: Names
    ) -> None:
        session, other = store.open_session("me", LONG), store.open_session("other", LONG)
        keys = names(1000)
        mine = store.acquire(session, scope, keys)
        assert len(mine) == len(keys)
        store.close_session(session)
        assert not store.heartbeat(session)
        assert reopen().holders(scope, keys) == []
        assert [one.key for one in reopen().acquire(other, scope, keys)] == keys
        assert store.renew(mine) == store.release(mine) == []
        store.close_session(session)
        assert len(store.holders(scope, keys)) == len(keys)

    def test_what_must_be_made_is_made_once_also_by_several_at_once(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        leases = store.acquire(session, scope, ["a"])
        assert_made_once(reopen)
        assert store.renew(leases) == leases

    # acquire

    def test_what_is_free_is_won_in_the_order_asked_for(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        won = store.acquire(session, scope, ["b", "a", "c"])
        assert [(one.scope, one.key, one.session) for one in won] == [(scope, key, session) for key in "bac"]
        assert reopen().holders(scope, ["c", "x", "b", "a"]) == [won[2], won[0], won[1]]

    def test_what_is_held_is_not_won(
        self, store: LeaseStore, session: LeaseSession, other: LeaseSession, scope: str
    ) -> None:
        theirs = store.acquire(other, scope, ["b"])
        assert [one.key for one in store.acquire(session, scope, ["a", "b", "c"])] == ["a", "c"]
        assert store.holders(scope, ["b"]) == theirs

    def test_the_holder_itself_does_not_win_again(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        first = store.acquire(session, scope, ["a"])
        assert store.acquire(session, scope, ["a"]) == []
        assert store.holders(scope, ["a"]) == first

    def test_a_key_named_twice_is_won_once(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        won = store.acquire(session, scope, ["a", "b", "a"])
        assert [one.key for one in won] == ["a", "b"]
        assert store.holders(scope, ["b", "b", "a"]) == [won[1], won[0]]

    def test_nothing_asked_is_nothing_won(self, store: LeaseStore, session: LeaseSession, scope: str) -> None:
        assert store.acquire(session, scope, []) == store.holders(scope, []) == store.break_leases(scope, []) == []
        assert store.renew([]) == store.release([]) == store.change([], session) == []

    def test_a_session_that_was_never_opened_wins_nothing(self, store: LeaseStore, scope: str) -> None:
        if store.features.native_leases:
            pytest.skip("a native lease needs no session to have been opened")
        assert store.acquire(LeaseSession(str(uuid.uuid4()), "nobody", LONG), scope, ["a"]) == []

    def test_a_session_that_another_process_closed_wins_nothing(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        if store.features.native_leases:
            pytest.skip("a native lease knows no session")
        [lease] = store.acquire(session, scope, ["a"])
        reopen().close_session(session)
        assert store.acquire(session, scope, ["b"]) == store.acquire(session, scope, ["a"]) == []
        assert store.renew([lease]) == store.release([lease]) == []
        assert not store.heartbeat(session)

    def test_of_many_who_acquire_at_once_exactly_one_wins_each_key(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], scope: str, names: Names
    ) -> None:
        keys = names(100)

        def acquirer(number: int) -> Callable[[], list[Lease]]:
            mine = reopen()
            session = mine.open_session(f"owner-{number}", None)  # a busy machine may take a minute until all are open
            first = number % len(keys)
            return lambda: mine.acquire(session, scope, keys[first:] + keys[:first])

        won = [one for some in at_once([acquirer(n) for n in range(ACQUIRERS)]) for one in some]
        assert sorted(one.key for one in won) == sorted(keys)
        assert same(store.holders(scope, keys), won)

    def test_of_many_threads_of_one_session_exactly_one_wins_each_key(
        self, reopen: Callable[[], LeaseStore], scope: str, session: LeaseSession, names: Names
    ) -> None:
        keys = names(100)

        def acquirer() -> Callable[[], list[Lease]]:
            mine = reopen()
            return lambda: mine.acquire(session, scope, keys)

        won = [one for some in at_once([acquirer() for _ in range(16)]) for one in some]
        assert sorted(one.key for one in won) == sorted(keys)

    def test_after_a_lost_reply_the_holders_tell(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str
    ) -> None:
        store.acquire(session, scope, ["a"])  # … and the answer never came
        assert store.acquire(session, scope, ["a"]) == []
        [mine] = reopen().holders(scope, ["a"])
        assert mine.session == session
        assert store.release([mine]) == [mine]

    # Fences

    def test_fences_of_many_who_take_turns_only_rise(
        self, reopen: Callable[[], LeaseStore], scope: str, names: Names
    ) -> None:
        turns = len(names(1000)) // 8

        def taker(number: int) -> Callable[[], list[int]]:
            mine = reopen()
            session, fences = mine.open_session(f"owner-{number}", LONG), []

            def take_turns() -> list[int]:
                for _ in range(max(2, turns)):
                    for lease in mine.acquire(session, scope, ["a"]):
                        fences.append(lease.fence)
                        assert mine.release([lease]) == [lease]
                return fences

            return take_turns

        takers = at_once([taker(n) for n in range(8)])
        given = [fence for fences in takers for fence in fences]
        assert given, "in each round somebody must win"
        assert len(set(given)) == len(given)
        assert all(fences == sorted(fences) for fences in takers)

    # renew

    def test_renewing_tells_what_was_lost(
        self, store: LeaseStore, session: LeaseSession, other: LeaseSession, scope: str
    ) -> None:
        leases = store.acquire(session, scope, list("abcde"))
        store.release(leases[:1])
        store.change(leases[1:2], other)
        store.break_leases(scope, ["c"])
        assert store.renew(leases) == leases[3:]

    def test_a_lease_that_was_lost_and_won_again_is_another(
        self, store: LeaseStore, session: LeaseSession, scope: str
    ) -> None:
        [first] = store.acquire(session, scope, ["a"])
        store.release([first])
        [second] = store.acquire(session, scope, ["a"])
        assert store.renew([first]) == store.release([first]) == store.change([first], session) == []
        assert store.renew([second]) == store.holders(scope, ["a"]) == [second]

    # Time-outs

    def test_no_method_waits_longer_than_the_time_out(
        self, hung: AbstractContextManager[LeaseStore] | None, session: LeaseSession, scope: str
    ) -> None:
        if hung is None:
            pytest.skip("no call of this store ever waits")
        lease = Lease(scope, "a", session, 1)
        uses: list[Callable[[LeaseStore], object]] = [
            lambda store: store.open_session("me", LONG),
            lambda store: store.heartbeat(session),
            lambda store: store.close_session(session),
            lambda store: store.acquire(session, scope, ["a"]),
            lambda store: store.renew([lease]),
            lambda store: store.release([lease]),
            lambda store: store.change([lease], session),
            lambda store: store.break_leases(scope, ["a"]),
        ]
        with hung as store:
            for use in uses:
                with ending_by_itself(), pytest.raises(StoreUnavailable):
                    use(store)
            with ending_by_itself(), suppress(StoreUnavailable):  # some can still be read
                store.holders(scope, ["a"])


class LeaseStoreContract(LeaseHoldsContract, LeaseTimesContract):
    """What every `LeaseStore` must do."""
