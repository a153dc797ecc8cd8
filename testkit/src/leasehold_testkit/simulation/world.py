"""One run of a story: the fleet, its stores, its hub, its sink, what goes wrong, and how it comes to rest.

After `Story.ends_at` nothing goes wrong any more. From then on the fleet has a bounded time to own and balance
everything and to consume every event that has come; then nothing may move for a while.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from leasehold.balancing import trust_duration
from leasehold.config import OwnershipSettings
from leasehold.errors import LeaseholdError, UsageError
from leasehold.model import EARLIEST, OwnerId, Positions
from leasehold.ownership import PartitionManager
from leasehold.runtime import Runtime
from leasehold.stores.base import StoreFeatures
from leasehold_testkit.simulation.clock import MachineClock
from leasehold_testkit.simulation.hub import SimulatedHub
from leasehold_testkit.simulation.instance import Instance
from leasehold_testkit.simulation.judge import Judge
from leasehold_testkit.simulation.network import Network
from leasehold_testkit.simulation.ports import HubPort, StorePort
from leasehold_testkit.simulation.rest import Rest, reset_to_sink, settled
from leasehold_testkit.simulation.scheduler import Party, Scheduler
from leasehold_testkit.simulation.sink import SimulatedSink
from leasehold_testkit.simulation.stores import SimulatedStore
from leasehold_testkit.simulation.story import OF_REQUESTS, Fault, FaultKind, Story

STORES = ("ownership", "checkpoints")
STALL_TIMEOUT = 45.0
"""Shorter than by default, so that it plays a part: in seconds."""


@dataclass(frozen=True, slots=True)
class Make:
    """What a world is made of, so that a test can put something else in place of a part."""

    store: type[SimulatedStore] = SimulatedStore
    sink: type[SimulatedSink] = SimulatedSink
    instance: type[Instance] = Instance
    manager: Callable[..., Any] = PartitionManager
    judge: Callable[[World], Judge] = Judge
    traces: bool = True
    rest: Callable[[World], Any] = Rest


@dataclass(frozen=True, slots=True)
class Span:
    """Somebody's trust in a partition, from and to a time."""

    partition: str
    owner: str
    start: float
    end: float


@dataclass(slots=True)
class _Open:
    owner: str
    start: float


