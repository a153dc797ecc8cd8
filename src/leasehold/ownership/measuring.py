"""The stores of an instance, each call of which is told as a notice: how long it took, and what came of it.

Owns nothing else: arguments, answers and errors pass as they are. A call that is not told is one that a store makes to
itself. Safe for as many threads as the store is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

from leasehold.clock import Clock
from leasehold.errors import NotTheOwner
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, OwnershipListing, Presence
from leasehold.notices import Notices, StoreCalled
from leasehold.stores.base import CheckpointStore, KnowsNamesakes, OwnershipStore, PipelineBinding, StoreFeatures
from leasehold.stores.stand_ins import NoCheckpoints

T = TypeVar("T")


def measured_ownership(store: OwnershipStore, notices: Notices, clock: Clock) -> OwnershipStore:
    """The same store, whose calls are told."""
    kind = _Namesakes if isinstance(store, KnowsNamesakes) else _Ownership
    return kind(store, _Calls(notices, clock))


def measured_checkpoints(store: CheckpointStore, notices: Notices, clock: Clock) -> CheckpointStore:
    """The same store, whose calls are told; what only stands in for one is not measured."""
    return store if isinstance(store, NoCheckpoints) else _Checkpoints(store, _Calls(notices, clock))


class _Calls:
    def __init__(self, notices: Notices, clock: Clock) -> None:
        self._notices, self._clock = notices, clock

    def tell(
        self,
        operation: str,
        call: Callable[[], T],
        request: Sized = (),
        done: Callable[[T], int] = lambda answer: 0,
    ) -> T:
        """What the call returns, or raises, told."""
        started = self._clock.monotonic()
        try:
            answer = call()
        except BaseException as error:
            taken = self._clock.monotonic() - started
            self._notices.publish(StoreCalled(operation, taken, len(request), 0, type(error).__name__))
            raise
        taken = self._clock.monotonic() - started
        self._notices.publish(StoreCalled(operation, taken, len(request), done(answer)))
        return answer


class _Ownership:
    def __init__(self, store: OwnershipStore, calls: _Calls) -> None:
        self._store, self._calls = store, calls

    def __repr__(self) -> str:
        return repr(self._store)

    @property
    def features(self) -> StoreFeatures:
        return self._store.features

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        return self._calls.tell("list_ownership", lambda: self._store.list_ownership(group))

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._calls.tell("claim_ownership", lambda: self._store.claim_ownership(claims), claims, len)

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        return self._calls.tell("renew_ownership", lambda: self._store.renew_ownership(held, presence), held, len)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._calls.tell("relinquish_ownership", lambda: self._store.relinquish_ownership(held), held, len)

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        self._calls.tell("withdraw_presence", lambda: self._store.withdraw_presence(group, owner_ids), owner_ids)

    def ask(self, asks: Sequence[Ask]) -> None:
        self._calls.tell("ask", lambda: self._store.ask(asks), asks)

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        self._calls.tell("withdraw_asks", lambda: self._store.withdraw_asks(asks), asks)


class _Namesakes(_Ownership):
    """One that sees other spellings of a group's name."""

    def check_names(self, group: ConsumerGroup) -> None:
        if isinstance(self._store, KnowsNamesakes):
            self._store.check_names(group)


class _Checkpoints:
    def __init__(self, store: CheckpointStore, calls: _Calls) -> None:
        self._store, self._calls = store, calls

    def __repr__(self) -> str:
        return repr(self._store)

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        return self._calls.tell("list_checkpoints", lambda: self._store.list_checkpoints(group))

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        return self._calls.tell("raise_owner_level", lambda: self._store.raise_owner_level(starts), starts, len)

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        def accepted(refused: list[NotTheOwner]) -> int:
            return len(checkpoints) - len(refused)

        return self._calls.tell(
            "update_checkpoints", lambda: self._store.update_checkpoints(checkpoints), checkpoints, accepted
        )

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        return self._store.pipeline_binding(group)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        return self._store.bind_pipeline(group, binding)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        self._store.rebind_pipeline(group, binding)
