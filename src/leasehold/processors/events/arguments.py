"""What an event processor is given, in the forms that people write it, and as its parts take it.

Owns these forms and refuses those that do not go together. Opens stores and
hubs by URL, and does no other I/O.
"""

from __future__ import annotations

from typing import Any

from leasehold.config import OwnershipSettings, check_given
from leasehold.errors import ConfigError
from leasehold.hubs import Hub, open_hub
from leasehold.model import ConsumerGroup
from leasehold.processors.events.checkpointer import MANUAL, CheckpointPolicy, every
from leasehold.processors.events.fixed_partitions import FixedPartitions
from leasehold.processors.events.handlers import BringsHandlers, Handlers, OnEvents
from leasehold.runtime import Runtime
from leasehold.sinks.base import Sink
from leasehold.stores import CheckpointStore, OwnershipStore, Store, open_store
from leasehold.stores.stand_ins import FixedShare, NoCheckpoints, Report, WatchedCheckpoints

Stores = Store | str | tuple[OwnershipStore | str | None, CheckpointStore | str | None]
"""One store for ownership and checkpoints, or one for each; a store or its URL, and None for one that is not wanted."""

EACH_SECOND = every(seconds=1.0)
"""The default: after each batch of a slow stream, and of a fast one as often as it costs little."""


def handlers_of(argument: OnEvents | Handlers | BringsHandlers | None) -> Handlers:
    """The handlers; a function is one for batches, whatever else it may have. Raises `ConfigError`."""
    if isinstance(argument, Handlers):
        return argument
    if isinstance(argument, BringsHandlers) and not callable(argument):
        return Handlers(
            argument.on_events,
            on_partition_start=argument.on_partition_start,
            on_partition_stop=argument.on_partition_stop,
        )
    return Handlers(argument)


def table_of(argument: object, table: Sink | None) -> Sink | None:
    """The table that the handlers write to: the one given, or the one that they bring."""
    if table is None and isinstance(argument, BringsHandlers) and not callable(argument):
        return argument.sink
    return table


def policy_of(policy: CheckpointPolicy | None, *, pulls: bool, kept: bool = True) -> CheckpointPolicy:
    """The checkpoint policy; `pulls`: there are no handlers, so that nobody else knows what is processed.

    `kept` is False where there is no checkpoint store.
    """
    given: object = policy
    if not kept:
        if policy is not None:
            raise ConfigError(
                "checkpoint", str(policy), "there is no checkpoint store to record anything in", "Leave it out"
            )
        return CheckpointPolicy(kept=False)
    if not (given is None or isinstance(given, CheckpointPolicy)):
        raise ConfigError(
            "checkpoint", given, "not a checkpoint policy", "Take every(events=…, seconds=…), EACH_BATCH or ON_STOP"
        )
    if not pulls:
        return policy or EACH_SECOND
    if policy not in (None, MANUAL):
        raise ConfigError(
            "checkpoint",
            str(policy),
            "without handlers the processor does not know what is processed",
            "Leave it out, and call update_checkpoint",
        )
    return MANUAL


def share_of(
    ownership: OwnershipSettings | FixedPartitions | None, report: Report, runtime: Runtime
) -> tuple[OwnershipSettings, FixedShare | None]:
    """How partitions are held, and the fixed share, if there is one; `report` hears what goes wrong with it."""
    if not isinstance(ownership, FixedPartitions):
        return ownership or OwnershipSettings(), None
    return ownership.settings, FixedShare(ownership.partitions, report, clock=runtime.clock, rng=runtime.rng)


def keeps_checkpoints(checkpoints: CheckpointStore, table: object) -> bool:
    """Whether checkpoints are kept. Raises `ConfigError` for a `table` that nothing could be compared with."""
    kept = not isinstance(checkpoints, NoCheckpoints)
    if table is not None and not kept:
        rule = "there is no checkpoint store to compare it with"
        raise ConfigError("table", None, rule, "Name one, or leave it out")
    return kept


def stores_of(stores: Stores, timeout: float, share: FixedShare | None) -> tuple[OwnershipStore, CheckpointStore]:
    """The two stores; `timeout` in seconds is for those that are opened here. A fixed share is its own ownership."""

    def opened(store: Any) -> Any:
        return open_store(store, timeout=timeout) if isinstance(store, str) else store

    check_given("stores", stores)
    if not isinstance(stores, tuple):
        store = opened(stores)
        return (store, store) if share is None else (share, WatchedCheckpoints(store, share))
    ownership, checkpoints = stores
    if share is not None:
        if ownership is not None or checkpoints is None:
            raise ConfigError(
                "stores",
                None,
                "a fixed share of partitions has no ownership store, and its checkpoints keep two apart",
                "Give stores=(None, CHECKPOINTS), or ownership=OwnershipSettings(…)",
            )
        return share, WatchedCheckpoints(opened(checkpoints), share)
    if ownership is None:
        raise ConfigError(
            "stores",
            None,
            "without an ownership store nobody shares out the partitions",
            'Say which are this processor\'s own, ownership=FixedPartitions(["0", "3"]), or name an ownership store',
        )
    return opened(ownership), NoCheckpoints() if checkpoints is None else opened(checkpoints)


def opened_hub(url: str, consumer_group: str) -> tuple[Hub, ConsumerGroup]:
    """The hub, once it has said what it is."""
    hub = open_hub(url)
    try:
        return hub, hub.consumer_group(consumer_group)
    except BaseException:
        hub.close()
        raise
