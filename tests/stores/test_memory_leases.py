"""Leases in memory: the contract, and how they are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.errors import ConfigError
from leasehold.stores import open_lease_store
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.stores import LeaseStoreContract


class TestLeases(LeaseStoreContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryLeaseStore:
        return MemoryLeaseStore(clock)

    @pytest.fixture
    def wait(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance


class TestLeasesAsNarrowAsNativeOnes(TestLeases):
    """With the durations of a blob's leases, and as few keys as the contract asks of a store that has those."""

    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryLeaseStore:
        features = StoreFeatures(shared=True, native_leases=True, shortest_lease=15.0, longest_lease=60.0)
        return MemoryLeaseStore(clock, features)


def test_a_name_is_one_store_in_the_whole_process() -> None:
    assert open_lease_store("memory://one") is open_lease_store("memory://one", timeout=7.0)
    assert open_lease_store("memory://one") is not open_lease_store("memory://two")


def test_a_bad_url() -> None:
    with pytest.raises(ConfigError, match=r"memory://NAME"):
        open_lease_store("memory://")
    with pytest.raises(ConfigError, match=r"begins with one of .*sqlite://"):
        open_lease_store("nothing://x")


def test_leases_of_the_dead_do_not_pile_up() -> None:
    clock = ManualClock()
    store = MemoryLeaseStore(clock)
    for _ in range(5):
        store.acquire(store.open_session("me", 1.0), "scope", [f"{clock.monotonic()} {n}" for n in range(10)])
        clock.advance(1.0)
    store.open_session("me", 1.0)
    assert len(store._leases) == 0
    assert len(store._ends) == 1