class World:
    """Runs one story. `run` may be called once."""

    expected_errors = (LeaseholdError,)

    def __init__(self, story: Story, make: Make | None = None) -> None:
        self.story = story
        self.make = make or Make()
        self.scheduler = Scheduler(self._after_step)
        self.store_clock = MachineClock(self.scheduler, start=5_000.0)
        self.features = StoreFeatures(
            shared=False, own_clock=story.own_clock, presence=story.presence, batches=story.batches
        )
        self.ownership = self.make.store(self.store_clock, self.features, lambda: self.now)
        self.checkpoints = self.make.store(self.store_clock, self.features, lambda: self.now)
        self.hub = SimulatedHub(story.partitions, story.pace.events, lambda: self.now)
        self.judge = self.make.judge(self)
        self.sink = self.make.sink(self._record_level, self.judge.effect)
        self.network = Network(self)
        self.settings = OwnershipSettings(stall_timeout=STALL_TIMEOUT, settle_delay=story.settle_delay)
        self.trust = trust_duration(
            self.settings.partition_expiration, self.settings.clock_rate_ratio, self.settings.margin
        )
        self.reservation = self.settings.load_balancing_interval + self.settings.request_timeout
        self.parts = {part.name: part for part in story.parts}
        self.started: Counter[str] = Counter()
        self.cycles = self.claims = self.lost_claims = 0
        self.rest = self.make.rest(self)
        self.trace: list[tuple[float, str, str, object]] = []
        self.spans: list[Span] = []
        self.lost_at: dict[tuple[str, str], float] = {}
        self._open: dict[tuple[str, str], _Open] = {}
        self._instances: dict[str, Instance] = {}
        self._backups: dict[Fault, dict[str, Any]] = {}
        self.repairing = False

    @property
    def now(self) -> float:
        """True time."""
        return self.scheduler.now

    def alive(self) -> Iterable[Instance]:
        """All instances that have not ended."""
        return self._instances.values()

    def note(self, who: object, what: str, detail: object) -> None:
        """Keep a step for the trace."""
        if self.make.traces:
            self.trace.append((self.now, str(who), what, detail))

    def run(self) -> None:
        """Run the story to its end. Raises `Violation`."""
        story, scheduler = self.story, self.scheduler
        for part in story.parts:
            if part.starts_at is not None:
                scheduler.call_at(part.starts_at, partial(self.start, part.name))
        for fault in story.faults:
            if fault.kind is FaultKind.RESTORE:
                scheduler.call_at(max(0.0, fault.at - fault.seconds), partial(self._back_up, fault))
            scheduler.call_at(fault.at, partial(self._happen, fault))
        if story.calm:
            scheduler.call_at(story.calm_from, lambda: settled(self))
        scheduler.call_at(story.ends_at, lambda: self.rest.begin())
        scheduler.run()

    # The fleet

    def make_manager(self, who: Instance, owner_id: OwnerId) -> Any:
        """The partition manager of an instance."""
        port = StorePort(self, who)
        return self.make.manager(
            HubPort(self, who),
            self.hub.consumer_group(""),
            port,
            port,
            owner_id=owner_id,
            settings=who.settings,
            positions=Positions(EARLIEST),
            runtime=Runtime(clock=who.clock, rng=Random(f"{self.story.seed}/{owner_id}")),
        )

    def start(self, name: str) -> None:
        """Start an instance, or another incarnation of it."""
        part = self.parts.get(name)
        if part is None or self.repairing:
            return
        self.started[name] += 1
        settings = replace(self.settings, strategy=part.strategy)
        if self.story.presence:
            settings = replace(settings, capacity=part.capacity, maximum_partitions=part.maximum)
        one = self.make.instance(self, part, self.started[name], settings)
        self._instances[one.id] = one
        self.note(one, "starts", "")

    def _start_again(self, name: str) -> None:
        if self.newest(name) is None:
            self.start(name)

    def remove(self, who: Instance) -> None:
        """An instance has ended, in whatever way."""
        who.dead = True
        if self._instances.pop(who.id, None):
            self._change(who, who.seen, {})
            self.note(who, "ends", "")

    def fails(self, who: Instance) -> None:
        """The sink says that levels went back: somebody has to repair it, with everything stopped."""
        self.remove(who)
        if not self.repairing:
            self.repairing = True
            self.scheduler.call_at(self.now + 5.0, self._stop_all)

    def _stop_all(self) -> None:
        for one in list(self.alive()):
            self.remove(one)
        self.scheduler.call_at(
            self.now + self.settings.partition_expiration + self.settings.request_timeout + 5, self._repair
        )

    def _repair(self) -> None:
        """`leasehold reset --to sink`, by `operations.resetting`, on the stores; again while it is refused."""
        if not self.story.own_clock:
            self.ownership.clear_out()  # ages cannot be seen from outside: a person has to know that all are dead
        try:
            reset_to_sink(self)
        except UsageError as error:
            self.note("reset", "refused", error)
            self.scheduler.call_at(self.now + 10.0, self._repair)
            return
        self.repairing = False
        for name in self.parts:
            if self.started[name]:
                self.start(name)

    def newest(self, name: str) -> Instance | None:
        """The latest incarnation of a name, if it is alive."""
        return self._instances.get(f"{name}/{self.started[name]}")

    # What goes wrong

    def _happen(self, fault: Fault) -> None:
        self.note(fault.who or fault.what, "fault", fault)
        if fault.kind in OF_REQUESTS:
            self.network.expect(fault)
            return
        who = self.newest(fault.who) if fault.who else None
        if fault.kind is FaultKind.OUTAGE:
            self.network.lose(fault.what, fault.who, min(self.now + fault.seconds, self.story.ends_at))
        elif fault.kind in (FaultKind.WIPE, FaultKind.RESTORE):
            for what in STORES if fault.what == "both" else (fault.what,):
                self.judge.wiped(what)
                if fault.kind is FaultKind.WIPE:
                    self._store(what).wipe()
                else:
                    self._store(what).restore(self._backups[fault][what])
        elif fault.kind is FaultKind.PARTITIONS:
            self.hub.add(int(fault.number))
        elif fault.kind is FaultKind.JOIN:
            if who is None:
                self.start(fault.who)
        elif who is not None:
            self._happen_to(who, fault)

    def _happen_to(self, who: Instance, fault: Fault) -> None:
        again = min(self.now + fault.seconds, max(self.now, self.story.ends_at))
        if fault.kind is FaultKind.CRASH:
            self.remove(who)
            if fault.seconds >= 0:
                self.scheduler.call_at(again, partial(self._start_again, who.name))
        elif fault.kind in (FaultKind.PAUSE, FaultKind.USURP):
            who.paused_until = again
            if fault.kind is FaultKind.USURP:
                self.start(who.name)
        elif fault.kind is FaultKind.HANG and who.hung_until <= self.now and not who.leaving:
            who.hung_until = math.inf if fault.seconds < 0 else again
        elif fault.kind is FaultKind.LEAVE and who.hung_until > self.now:
            self.remove(who)  # it is killed
        elif fault.kind is FaultKind.LEAVE:
            who.leave()
        elif fault.kind is FaultKind.CAPACITY:
            self.parts[who.name] = replace(self.parts[who.name], capacity=fault.number)
            self.remove(who)
            self.start(who.name)

    def _store(self, what: str) -> SimulatedStore:
        return self.ownership if what == "ownership" else self.checkpoints

    def _back_up(self, fault: Fault) -> None:
        self._backups[fault] = {what: self._store(what).backup() for what in STORES}

    def _record_level(self, partition: str) -> int | None:
        record = self.ownership.record(partition)
        return None if record is None else record.owner_level

    # What is seen

    def _after_step(self, party: Party | None) -> None:
        if isinstance(party, Instance) and not party.dead:
            held = party.held()
            if held != party.seen:
                seen, party.seen = party.seen, held
                self.judge.holds(party, held, seen)
                self._change(party, seen, held)

    def _change(self, who: Instance, seen: Iterable[str], held: Iterable[str]) -> None:
        """Note in the history who gained and lost what."""
        before, after = set(seen), set(held)
        for partition in sorted(before - after):
            opened = self._open.pop((partition, who.id))
            self.spans.append(Span(partition, who.name, opened.start, self.now))
            self.lost_at[partition, who.id] = self.now
            self.note(who, "holds no more", partition)
        for partition in sorted(after - before):
            self._open[partition, who.id] = _Open(who.name, self.now)
            self.note(who, "holds", partition)

    def history(self) -> list[Span]:
        """Who trusted itself with what, and when, until now."""
        still = [Span(partition, one.owner, one.start, self.now) for (partition, _), one in self._open.items()]
        return sorted([*self.spans, *still], key=lambda span: (span.start, span.partition))
