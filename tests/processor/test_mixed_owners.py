"""Owners that other SDKs' processors are, as an instance in a mixed fleet judges them."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from leasehold.config import OwnershipSettings
from leasehold.model import EARLIEST, OwnerId, Ownership, Positions
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock
from tests.processor.fleet import GROUP, SETTINGS, Hub

THEIRS = "5c8e4a52-0d0c-4b0f-9d8e-27f3b1e2a001"


def mixed(settings: OwnershipSettings, renewed_every: float, seconds: float) -> tuple[int, int]:
    """How often ours took the partition of another that lives, and how many it has at the end."""
    clock, hub = ManualClock(), Hub(2)
    hub.url = "double://hub?fleet=mixed"
    store = MemoryStore(clock, StoreFeatures(shared=True, official_layout=True))
    manager = PartitionManager(
        hub,
        GROUP,
        store,
        store,
        owner_id=OwnerId("a"),
        settings=settings,
        positions=Positions(EARLIEST),
        runtime=Runtime(clock=clock, rng=Random(1)),
    )
    store.claim_ownership([Ownership(GROUP, "0", THEIRS, 0)])
    robbed, since = 0, 0.0
    for _ in range(round(seconds / 2)):
        clock.advance(2.0)
        since += 2.0
        if since >= renewed_every:
            since = 0.0
            [record] = [one for one in store.list_ownership(GROUP).records if one.partition == "0"]
            robbed += record.owner_id != THEIRS
            # As the official stores do: the record that was read, with its ETag, and no nonce.
            store.claim_ownership([Ownership(GROUP, "0", THEIRS, 0, record.etag)])
        manager.note_progress()
        if clock.monotonic() >= manager.due:
            manager.tick()
    return robbed, len(manager.held())


def test_an_owner_that_renews_every_36_seconds_is_not_robbed() -> None:
    assert mixed(SETTINGS, 36.0, 600.0) == (0, 1)
    robbed, _ = mixed(dataclasses.replace(SETTINGS, foreign_expiration=30.0), 36.0, 600.0)
    assert robbed > 3, "by our own expiration it is"


def test_one_that_is_dead_is_taken_over_after_three_minutes() -> None:
    assert mixed(SETTINGS, 9_999.0, 170.0) == (0, 1)
    assert mixed(SETTINGS, 9_999.0, 210.0) == (0, 2)


@pytest.mark.parametrize("foreign", [10.0, 300.0])
def test_the_record_of_another_counts_no_shorter_than_ours(foreign: float) -> None:
    settings = dataclasses.replace(SETTINGS, foreign_expiration=foreign)
    assert settings.expiration_of_others(mixed=True) == max(30.0, foreign)
    assert settings.expiration_of_others(mixed=False) == 30.0
