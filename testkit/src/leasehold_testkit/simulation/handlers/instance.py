"""An instance of the simulation of entities: a process with a table of its own, which may be stopped or gone.

Owns where it may be stopped: before each call of the sink, of the lease store and of the handler. A transaction is one
step, since the database sees to that. What happens meanwhile is the world's to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

from leasehold.errors import LeaseholdError, SinkUnavailable
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.exclusive import ExclusiveEntities
from leasehold.handlers.settings import Failures, Spread
from leasehold.handlers.table import HandledTable, Retries
from leasehold.leases.keeper import LeaseKeeper
from leasehold.leases.lease import EntityLease
from leasehold.leases.times import lease_times
from leasehold.model import Event
from leasehold.runtime import Runtime
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold_testkit.simulation.handlers.judge import EntityJudge, EntityRule, EntityViolation, Seen
from leasehold_testkit.simulation.handlers.story import EntityStory

HUB, SCOPE = "simulated", "entities/entities"
_CALLS = (
    *("raise_owner_levels", "watermarks", "read_states", "read_entities"),
    *("parked_entities", "parked_events", "apply"),
)


class Around(Protocol):
    """What an instance knows of its world. `within` says that a transaction is under way."""

    story: EntityStory
    file: Path
    clock: VirtualClock
    rng: Random
    leases: MemoryLeaseStore
    judge: EntityJudge
    levels: list[int]
    unsettled: bool
    within: bool

    def may_happen(self) -> None: ...

    def note(self, text: str) -> None: ...

    def seen(self) -> Seen: ...


class Crashed(BaseException):
    """The instance is gone."""


class VirtualClock:
    """One clock for all."""

    def __init__(self) -> None:
        self.now = 0.0

    def wall(self) -> float:
        return 1_800_000_000.0 + self.now

    def monotonic(self) -> float:
        return 1_000.0 + self.now


class _Keeper(LeaseKeeper):
    """Without the thread that renews: what is not given up runs out."""

    def _wake(self, due: float | None) -> None:
        """Nothing is renewed."""


class _Leases:
    """An instance's leases, in a store that all share."""

    def __init__(self, instance: Instance) -> None:
        world = instance.world
        self._instance = instance
        self._keeper = _Keeper(
            world.leases,
            scope=SCOPE,
            holder=instance.name,
            times=lease_times(30.0),
            clock=world.clock,
            rng=world.rng,
            freed=lambda key: None,
        )

    def acquire_many(self, keys: Sequence[str]) -> list[EntityLease]:
        self._instance.may_stop()
        return self._keeper.acquire(keys)

    @property
    def takes_many(self) -> bool:
        """In memory they are."""
        return True

    def release_many(self, leases: Sequence[EntityLease]) -> None:
        self._instance.may_stop()
        self._keeper.release(leases)

    def close(self) -> None:
        """What is held runs out."""


class _Batch(list[Event]):
    """Events of a partition, as a processor gives them."""

    def __init__(self, partition: int, owner_level: int, first: int, events: Sequence[Event]) -> None:
        super().__init__(events)
        self.hub, self.partition, self.owner_level = HUB, str(partition), owner_level
        self.first, self.last, self.last_enqueued = first, first + len(events) - 1, 0.0


@dataclass(slots=True, eq=False)
class Hold:
    """What an instance thinks of a partition; itself the context of its batches."""

    partition: str
    owner_level: int
    start: int
    place: int
    trusted: bool = True
    hub: str = HUB

    def call_again(self, seconds: float) -> None:
        """The world gives empty batches anyway."""


class Instance:
    """A process with a table of its own."""

    def __init__(self, world: Around, name: str) -> None:
        self.world, self.name = world, name
        self.holds: dict[int, Hold] = {}
        self.busy: set[int] = set()
        self.gone = False
        self.violation: EntityViolation | None = None
        exclusive = ExclusiveEntities(_Leases(self), SCOPE) if world.story.exclusive else None
        spread = world.story.spread
        self.table = HandledTable(
            entity(keys=["entity"])(self._called),
            f"sqlite:///{world.file}",
            table="entities",
            pipeline="entities",
            schema="entity STRING, version BIGINT, fails BIGINT",
            state="entity STRING, seen STRING",
            failures=Failures(retries=Retries(deliveries=4, first=1.0, longest=8.0)),
            spread=Spread("version", exclusive=exclusive) if spread else None,
            runtime=Runtime(clock=world.clock, rng=world.rng),
        )
        self.table.level_of = lambda hub, partition: world.levels[int(partition)]
        for call in _CALLS:
            setattr(self.table.sink, call, partial(self._asked, call, getattr(self.table.sink, call)))

    def may_stop(self) -> None:
        """Other things may happen here."""
        self.world.may_happen()
        if self.gone:
            raise Crashed

    def work(self, partition: int, count: int) -> None:
        """Give this many events of a partition to the table, and whatever else it has to do."""
        hold = self.holds[partition]
        told = self.world.story.events[partition][hold.place : hold.place + count]
        events = [
            Event(
                json.dumps({"entity": one.entity, "version": one.version, "fails": one.fails}).encode(),
                partition=str(partition),
                sequence_number=number,
            )
            for number, one in enumerate(told, hold.place)
        ]
        batch = _Batch(partition, hold.owner_level, hold.place, events)
        self.busy.add(partition)
        try:
            self.table.on_events(batch, hold)
            hold.place += len(events)
        except Crashed:
            if self.violation is not None:
                raise self.violation from None
        except SinkUnavailable:
            self.world.note(f"{self.name} hears nothing of its sink")
        except LeaseholdError as error:
            raise EntityViolation(EntityRule.BROKEN, f"{self.name}: {error!r}") from error
        finally:
            self.busy.discard(partition)

    def _asked(self, name: str, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        world = self.world
        if world.within:  # the sink itself: one transaction is one step
            return call(*arguments, **more)
        self.may_stop()
        lost = name == "apply" and world.unsettled and world.rng.random() < 0.05
        if lost and world.rng.random() < 0.5:
            raise SinkUnavailable("simulated: the request is lost")
        world.within = True
        try:
            result = call(*arguments, **more)
        finally:
            world.within = False
        if name == "apply":
            counts = {
                name: count
                for name in ("applied", "rejected", "outdated", "refused", "violations")
                if (count := getattr(result, name))
            }
            world.note(f"{self.name} commits {counts}")
            world.judge.committed(world.seen())
        if lost:
            raise SinkUnavailable("simulated: the answer is lost")
        return result

    def _called(self, state: Any, event: EntityEvent) -> Any:
        world = self.world
        if world.story.exclusive:
            held = [lease.fence for lease in world.leases.holders(SCOPE, [event.key])]
            try:
                world.judge.calls(event.key, event.fence, held)
            except EntityViolation as violation:
                self.violation = violation
                raise Crashed from violation  # which no table takes for a failure of the handler
        if not world.within:
            self.may_stop()
        if event.delivery <= event.row["fails"]:
            raise RuntimeError(f"try {event.delivery}")
        place = f"{event.partition}:{event.sequence_number}"
        return {"seen": f"{state['seen']} {place}" if state else place}
