"""Running a story, and making one that fails as short as it goes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from leasehold.model import Checkpoint, Ownership, OwnershipListing, PartitionProperties
from leasehold_testkit.simulation.generation import story_of
from leasehold_testkit.simulation.rules import Rule, Violation
from leasehold_testkit.simulation.story import Story
from leasehold_testkit.simulation.world import Make, World

LAST_STEPS = 60


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run. `rule` and `text` say what was violated, if anything was; `trace` is every step of it."""

    story: Story
    world: World
    violation: Violation | None

    @property
    def rule(self) -> Rule | None:
        """The rule that was violated."""
        return self.violation.rule if self.violation else None

    def describe(self, steps: int = LAST_STEPS) -> str:
        """The seed, the story and its last steps, for people."""
        lines = [self.story.describe(), ""]
        trace = self.world.trace
        if len(trace) > steps:
            lines.append(f"  … {len(trace) - steps} steps before")
        lines += [f"{at:9.3f}  {who:10} {what:22} {_short(detail)}" for at, who, what, detail in trace[-steps:]]
        if self.violation:
            lines.append(f"{self.world.now:9.3f}  VIOLATION in step {self.world.scheduler.steps}: {self.violation}")
            lines.append(f"seed {self.story.seed}: leasehold simulate --seed {self.story.seed}")
        return "\n".join(lines)


def run(story: Story, make: Make | None = None) -> Report:
    """Run a story to its end or its first violation."""
    world = World(story, make)
    violation = None
    with quietly():
        try:
            world.run()
        except Violation as error:
            violation = error
    return Report(story, world, violation)


def run_seed(seed: int, make: Make | None = None) -> Report:
    """Run the story of a seed; one that fails is made as short as it goes."""
    report = run(story_of(seed), make)
    return report if report.violation is None else shortest(report, make)


def shortest(report: Report, make: Make | None = None, runs: int = 400) -> Report:
    """Leave out faults, instances and partitions as long as the same rule is violated."""
    for _ in range(runs):
        for story in _shorter(report.story):
            runs -= 1
            if runs <= 0:
                return report
            again = run(story, make)
            if again.rule is report.rule:
                report = again
                break
        else:
            return report
    return report


def _shorter(story: Story) -> Iterator[Story]:
    """The story with less in it: half of its faults, a quarter …, one; an instance; a partition; half the time."""
    size = len(story.faults) // 2
    while size:
        for start in range(0, len(story.faults), size):
            yield replace(story, faults=(*story.faults[:start], *story.faults[start + size :]))
        size //= 2
    if len(story.faults) == 1:
        yield replace(story, faults=())
    if len(story.parts) > 1:
        for part in story.parts:
            yield replace(
                story,
                parts=tuple(one for one in story.parts if one is not part),
                faults=tuple(fault for fault in story.faults if fault.who != part.name),
            )
    if story.partitions > 1:
        yield replace(story, partitions=1)
        yield replace(story, partitions=story.partitions - 1)
    last = max((fault.at for fault in story.faults), default=0.0) + 1.0
    if last < story.ends_at - 5:
        yield replace(story, ends_at=last)


def _short(detail: object) -> str:
    text = _words(detail)
    return text if len(text) <= 200 else text[:197] + "…"


def _words(detail: object) -> str:
    """A request's answer in few words."""
    if isinstance(detail, OwnershipListing):
        asks = [f"{ask.partition} at {ask.owner_level} for {ask.asker}" for ask in detail.asks]
        there = " ".join(presence.owner_id for presence in detail.presences)
        return f"{_words(list(detail.records))}; there {there}" + (f"; asks {', '.join(asks)}" if asks else "")
    if isinstance(detail, list):
        return ", ".join(map(_words, detail)) or "nothing"
    if isinstance(detail, Ownership):
        owner = detail.owner_id or f"free for {detail.successor or 'all'}"
        return f"{detail.partition}@{detail.owner_level} {owner}"
    if isinstance(detail, Checkpoint):
        return f"{detail.partition}@{detail.owner_level} to {detail.sequence_number}"
    if isinstance(detail, dict):
        return " ".join(map(_words, detail.values()))
    if isinstance(detail, PartitionProperties):
        return f"{detail.partition}:{detail.end}"
    return "" if detail is None else str(detail)


@contextmanager
def quietly() -> Iterator[None]:
    """What goes wrong in a simulation is no news."""
    logger = logging.getLogger("leasehold.ownership")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
