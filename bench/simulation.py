"""Balancing in the simulator: `planned`, and the published algorithms in the same fleets.

The figures of the first kind count (moves, load-balancing intervals, events read twice) and are the same on every
machine; the ratio is to the lower bound of moves. The last ones are CPU time of one whole dispatch cycle on a store in
memory, without the simulator.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from random import Random

from leasehold.config import OwnershipSettings
from leasehold.model import EARLIEST, Checkpoint, OwnerId, Ownership, Positions, Presence
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.simulation import Make
from leasehold_testkit.simulation.hub import GROUP, SimulatedHub
from leasehold_testkit.simulation.scenarios import BEGIN, Measured, measure, scenario_story
from published import PublishedManager, Uncritical

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio to the lower bound, and the goal."""

CASES = (
    ("P=32, cold start of 8", "cold-start", 32, 8),
    ("P=32, one owns all, 7 join", "all-join", 32, 8),
    ("P=32, 4 own 8 each, one joins", "join", 32, 5),
    ("P=32, one owns all, 31 join", "all-join", 32, 32),
    ("P=1,024, rolling restart of 40", "rolling-restart", 1_024, 40),
    ("P=2,048, cold start of 512", "cold-start", 2_048, 512),
    ("P=2,048, 511 own all, one joins", "join", 2_048, 512),
)
PUBLISHED = Make(manager=PublishedManager, judge=Uncritical)
LARGE = 500
"""Above this many partitions `--quick` leaves a case out."""


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes a few seconds."""
    rows: list[Row] = []
    for what, scenario, partitions, processors in CASES:
        if quick and partitions > LARGE:
            continue
        ways = dict(each_way(scenario, partitions, processors))
        least = ways["planned"].figures.fewest_moves
        rows += [_row(name, what, measured, least) for name, measured in ways.items()]
    return rows + _cpu(3 if quick else 20)


def each_way(scenario: str, partitions: int, processors: int) -> Iterator[tuple[str, Measured]]:
    """One scenario with `planned` and with both published algorithms."""
    for name, strategy in (("planned", "planned"), ("published greedy", "greedy"), ("published balanced", "balanced")):
        first = 1 if scenario == "all-join" else processors - 1
        # One claim a cycle: that is how long the first ones take until they own everything.
        begin = BEGIN + (12.0 * partitions / first if name == "published balanced" else 0.0)
        story = scenario_story(
            scenario, partitions=partitions, processors=processors, strategy=strategy, seed=1, begin=begin
        )
        yield name, measure(story, None if name == "planned" else PUBLISHED)


def _row(name: str, what: str, measured: Measured, least: int) -> Row:
    figures = measured.figures
    goals = f"{least} moves, 2 cycles, 0 twice" if name == "planned" else ""
    details = f"{figures.cycles_to_balance:.1f} cycles, {figures.read_twice:,} events twice"
    if not figures.balanced:
        details += ", not even"
    return f"{name}: {what}; {details}", figures.moves, "moves", figures.moves / least if least else None, goals


def _cpu(times: int) -> list[Row]:
    """One dispatch cycle of one of 512 instances, 2,048 partitions: at rest, and when all is free."""
    rows: list[Row] = []
    for what, owned in (("at rest", True), ("cold start", False)):
        taken = []
        for number in range(times):
            manager = _instance(owned, number)
            start = time.process_time()
            manager.tick()
            taken.append(1_000 * (time.process_time() - start))
        rows.append(
            (f"cycle, 2,048 partitions, 512 instances: {what}", statistics.median(taken), "ms of CPU", None, "<= 40")
        )
    return rows


def _instance(owned: bool, seed: int) -> PartitionManager:
    """One of 512 instances, with what the others have written."""
    clock = ManualClock()
    hub = SimulatedHub(2_048, 1.0, clock.monotonic)
    store = MemoryStore(clock, StoreFeatures(shared=False))
    partitions = hub.partition_ids()
    names = [f"host-{number}/{number:012x}" for number in range(512)]
    for number, name in enumerate(names):
        store.renew_ownership([], Presence(GROUP, name, strategy="planned"))
        if owned:
            mine = partitions[number * 4 : number * 4 + 4]
            store.claim_ownership([Ownership(GROUP, partition, name, 1, nonce="n") for partition in mine])
            store.raise_owner_level([Checkpoint(GROUP, partition, -1, 1) for partition in mine])
    manager = PartitionManager(
        hub,
        GROUP,
        store,
        store,
        owner_id=OwnerId("host-0", f"{0:012x}"),
        settings=OwnershipSettings(settle_delay=0),
        positions=Positions(EARLIEST),
        runtime=Runtime(clock=clock, rng=Random(seed)),
    )
    if owned:
        manager.tick()
        clock.advance(10)
    return manager


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run(quick=True):
        share = f"{ratio:6.2f} of the least" if ratio is not None else ""
        print(f"{name:80} {figure:8.2f} {unit:10} {share:20} {goal}")
