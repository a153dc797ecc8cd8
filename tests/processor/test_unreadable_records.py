"""What an instance does about records that it cannot read: the rules of `balancing.unreadable`, and nothing raised."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.balancing.suspects import LONGEST_BACKOFF, backoff
from leasehold.balancing.unreadable import sort_out
from leasehold.config import OwnershipSettings
from leasehold.hubs.log.hub import LogHub
from leasehold.model import (
    HIGHEST,
    Ask,
    Checkpoint,
    ConsumerGroup,
    OwnerId,
    Ownership,
    OwnershipListing,
    Positions,
    Presence,
    RecordKind,
    Unreadable,
)
from leasehold.notices import CycleFailed, Notices, RecordSkipped
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores.memory.store import MemoryStore
from leasehold.stores.readable import read
from leasehold_testkit.clock import ManualClock

GROUP = ConsumerGroup("n", "h")


class Scene:
    def __init__(self, folder: Path) -> None:
        self.hub = LogHub.create(folder / "hub.db", partitions=2)
        self.group = self.hub.consumer_group("g")
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.told: list[RecordSkipped] = []
        self.failed: list[CycleFailed] = []
        self.notices = Notices()
        self.notices.subscribe(self.told.append, RecordSkipped)
        self.notices.subscribe(self.failed.append, CycleFailed)

    def own(self, partition: str, level: int) -> None:
        self.store.claim_ownership([Ownership(self.group, partition, "other/1", level)])

    def checkpoint(self, partition: str, level: int) -> None:
        self.store.raise_owner_level([Checkpoint(self.group, partition, 10, level)])

    def spoil(self, partition: str, **change: Any) -> None:
        key = self.group, partition
        self.store._ownership[key] = dataclasses.replace(self.store._ownership[key], **change)

    def newcomer(self) -> PartitionManager:
        return PartitionManager(
            self.hub,
            self.group,
            self.store,
            self.store,
            owner_id=OwnerId("newcomer"),
            settings=OwnershipSettings(),
            positions=Positions(),
            runtime=Runtime(clock=self.clock, rng=Random(1), notices=self.notices),
        )

    def levels(self, manager: PartitionManager, cycles: int = 3) -> dict[str, int]:
        for _ in range(cycles):
            manager.tick()
        assert not self.failed
        return {partition: hold.owner_level for partition, hold in manager.held().items()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_it_is_left_to_whoever_may_be_alive_and_then_taken_above_its_level(scene: Scene) -> None:
    scene.own("0", 7)
    for partition in ("0", "1"):
        scene.checkpoint(partition, 7)
    scene.spoil("0", owner_level="seven")
    manager = scene.newcomer()
    assert scene.levels(manager) == {"1": 8}
    assert [(one.kind, one.name) for one in scene.told] == [(RecordKind.OWNERSHIP, "0")]
    for _ in range(4):
        scene.clock.advance(10.0)
        manager.tick()
    assert scene.levels(manager) == {"0": 8, "1": 8}
    assert len(scene.told) == 1, "once"
    [refused] = scene.store.update_checkpoints([Checkpoint(scene.group, "0", 20, 7)])
    assert refused.partition == "0", "whoever held it is fenced"


def test_who_held_it_stops(scene: Scene) -> None:
    manager = scene.newcomer()
    assert set(scene.levels(manager)) == {"0", "1"}
    scene.spoil("0", owner_level=-1, etag="another")
    assert set(scene.levels(manager, 1)) == {"1"}


def test_without_a_checkpoint_nobody_knows_its_level(scene: Scene) -> None:
    scene.own("0", 7)
    scene.checkpoint("1", 7)
    scene.spoil("0", owner_level=None)
    manager = scene.newcomer()
    for _ in range(8):
        scene.clock.advance(10.0)
        manager.tick()
    assert scene.levels(manager) == {"1": 8}
    assert "no checkpoint" in scene.told[-1].reason


@pytest.mark.parametrize("change", [{"etag": 5, "owner_level": -1}, {"last_modified": None, "owner_level": -1}])
def test_without_etag_and_age_it_stays_aside(scene: Scene, change: dict[str, Any]) -> None:
    scene.own("0", 7)
    for partition in ("0", "1"):
        scene.checkpoint(partition, 7)
    scene.spoil("0", **change)
    manager = scene.newcomer()
    for _ in range(8):
        scene.clock.advance(10.0)
        manager.tick()
    assert scene.levels(manager) == {"1": 8}


def test_at_the_highest_level_nobody_comes_after(scene: Scene) -> None:
    scene.own("0", HIGHEST)
    scene.checkpoint("1", 7)
    manager = scene.newcomer()
    for _ in range(8):
        scene.clock.advance(10.0)
        manager.tick()
    assert scene.levels(manager) == {"1": 8}
    assert str(HIGHEST) in scene.told[-1].reason


def test_while_owners_may_not_have_been_able_to_renew_nothing_is_taken() -> None:
    spoiled = Unreadable(GROUP, RecordKind.OWNERSHIP, "0", "why", "etag", 0.0)
    listing = OwnershipListing((), 100.0, unreadable=(spoiled,))
    assert sort_out(listing, 30.0, store_suspected=True).aside == {"0"}
    assert sort_out(listing, 30.0, store_suspected=False).levelless == {"0"}
    assert sort_out(listing, 100.0, store_suspected=False).aside == {"0"}


@pytest.mark.parametrize("count", [10**10, 2**63])
def test_a_count_of_failures_costs_nothing(count: int) -> None:
    assert backoff(count, 10.0) == LONGEST_BACKOFF * 10.0


ANYTHING: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(),
    st.binary(),
    st.sampled_from(["\ud800", "1e999", -1, 2**63 - 1, 2**63, 10**400, float("inf")]),
)


@settings(max_examples=300, deadline=None)
@given(values=st.tuples(*[ANYTHING] * 9))
def test_nothing_that_a_peer_writes_raises(values: tuple[Any, ...]) -> None:
    makers: dict[RecordKind, Any] = {
        RecordKind.OWNERSHIP: lambda row: Ownership(GROUP, *row),
        RecordKind.PRESENCE: lambda row: Presence(GROUP, *row[:8]),
        RecordKind.ASK: lambda row: Ask(GROUP, *row[:3]),
        RecordKind.CHECKPOINT: lambda row: Checkpoint(GROUP, *row[:4]),
    }
    for kind, make in makers.items():
        one: Any = read(kind, GROUP, values[0], make, values, tag=lambda row: (row[3], row[4]))
        assert isinstance(one, Unreadable | Ownership | Presence | Ask | Checkpoint)


@pytest.mark.more
@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.tuples(st.sampled_from("01"), *[ANYTHING] * 6), max_size=3),
    presences=st.lists(st.tuples(*[ANYTHING] * 5), max_size=3),
    asks=st.lists(st.tuples(st.sampled_from("01"), ANYTHING, ANYTHING), max_size=3),
)
def test_a_cycle_gets_through_whatever_is_listed(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], presences: list[Any], asks: list[Any]
) -> None:
    scene = Scene(tmp_path_factory.mktemp("any"))
    for partition, owner, level, modified, failures, claimed, successor in records:
        scene.store._ownership[scene.group, partition] = Ownership(
            *(scene.group, partition, owner, level, "e", modified, "n", successor, claimed, failures)
        )
    for number, (pipeline, strategy, capacity, maximum, created) in enumerate(presences):
        scene.store._presences[scene.group, f"{number}/1"] = Presence(
            *(scene.group, f"{number}/1", pipeline, strategy, capacity, maximum, created, 990.0, "e")
        )
    for partition, level, asker in asks:
        scene.store._asks[scene.group, partition] = Ask(scene.group, partition, level, asker)
    manager = scene.newcomer()
    for _ in range(3):
        manager.tick()
        scene.clock.advance(20.0)
    assert not scene.failed or all(type(one.error).__name__ == "AlreadyInUse" for one in scene.failed)
