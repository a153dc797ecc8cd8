"""Planned changes of a fleet, and an outage, measured: how quickly it balances, and at what cost.

Owns the stories of these scenarios and their figures. Nothing is judged here but counted: a strategy that moves more
than need be, or never balances, gets its figures like any other. The same rules are checked as in every simulation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from leasehold_testkit.simulation.rest import even, fewest_moves
from leasehold_testkit.simulation.rules import Violation
from leasehold_testkit.simulation.running import quietly
from leasehold_testkit.simulation.story import Fault, FaultKind, Pace, Part, Story
from leasehold_testkit.simulation.world import Make, Span, World

BEGIN = 60.0
"""When the fleet changes, in seconds: it is at rest by then."""
DOWN, BETWEEN = 15.0, 45.0
"""In a rolling restart: how long each instance is away, and from one to the next. In seconds."""
QUIET = 60.0
"""How long nothing moves before a scenario counts as over."""
SOON = 1e-3
LIMIT = 3_600.0
"""The longest that a change is followed."""

Scenario = Callable[[tuple[Part, ...], float], tuple[tuple[Part, ...], tuple[Fault, ...]]]


def _cold_start(parts: tuple[Part, ...], begin: float) -> tuple[tuple[Part, ...], tuple[Fault, ...]]:
    return parts, ()


def _join(parts: tuple[Part, ...], begin: float) -> tuple[tuple[Part, ...], tuple[Fault, ...]]:
    late = parts[-1].name
    return (*parts[:-1], replace(parts[-1], starts_at=None)), (Fault(at=begin, kind=FaultKind.JOIN, who=late),)


def _all_join(parts: tuple[Part, ...], begin: float) -> tuple[tuple[Part, ...], tuple[Fault, ...]]:
    late = tuple(replace(part, starts_at=None) for part in parts[1:])
    joining = (Fault(at=begin + (part.starts_at or 0.0), kind=FaultKind.JOIN, who=part.name) for part in parts[1:])
    return (replace(parts[0], starts_at=0.0), *late), tuple(sorted(joining, key=lambda fault: fault.at))


def _leave(parts: tuple[Part, ...], begin: float) -> tuple[tuple[Part, ...], tuple[Fault, ...]]:
    return parts, (Fault(at=begin, kind=FaultKind.LEAVE, who=parts[-1].name),)


def _rolling_restart(parts: tuple[Part, ...], begin: float) -> tuple[tuple[Part, ...], tuple[Fault, ...]]:
    faults = []
    for turn, part in enumerate(parts):
        faults.append(Fault(at=begin + turn * BETWEEN, kind=FaultKind.LEAVE, who=part.name))
        faults.append(Fault(at=begin + turn * BETWEEN + DOWN, kind=FaultKind.JOIN, who=part.name))
    return parts, tuple(faults)


def _store_outage(parts: tuple[Part, ...], begin: float) -> tuple[tuple[Part, ...], tuple[Fault, ...]]:
    return parts, (Fault(at=begin, kind=FaultKind.OUTAGE, what="ownership", seconds=60.0),)


SCENARIOS: dict[str, Scenario] = {
    "cold-start": _cold_start,
    "join": _join,
    "leave": _leave,
    "rolling-restart": _rolling_restart,
    "store-outage": _store_outage,
    "all-join": _all_join,
}
"""By name. `all-join`: one instance owns everything, and all others join at once."""


def scenario_story(
    name: str, *, partitions: int, processors: int, strategy: str, seed: int, begin: float = BEGIN
) -> Story:
    """The story of a scenario, whose fleet is at rest by `begin`.

    The seed decides about latencies and when exactly each instance starts.
    """
    rng = Random(f"scenario {seed}")
    width = len(str(processors - 1))
    parts = tuple(
        Part(
            name=f"processor-{i:0{width}}", starts_at=rng.uniform(0, 0.5), offset=rng.uniform(0, 1e6), strategy=strategy
        )
        for i in range(processors)
    )
    parts, faults = SCENARIOS[name](parts, begin)
    changes = [fault.at + max(0.0, fault.seconds) for fault in faults]
    return Story(
        seed=seed,
        partitions=partitions,
        parts=parts,
        faults=faults,
        ends_at=max(changes, default=0.0) + 0.5,
        pace=Pace(latency=0.02, trigger=2.0, work=1.0, events=2.0),
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """What a scenario came to. Times in seconds.

    `cycles_to_balance` are load-balancing intervals from the last change to the last acquisition; `fewest_moves` the
    lower bound of `moves`, a move being a change of owner. `requests_a_cycle` are requests to the ownership store, at
    rest. `read_twice` counts events, `without_owner` is the longest time that a partition had no trusted owner.
    `balanced` says whether it ended with everybody at its quota.
    """

    cycles_to_balance: float
    moves: int
    fewest_moves: int
    lost_claims: int
    requests_a_cycle: float
    read_twice: int
    without_owner: float
    balanced: bool


class _Watch:
    """Takes the place of `Rest`: counts, and ends the simulation when nothing has moved for a while."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._story = world.story
        self._fewest = 0
        self._before = (0, 0, 0)
        self._seconds: list[tuple[float, int, int]] = []
        changes = [fault.at for fault in self._story.faults]
        world.scheduler.call_at(max(0.0, min(changes, default=0.0) - SOON), self._start)
        for at, following in itertools.pairwise([*changes, math.inf]):
            if following > at + 1.0:
                world.scheduler.call_at(at + SOON, self._count_fewest)

    def _start(self) -> None:
        judge = self._world.judge
        self._before = judge.moves, self._world.lost_claims, judge.read_twice

    def _count_fewest(self) -> None:
        self._fewest += fewest_moves(self._world)

    def begin(self) -> None:
        """All changes have been made; called again every second."""
        world = self._world
        requests = sum(world.network.requests[method] for method in _OWNERSHIP)
        self._seconds.append((world.now, requests, world.cycles))
        if (
            world.now > max(self._story.ends_at, world.judge.acquired_at) + QUIET
            or world.now > LIMIT + self._story.ends_at
        ):
            world.scheduler.end()
        else:
            world.scheduler.call_at(world.now + 1.0, self.begin)

    def figures(self) -> Figures:
        """What it came to."""
        world, judge = self._world, self._world.judge
        moves, lost, twice = self._before
        changed = self._story.ends_at - 0.5
        _, requests, cycles = self._seconds[-min(40, len(self._seconds))]
        _, all_requests, all_cycles = self._seconds[-1]
        return Figures(
            cycles_to_balance=max(0.0, judge.acquired_at - changed) / world.settings.load_balancing_interval,
            moves=judge.moves - moves,
            fewest_moves=self._fewest,
            lost_claims=world.lost_claims - lost,
            requests_a_cycle=(all_requests - requests) / max(1, all_cycles - cycles),
            read_twice=judge.read_twice - twice,
            without_owner=longest_gap(world.history(), min((fault.at for fault in self._story.faults), default=0.0)),
            balanced=even(world) is not None,
        )


