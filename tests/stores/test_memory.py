"""The memory store: the contract, and how it is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.errors import ConfigError
from leasehold.model import Checkpoint, ConsumerGroup
from leasehold.stores import open_store
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.stores import CheckpointStoreContract, OwnershipStoreContract
from leasehold_testkit.contracts.stores.ownership_records import claim, records


class TestOwnership(OwnershipStoreContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock)

    @pytest.fixture
    def wait(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance


class TestOwnershipWithoutAClock(TestOwnership):
    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock, StoreFeatures(shared=False, own_clock=False))


class TestCheckpoints(CheckpointStoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_without_presence_it_does_nothing_and_lists_none() -> None:
    store = MemoryStore(features=StoreFeatures(shared=False, presence=False))
    TestOwnership().test_a_store_without_presence_does_nothing_and_lists_none(store, ConsumerGroup("n", "h"))


def test_a_name_is_one_store_in_the_whole_process(tmp_path: Path) -> None:
    first, second = open_store("memory://one"), open_store("memory://one", base=tmp_path, timeout=7.0)
    assert first is second
    assert open_store("memory://another") is not first


def test_ownership_and_checkpoints_do_not_mix() -> None:
    store, group = MemoryStore(), ConsumerGroup("n", "h")
    claimed = claim(store, group)
    store.update_checkpoints([Checkpoint(group, "1", 10, 1)])
    assert records(store, group) == {"0": claimed}
    assert [one.partition for one in store.list_checkpoints(group)] == ["1"]


@pytest.mark.parametrize("url", ["memory://", "memory:///x", "memory://a/b"])
def test_a_bad_url(url: str) -> None:
    with pytest.raises(ConfigError, match=r"memory://NAME"):
        open_store(url)


def test_the_default_clock_is_the_machines() -> None:
    store, group = MemoryStore(), ConsumerGroup("n", "h")
    claim(store, group)
    listing = store.list_ownership(group)
    assert 0 <= listing.as_of - listing.records[0].last_modified < 60
