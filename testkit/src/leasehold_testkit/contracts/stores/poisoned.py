"""The contract of stores that hold records which somebody has spoiled.

`leasehold_testkit.contracts.stores` says how to use it.

Whoever may write to a store may write anything into a record, by accident or on purpose. The subclass says how a record
of its store is spoiled; what is promised then is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leasehold.clock import SystemClock
from leasehold.config import OwnershipSettings
from leasehold.model import (
    Ask,
    Checkpoint,
    ConsumerGroup,
    OwnerId,
    Ownership,
    Positions,
    Presence,
    RecordKind,
)
from leasehold.notices import CycleFailed, Notices
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores import Store
from leasehold.stores.readable import checked
from leasehold_testkit.contracts.stores.groups import new_group

Poison = tuple[str, Callable[[], object]]
"""What it is called, and what spoils the record."""

Spoil = Callable[[RecordKind, ConsumerGroup, str], Sequence[Poison]]
"""The ways to spoil a record that is there, of this kind, of a group and by this name: ten of them, or more."""

_PARTITIONS = ("0", "1", "2")
_NAMES = {RecordKind.PRESENCE: "other/1"}


class PoisonedStoreContract:
    """What a store must do with records that it cannot read, and an instance that meets them."""

    @pytest.fixture
    def store(self) -> Store:
        """The store under test. It need not be empty."""
        raise NotImplementedError("the subclass gives the store")

    @pytest.fixture
    def spoil(self) -> Spoil:
        """How records of this store are spoiled."""
        raise NotImplementedError("the subclass says how")

    @pytest.mark.parametrize("kind", list(RecordKind))
    def test_what_cannot_be_read_is_named_and_the_rest_is_listed(
        self, store: Store, spoil: Spoil, kind: RecordKind
    ) -> None:
        tried = 0
        for number in range(len(spoil(kind, new_group(), "1"))):
            group = new_group()
            healthy = _fill(store, group)
            name = _NAMES.get(kind, "1")
            what, do = spoil(kind, group, name)[number]
            do()
            listing = store.list_ownership(group)
            there: dict[RecordKind, dict[str, Any]] = {
                RecordKind.OWNERSHIP: {one.partition: one for one in listing.records},
                RecordKind.PRESENCE: {one.owner_id: one for one in listing.presences},
                RecordKind.ASK: {one.partition: one for one in listing.asks},
                RecordKind.CHECKPOINT: {one.partition: one for one in store.list_checkpoints(group)},
            }
            named = {(one.kind, one.name) for one in listing.unreadable}
            for each, records in there.items():
                for one in records.values():
                    checked(one)
                for kept in healthy[each] - ({name} if each is kind else set()):
                    assert kept in records, f"{what}: the {each} of {kept} is gone"
            if kind is RecordKind.CHECKPOINT:
                assert not named, what
            elif name not in there[kind]:
                assert any(one[0] is kind for one in named), f"{what}: nothing tells that there is a record"
            tried += 1
        assert tried >= 10

    def test_a_start_does_not_take_the_place_of_a_checkpoint_that_cannot_be_read(
        self, store: Store, spoil: Spoil
    ) -> None:
        """It would be the beginning, or the end: what is there may be mended by a person."""
        for number in range(len(spoil(RecordKind.CHECKPOINT, new_group(), "1"))):
            group = new_group()
            _fill(store, group)
            what, do = spoil(RecordKind.CHECKPOINT, group, "1")[number]
            do()
            if "1" in {one.partition for one in store.list_checkpoints(group)}:
                continue
            starts = [Checkpoint(group, partition, 99, 7) for partition in _PARTITIONS]
            assert {one.partition for one in store.raise_owner_level(starts)} == {"0", "2"}, what
            assert {one.partition for one in store.list_checkpoints(group)} == {"0", "2"}, what
            assert store.update_checkpoints([Checkpoint(group, "1", 50, 7, "50")]) == [], what
            mended = {one.partition: one for one in store.list_checkpoints(group)}
            assert mended["1"] == Checkpoint(group, "1", 50, 7, "50"), what

    @pytest.mark.parametrize("kind", list(RecordKind))
    def test_a_newcomer_takes_the_other_partitions(
        self, store: Store, spoil: Spoil, kind: RecordKind, tmp_path: Path
    ) -> None:
        from leasehold.hubs.log.hub import LogHub

        hub = LogHub.create(tmp_path / "hub.db", partitions=len(_PARTITIONS))
        for number in range(len(spoil(kind, new_group(), "1"))):
            group = hub.consumer_group(new_group().hub)
            _fill(store, group, owned=("1",))
            if kind is not RecordKind.ASK:
                store.withdraw_asks([Ask(group, "1", 5, "another/1")])
            what, do = spoil(kind, group, _NAMES.get(kind, "1"))[number]
            do()
            failed: list[CycleFailed] = []
            notices = Notices()
            notices.subscribe(failed.append, CycleFailed)
            manager = PartitionManager(
                hub,
                group,
                store,
                store,
                owner_id=OwnerId("newcomer"),
                settings=OwnershipSettings(),
                positions=Positions(),
                runtime=Runtime(clock=SystemClock(), rng=Random(number), notices=notices),
            )
            for _ in range(3):  # one more, where the only owner looks expired, which is looked at twice
                manager.tick()
            assert not failed, what
            held = {"0", "2"} & set(manager.held())
            # A spoiled record may still be one, of somebody who has a share.
            assert len(held) == 2 or (held and kind in (RecordKind.OWNERSHIP, RecordKind.PRESENCE)), what
            for hold in manager.held().values():
                assert hold.owner_level == 6, what
            manager.relinquish()


def _fill(store: Store, group: ConsumerGroup, owned: Sequence[str] = _PARTITIONS) -> dict[RecordKind, set[str]]:
    """Healthy records of all kinds; what they are called."""
    store.claim_ownership([Ownership(group, partition, "other/1", 5, nonce="n") for partition in owned])
    for owner in ("other/1", "another/1"):
        store.renew_ownership([], Presence(group, owner, "", "planned", 1.5, 0))
    store.ask([Ask(group, partition, 5, "another/1") for partition in owned])
    store.raise_owner_level([Checkpoint(group, partition, 10, 5, "ten") for partition in _PARTITIONS])
    return {
        RecordKind.OWNERSHIP: set(owned),
        RecordKind.PRESENCE: {"other/1", "another/1"},
        RecordKind.ASK: set(owned),
        RecordKind.CHECKPOINT: set(_PARTITIONS),
    }
