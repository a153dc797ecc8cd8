"""One instance of the fleet: the real partition manager, its dispatch loop, and its work.

The loop is `ownership.dispatch.DispatchThread`'s: a cycle when it is due or wanted, and the giving up at the end. The
work goes as the Spark source's: record what was committed, let go what others have asked for, plan a batch of all that
is held, apply it to the sink in one transaction; a batch that fails is applied again.
"""

from __future__ import annotations

import math
from functools import partial
from random import Random

from leasehold.config import OwnershipSettings
from leasehold.errors import HubUnavailable, LeaseholdError, OwnerLevelWentBack, SinkUnavailable, StoreUnavailable
from leasehold.model import Checkpoint, OwnerId
from leasehold.notices import CycleFailed
from leasehold.ownership import Hold
from leasehold.sinks.rules.fence import Range
from leasehold_testkit.simulation.clock import MachineClock
from leasehold_testkit.simulation.hub import GROUP
from leasehold_testkit.simulation.rules import Rule, Violation
from leasehold_testkit.simulation.story import Part
from leasehold_testkit.simulation.surroundings import Landing, Process, Surroundings


class Instance(Process):
    """A process of the fleet. Its activities: cycles, one at a time, and the work."""

    def __init__(self, world: Surroundings, part: Part, incarnation: int, settings: OwnershipSettings) -> None:
        super().__init__(part.name)
        self.part = part
        self.settings = settings
        self.chance = Random(f"{world.story.seed}/{part.name}/{incarnation}")
        self.clock = MachineClock(world.scheduler, part.rate, part.offset)
        self.seen: dict[str, Hold] = {}
        self.ever_held: dict[tuple[str, int], float] = {}
        self.cycle_started = world.now
        self.hung_until = -1.0
        self.manager = world.make_manager(self, OwnerId(part.name, str(incarnation)))
        self.id: str = str(self.manager.owner_id)
        self.manager.notices.subscribe(self._note_failure, CycleFailed)
        self._world = world
        self._cycling = self._failed = self.leaving = False
        self.aware_since = self.worked_since = -1.0
        self._working = True
        self._turn = 0
        self._reached: dict[tuple[str, int], int] = {}
        self._written: dict[tuple[str, int], int] = {}
        self._planned: dict[tuple[str, int], int] = {}
        self._plan_cycle(world.now)
        self._later(self._trigger, self.chance.random() * world.story.pace.trigger)

    def __str__(self) -> str:
        return self.id

    def true_time(self, monotonic: float) -> float:
        """When this instance's clock shows that."""
        return self.clock.true_time(monotonic)

    def true_span(self, seconds: float) -> float:
        """How long it truly takes until this clock has gone on by this many seconds."""
        return seconds / self.clock.rate

    def held(self) -> dict[str, Hold]:
        """What it trusts itself with; nothing if it refuses to work."""
        try:
            held: dict[str, Hold] = self.manager.held()
        except LeaseholdError:
            return {}
        return held

    def leave(self) -> None:
        """Finish what is begun, begin nothing, give everything up, and end. Some say so beforehand."""
        self.leaving = True
        if self.chance.random() < 0.5:
            self.manager.retire()
        if not self._working:
            self._plan_end()

    # Cycles

    def _plan_cycle(self, at: float) -> None:
        self._turn += 1
        self._world.scheduler.start_at(at, self, partial(self._cycle, self._turn))

    def _cycle(self, turn: int) -> None:
        if turn != self._turn or self._cycling:
            return
        self._cycling, self._failed = True, False
        self.manager.attention.clear()
        self.cycle_started = self._world.now
        try:
            self.manager.tick()
        except LeaseholdError as error:
            raise Violation(Rule.BROKEN, f"{self}: {error!r}") from error
        self._cycling = False
        self._world.cycles += 1
        if not self._failed:
            self.aware_since = self.cycle_started
            self._world.judge.cycle_ended(self, self.cycle_started)
        if self.leaving and not self._working:
            self._plan_end()
        elif self.manager.attention.is_set():
            self._plan_cycle(self._world.now)
        else:
            self._plan_cycle(self.true_time(self.manager.due))

    def _note_failure(self, notice: CycleFailed) -> None:
        self._failed = True
        self._world.note(self, "cycle failed", notice.error)
        if not isinstance(notice.error, LeaseholdError):
            raise Violation(Rule.BROKEN, f"{self}: {notice.error!r}")

    def _plan_end(self) -> None:
        self._turn += 1
        if not self._cycling:
            self._world.scheduler.start_at(self._world.now, self, self._end)

    def _end(self) -> None:
        try:
            self.manager.relinquish()
        except LeaseholdError as error:
            self._world.note(self, "relinquish", error)
        self._world.remove(self)

    # Work

    def _later(self, action: object, seconds: float) -> None:
        self._world.scheduler.start_at(self._world.now + seconds, self, action)  # type: ignore[arg-type]

    def _trigger(self) -> None:
        """One trigger: commit, let go, plan."""
        world, pace = self._world, self._world.story.pace
        if world.now < self.hung_until:
            if self.hung_until < math.inf:
                self._later(self._trigger, self.hung_until - world.now)
            return
        self.manager.note_progress()
        self.worked_since = world.now
        try:
            if self._commit():
                self._let_go()
            if self.leaving:
                self._working = False
                self._plan_end()
                return
            ranges = self._plan()
        except (StoreUnavailable, HubUnavailable):
            ranges = []
        finally:
            if self.manager.attention.is_set() and not self._cycling and self._working:
                self._plan_cycle(world.now)
        if ranges:
            self._later(partial(self._apply, ranges), pace.work * (0.5 + self.chance.random()))
        else:
            self._later(self._trigger, pace.trigger * (0.5 + self.chance.random()))

    def _commit(self) -> bool:
        """Record what was applied. Returns whether there is nothing left to record."""
        due = {key: end for key, end in self._reached.items() if self._written.get(key) != end}
        recorded = self.manager.update_checkpoints(
            [Checkpoint(GROUP, partition, end - 1, level) for (partition, level), end in due.items()]
        )
        self._written.update({(one.partition, one.owner_level): one.next_sequence_number for one in recorded})
        return True

    def _let_go(self) -> None:
        for partition, hold in self.held().items():
            key = partition, hold.owner_level
            if hold.asked_by and (key not in self._reached or self._written.get(key) == self._reached[key]):
                self.manager.let_go(partition, hold.owner_level)

    def _plan(self) -> list[Range]:
        """The next batch: of everything held, what has come and fits."""
        ends = self._hub_ends()
        reached, ranges = {}, []
        for partition, hold in self.held().items():
            key = partition, hold.owner_level
            start = reached[key] = self._reached.get(key, hold.start)
            end = min(ends.get(partition, start), start + self.chance.choice((40, 400)))
            if end > start:
                self._world.judge.reads(self, partition, hold.owner_level, start, end - 1)
                ranges.append(Range("simulated", partition, hold.owner_level, start, end - 1))
                reached[key] = end
        self._planned = reached
        return ranges

    def _hub_ends(self) -> dict[str, int]:
        held = list(self.held())
        known = self._world.network.request(
            self, "hub", "partition_properties", [lambda _: self._world.hub.partition_properties(held)]
        )[0]
        return {partition: one.end for partition, one in known.items()}

    def _apply(self, ranges: list[Range]) -> None:
        """Apply a batch, again and again until the sink has answered."""

        def land(_: Landing) -> None:
            self._world.sink.apply(ranges)

        try:
            self._world.network.request(self, "sink", "apply", [land])
        except SinkUnavailable:
            self._later(partial(self._apply, ranges), 1.0 + self.chance.random())
            return
        except OwnerLevelWentBack as error:
            self._world.judge.levels_went_back(self, error)
            self._world.fails(self)
            return
        self._reached = self._planned
        self._later(self._trigger, self._world.story.pace.trigger * (0.5 + self.chance.random()))
