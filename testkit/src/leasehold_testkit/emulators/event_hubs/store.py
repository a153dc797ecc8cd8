"""What is served: the interface of a hub behind the server, and the one that lives in memory.

Owns `ServedHub`, in the server's own terms: messages as bytes, offsets as opaque text, enqueued times in
milliseconds. `MemoryHub` keeps everything until it is removed, and gives offsets that differ from sequence
numbers, as Event Hubs does, so that whoever confuses them is found out. Times never go back within a
partition.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from leasehold.clock import Clock, SystemClock
from leasehold.config import check_number
from leasehold_testkit.emulators.amqp.conditions import INVALID_FIELD, AmqpError
from leasehold_testkit.emulators.amqp.messages import Message, StoredMessage
from leasehold_testkit.emulators.event_hubs.addresses import Start


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Events are `[begin, end)`. The last offset is `"-1"` and the last time 0 where there was no event."""

    begin: int
    end: int
    last_offset: str
    last_enqueued: int


class ServedHub(Protocol):
    """One hub as the server needs it. A partition that is not there raises `KeyError`."""

    blocking: bool
    """Whether calls do I/O: then they are made in a thread of their own."""

    @property
    def created_at(self) -> int:
        """When it was made, in milliseconds since the epoch: part of the hub's identity."""
        ...

    def partition_ids(self) -> Sequence[str]:
        """All partitions there are now."""
        ...

    def state(self, partition: str) -> PartitionState:
        """Where a partition begins and ends."""
        ...

    def partition_for(self, key: str) -> str:
        """The partition of a partition key."""
        ...

    def append(self, partition: str, messages: Sequence[Message]) -> None:
        """Store messages, all or none."""
        ...

    def read(self, partition: str, start: int, most: int, most_bytes: int) -> list[StoredMessage]:
        """Messages from a sequence number on, or from the first that is left; at least one if there is one."""
        ...

    def resolve(self, partition: str, start: Start) -> int:
        """The sequence number of the first message to give. Raises `AmqpError` for one that cannot be read."""
        ...

    def close(self) -> None:
        """Give back what this object holds."""
        ...


def number_of(start: Start) -> int:
    """The number in a position; offsets of the hubs here are numbers too."""
    try:
        return int(start.value)
    except ValueError:
        raise AmqpError(INVALID_FIELD, f"{start.value!r:.60} is no {start.what} of this hub") from None


@dataclass(slots=True)
class _Lane:
    """One partition: messages, and beside them what they are looked up by."""

    begin: int = 0
    stored: list[StoredMessage] = field(default_factory=list)
    next_offset: int = 0
    last_offset: str = "-1"
    last_enqueued: int = 0

    @property
    def end(self) -> int:
        return self.begin + len(self.stored)


class MemoryHub:
    """A hub of this many `partitions` that is gone with its process. `clock` tells enqueued times. Safe for threads."""

    blocking = False

    def __init__(self, partitions: int = 4, *, clock: Clock | None = None) -> None:
        check_number("partitions", partitions, least=1, rule="a hub has at least one partition", remedy="")
        self._clock = clock or SystemClock()
        self._created_at = round(self._clock.wall() * 1_000)
        self._lanes = {str(number): _Lane() for number in range(partitions)}
        self._lock = Lock()

    @property
    def created_at(self) -> int:
        return self._created_at

    def partition_ids(self) -> Sequence[str]:
        return tuple(self._lanes)

    def grow(self, partitions: int) -> None:
        """Add empty partitions until there are this many."""
        with self._lock:
            for number in range(len(self._lanes), partitions):
                self._lanes[str(number)] = _Lane()

    def remove_before(self, partition: str, sequence_number: int) -> None:
        """Remove the messages below a sequence number, as retention does."""
        with self._lock:
            lane = self._lanes[partition]
            count = max(0, min(sequence_number, lane.end) - lane.begin)
            del lane.stored[:count]
            lane.begin += count

    def state(self, partition: str) -> PartitionState:
        with self._lock:
            lane = self._lanes[partition]
            return PartitionState(lane.begin, lane.end, lane.last_offset, lane.last_enqueued)

    def partition_for(self, key: str) -> str:
        return str(zlib.crc32(key.encode()) % len(self._lanes))

    def append(self, partition: str, messages: Sequence[Message]) -> None:
        with self._lock:
            lane = self._lanes[partition]
            lane.last_enqueued = max(lane.last_enqueued, round(self._clock.wall() * 1_000))
            for message in messages:
                lane.last_offset = str(lane.next_offset)
                lane.stored.append(StoredMessage(lane.end, lane.last_offset, lane.last_enqueued, message))
                lane.next_offset += len(message.bare) + 56

    def read(self, partition: str, start: int, most: int, most_bytes: int) -> list[StoredMessage]:
        with self._lock:
            lane = self._lanes[partition]
            first = max(0, start - lane.begin)
            return within(lane.stored[first : first + most], most_bytes)

    def resolve(self, partition: str, start: Start) -> int:
        with self._lock:
            lane = self._lanes[partition]
            if start.what == "offset" and start.value == "@latest":
                return lane.end
            number = number_of(start)
            if start.what == "sequence-number":
                return number + (not start.inclusive)
            key: Callable[[StoredMessage], int] = _offset if start.what == "offset" else _enqueued
            return lane.begin + bisect_left(lane.stored, number + (not start.inclusive), key=key)

    def close(self) -> None:
        """Nothing is held outside this process."""


def _offset(stored: StoredMessage) -> int:
    return int(stored.offset)


def _enqueued(stored: StoredMessage) -> int:
    return stored.enqueued


def within(messages: Iterable[StoredMessage], most_bytes: int) -> list[StoredMessage]:
    """Messages until this many bytes are reached, and at least one."""
    taken: list[StoredMessage] = []
    size = 0
    for stored in messages:
        size += len(stored.message.bare)
        if taken and size > most_bytes:
            break
        taken.append(stored)
    return taken
