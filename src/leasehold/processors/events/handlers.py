"""The functions that a processor calls, and what they are called with.

Owns the value that holds them and what an object that brings them has, and refuses those that do not go together, and
what cannot be called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, runtime_checkable

from leasehold.errors import ConfigError
from leasehold.model import Event
from leasehold.processors.events.delivery import EventBatch
from leasehold.processors.events.error_reports import OnError
from leasehold.processors.events.partition_client import PartitionContext
from leasehold.processors.events.stopping import StopReason
from leasehold.sinks.base import Sink

OnEvents = Callable[[EventBatch, PartitionContext], object]
OnEvent = Callable[[Event, PartitionContext], object]
OnStart = Callable[[PartitionContext], object]
OnStop = Callable[[PartitionContext, StopReason], object]


@runtime_checkable
class BringsHandlers(Protocol):
    """Brings the functions that a processor calls, and the table that they fill: a `HandledTable` does."""

    @property
    def sink(self) -> Sink: ...

    def on_events(self, batch: EventBatch, context: PartitionContext, /) -> object: ...

    def on_partition_start(self, context: PartitionContext, /) -> object: ...

    def on_partition_stop(self, context: PartitionContext, reason: StopReason, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Handlers:
    """The functions that an `EventProcessor` calls. Each is optional; those of partitions go with one for events.

    on_events           called with an `EventBatch` and a `PartitionContext`
    on_event            called with an `Event` and a `PartitionContext`, in place of `on_events`
    on_partition_start  called with the context before the first events of a partition, and again after a failure
    on_partition_stop   called with the context and a `StopReason` after the last ones
    on_error            called with an error and the partition that it is about: None for the hub, the stores, the
                        balancing. One call at a time; what a store or hub says again in the same words is told
                        once in five minutes

    Raises `ConfigError`.
    """

    on_events: OnEvents | None = None
    _: KW_ONLY
    on_event: OnEvent | None = None
    on_partition_start: OnStart | None = None
    on_partition_stop: OnStop | None = None
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        if self.on_events is not None and self.on_event is not None:
            raise ConfigError("on_event", None, "on_events is given too", "Take batches or single events, not both")
        check_handler("on_events", self.on_events, "a batch and a context")
        check_handler("on_event", self.on_event, "an event and a context")
        check_handler("on_partition_start", self.on_partition_start, "a context")
        check_handler("on_partition_stop", self.on_partition_stop, "a context and a reason")
        check_handler("on_error", self.on_error, "an error and a partition")
        if not self.take_events and (self.on_partition_start, self.on_partition_stop) != (None, None):
            raise ConfigError(
                "on_partition_start" if self.on_partition_start is not None else "on_partition_stop",
                None,
                "neither on_events nor on_event is given",
                "Give one of them, or take partitions with next_partition_client and do without handlers",
            )

    @property
    def take_events(self) -> bool:
        """Whether one of them is for events."""
        return self.on_events is not None or self.on_event is not None


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
