"""The stores and the hub as one instance sees them: every call is a request through the network.

Each request is shown to the judge at the moment it is carried out, with the records as they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from leasehold.errors import NotTheOwner
from leasehold.model import (
    Ask,
    Checkpoint,
    ConsumerGroup,
    EventPosition,
    Ownership,
    OwnershipListing,
    PartitionProperties,
    Presence,
)
from leasehold.stores.base import PipelineBinding
from leasehold_testkit.simulation.hub import SimulatedHub
from leasehold_testkit.simulation.surroundings import Landing, Process, Surroundings

T = TypeVar("T")
R = TypeVar("R")


class StorePort:
    """An `OwnershipStore` and a `CheckpointStore`."""

    def __init__(self, world: Surroundings, who: Process) -> None:
        self._world = world
        self._who = who
        self.features = world.features

    def _ownership(self, method: str, action: Callable[[Landing], T]) -> T:
        return self._world.network.request(self._who, "ownership", method, [action])[0]

    def _in_parts(
        self, server: str, method: str, records: Sequence[R], land: Callable[[list[R], Landing], list[T]]
    ) -> list[T]:
        """A request whose records are carried out together, or one after another where there are no batches."""
        groups = [list(records)] if self.features.batches or len(records) < 2 else [[record] for record in records]
        parts = [partial(land, group) for group in groups]
        return [one for answer in self._world.network.request(self._who, server, method, parts) for one in answer]

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        return self._ownership("list_ownership", lambda _: self._world.ownership.list_ownership(group))

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        def land(records: list[Ownership], landing: Landing) -> list[Ownership]:
            before = self._before(records, landing)
            won = self._world.ownership.claim_ownership(records)
            self._world.judge.claimed(self._who, landing, before, won)
            return won

        self._world.claims += len(claims)
        won = self._in_parts("ownership", "claim_ownership", claims, land)
        self._world.lost_claims += len(claims) - len(won)
        return won

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        def land(records: list[Ownership], landing: Landing) -> list[Ownership]:
            first = not held or not records or records[0] is held[0]
            before = self._before(records, landing)
            renewed = self._world.ownership.renew_ownership(records, presence if first else None)
            self._world.judge.renewed(self._who, landing, before, renewed)
            return renewed

        if not held and presence is None:
            return []
        return self._in_parts("ownership", "renew_ownership", held, land)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        def land(records: list[Ownership], landing: Landing) -> list[Ownership]:
            before = self._before(records, landing)
            given = self._world.ownership.relinquish_ownership(records)
            self._world.judge.relinquished(self._who, before, given)
            return given

        return self._in_parts("ownership", "relinquish_ownership", held, land)

    def _before(self, records: Sequence[Ownership], landing: Landing) -> dict[str, Ownership | None]:
        store = self._world.ownership
        landing.written = {record.partition: store.written.get(record.partition, 0.0) for record in records}
        return {record.partition: store.record(record.partition) for record in records}

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        def land(_: Landing) -> None:
            self._world.ownership.withdraw_presence(group, owner_ids)
            self._world.judge.withdrawn(owner_ids)

        self._ownership("withdraw_presence", land)

    def ask(self, asks: Sequence[Ask]) -> None:
        def land(_: Landing) -> None:
            self._world.ownership.ask(asks)
            self._world.judge.asked(asks)

        self._world.judge.asks(asks)
        self._ownership("ask", land)

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        self._ownership("withdraw_asks", lambda _: self._world.ownership.withdraw_asks(asks))

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        action = self._world.checkpoints.list_checkpoints
        return self._world.network.request(self._who, "checkpoints", "list_checkpoints", [lambda _: action(group)])[0]

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        def action(records: Sequence[Checkpoint]) -> list[Checkpoint]:
            standing = self._world.checkpoints.raise_owner_level(records)
            self._world.judge.announced(records, standing)
            return standing

        return self._write("raise_owner_level", action, starts)

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        return self._write("update_checkpoints", self._world.checkpoints.update_checkpoints, checkpoints)

    def _write(
        self, method: str, action: Callable[[Sequence[Checkpoint]], list[T]], records: Sequence[Checkpoint]
    ) -> list[T]:
        store = self._world.checkpoints

        def land(records: list[Checkpoint], landing: Landing) -> list[T]:
            before = {record.partition: store.checkpoint(record.partition) for record in records}
            answer = action(records)
            self._world.judge.checkpointed(before, {partition: store.checkpoint(partition) for partition in before})
            return answer

        return self._in_parts("checkpoints", method, records, land) if records else []

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        raise NotImplementedError("a simulated group is tied to nothing")

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        raise NotImplementedError("a simulated group is tied to nothing")

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        raise NotImplementedError("a simulated group is tied to nothing")


class HubPort(SimulatedHub):
    """The world's hub, which an instance has to ask."""

    def __init__(self, world: Surroundings, who: Process) -> None:
        super().__init__(0, 0.0, lambda: 0.0)
        self._world = world
        self._who = who

    def _request(self, method: str, action: Callable[[], T]) -> T:
        return self._world.network.request(self._who, "hub", method, [lambda _: action()])[0]

    def partition_ids(self) -> tuple[str, ...]:
        return self._request("partition_ids", self._world.hub.partition_ids)

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        return self._request("partition_properties", lambda: self._world.hub.partition_properties(partitions))

    def resolve(self, partition: str, position: EventPosition) -> int:
        return self._request("resolve", lambda: self._world.hub.resolve(partition, position))
