"""Either store alone, on Spark: balancing without checkpoints, and a fixed share of partitions without balancing.

Owns how people write the two in options and pipeline files, what goes with them, and the stores that an instance then
has (`leasehold.stores.stand_ins` has what stands in for a store that is not there). Refuses to leave a store out by
accident: `checkpoint_store = "none"` says that none is wanted, and `partitions` that nobody balances.

Where there are no checkpoints and a table keeps watermarks, these are the places: an acquisition goes on behind what
the table holds, and what has been consumed is told by it. A former owner may commit one more batch after its successor
has read the watermark: the successor then reads these events a second time, and the table drops them. Without a table
that the instance knows of, each acquisition starts where it was told to.

Needs no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from leasehold.backends import masked
from leasehold.clock import Clock, SystemClock
from leasehold.combinations import Combination, check, is_mixed, place_at, place_of
from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError, NotTheOwner
from leasehold.model import BEFORE_FIRST, Checkpoint, ConsumerGroup
from leasehold.ownership.starting import KnowsWatermarks
from leasehold.settings.kinds import check_partitions
from leasehold.stores import CheckpointStore, OwnershipStore, Store
from leasehold.stores.stand_ins import FixedShare, NoCheckpoints, Report, WatchedCheckpoints

NONE = "none"
"""Given in place of a store's URL: there is to be none."""

_FOR_BALANCING = ("capacity", "maximum_partitions")


def check_alone(options: Mapping[str, Any]) -> None:
    """Refuse what does not go together, of what was given by the names of `SourceOptions`, and `store`.

    Raises `ConfigError` that names the setting.
    """
    partitions, ownership = options.get("partitions"), options.get("ownership_store")
    if options.get("store") == NONE:
        raise ConfigError("store", NONE, "stands for both stores, and one is needed", 'Say checkpoint_store = "none"')
    if partitions is None:
        if ownership == NONE:
            raise ConfigError(
                "ownership_store",
                NONE,
                "without an ownership store nobody shares out the partitions",
                "Say with partitions which are this instance's own, or name an ownership store",
            )
        return
    check_partitions(partitions)
    if ownership not in (None, NONE):
        raise ConfigError(
            "ownership_store",
            masked(ownership),
            "a fixed share of partitions has no ownership store, and its checkpoints keep two apart",
            "Leave it out, or partitions",
        )
    if options.get("checkpoint_store") == NONE:
        raise ConfigError(
            "checkpoint_store",
            NONE,
            "a fixed share of partitions has no ownership store, so nothing would keep two instances apart",
            "Name one, or leave out partitions",
        )
    for name in _FOR_BALANCING:
        if options.get(name) is not None:
            raise ConfigError(
                name, options[name], "is for balancing, and a fixed share of partitions is not balanced", "Leave it out"
            )
    if is_mixed(options.get("hub", "")):
        raise ConfigError(
            "partitions",
            ", ".join(partitions),
            "the hub's URL says fleet=mixed, and other SDKs' processors would own these partitions too",
            "Leave it out, or take fleet=mixed out of the hub's URL",
        )


def check_places(hub: str, ownership: str | None, checkpoints: str | None, settings: OwnershipSettings) -> None:
    """Refuse stores that do not go together, or with the hub, or with Spark's several processes, as far as URLs tell.

    Checkpoints that are `none` are not wanted. Raises `ConfigError` that names the setting.
    """
    check(
        Combination(
            ownership=place_at(ownership or ""),
            checkpoints=place_of(NoCheckpoints()) if checkpoints == NONE else place_at(checkpoints or ""),
            mixed=is_mixed(hub),
            several_processes=True,
            settings=settings,
        )
    )


class TablePlaces(NoCheckpoints):
    """The watermarks of a table, seen as the checkpoints of the group that fills it. Nothing is written here."""

    def __init__(self, table: KnowsWatermarks, hub: str) -> None:
        self._table, self._hub = table, hub

    def __repr__(self) -> str:
        return "the watermarks of the table"

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        return [
            Checkpoint(group, partition, mark.sequence_number, mark.owner_level, enqueued_time=mark.enqueued_time)
            for partition, mark in self._table.watermarks(self._hub).items()
            if mark.whole or mark.sequence_number > BEFORE_FIRST
        ]

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        return []  # the table's own transaction has moved its watermark


@dataclass(frozen=True, slots=True)
class Stores:
    """What an instance uses. `share` is there where the share is a fixed one, and then is the ownership, too."""

    ownership: OwnershipStore
    checkpoints: CheckpointStore
    share: FixedShare | None = None

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether there is a checkpoint store."""
        return not isinstance(self.checkpoints, NoCheckpoints)

    def level_of(self, group: ConsumerGroup, partition: str) -> int | None:
        """The owner level that is on record for a partition, None if there is none."""
        if self.share is None:
            levels = {one.partition: one.owner_level for one in self.ownership.list_ownership(group).records}
        else:  # whoever comes after a fixed share is seen in the checkpoints
            levels = {one.partition: one.owner_level for one in self.checkpoints.list_checkpoints(group)}
        return levels.get(partition)

    def ours(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Which of the hub's partitions concern this instance. Raises `ConfigError` for one that the hub has not."""
        return tuple(partitions) if self.share is None else self.share.left(partitions)


def open_stores(
    ownership: str | None,
    checkpoints: str | None,
    partitions: Sequence[str] | None,
    opener: Callable[[str], Store],
    *,
    places: TablePlaces | None = None,
    report: Report = lambda error, partition: None,
    clock: Clock | None = None,
    rng: Random | None = None,
) -> Stores:
    """The stores at these URLs. With `partitions` ownership is None, and without checkpoints there may be `places`.

    `report` is told of each partition of a fixed share that another one has taken.
    """
    if partitions is None:
        assert ownership is not None
        kept: CheckpointStore = (places or NoCheckpoints()) if checkpoints is None else opener(checkpoints)
        return Stores(opener(ownership), kept)
    assert checkpoints is not None
    share = FixedShare(partitions, report, clock=clock or SystemClock(), rng=rng or Random())
    return Stores(share, WatchedCheckpoints(opener(checkpoints), share), share)
