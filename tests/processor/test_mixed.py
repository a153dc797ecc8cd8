"""Instances of different strategies side by side, with and without maxima, in random fleets: all come to rest."""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random

import pytest

from leasehold.balancing import Member
from leasehold.balancing.quotas import quotas
from leasehold.config import STRATEGY_NAMES, OwnershipSettings
from leasehold.notices import OwnershipLost, PartitionsUnserved
from leasehold.stores.base import StoreFeatures
from tests.processor.fleet import Instance, Scene

FLEETS = 150
BLOCKS = 8
SETTINGS = OwnershipSettings(settle_delay=0)
INTERVAL = SETTINGS.load_balancing_interval


class Mixed:
    """A random fleet, its changes, and where it must come to rest."""

    def __init__(self, seed: int, *, presence: bool, limited: bool) -> None:
        self.rng = Random(seed)
        self.limited = limited
        self.scene = Scene(self.rng.randint(0, 24), StoreFeatures(shared=False, presence=presence))
        self.alive: list[Instance] = []
        self.named = 0
        self.late = self.rng.random() < 0.3
        for _ in range(self.rng.randint(1, 6)):
            self.join()

    def join(self) -> None:
        settings = dataclasses.replace(
            SETTINGS,
            strategy=self.rng.choice(STRATEGY_NAMES),
            settle_delay=self.rng.choice([0.0, 1.0]),
            maximum_partitions=self.rng.choice([None, 0, 2, 5, 12]) if self.limited else None,
        )
        self.named += 1
        self.alive.append(self.scene.start(f"i{self.named}", settings=settings))

    def change(self) -> None:
        kind = self.rng.choice(["join", "join", "leave", "die", "grow"])
        if kind == "join" and len(self.alive) < 8:
            self.join()
        elif kind == "grow" and len(self.scene.hub.ends) < 40:
            known = len(self.scene.hub.ends)
            self.scene.hub.ends |= {str(known + p): 0 for p in range(self.rng.randint(1, 6))}
        elif len(self.alive) > 1:
            one = self.alive.pop(self.rng.randrange(len(self.alive)))
            if kind == "leave":
                one.manager.relinquish()

    def run(self, seconds: float) -> None:
        end = self.scene.clock.monotonic() + seconds
        while self.scene.clock.monotonic() < end:
            self.scene.clock.advance(1.0)
            for one in self.rng.sample(self.alive, len(self.alive)):
                one.manager.note_progress()
                if self.scene.clock.monotonic() >= one.manager.due or one.manager.attention.is_set():
                    one.manager.attention.clear()
                    one.manager.tick()
                if not self.late or self.rng.random() < 0.1:
                    one.drain()

    def at_rest(self) -> bool:
        sizes = [len(one.levels) for one in self.alive]
        total = len(self.scene.hub.ends)
        members = {one.id: Member(maximum=one.manager.settings.maximum_partitions) for one in self.alive}
        wanted = quotas(total, {one.id: len(one.levels) for one in self.alive}, members)
        return sizes == [wanted[one.id] for one in self.alive]

    def comes_to_rest(self) -> None:
        for _ in range(60):
            if self.at_rest():
                break
            self.run(INTERVAL)
        assert self.at_rest(), [(one.manager.settings.strategy, len(one.levels)) for one in self.alive]
        for one in self.alive:
            one.take()
        before = {p: record.owner_level for p, record in self.scene.records().items()}
        self.run(4 * INTERVAL)
        assert {p: record.owner_level for p, record in self.scene.records().items()} == before, "not at rest"
        assert self.at_rest()
        owners = Counter(partition for one in self.alive for partition in one.levels)
        assert set(owners.values()) <= {1}
        room = [one.manager.settings.maximum_partitions for one in self.alive]
        served = min(
            len(self.scene.hub.ends), sum(limit for limit in room if limit is not None) if None not in room else 999
        )
        assert len(owners) == served
        assert not [notice for one in self.alive for notice in one.take() if isinstance(notice, OwnershipLost)]


@pytest.mark.more
@pytest.mark.parametrize(
    ("presence", "limited"),
    [(True, False), (True, True), (False, False)],
    ids=["presence", "presence and maxima", "no presence"],
)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_mixed_fleets_come_to_rest(block: int, presence: bool, limited: bool) -> None:
    """After every change of many; then nothing moves any more, and everybody has its quota."""
    for seed in range(block, FLEETS, BLOCKS):
        fleet = Mixed(seed, presence=presence, limited=limited)
        try:
            fleet.comes_to_rest()
            for _ in range(3):
                fleet.change()
                if fleet.rng.random() < 0.5:
                    fleet.run(fleet.rng.uniform(0, 30))
                    fleet.change()
                fleet.run(4 * INTERVAL)  # who died is found out
                fleet.comes_to_rest()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_what_is_unserved_is_the_same_to_all() -> None:
    scene = Scene(9)
    fleet = [
        scene.start(name, settings=dataclasses.replace(SETTINGS, strategy=strategy, maximum_partitions=2))
        for name, strategy in zip("abc", STRATEGY_NAMES, strict=True)
    ]
    scene.share(*fleet)
    scene.live(30, *fleet)
    reports = [[n for n in one.take() if isinstance(n, PartitionsUnserved)][-1] for one in fleet]
    assert len({report.partitions for report in reports}) == 1
    assert set(reports[0].partitions) == set(scene.hub.ends) - {p for one in fleet for p in one.levels}
