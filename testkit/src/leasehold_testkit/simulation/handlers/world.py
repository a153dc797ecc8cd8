"""A story of entities, run: real tables in one SQLite file, virtual time, and anything in between two calls.

Owns what may happen to an instance, and when. Each instance has a real `HandledTable`. Before each call of the sink, of
the lease store and of the handler it may be stopped: then other things happen, and it goes on as if nothing had. What
happens then may be stopped itself, so that pauses lie within each other; no threads are needed, and a run is a pure
function of its story. A transaction is one step, since the database sees to that.

    take        a partition gets another owner, at the next level, which begins at or before the watermark. The former
                one may not have noticed, and goes on
    work        an owner, or who thinks so, is given the next events of a partition, or none, to try what is parked
    crash       an instance is gone, and starts again, with nothing but the table
    time        passes, sometimes more than a lease lasts
    operator    lets a parked event be tried at once, or drops it

An answer of the sink may be lost, after the commit or before. At the end all is calm: each partition has a new owner,
time passes, and everything has to come to its end.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from leasehold.sinks.features import STATES, KeepsStates, require
from leasehold.sinks.set_aside import Selection
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold_testkit.simulation.handlers.instance import HUB, Hold, Instance, VirtualClock
from leasehold_testkit.simulation.handlers.judge import EntityJudge, EntityViolation
from leasehold_testkit.simulation.handlers.story import EntityStory
from leasehold_testkit.simulation.running import quietly

DEEPEST = 4
CALM = 400
"""The most rounds until everything has come to its end."""


@dataclass(slots=True)
class EntityWorld:
    """All that there is."""

    story: EntityStory
    file: Path
    rng: Random = field(init=False)
    clock: VirtualClock = field(default_factory=VirtualClock)
    leases: MemoryLeaseStore = field(init=False)
    judge: EntityJudge = field(init=False)
    levels: list[int] = field(init=False)
    instances: list[Instance] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    within: bool = False
    unsettled: bool = True
    _depth: int = 0
    _left: list[Instance] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(f"world {self.story.seed}")
        self.leases = MemoryLeaseStore(self.clock)
        self.judge = EntityJudge(self.story)
        self.levels = [0] * len(self.story.events)

    def run(self) -> None:
        """Raises `EntityViolation`."""
        self.instances = [Instance(self, f"i{number}") for number in range(self.story.instances)]
        try:
            for _ in range(self.story.steps):
                self._happens()
            self.unsettled = False
            self._come_to_an_end()
            self.judge.ended(self._parked())
        finally:
            for instance in [*self.instances, *self._left]:
                instance.table.close()

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.clock.now:8.2f} {'  ' * self._depth}{text}")

    def seen(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """What has taken effect, as the table says."""
        with closing(sqlite3.connect(self.file)) as connection:
            rows = connection.execute("SELECT entity, seen FROM entities").fetchall()
        return {
            entity: tuple((int(place.split(":")[0]), int(place.split(":")[1])) for place in seen.split())
            for entity, seen in rows
        }

    def may_happen(self) -> None:
        """An instance may be stopped here."""
        if not self.unsettled or self.within or self._depth >= DEEPEST or self.rng.random() >= self.story.pauses:
            return
        self._depth += 1
        try:
            for _ in range(self.rng.randint(1, 4)):
                self._happens()
        finally:
            self._depth -= 1

    def _happens(self) -> None:
        what = self.rng.choices(
            (self._work, self._take, self._pass, self._operate, self._crash), weights=(10, 3, 3, 1.5, 0.5)
        )[0]
        what()

    def _work(self) -> None:
        free = [
            (instance, partition)
            for instance in self.instances
            for partition in sorted(instance.holds.keys() - instance.busy)
        ]
        if not free:
            self._take()
            return
        instance, partition = self.rng.choice(free)
        count = self.rng.choice((0, 1, 2, 3))
        self.note(f"{instance.name} works on {count} events of {partition}")
        instance.work(partition, count)

    def _take(self) -> None:
        partition = self.rng.randrange(len(self.levels))
        free = [instance for instance in self.instances if partition not in instance.busy]
        if not free:
            return
        for instance in self.instances:
            if self.rng.random() < 0.5 and partition not in instance.busy:
                instance.holds.pop(partition, None)
        self.give(self.rng.choice(free), partition)

    def give(self, instance: Instance, partition: int) -> None:
        """A partition gets another owner."""
        self.levels[partition] += 1
        start = max(0, self._mark(partition) + 1 - self.rng.choice((0, 0, 1, 3)))
        instance.holds[partition] = Hold(str(partition), self.levels[partition], start, start)
        self.note(f"{instance.name} takes {partition} at level {self.levels[partition]}, from event {start}")

    def _pass(self) -> None:
        self.clock.now += self.rng.choice((0.05, 0.5, 1.0, 2.0, 8.0, 40.0, 40.0))

    def _operate(self) -> None:
        with self._listing() as rows:
            listed = rows.parked_rows(Selection(), 100)
            if not listed:
                return
            its = self.rng.choice(listed).id
            if self.rng.random() < 0.5:
                self.note(f"an operator drops {its}")
                if rows.drop_parked([its], "simulated"):
                    self.judge.dropped.add((int(its.partition), its.sequence_number))
            else:
                self.note(f"an operator lets {its} be tried")
                rows.hurry_parked([its])

    def _crash(self) -> None:
        number = self.rng.randrange(len(self.instances))
        old = self.instances[number]
        old.gone = True
        self._left.append(old)
        self.note(f"{old.name} crashes")
        self.instances[number] = Instance(self, f"i{number}")

    def _come_to_an_end(self) -> None:
        for partition in range(len(self.levels)):
            for instance in self.instances:
                instance.holds.pop(partition, None)
            self.give(self.instances[partition % len(self.instances)], partition)
        for _ in range(CALM):
            if self._is_over():
                return
            self.clock.now += 1.0
            for instance in self.instances:
                for partition in instance.holds:
                    instance.work(partition, 2)

    def _is_over(self) -> bool:
        ends = [len(events) for events in self.story.events]
        return not self._parked() and all(self._mark(number) + 1 >= end for number, end in enumerate(ends))

    def _mark(self, partition: int) -> int:
        with self._listing():
            mark = self.instances[0].table.sink.watermarks(HUB).get(str(partition))
        return -1 if mark is None else mark.sequence_number

    def _parked(self) -> int:
        with self._listing() as rows:
            return len(rows.parked_rows(Selection(), 1_000))

    def _listing(self) -> Any:
        return _inside(self)


class _inside:  # noqa: N801
    """The sink as an operator has it: no instance is stopped in it."""

    def __init__(self, world: EntityWorld) -> None:
        self._world = world

    def __enter__(self) -> KeepsStates:
        self._before, self._world.within = self._world.within, True
        return require(self._world.instances[0].table.sink, STATES, "an operator")

    def __exit__(self, *_: object) -> None:
        self._world.within = self._before


@dataclass(frozen=True, slots=True)
class EntityReport:
    """How a story went."""

    story: EntityStory
    violation: EntityViolation | None
    trace: tuple[str, ...]
    seconds: float

    def describe(self) -> str:
        """The story and its last steps."""
        story = self.story
        kind = "exclusive" if story.exclusive else "spread" if story.spread else "one partition an entity"
        first = f"seed {story.seed}: {story.instances} instances, {len(story.events)} partitions, {kind}"
        return "\n".join([first, *self.trace[-60:]])


def run_entities(story: EntityStory) -> EntityReport:
    """Run a story."""
    violation = None
    with tempfile.TemporaryDirectory(prefix="leasehold-simulation-") as folder, quietly():
        world = EntityWorld(story, Path(folder) / "entities.db")
        try:
            world.run()
        except EntityViolation as error:
            violation = error
    return EntityReport(story, violation, tuple(world.trace), world.clock.now)
