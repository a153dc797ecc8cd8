"""The simulation of handlers: partitions move while their entities are called for, parked, retried and leased.

    report = run_entities(story_of(17))
    report.violation    # None if all rules hold

`story` draws a story from a seed, `world` runs it with the real `HandledTable`, `judge` has the rules.
"""

from leasehold_testkit.simulation.handlers.judge import EntityRule, EntityViolation
from leasehold_testkit.simulation.handlers.story import EntityStory, Told, story_of
from leasehold_testkit.simulation.handlers.world import EntityReport, EntityWorld, run_entities

__all__ = [
    "EntityReport",
    "EntityRule",
    "EntityStory",
    "EntityViolation",
    "EntityWorld",
    "Told",
    "run_entities",
    "story_of",
]
