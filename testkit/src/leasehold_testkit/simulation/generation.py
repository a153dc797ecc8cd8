"""Stories from seeds: a seed decides who takes part, and what goes wrong and when.

Four kinds of stories: anything goes wrong; a calm one, in which nothing does that is a reason to move a partition; one
of planned changes, in which instances only come and go; and one in which a store is wiped or restored.
"""

from __future__ import annotations

from random import Random

from leasehold.config import STRATEGY_NAMES
from leasehold_testkit.simulation.story import (
    CHECKPOINTS,
    OF_REQUESTS,
    OWNERSHIP,
    SERVERS,
    Fault,
    FaultKind,
    Pace,
    Part,
    Story,
)

_METHODS = (*OWNERSHIP, *CHECKPOINTS, "partition_ids", "sink")
_OTHERS = (
    *(3 * [FaultKind.CRASH] + 3 * [FaultKind.PAUSE] + [FaultKind.USURP, FaultKind.HANG, FaultKind.LEAVE]),
    *(2 * [FaultKind.JOIN] + [FaultKind.CAPACITY, FaultKind.PARTITIONS] + 2 * [FaultKind.OUTAGE]),
)


def story_of(seed: int) -> Story:
    """The story of a seed."""
    rng = Random(f"story {seed}")
    what = rng.random()
    if what < 0.15:
        return _calm(seed, rng)
    if what < 0.27:
        return _planned_changes(seed, rng)
    story = _anything(seed, rng)
    if what < 0.4:
        wipes = tuple(_wipe(rng, story.ends_at) for _ in range(rng.choice((1, 1, 2))))
        return _with(story, wipes)
    return story


def _anything(seed: int, rng: Random) -> Story:
    ends_at = rng.uniform(40, 110)
    own_clock, presence = rng.random() < 0.85, rng.random() < 0.85
    parts = _parts(rng, rng.randint(1, 4), ends_at, mixed=True, presence=presence)
    faults = [_fault(rng, parts, ends_at) for _ in range(rng.randint(3, 16))]
    return Story(
        seed=seed,
        partitions=rng.randint(1, 7),
        parts=parts,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        ends_at=ends_at,
        own_clock=own_clock,
        presence=presence,
        batches=rng.random() < 0.8,
        settle_delay=rng.choice((0.0, 1.0, 1.0)),
        pace=Pace(latency=rng.choice((0.02, 0.3)), trigger=rng.choice((3.0, 6.0)), work=rng.choice((0.5, 4.0, 10.0))),
    )


def _calm(seed: int, rng: Random) -> Story:
    """Stores and hub are away for a while, requests fail; instances live, and come before anything happens."""
    parts = _parts(rng, rng.randint(1, 4), 0.0, mixed=False, presence=True)
    faults = []
    for _ in range(rng.randint(1, 6)):
        fault = _request_fault(rng, rng.choice(parts).name, rng.uniform(40, 75))
        if fault.kind is not FaultKind.DELAY:
            faults.append(fault)
    if rng.random() < 0.6:
        server = rng.choice(("ownership", "ownership", "checkpoints", "hub"))
        seconds = rng.choice((rng.uniform(18, 24), rng.uniform(5, 90)))
        faults.append(Fault(at=rng.uniform(40, 50), kind=FaultKind.OUTAGE, what=server, seconds=seconds))
    ends_at = max([80.0, *(fault.at + fault.seconds + 2 for fault in faults)])
    faults.sort(key=lambda fault: fault.at)
    return Story(
        seed=seed,
        partitions=rng.randint(1, 8),
        parts=parts,
        faults=tuple(faults),
        ends_at=ends_at,
        calm=True,
        pace=Pace(latency=0.05, trigger=5.0, work=rng.choice((0.5, 4.0))),
    )


def _planned_changes(seed: int, rng: Random) -> Story:
    """Instances come and go, in order."""
    number = rng.randint(2, 4)
    parts = _parts(rng, number, 0.0, mixed=rng.random() < 0.5, presence=True)
    late = [Part(name=f"late{i}", starts_at=None, strategy=parts[0].strategy) for i in range(2)]
    faults = []
    for one in (*parts[1:], *late):
        if one.starts_at is None:
            faults.append(Fault(at=rng.uniform(25, 60), kind=FaultKind.JOIN, who=one.name))
        elif rng.random() < 0.4:
            at = rng.uniform(25, 60)
            faults.append(Fault(at=at, kind=FaultKind.LEAVE, who=one.name))
            if rng.random() < 0.5:
                faults.append(Fault(at=at + rng.uniform(20, 30), kind=FaultKind.JOIN, who=one.name))
    return Story(
        seed=seed,
        partitions=rng.randint(2, 9),
        parts=(*parts, *late),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        ends_at=90.0,
        planned_changes=True,
        pace=Pace(latency=0.1, trigger=3.0, work=rng.choice((1.0, 5.0))),
    )


