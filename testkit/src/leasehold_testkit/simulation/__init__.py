"""The real manager, strategies and stores under a seeded scheduler with virtual time.

    story     what a run depends on: who takes part, what goes wrong and when
    world     one run: instances, stores, hub and sink; after every step the judge checks its rules
    rest      what must hold once nothing goes wrong any more
    running   running a story or a seed; a story that fails is made as short as it goes
    planned changes, as a table and a picture: scenarios, figures, drawing

The same story gives the same run, step by step, on any machine: no wall clock, no global random number generator, no
thread that runs beside another.
"""

from leasehold_testkit.simulation.generation import story_of
from leasehold_testkit.simulation.instance import Instance
from leasehold_testkit.simulation.rules import Rule, Violation
from leasehold_testkit.simulation.running import Report, run, run_seed, shortest
from leasehold_testkit.simulation.sink import SimulatedSink
from leasehold_testkit.simulation.stores import SimulatedStore
from leasehold_testkit.simulation.story import Fault, FaultKind, Pace, Part, Story
from leasehold_testkit.simulation.world import Make, World

__all__ = [
    "Fault",
    "FaultKind",
    "Instance",
    "Make",
    "Pace",
    "Part",
    "Report",
    "Rule",
    "SimulatedSink",
    "SimulatedStore",
    "Story",
    "Violation",
    "World",
    "run",
    "run_seed",
    "shortest",
    "story_of",
]
