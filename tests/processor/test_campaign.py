"""Fleets in trouble: whatever happens, and in whatever order, nobody shares a partition, and all comes to rest.

Each seed is a story of its own: instances whose clocks run apart join, crash, pause between two cycles and in
the middle of a request (the others go on meanwhile), lose the store, lose replies, lose the hub. The invariants are
checked after every step, also in the middle of requests. A failing seed is the bug report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest

from leasehold.config import STRATEGIES, OwnershipSettings
from leasehold.errors import NotTheOwner, StoreUnavailable
from leasehold.model import Checkpoint, Ownership, Presence
from leasehold.notices import CycleFailed
from leasehold.stores.memory import MemoryStore
from leasehold.testing.clock import ManualClock
from tests.processor.fleet import GROUP, Hub, Instance, TroubledStore, unavailable

SEEDS = 400
STEPS = 40
EXPIRATION = OwnershipSettings().partition_expiration
OWNERSHIP_CALLS = ("list_ownership", "claim_ownership", "renew_ownership")
CHECKPOINT_CALLS = ("list_checkpoints", "raise_owner_level", "update_checkpoints")


class DriftingClock:
    """The clock of one machine: another start and another rate than the store's."""

    def __init__(self, base: ManualClock, rate: float, start: float) -> None:
        self._base, self._rate, self._start = base, rate, start

    def wall(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return self._start + self._rate * self._base.monotonic()


class WitnessedOwnership(MemoryStore):
    """A real store that remembers who was stolen from, and sees to it that levels rise with every acquisition."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.stolen: set[tuple[str, str, int]] = set()
        self.acquisitions = 0

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        listing = self.list_ownership(GROUP)
        before = {record.partition: record for record in listing.records}
        won = super().claim_ownership(claims)
        for record in won:
            self.acquisitions += 1
            earlier = before.get(record.partition)
            if earlier is None:
                continue
            assert record.owner_level > earlier.owner_level, f"{record} does not rise above {earlier}"
            alive = listing.as_of - earlier.last_modified <= EXPIRATION
            if earlier.owner_id not in ("", record.owner_id) and alive:
                self.stolen.add((earlier.partition, earlier.owner_id, earlier.owner_level))
        return won

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        before = {record.partition: record for record in self.list_ownership(GROUP).records}
        renewed = super().renew_ownership(held, presence)
        for record in renewed:
            earlier = before[record.partition]
            assert (record.owner_id, record.owner_level) == (earlier.owner_id, earlier.owner_level)
        return renewed


class WitnessedCheckpoints(MemoryStore):
    """A real store that sees to it that neither levels nor places go back."""

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        before = self.progress()
        stands = super().raise_owner_level(starts)
        self.check(before)
        return stands

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        before = self.progress()
        refused = super().update_checkpoints(checkpoints)
        self.check(before)
        return refused

    def progress(self) -> dict[str, Checkpoint]:
        return {checkpoint.partition: checkpoint for checkpoint in self.list_checkpoints(GROUP)}

    def check(self, before: dict[str, Checkpoint]) -> None:
        after = self.progress()
        for partition, earlier in before.items():
            assert after[partition].owner_level >= earlier.owner_level
            assert after[partition].sequence_number >= earlier.sequence_number, "a checkpoint went back"


class Member:
    """One instance of the fleet, with the pace of its cycles and the work it does."""

    def __init__(self, instance: Instance, rate: float, now: float, rng: Random) -> None:
        self.instance = instance
        self.rate = rate
        self.next_tick = now
        self.paused_until = -math.inf
        self.away_until = -math.inf
        self.busy = False
        self.rng = rng
        self.positions: dict[tuple[str, int], int] = {}

    @property
    def due(self) -> float:
        return max(self.next_tick, self.paused_until)


class World:
    """A fleet, its stores, its hub and its troubles."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.ownership = WitnessedOwnership(self.clock)
        self.checkpoints = WitnessedCheckpoints(self.clock)
        self.hub = Hub(self.rng.randint(1, 8))
        self.names = itertools.count()
        self.members: list[Member] = []
        for _ in range(self.rng.randint(1, 4)):
            self.join()

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    # What may happen

    def join(self, name: str = "") -> None:
        settings = OwnershipSettings(strategy=self.rng.choice(STRATEGIES))
        rate = self.rng.uniform(0.9, 0.9 * settings.clock_rate_ratio)
        instance = Instance(
            self.hub,
            DriftingClock(self.clock, rate, self.rng.uniform(0, 1e6)),
            self.ownership,
            self.checkpoints,
            name=name or f"i{next(self.names)}",
            settings=settings,
            seed=self.rng.randrange(2**32),
        )
        self.members.append(Member(instance, rate, self.now, Random(self.rng.randrange(2**32))))

    def crash(self, restart: bool) -> None:
        if able := [member for member in self.members if not member.busy]:
            victim = self.rng.choice(able)
            self.members.remove(victim)
            if restart:
                self.join(victim.instance.name)

    def pause(self, member: Member) -> None:
        member.paused_until = self.now + self.rng.uniform(1, 90)

    def pause_in_a_request(self, member: Member) -> None:
        seconds = self.rng.choice([self.rng.uniform(0, 3), self.rng.uniform(3, 60)])
        fails = self.rng.random() < 0.3

        def happen() -> None:
            self.let_others_run(seconds)
            if fails:
                unavailable()

        store, method = self.some_call(member)
        (store.before if self.rng.random() < 0.5 else store.after)[method] = happen

    def lose_reply(self, member: Member) -> None:
        store, method = self.some_call(member)
        store.lose_reply(method)

    def some_call(self, member: Member) -> tuple[TroubledStore, str]:
        if self.rng.random() < 0.7:
            return member.instance.ownership, self.rng.choice(OWNERSHIP_CALLS)
        return member.instance.checkpoints, self.rng.choice(CHECKPOINT_CALLS)

    def lose_store(self, members: Sequence[Member]) -> None:
        until = self.now + self.rng.uniform(1, 80)
        for member in members:
            member.away_until = until

    def leave(self, member: Member) -> None:
        if not member.busy:
            with suppress(StoreUnavailable):
                member.instance.manager.relinquish()
            self.members.remove(member)

    def something_happens(self) -> None:
        rng, member = self.rng, self.rng.choice(self.members) if self.members else None
        what = rng.randrange(14)
        if member is None or (what == 0 and len(self.members) < 5):
            self.join()
        elif what == 1:
            self.crash(restart=rng.random() < 0.5)
        elif what == 2:
            self.leave(member)
        elif what == 3:
            self.lose_store(self.members)
        elif what == 4:
            self.lose_store([member])
        elif what == 5:
            self.hub.away = not self.hub.away
        elif what == 6 and len(self.hub.ends) < 10 and not self.hub.away:
            self.hub.ends[str(len(self.hub.ends))] = 0
        elif what in (7, 8):
            self.pause(member)
        elif what in (9, 10, 11):
            self.pause_in_a_request(member)
        else:
            self.lose_reply(member)

    # Time

    def run(self, seconds: float) -> None:
        """Let time pass; whoever is due runs a cycle, and works."""
        end = self.now + seconds
        while True:
            able = [member for member in self.members if not member.busy and member.due <= end]
            if not able:
                break
            member = min(able, key=lambda one: one.due)
            self.clock.advance(max(0.0, member.due - self.now))
            self.cycle(member)
        self.clock.advance(max(0.0, end - self.now))
        self.check()

    def let_others_run(self, seconds: float) -> None:
        """In the middle of a request; not for ever deeper."""
        if sum(member.busy for member in self.members) < 3:
            self.check()
            self.run(seconds)
        else:
            self.clock.advance(seconds)

    def cycle(self, member: Member) -> None:
        member.busy = True
        instance = member.instance
        for store in (instance.ownership, instance.checkpoints):
            store.away = self.now < member.away_until
        known = {one for one in self.ownership.stolen if one[1] == instance.id}
        started = self.now
        instance.take()
        won = instance.manager.tick()
        if not any(isinstance(notice, CycleFailed) for notice in instance.take()):
            self.ownership.stolen -= known  # it has renewed since, so it knows
        self.check()
        self.work(member)
        member.busy = False
        pause = 0.0 if won else 10 * (1 - 0.1 * member.rng.random()) / member.rate - (self.now - started)
        member.next_tick = self.now + max(0.0, pause)

    def work(self, member: Member) -> None:
        manager = member.instance.manager
        manager.note_progress()
        for partition, hold in manager.held().items():
            key = partition, hold.owner_level
            member.positions[key] = member.positions.get(key, hold.start) + member.rng.randrange(4)
        for (partition, level), position in list(member.positions.items()):
            if member.rng.random() < 0.5:
                with suppress(StoreUnavailable):
                    manager.update_checkpoint(partition, level, position - 1)
                self.check()

    # What must hold

    def check(self) -> None:
        """Nobody shares a partition, but for a thief and a victim that has not looked since."""
        listing = self.ownership.list_ownership(GROUP)
        records = {record.partition: record for record in listing.records}
        progress = self.checkpoints.progress()
        for member in self.members:
            for partition, hold in member.instance.manager.held().items():
                assert progress[partition].owner_level >= hold.owner_level, "read before its level was announced"
                assert hold.start <= progress[partition].next_sequence_number, "events are skipped"
                who = partition, member.instance.id, hold.owner_level
                record = records[partition]
                if (partition, record.owner_id, record.owner_level) == who:
                    assert listing.as_of - record.last_modified <= EXPIRATION, f"{who} trusts itself after expiry"
                else:
                    assert who in self.ownership.stolen, f"{who} trusts itself beside {record}"

    def come_to_rest(self) -> None:
        """All trouble ends; what is left alive must share evenly, and then leave it at that."""
        self.hub.away = False
        for member in self.members:
            member.paused_until = member.away_until = -math.inf
            for store in (member.instance.ownership, member.instance.checkpoints):
                store.before.clear()
                store.after.clear()
        if not self.members:
            self.join()
        self.run(3 * EXPIRATION + 60)
        held = [sorted(member.instance.levels) for member in self.members]
        assert sorted(itertools.chain(*held)) == sorted(self.hub.ends), "every partition has one owner"
        sizes = [len(one) for one in held]
        assert max(sizes) - min(sizes) <= 1, f"not balanced: {sizes}"
        before = self.ownership.acquisitions
        self.run(60)
        assert self.ownership.acquisitions == before, "it does not come to rest"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_campaign(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.something_happens()
        world.run(world.rng.choice([0.0, world.rng.uniform(0, 5), world.rng.uniform(0, 15)]))
    world.come_to_rest()
