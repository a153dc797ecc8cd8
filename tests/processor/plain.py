"""What the tests of the plain processor are made of: a real log, a store that tells, handlers that remember.

Events carry their own place, so that a test sees which one it got without asking the hub.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from leasehold.clock import Clock, SystemClock
from leasehold.config import OwnershipSettings
from leasehold.errors import NotTheOwner, StoreError, StoreUnavailable
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Checkpoint, Event, Ownership
from leasehold.notices import CycleEnded, Notices
from leasehold.processors.events import (
    DeliverySettings,
    EventBatch,
    EventProcessor,
    Handlers,
    PartitionContext,
    StopReason,
)
from leasehold.processors.events.arguments import Stores
from leasehold.runtime import Runtime
from leasehold.stores.memory.store import MemoryStore
from tests.waiting import NEVER, until

SETTINGS = OwnershipSettings(
    load_balancing_interval=0.05,
    partition_expiration=NEVER,
    stall_timeout=NEVER,
    hand_over_timeout=NEVER,
    request_timeout=1.0,  # impatient: of stores in memory and SQLite, where it only says when an instance doubts them
    margin=0.2,
    settle_delay=0.0,
)
"""Nothing expires, and nobody steals, while a test runs: see `LeadingClock` and `TellingStore.expire`."""
DELIVERY = DeliverySettings(max_batch=10, prefetch=30, poll_interval=0.01, restart_backoff=0.02, longest_backoff=0.1)


HANDLERS = ("on_events", "on_event", "on_partition_start", "on_partition_stop", "on_error")


def processor(hub: LogHub | str, stores: Stores, *, clock: Clock | None = None, **more: Any) -> EventProcessor:
    """A processor; fields of its handlers and of its delivery may stand among its arguments."""
    handlers = {name: more.pop(name) for name in HANDLERS if name in more}
    of_delivery = {name: more.pop(name) for name in ("start", "checkpoint", "patience") if name in more}
    delivery = replace(more.pop("delivery", DELIVERY), **of_delivery)
    runtime = Runtime() if clock is None else Runtime(clock=clock)
    return EventProcessor(hub, stores, Handlers(**handlers), delivery=delivery, runtime=runtime, **more)


class LeadingClock(SystemClock):
    """The system's clock, which a test moves ahead, so that what expires need not be outwaited.

    Work that has nothing to do tells that it is alive by the system's clock: between steps, give it something.
    """

    STEP = NEVER / 6
    """Seconds. A hold that was renewed since the last step is trusted after the next, and a stall takes seven."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds

    def step(self, *processors: EventProcessor) -> None:
        """Let a while pass, and each of these renew what it holds.

        A cycle in which the clock moved finds that its store took too long, or that the process was paused: what it
        renewed does not count. The cycles behind it count.
        """
        self.advance(self.STEP)
        for processor in processors:
            await_cycles(processor.notices, 4)


def await_cycles(notices: Notices, count: int = 2) -> None:
    """Wait until an instance has ended this many cycles. Of two, the second has begun after the call."""
    ended: list[CycleEnded] = []
    unsubscribe = notices.subscribe(ended.append, CycleEnded)
    until(lambda: len(ended) >= count, f"{count} cycles")
    unsubscribe()


def log(folder: Path, partitions: int = 2, each: int = 0) -> LogHub:
    """A log with this many events in each partition."""
    hub = LogHub.create(folder / "hub.db", partitions=partitions)
    send(hub, each)
    return hub


def send(hub: LogHub, each: int, *partitions: str) -> None:
    """Append this many events to each of these partitions, or to all."""
    for partition in partitions or hub.partition_ids():
        if each:
            hub.send([Event(f"{partition}".encode()) for _ in range(each)], partition=partition)


