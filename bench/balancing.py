"""Planning: the processor time of one plan, at the size that the goal names.

Each figure is the median of many runs; `process_time` leaves out what other processes take. The ratio is to `greedy`
with the same view, where there is one; `greedy` counts what others hold and does not say who gets what.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from random import Random

from leasehold.balancing import STRATEGIES, Member, View, target

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio to `greedy`, and the goal."""

PARTITIONS = [str(number) for number in range(2_048)]
INSTANCES = [f"host-{number}/{number:012x}" for number in range(512)]
GOAL = "<= 10"


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes about a second."""
    times = 10 if quick else 100
    chance = Random(7)
    equal = dict.fromkeys(INSTANCES, Member())
    declared = {
        instance: Member(chance.choice([0.5, 1.0, 2.0, 3.7]), chance.choice([4, 8, 20])) for instance in INSTANCES
    }
    at_rest = target({}, PARTITIONS, equal).shares
    without_last = {instance: at_rest[instance] for instance in INSTANCES[:-1]}
    results: list[Row] = []
    for name, view in (
        ("at rest", _view(at_rest, INSTANCES[0])),
        ("one has died", _view(without_last, INSTANCES[0], at_rest[INSTANCES[-1]])),
        ("one owns all, and I join", _view({INSTANCES[0]: tuple(PARTITIONS)}, INSTANCES[1])),
    ):
        figure = _milliseconds(lambda v=view: STRATEGIES["planned"](v, chance), times)  # type: ignore[misc]
        plain = _milliseconds(lambda v=view: STRATEGIES["greedy"](v, chance), times)  # type: ignore[misc]
        results.append((f"plan, 2,048 partitions, 512 instances: {name}", figure, "ms of CPU", figure / plain, GOAL))
    for name, owned, free, members in (
        ("cold start", {}, PARTITIONS, equal),
        ("one owns all", {INSTANCES[0]: tuple(PARTITIONS)}, [], equal),
        ("with capacities and maxima", at_rest, [], declared),
    ):
        figure = _milliseconds(lambda o=owned, f=free, m=members: target(o, f, m), times)  # type: ignore[misc]
        results.append((f"target of all, the same size: {name}", figure, "ms of CPU", None, GOAL))
    return results


def _view(owned: Mapping[str, tuple[str, ...]], me: str, free: tuple[str, ...] = ()) -> View:
    """What an instance sees that all know, and that knows all: by their presence."""
    others = tuple((owner, theirs) for owner, theirs in sorted(owned.items()) if owner != me)
    members = dict.fromkeys({me, *owned}, Member())
    return View(owned.get(me, ()), (), free, others, me=me, members=members)


def _milliseconds(action: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return 1_000 * statistics.median(taken)


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run(quick=False):
        share = f"{ratio:6.2f} of greedy" if ratio is not None else ""
        print(f"{name:65} {figure:8.2f} {unit:10} {share:18} {goal}")