def _parts(rng: Random, number: int, ends_at: float, *, mixed: bool, presence: bool) -> tuple[Part, ...]:
    """Instances whose clocks and the store's differ by no more than the clock-rate ratio allows."""
    slowest = rng.uniform(0.801, 1.0)
    one_strategy = rng.choice(STRATEGY_NAMES) if rng.random() < 0.7 else None
    parts = []
    for i in range(number + (2 if ends_at else 0)):
        strategy = (one_strategy or rng.choice(STRATEGY_NAMES)) if mixed else "planned"
        declared = presence and rng.random() < 0.2
        parts.append(
            Part(
                name=f"{chr(ord('a') + i)}",
                starts_at=rng.choice((0.0, rng.uniform(0, 20 if ends_at else 5))) if i < number else None,
                rate=rng.uniform(slowest, slowest * 1.249),
                offset=rng.uniform(0, 1e6),
                strategy=strategy,
                capacity=rng.choice((0.5, 2.0, 3.0)) if declared and mixed else 1.0,
                maximum=rng.choice((None, None, 1, 3)) if declared and mixed else None,
            )
        )
    return tuple(parts)


def _fault(rng: Random, parts: tuple[Part, ...], ends_at: float) -> Fault:
    at, who = rng.uniform(0, ends_at), rng.choice(parts).name
    if rng.random() < 0.6:
        return _request_fault(rng, who, at)
    kind = rng.choice(_OTHERS)
    if kind is FaultKind.CRASH:
        seconds = rng.choice((-1.0, rng.uniform(0, 5), rng.uniform(0, 60)))
        return Fault(at=at, kind=kind, who=who, seconds=seconds)
    if kind in (FaultKind.PAUSE, FaultKind.USURP):
        return Fault(at=at, kind=kind, who=who, seconds=rng.choice((rng.uniform(0, 5), rng.uniform(5, 70))))
    if kind is FaultKind.HANG:
        return Fault(at=at, kind=kind, who=who, seconds=rng.choice((rng.uniform(5, 70), -1.0)))
    if kind is FaultKind.OUTAGE:
        server = rng.choice(SERVERS)
        who = rng.choice(("", "", who))
        return Fault(at=at, kind=kind, what=server, who=who, seconds=rng.choice((3.0, rng.uniform(1, 60))))
    if kind is FaultKind.PARTITIONS:
        return Fault(at=at, kind=kind, number=rng.randint(1, 3))
    if kind is FaultKind.CAPACITY:
        return Fault(at=at, kind=kind, who=who, number=rng.choice((0.5, 1.0, 2.0, 4.0)))
    return Fault(at=at, kind=kind, who=who)


def _request_fault(rng: Random, who: str, at: float) -> Fault:
    kind = rng.choice(sorted(OF_REQUESTS))
    seconds = {FaultKind.SLOW: rng.uniform(0.5, 3.0), FaultKind.DELAY: rng.choice((0.5, rng.uniform(0, 40)))}.get(
        kind, 0.0
    )
    if kind is FaultKind.DUPLICATE:
        seconds = rng.choice((0.1, rng.uniform(0, 40)))
    return Fault(at=at, kind=kind, who=who, what=rng.choice(_METHODS), seconds=seconds)


def _wipe(rng: Random, ends_at: float) -> Fault:
    kind, what = rng.choice((FaultKind.WIPE, FaultKind.RESTORE)), rng.choice(("ownership", "checkpoints", "both"))
    return Fault(
        at=rng.uniform(10, ends_at),
        kind=kind,
        what=what,
        seconds=rng.uniform(1, 60) if kind is FaultKind.RESTORE else 0,
    )


def _with(story: Story, faults: tuple[Fault, ...]) -> Story:
    from dataclasses import replace

    return replace(story, faults=tuple(sorted((*story.faults, *faults), key=lambda fault: fault.at)))
