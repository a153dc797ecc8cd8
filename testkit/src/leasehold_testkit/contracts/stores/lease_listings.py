"""What a lease store may do beside: listing what is held, and clearing what nobody holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.errors import ConfigError
from leasehold.model import LeaseSession
from leasehold.stores.lease_base import ClearsLeases, LeaseStore, ListsLeases
from leasehold_testkit.contracts.stores.lease_fixtures import LONG, LeaseFixtures, Names


class LeaseListingsContract(LeaseFixtures):
    """What every store must do that implements `ListsLeases` or `ClearsLeases`."""

    def test_what_is_held_is_listed_and_nothing_else(
        self, store: LeaseStore, reopen: Callable[[], LeaseStore], session: LeaseSession, scope: str, names: Names
    ) -> None:
        if not isinstance(store, ListsLeases):
            pytest.skip("this store lists nothing")
        keys = names(100)
        held = store.acquire(session, scope, keys)
        [given_up] = store.acquire(session, scope, ["given up"])
        store.release([given_up])
        closed = store.open_session("closed", LONG)
        store.acquire(closed, scope, ["closed"])
        store.close_session(closed)
        [elsewhere] = store.acquire(session, f"{scope} too", ["key 0"])
        other = reopen()
        assert isinstance(other, ListsLeases)
        listed = other.list_leases(scope)
        assert [status.lease for status in listed] == sorted(held, key=lambda lease: lease.key)
        assert all(status.remaining is None or 0 < status.remaining <= LONG + 1 for status in listed)
        assert [status.lease for status in other.list_leases(scope, [keys[1], "nobody's"])] == [held[1]]
        assert len(other.list_leases(scope, most=1)) == 1
        everything = {status.lease for status in other.list_leases(most=100_000)}
        assert {*held, elsewhere} <= everything

    def test_keys_are_listed_of_a_scope(self, store: LeaseStore) -> None:
        if isinstance(store, ListsLeases):
            with pytest.raises(ConfigError, match="Name the scope"):
                store.list_leases(None, ["key"])

    def test_clearing_touches_nothing_that_is_held_and_fences_rise(
        self, store: LeaseStore, session: LeaseSession, scope: str
    ) -> None:
        if not isinstance(store, ClearsLeases):
            pytest.skip("nothing stays behind in this store")
        held = store.acquire(session, scope, ["held"])
        closed = store.open_session("closed", LONG)
        before = store.acquire(closed, scope, ["left"])
        store.close_session(closed)
        store.clear_leases()
        assert store.holders(scope, ["held", "left"]) == held
        [after] = store.acquire(session, scope, ["left"])
        assert after.fence > before[0].fence
