"""What an event processor is given, in the forms that people write it, and as its parts take it.

Owns these forms and refuses those that do not go together. Opens stores and
hubs by URL, and does no other I/O.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from leasehold.errors import ConfigError
from leasehold.hubs import Hub, open_hub
from leasehold.model import EARLIEST, ConsumerGroup, EventPosition, PositionKind, Positions
from leasehold.processors.events.checkpointer import MANUAL, CheckpointPolicy, every
from leasehold.processors.events.pump import Handlers, OnEvent, OnEvents, OnStart, OnStop
from leasehold.stores import CheckpointStore, OwnershipStore, Store, open_store
from leasehold.stores.stand_ins import FixedShare, NoCheckpoints, WatchedCheckpoints

Position = EventPosition | str | int | datetime
"""One place: in its own form, as its text, as a sequence number, or as a time with an offset from UTC."""

Start = Positions | Position | Mapping[str, Position] | Callable[[str], Position]
"""Where a group without checkpoints starts: one position for all, by partition (`*` for all others), or a function."""

Stores = Store | str | tuple[OwnershipStore | str | None, CheckpointStore | str | None]
"""One store for ownership and checkpoints, or one for each; a store or its URL, and None for one that is not wanted."""

EACH_SECOND = every(seconds=1.0)
"""The default: after each batch of a slow stream, and of a fast one as often as it costs little."""

_A_POSITION = "a position is earliest, latest, a sequence number, a datetime or ISO 8601 timestamp, or an EventPosition"


@dataclass(frozen=True, slots=True)
class _PositionsByFunction(Positions):
    """A position for every partition, from a function."""

    function: Callable[[str], Position] = field(default=lambda _: EARLIEST)

    def of(self, partition: str) -> EventPosition:
        return position_of(self.function(partition), f"start({partition!r})")


def position_of(given: object, field: str = "start") -> EventPosition:
    """A position, from any form of it. `field` names it in the error. Raises `ConfigError`."""
    match given:
        case EventPosition():
            return given
        case str():
            return EventPosition.parse(given, field)
        case bool():
            pass
        case int() if given >= 0:
            return EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=given)
        case datetime():
            if given.tzinfo is None:
                remedy = "For example datetime.now(UTC), or add tzinfo=UTC"
                raise ConfigError(field, str(given), "a timestamp needs an offset from UTC", remedy)
            return EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=given.timestamp())
    raise ConfigError(field, repr(given), _A_POSITION, "Leave it out for earliest" if field == "start" else "")


def positions_of(start: Start) -> Positions:
    """Start positions, from any form of them. Raises `ConfigError`."""
    if isinstance(start, Positions):
        return start
    if isinstance(start, str):
        return Positions.parse(start, "start")
    if isinstance(start, Mapping):
        named = {str(partition): position_of(at, f"start[{partition!r}]") for partition, at in start.items()}
        return Positions(named.pop("*", EARLIEST), tuple(sorted(named.items())))
    if not isinstance(start, EventPosition) and callable(start):
        return _PositionsByFunction(function=start)
    return Positions(position_of(start))


def handlers_of(
    on_events: OnEvents | None, on_event: OnEvent | None, on_start: OnStart | None, on_stop: OnStop | None
) -> Handlers | None:
    """The handlers, None where there are none. Refuses what does not go together, and what cannot be called."""
    if on_events is not None and on_event is not None:
        raise ConfigError("on_event", None, "on_events is given too", "Take batches or single events, not both")
    check_handler("on_events", on_events, "a batch and a context")
    check_handler("on_event", on_event, "an event and a context")
    check_handler("on_partition_start", on_start, "a context")
    check_handler("on_partition_stop", on_stop, "a context and a reason")
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


def check_handler(field: str, handler: object, arguments: str) -> None:
    """Refuse what could not be called with these arguments (joined by "and"), or would only begin when it is."""
    if handler is None:
        return
    if not callable(handler):
        raise ConfigError(field, repr(handler), "a function", f"Give one that takes {arguments}")
    called = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        raise ConfigError(
            field,
            repr(handler),
            "calling it would only make a coroutine or a generator, and none of its lines would run",
            "Give a plain function; for a coroutine, one that hands it to an event loop and waits for it",
        )
    try:
        inspect.signature(handler).bind(*arguments.split(" and "))
    except TypeError as error:
        rule = f"it is called with {arguments}: {error}"
        raise ConfigError(field, repr(handler), rule, "Correct its parameters") from None
    except ValueError:
        return  # a built-in that does not tell


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


def stores_of(stores: Stores, timeout: float, share: FixedShare | None) -> tuple[OwnershipStore, CheckpointStore]:
    """The two stores; `timeout` in seconds is for those that are opened here. A fixed share is its own ownership."""

    def opened(store: Any) -> Any:
        return open_store(store, timeout=timeout) if isinstance(store, str) else store

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
                "Give stores=(None, CHECKPOINTS), or leave out partitions",
            )
        return share, WatchedCheckpoints(opened(checkpoints), share)
    if ownership is None:
        raise ConfigError(
            "stores",
            None,
            "without an ownership store nobody shares out the partitions",
            'Say which are this processor\'s own, partitions=["0", "3"], or name an ownership store',
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