def longest_gap(history: Iterable[Span], since: float) -> float:
    """The longest time from then on that a partition had no trusted owner, up to when it got one."""
    longest = 0.0
    until: dict[str, float] = {}
    for span in history:  # by start
        if span.start > since:
            longest = max(longest, span.start - max(since, until.get(span.partition, since)))
        until[span.partition] = max(span.end, until.get(span.partition, 0.0))
    return longest


@dataclass(frozen=True, slots=True)
class Measured:
    """A scenario that was run: its figures and who held what when. `violation` is what the judge said, if anything."""

    figures: Figures
    history: list[Span]
    story: Story
    ended: float
    violation: Violation | None = None


def measure(story: Story, make: Make | None = None) -> Measured:
    """Run the story of a scenario."""
    watches: list[_Watch] = []

    def watch(world: World) -> _Watch:
        watches.append(_Watch(world))
        return watches[0]

    world = World(story, replace(make or Make(), rest=watch, traces=False))
    violation = None
    with quietly():
        try:
            world.run()
        except Violation as error:
            violation = error
    return Measured(watches[0].figures(), world.history(), story, world.now, violation)


_OWNERSHIP = (
    *("list_ownership", "claim_ownership", "renew_ownership", "relinquish_ownership"),
    *("withdraw_presence", "ask", "withdraw_asks"),
)
