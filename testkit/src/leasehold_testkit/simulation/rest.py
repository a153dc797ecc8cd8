"""How a fleet comes to rest once nothing goes wrong any more, and how a person repairs levels that went back.

Owns the bound: this many load-balancing intervals after the last trouble everything is owned and balanced, and every
event that has come is applied and recorded. Then nothing may be acquired any more. In between no more moves than need
be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from leasehold.balancing.quotas import Member, quotas
from leasehold.balancing.suspects import backoff
from leasehold.model import BEFORE_FIRST
from leasehold.operations.resetting import reset_group
from leasehold.sinks.base import Watermarked
from leasehold.sinks.rules.fence import Watermark
from leasehold.store_choice import Stores
from leasehold.stores.base import PipelineBinding
from leasehold_testkit.simulation.hub import GROUP
from leasehold_testkit.simulation.rules import Rule, Violation
from leasehold_testkit.simulation.story import FaultKind
from leasehold_testkit.simulation.surroundings import Process, Surroundings

QUIET = 25.0
"""How long nothing may move at the end, in seconds: two intervals and a half."""

CATCHING_UP = 150.0
"""How much longer the work may take to consume what has come, in seconds."""


def settled(world: Surroundings) -> None:
    """In a calm story: all have come, everything is owned and balanced, and from now on nothing may move."""
    if even(world) is None:
        raise Violation(Rule.NOT_BALANCED, f"at {world.now:.0f} s, before anything goes wrong: {_shares(world)}")
    world.judge.settled()


def even(world: Surroundings) -> dict[str, int] | None:
    """The quota of each working instance if everything is owned so; else None."""
    working = [one for one in world.alive() if one.hung_until <= world.now]
    if any(one.leaving for one in world.alive()):
        return None
    alive = {one.id for one in working}
    if any(ask.asker in alive for ask in world.ownership.standing_asks()):
        return None
    if any(hold.asked_by for one in working for hold in one.held().values()):
        return None
    holders = {partition: one for one in working for partition in one.held()}
    held = {one.id: len(one.held()) for one in working}
    if sum(held.values()) != len(holders):
        return None
    total = len(world.hub.partition_ids())
    quota = quotas(total, held, _members(working))
    if sum(quota.values()) < total:
        # Nobody has room for the rest. Who has it by accident serves it until somebody comes who has.
        return held if all(held[who] >= quota[who] for who in held) else None
    return held if held == quota else None


def _members(working: list[Process]) -> dict[str, Member]:
    weighted = all(one.settings.strategy == "planned" for one in working)
    return {
        one.id: Member(one.settings.capacity if weighted else 1.0, one.settings.maximum_partitions) for one in working
    }


def fewest_moves(world: Surroundings) -> int:
    """How many partitions must be acquired from here on until all is balanced, at the least."""
    working = [one for one in world.alive() if one.hung_until <= world.now and not one.leaving]
    held = {one.id: len(one.held()) for one in working}
    quota = quotas(len(world.hub.partition_ids()), held, _members(working))
    return sum(max(0, quota[who] - held[who]) for who in held)


class Rest:
    """Watches a fleet come to rest, and ends the simulation."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._began = world.story.ends_at
        self._balanced: float | None = None
        self._acquisitions = 0
        self._most: int | None = None

    def begin(self) -> None:
        """Let all trouble end."""
        world = self._world
        world.network.recover()
        for one in world.alive():
            one.paused_until = min(one.paused_until, world.now)
        if not [one for one in world.alive() if one.hung_until < math.inf] and not world.repairing:
            for one in list(world.alive()):
                world.remove(one)
            for name in world.parts:
                world.start(name)
        self._look()

    def bound(self) -> float:
        """Seconds from the last trouble until all must be well."""
        world = self._world
        settings = world.settings
        if world.story.bound is not None:
            return world.story.bound
        # What is dead expires, as seen from the cycle after the next; who was asked last answers or is stolen from.
        base = settings.partition_expiration + settings.hand_over_timeout + 6 * settings.load_balancing_interval
        if any(part.strategy == "balanced" for part in world.story.parts):
            base += 2 * settings.load_balancing_interval * len(world.hub.partition_ids())
        if not world.story.own_clock:
            base += settings.partition_expiration
        base += self._hanging()
        if world.story.wiped:
            base += settings.partition_expiration + 6 * settings.load_balancing_interval
        counts = [record.failures for record in world.ownership.list_ownership(GROUP).records]
        return base + sum(backoff(count, settings.load_balancing_interval) for count in counts)

    def _hanging(self) -> float:
        """Seconds until an instance whose work hangs for ever must have stopped to renew, and to claim."""
        world = self._world
        hung = [one for one in world.alive() if one.hung_until == math.inf]
        return max((one.true_span(world.settings.stall_timeout + 10) + 10 for one in hung), default=0.0)

    def _doubling(self) -> float:
        """Seconds until all agree again who lives of several incarnations of one name."""
        return 30.0 if any(fault.kind is FaultKind.USURP for fault in self._world.story.faults) else 0.0

    def _look(self) -> None:
        world = self._world
        quota = even(world)
        if world.repairing:
            self._began, self._balanced, self._most = world.now, None, None
        if self._balanced is None:
            self._count_moves()
            known = world.now >= self._began + max(self._hanging(), self._doubling())
            aware = known and all(
                one.aware_since >= self._began and (one.worked_since >= self._began or one.hung_until == math.inf)
                for one in world.alive()
            )
            if quota is not None and aware and not world.repairing:
                self._balanced = world.now
                self._acquisitions = world.judge.acquisitions
                world.hub.stop()
            elif world.now > self._began + self.bound():
                raise Violation(
                    Rule.NOT_BALANCED, f"{world.now - self._began:.0f} s after the last trouble: {_shares(world)}"
                )
        elif world.judge.acquisitions != self._acquisitions or quota is None:
            if world.story.wiped:  # the damage may come to light late
                self._began, self._balanced = world.now, None
                world.scheduler.call_at(world.now + 1.0, self._look)
                return
            raise Violation(Rule.MOVED, f"{world.now - self._balanced:.1f} s after all was balanced: {_shares(world)}")
        elif world.now >= self._balanced + QUIET:
            behind = self._behind()
            if not behind:
                world.scheduler.end()
                return
            if world.now >= self._balanced + QUIET + CATCHING_UP:
                raise Violation(Rule.NOT_CONSUMED, behind)
        world.scheduler.call_at(world.now + 1.0, self._look)

    def _count_moves(self) -> None:
        """From when all that is dead is known to be, `planned` moves no more than need be."""
        world = self._world
        story, expired = world.story, world.settings.partition_expiration + 2 * world.settings.load_balancing_interval
        exact = story.presence and story.own_clock and not story.wiped and self._hanging() == 0.0
        if not exact or world.now < self._began + expired or any(part.strategy != "planned" for part in story.parts):
            return
        if self._most is None:
            self._most = world.judge.acquisitions + fewest_moves(world)
        if world.judge.acquisitions > self._most:
            raise Violation(Rule.MOVED, f"more than the fewest that balance it: {_shares(world)}")

    def _behind(self) -> str:
        """What is not consumed yet."""
        world = self._world
        for partition in sorted({partition for one in world.alive() for partition in one.held()}):
            checkpoint = world.checkpoints.checkpoint(partition)
            reached = checkpoint.sequence_number if checkpoint else BEFORE_FIRST
            applied, last = world.judge.applied.get(partition, BEFORE_FIRST), world.hub.end(partition) - 1
            if not (reached == applied == last):
                return f"{partition} is at {reached}, applied to {applied}, and ends at {last}"
        return ""


def _shares(world: Surroundings) -> str:
    shares = {str(one): "+".join(one.held()) or "nothing" for one in world.alive()}
    return ", ".join(f"{name} holds {share}" for name, share in shares.items()) or "nobody is left"


class _Sink(Watermarked):
    """What a reset needs of the simulated sink."""

    def __init__(self, world: Surroundings) -> None:
        self._marks = world.sink.watermarks

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        return {partition: mark for (name, partition), mark in self._marks.items() if name == hub}

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        marks = self.watermarks(hub)
        raised = {p: replace(marks.get(p, Watermark()), owner_level=level) for p, level in levels.items()}
        self.set_watermarks(hub, raised, anew=False)
        return marks | raised

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        """Nothing is appended."""

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        self._marks.update({(hub, partition): mark for partition, mark in marks.items()})


def reset_to_sink(world: Surroundings) -> None:
    """What `leasehold reset --to sink` does."""
    reset_group(
        world.hub,
        GROUP,
        Stores(world.ownership, world.checkpoints),
        _Sink(world),
        PipelineBinding("simulation", "simulated"),
        to=None,
        expiration=world.settings.partition_expiration,
    )
