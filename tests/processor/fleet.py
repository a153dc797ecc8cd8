"""What the tests of the partition manager are made of: a hub, stores that get into trouble, instances.

The stores are real ones in memory; trouble comes between them and the manager, as a network would bring it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from leasehold.clock import Clock
from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError, HubUnavailable, NotTheOwner, StoreUnavailable
from leasehold.hubs import EVENT_COLUMNS
from leasehold.hubs import Hub as HubBase
from leasehold.model import (
    EARLIEST,
    Ask,
    Checkpoint,
    ConsumerGroup,
    Event,
    EventPosition,
    OwnerId,
    Ownership,
    OwnershipListing,
    PartitionProperties,
    PositionKind,
    Positions,
    Presence,
)
from leasehold.notices import Measurement, Notice
from leasehold.ownership import PartitionManager, Purpose
from leasehold.runtime import Runtime
from leasehold.stores import Store
from leasehold.stores.base import PipelineBinding, StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = ConsumerGroup("n", "h")
SETTINGS = OwnershipSettings(settle_delay=0, strategy="greedy")
"""The defaults: interval 10 s, expiration 30 s, request time-out 3 s; trust is 23 s."""
TRUST = 23.0


class Hub(HubBase):
    """A hub that has begins and ends, and no events."""

    url = "double://hub"
    identity = "hub"

    def __init__(self, partitions: int = 4) -> None:
        self.ends = {str(p): 0 for p in range(partitions)}
        self.begins: dict[str, int] = {}
        self.away = False

    def consumer_group(self, name: str) -> ConsumerGroup:
        return ConsumerGroup("n", "h", name)

    def partition_ids(self) -> tuple[str, ...]:
        if self.away:
            raise HubUnavailable("the hub is away")
        return tuple(self.ends)

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        known = self.partition_ids()
        wanted = known if partitions is None else partitions
        return {p: PartitionProperties(p, self.begins.get(p, 0), self.ends[p]) for p in wanted}

    def resolve(self, partition: str, position: EventPosition) -> int:
        if self.away:
            raise HubUnavailable("the hub is away")
        if position.kind is PositionKind.EARLIEST:
            return self.begins.get(partition, 0)
        if position.kind is PositionKind.LATEST:
            return self.ends[partition]
        if position.sequence_number > self.ends[partition]:
            raise ConfigError("position", position.sequence_number, "beyond the end")
        return position.sequence_number

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        return iter(())

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        raise NotImplementedError

    def close(self) -> None:
        pass


class TroubledStore:
    """A store as one instance sees it: away, hanging, or losing replies on command.

    `before` and `after` hold, by method, what is to happen once before a call reaches the store and once after
    it has been carried out. What raises there is what the caller gets.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.features = inner.features
        self.away = False
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}
        self.calls: list[str] = []

    def lose_reply(self, method: str) -> None:
        """Carry out the next call of `method`, and lose its reply."""
        self.after[method] = unavailable

    def _call(self, method: str, *arguments: object) -> Any:
        self.calls.append(method)
        self.before.pop(method, nothing)()
        if self.away:
            raise StoreUnavailable("the store is away")
        result = getattr(self._inner, method)(*arguments)
        self.after.pop(method, nothing)()
        return result

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        return self._call("list_ownership", group)  # type: ignore[no-any-return]

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._call("claim_ownership", claims)  # type: ignore[no-any-return]

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        return self._call("renew_ownership", held, presence)  # type: ignore[no-any-return]

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._call("relinquish_ownership", held)  # type: ignore[no-any-return]

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        return self._call("list_checkpoints", group)  # type: ignore[no-any-return]

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        return self._call("raise_owner_level", starts)  # type: ignore[no-any-return]

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        self._call("withdraw_presence", group, owner_ids)

    def ask(self, asks: Sequence[Ask]) -> None:
        self._call("ask", asks)

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        self._call("withdraw_asks", asks)

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        return self._call("update_checkpoints", checkpoints)  # type: ignore[no-any-return]

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        return self._call("pipeline_binding", group)  # type: ignore[no-any-return]

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        return self._call("bind_pipeline", group, binding)  # type: ignore[no-any-return]

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        self._call("rebind_pipeline", group, binding)


def nothing() -> None:
    """What happens where nothing was planned."""


def unavailable() -> None:
    """The reply is lost on its way."""
    raise StoreUnavailable("the reply was lost")


