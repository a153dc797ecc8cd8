"""Balancing without checkpoints, and checkpoints without balancing.

Owns what stands in for the store that is not there. `NoCheckpoints` remembers no place: each acquisition starts where
it was told to. `FixedShare` is an ownership store that only this process sees: the partitions that it was told to
work on are its own, and nobody is asked.

What keeps two processors with the same fixed share apart is the checkpoint's owner level, which each raises before it
reads anything. Without an ownership store nobody hands out levels, so each step is a random one: two that start in
the same moment would have to draw the same of 16 million. Whoever finds a higher level than its own in a checkpoint
has been replaced: it gives the partition up for good, and says so. So the later start wins, and two never take turns.

Concurrency: as for any store, any number of threads. If the process stops for a minute, trust runs out as ever, and
what happened meanwhile is in the checkpoint: the level that another has raised there is found before the partition is
claimed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random

from leasehold.clock import Clock
from leasehold.errors import AlreadyInUse, ConfigError, NotTheOwner, OwnerLevelSuperseded, UsageError
from leasehold.model import HIGHEST, Checkpoint, ConsumerGroup, Ownership
from leasehold.stores.base import CheckpointStore, PipelineBinding, StoreFeatures
from leasehold.stores.memory.store import MemoryStore

STEP_BITS = 24

Report = Callable[[BaseException, "str | None"], object]


class NoCheckpoints:
    """A checkpoint store that keeps nothing."""

    def __repr__(self) -> str:
        return "no checkpoint store"

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        return []

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        return list(starts)

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        raise UsageError(
            "there is no checkpoint store to record this in: the processor was given an ownership store alone. Give it "
            "both, stores=(OWNERSHIP, CHECKPOINTS)"
        )

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        return None

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        return binding

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        return None


class FixedShare(MemoryStore):
    """The ownership of `partitions`, in this process alone."""

    def __init__(self, partitions: Collection[str], report: Report, *, clock: Clock, rng: Random) -> None:
        super().__init__(clock, StoreFeatures(shared=False, one_process=True, presence=False))
        if isinstance(partitions, str) or not partitions or not all(isinstance(one, str) for one in partitions):
            raise ConfigError(
                "partitions", partitions, "a list of partition ids, which are texts", 'For example ["0", "3"]'
            )
        self._wanted = tuple(dict.fromkeys(partitions))
        self._report = report
        self._rng = rng
        self._guard = threading.Lock()
        self._levels: dict[str, int] = {}
        self._lost: set[str] = set()

    def __repr__(self) -> str:
        return f"the fixed share {', '.join(self._wanted)}"

    def left(self, partitions: Collection[str]) -> tuple[str, ...]:
        """What is to be worked on of the partitions that the hub has. Raises `ConfigError` for one that it has not."""
        check_known(self._wanted, partitions)
        with self._guard:
            return tuple(one for one in self._wanted if one not in self._lost)

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        with self._guard:
            mine = [one for one in claims if one.partition not in self._lost]
            stepped = [
                replace(one, owner_level=min(one.owner_level + self._rng.getrandbits(STEP_BITS), HIGHEST))
                for one in mine
            ]
        won = super().claim_ownership(stepped)
        with self._guard:
            self._levels |= {one.partition: one.owner_level for one in won}
        return won

    def seen(self, partition: str, level: int) -> None:
        """A checkpoint of the partition carries this level: above mine, another has come after me."""
        with self._guard:
            mine = self._levels.get(partition)
            if mine is None or level <= mine or partition in self._lost:
                return
            self._lost.add(partition)
        self._report(
            AlreadyInUse(
                f"partition {partition}: another processor has started on it, with a fixed share or balanced, at owner "
                f"level {level}, and this one, at {mine}, gives it up. Give each a share of its own, or an ownership "
                "store to all of them"
            ),
            partition,
        )


def check_known(partitions: Collection[str], hub_partitions: Collection[str]) -> None:
    """Refuse partitions that the hub, whose partitions are `hub_partitions`, has not. Raises `ConfigError`."""
    if missing := [one for one in partitions if one not in hub_partitions]:
        raise ConfigError(
            "partitions", missing, f"the hub has the partitions {', '.join(hub_partitions)}", "Name some of these"
        )


class WatchedCheckpoints:
    """The checkpoints of a fixed share: whoever comes after this processor is seen by them."""

    def __init__(self, checkpoints: CheckpointStore, share: FixedShare) -> None:
        self._checkpoints = checkpoints
        self._share = share

    def __repr__(self) -> str:
        return repr(self._checkpoints)

    @property
    def features(self) -> StoreFeatures:
        """What the store can do, as far as it says so."""
        return getattr(self._checkpoints, "features", StoreFeatures(shared=True))

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        return self._watched(self._checkpoints.list_checkpoints(group))

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        return self._watched(self._checkpoints.raise_owner_level(starts))

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        refused = self._checkpoints.update_checkpoints(checkpoints)
        for one in refused:
            if isinstance(one, OwnerLevelSuperseded):
                self._share.seen(one.partition, one.highest)
        return refused

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        return self._checkpoints.pipeline_binding(group)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        return self._checkpoints.bind_pipeline(group, binding)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        self._checkpoints.rebind_pipeline(group, binding)

    def _watched(self, checkpoints: list[Checkpoint]) -> list[Checkpoint]:
        for one in checkpoints:
            self._share.seen(one.partition, one.owner_level)
        return checkpoints