class TellingStore(MemoryStore):
    """A store in memory that writes down what is done to it, in `told`, and is away on command."""

    def __init__(self, told: list[tuple[str, str]] | None = None, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.told = [] if told is None else told
        self.away = threading.Event()
        self.checkpoints_away = threading.Event()
        self.checkpoints_refused = threading.Event()
        self.refusal = StoreError("the checkpoints may not be written: grant the right")
        self.checkpoints_tried = 0

    def renew_ownership(self, held: Sequence[Ownership], presence: object = None) -> list[Ownership]:
        if self.away.is_set():
            raise StoreUnavailable("the store is away")
        return super().renew_ownership(held, presence)  # type: ignore[arg-type]

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        if self.away.is_set() or self.checkpoints_away.is_set():
            raise StoreUnavailable("the checkpoints are away")
        self.checkpoints_tried += 1
        if self.checkpoints_refused.is_set():
            raise self.refusal
        self.told += [(f"checkpoint {one.sequence_number}", one.partition) for one in checkpoints]
        return super().update_checkpoints(checkpoints)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        self.told += [("relinquish", record.partition) for record in held]
        return super().relinquish_ownership(held)

    def checkpoints(self, hub: LogHub) -> dict[str, int]:
        """The sequence numbers recorded, by partition."""
        return {one.partition: one.sequence_number for one in self.list_checkpoints(hub.consumer_group("$Default"))}

    def records(self, hub: LogHub) -> dict[str, Ownership]:
        """The ownership records by partition."""
        return {one.partition: one for one in self.list_ownership(hub.consumer_group("$Default")).records}

    def steal(self, hub: LogHub, partition: str) -> None:
        """Take a partition off its owner, as another SDK's processor might: without asking."""
        for _ in range(1_000):
            record = self.records(hub)[partition]
            thief = Ownership(record.group, partition, "thief/1", record.owner_level + 1, record.etag)
            if self.claim_ownership([thief]):
                return
        raise AssertionError("the owner was faster a thousand times")

    def expire(self, hub: LogHub, partition: str) -> None:
        """Age the record of a partition, as if its owner had not renewed it for long."""
        key = hub.consumer_group("$Default"), partition
        with self._lock:
            record = self._ownership[key]
            self._ownership[key] = replace(record, last_modified=record.last_modified - 2 * NEVER)


class Handler:
    """Handlers that remember what they were called with; `work`, if given, is done in each call."""

    def __init__(self, work: Callable[[EventBatch, PartitionContext], object] | None = None) -> None:
        self.got: dict[str, list[int]] = {}
        self.batches: list[EventBatch] = []
        self.started: list[tuple[str, int]] = []
        self.stopped: list[tuple[str, int, StopReason]] = []
        self.errors: list[tuple[str | None, str]] = []
        self._work = work
        self._lock = threading.Lock()

    def on_events(self, batch: EventBatch, context: PartitionContext) -> None:
        if self._work is not None:
            self._work(batch, context)
        with self._lock:
            self.batches.append(batch)
            self.got.setdefault(batch.partition, []).extend(event.sequence_number for event in batch)

    def on_start(self, context: PartitionContext) -> None:
        with self._lock:
            self.started.append((context.partition, context.owner_level))

    def on_stop(self, context: PartitionContext, reason: StopReason) -> None:
        with self._lock:
            self.stopped.append((context.partition, context.owner_level, reason))

    def on_error(self, error: BaseException, partition: str | None) -> None:
        with self._lock:
            self.errors.append((partition, f"{type(error).__name__}: {error}"))

    @property
    def count(self) -> int:
        """How many events have been handled."""
        with self._lock:
            return sum(map(len, self.got.values()))

    def wait(self, count: int) -> None:
        """Wait for this many events to have been handled."""
        until(lambda: self.count >= count, f"{count} events, of which {self.count} came")


def caught_up(hub: LogHub, partitions: Sequence[str], *handlers: Handler) -> bool:
    """Whether the last event of each of these partitions has been handled by one of these handlers."""
    last = {partition: known.end - 1 for partition, known in hub.partition_properties(partitions).items()}
    return all(any(number in one.got.get(partition, ()) for one in handlers) for partition, number in last.items())