class Instance:
    """One instance: a partition manager, its own way to the stores, and the notices it has given."""

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        ownership: Store,
        checkpoints: Store,
        *,
        name: str = "a",
        settings: OwnershipSettings = SETTINGS,
        positions: Positions | None = None,
        seed: int = 0,
        pipeline: str = "",
        last_error: str = "",
    ) -> None:
        self.name = name
        self.clock = clock
        self.ownership = TroubledStore(ownership)
        self.checkpoints = TroubledStore(checkpoints)
        self.notices: list[Notice] = []
        self.manager = PartitionManager(
            hub,
            GROUP,
            self.ownership,
            self.checkpoints,
            owner_id=OwnerId(name),
            settings=settings,
            positions=positions or Positions(EARLIEST),
            runtime=Runtime(clock=clock, rng=Random(seed)),
            purpose=Purpose(pipeline=pipeline),
            last_error=last_error,
        )
        self.manager.notices.subscribe(self._note, Notice)

    def _note(self, notice: Notice) -> None:
        if not isinstance(notice, Measurement):  # which comes with every request
            self.notices.append(notice)

    @property
    def id(self) -> str:
        return str(self.manager.owner_id)

    @property
    def levels(self) -> dict[str, int]:
        """The owner levels of what is held and trusted now."""
        return {partition: hold.owner_level for partition, hold in self.manager.held().items()}

    def settle(self) -> None:
        """Tick as the dispatch thread does: at once again after a cycle that won something."""
        for _ in range(100):
            if not self.manager.tick():
                return
        raise AssertionError("an instance goes on winning for ever")

    def drain(self) -> list[str]:
        """Let go of what is asked for, as a worker does that has nothing begun. Returns what that was."""
        asked = {p: hold.owner_level for p, hold in self.manager.held().items() if hold.asked_by}
        return [partition for partition, level in asked.items() if self.manager.let_go(partition, level)]

    def take(self) -> list[Notice]:
        """The notices since the last time."""
        taken = self.notices[:]
        self.notices.clear()
        return taken


class DriftingClock:
    """The clock of one machine: another start and another rate than the store's, and a wall clock of its own."""

    def __init__(self, base: ManualClock, rate: float = 1.0, start: float = 0.0, wall: float = 0.0) -> None:
        self._base, self._rate, self._start, self._wall = base, rate, start, wall

    def wall(self) -> float:
        return self._wall + self._rate * self._base.monotonic()

    def monotonic(self) -> float:
        return self._start + self._rate * self._base.monotonic()


class Scene:
    """A hub, two stores and a clock, for instances to share."""

    def __init__(self, partitions: int = 4, features: StoreFeatures | None = None) -> None:
        self.hub = Hub(partitions)
        self.clock = ManualClock()
        self.ownership = MemoryStore(self.clock, features)
        self.checkpoints = MemoryStore(self.clock, features)
        self._seeds = itertools.count()

    def start(
        self,
        name: str = "a",
        *,
        settings: OwnershipSettings = SETTINGS,
        positions: Positions | None = None,
        clock: Clock | None = None,
        pipeline: str = "",
        last_error: str = "",
    ) -> Instance:
        """A new instance that has not ticked yet."""
        return Instance(
            self.hub,
            clock or self.clock,
            self.ownership,
            self.checkpoints,
            name=name,
            settings=settings,
            positions=positions,
            seed=next(self._seeds),
            pipeline=pipeline,
            last_error=last_error,
        )

    def running(self, name: str = "a", *, settings: OwnershipSettings = SETTINGS) -> Instance:
        """A new instance that has claimed its share."""
        instance = self.start(name, settings=settings)
        instance.settle()
        instance.take()
        return instance

    def live(self, seconds: float, *instances: Instance) -> None:
        """Let time pass, with these instances running their cycles and their work going on."""
        interval = SETTINGS.load_balancing_interval
        for _ in range(round(seconds / interval)):
            self.clock.advance(interval)
            for one in instances:
                one.manager.note_progress()
                one.settle()
                if one.drain():
                    one.settle()

    def share(self, *instances: Instance) -> None:
        """Let them share at once: whoever is asked for a partition lets go of it."""
        quiet = 0
        for _ in range(100):
            for one in instances:
                one.settle()
            drained = [one for one in instances if one.drain()]
            for one in drained:
                one.settle()
            quiet = 0 if drained else quiet + 1
            if quiet == 2:  # in the first one, the last may have asked the first
                return
        raise AssertionError("they go on handing over for ever")

    def unheard(self, *instances: Instance) -> None:
        """Nobody knows of them but by what they own, until they renew: they cannot be asked, and are stolen from."""
        self.ownership.withdraw_presence(GROUP, [one.id for one in instances])

    def asks(self) -> dict[str, str]:
        """Who asks, by partition."""
        return {ask.partition: ask.asker for ask in self.ownership.list_ownership(GROUP).asks}

    def present(self) -> set[str]:
        """Whose presence is there."""
        return {presence.owner_id for presence in self.ownership.list_ownership(GROUP).presences}

    def records(self) -> dict[str, Ownership]:
        """The ownership records by partition."""
        return {record.partition: record for record in self.ownership.list_ownership(GROUP).records}

    def progress(self) -> dict[str, Checkpoint]:
        """The checkpoints by partition."""
        return {checkpoint.partition: checkpoint for checkpoint in self.checkpoints.list_checkpoints(GROUP)}
