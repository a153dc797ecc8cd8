"""What an event processor is given, in the forms that people write it, and as its parts take it.

Owns these forms and refuses those that do not go together. Opens stores by URL, and does no other I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leasehold.errors import ConfigError
from leasehold.model import EARLIEST, EventPosition, Positions
from leasehold.processor.checkpointer import EACH_BATCH, MANUAL, CheckpointPolicy
from leasehold.processor.pump import Handlers, OnEvent, OnEvents, OnStart, OnStop
from leasehold.stores import CheckpointStore, OwnershipStore, Store, open_store

Start = Positions | EventPosition | str | Mapping[str, EventPosition | str] | Callable[[str], EventPosition]
"""Where a group without checkpoints starts: one position for all, by partition (`*` for all others), or a function."""

Stores = Store | str | tuple[OwnershipStore | str, CheckpointStore | str]
"""One store for ownership and checkpoints, or one for each; a store or its URL."""


@dataclass(frozen=True, slots=True)
class _PositionsByFunction(Positions):
    """A position for every partition, from a function."""

    function: Callable[[str], EventPosition] = field(default=lambda _: EARLIEST)

    def of(self, partition: str) -> EventPosition:
        return self.function(partition)


def positions_of(start: Start) -> Positions:
    """Start positions, from any form of them."""
    if isinstance(start, Positions):
        return start
    if isinstance(start, EventPosition):
        return Positions(start)
    if isinstance(start, str):
        return Positions.parse(start, "start")
    if isinstance(start, Mapping):
        named = {
            str(partition): at if isinstance(at, EventPosition) else EventPosition.parse(at, f"start[{partition!r}]")
            for partition, at in start.items()
        }
        return Positions(named.pop("*", EARLIEST), tuple(sorted(named.items())))
    return _PositionsByFunction(function=start)


def handlers_of(
    on_events: OnEvents | None, on_event: OnEvent | None, on_start: OnStart | None, on_stop: OnStop | None
) -> Handlers | None:
    """The handlers, None where there are none. Refuses what does not go together."""
    if on_events is not None and on_event is not None:
        raise ConfigError("on_event", None, "on_events is given too", "Take batches or single events, not both")
    if on_events is None and on_event is None:
        if on_start is not None or on_stop is not None:
            raise ConfigError(
                "on_partition_start" if on_start is not None else "on_partition_stop",
                None,
                "neither on_events nor on_event is given",
                "Give one of them, or take partitions with next_partition_client and do without handlers",
            )
        return None
    return Handlers(on_events=on_events, on_event=on_event, on_start=on_start, on_stop=on_stop)


def policy_of(policy: CheckpointPolicy | None, *, pulls: bool) -> CheckpointPolicy:
    """The checkpoint policy; `pulls`: there are no handlers, so that nobody else knows what is processed."""
    given: object = policy
    if not (given is None or isinstance(given, CheckpointPolicy)):
        raise ConfigError(
            "checkpoint", given, "not a checkpoint policy", "Take EACH_BATCH, every(events=…, seconds=…) or ON_STOP"
        )
    if not pulls:
        return policy or EACH_BATCH
    if policy not in (None, MANUAL):
        raise ConfigError(
            "checkpoint",
            str(policy),
            "without handlers the processor does not know what is processed",
            "Leave it out, and call update_checkpoint",
        )
    return MANUAL


def stores_of(stores: Stores, timeout: float) -> tuple[OwnershipStore, CheckpointStore]:
    """The two stores; `timeout` in seconds is for those that are opened here."""
    if not isinstance(stores, tuple):
        store = open_store(stores, timeout=timeout) if isinstance(stores, str) else stores
        return store, store
    ownership, checkpoints = stores
    return (
        open_store(ownership, timeout=timeout) if isinstance(ownership, str) else ownership,
        open_store(checkpoints, timeout=timeout) if isinstance(checkpoints, str) else checkpoints,
    )
