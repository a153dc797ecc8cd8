"""The receivers of an event hub that a process keeps between two ranges, one for each partition.

Owns which receiver goes on, which is opened anew, and when one that nobody reads from is closed. Promises that a
partition is attached before the owner's checkpoint is read, where that is asked for (`attach`), and stays attached,
events or none, until `detach`; and that a receiver which was kept without being asked for closes by itself, so that
what is no longer read here shuts nobody out.

Two owners at one level can push each other out for ever: the one that is disconnected attaches again, the other then
does the same. So where all say the same level, a receiver that was disconnected while it was kept is not replaced:
`ReaderDisconnected` is raised, once, and whoever reads looks at the ownership record before it attaches again. Where
levels rise the service does that, and refuses a former owner.

Concurrency: any thread may call; one that takes a receiver has it for itself until it gives it back. If it stops in
between, another that wants the partition gets a receiver of its own, which disconnects the first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from leasehold.errors import ReaderDisconnected
from leasehold.hubs.event_hubs.receiver import Receiver, close_together
from leasehold.hubs.event_hubs.url import EventHubAddress

LONGEST_REST = 60.0
"""Seconds after which a receiver that nobody has asked to keep is closed, unless it is read from again."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a partition: its owner, at a level, or nobody in particular."""

    owner_level: int | None
    mixed: bool = False

    @property
    def said(self) -> int | None:
        """The level that the service is told: in a mixed fleet an owner says 0, as other SDKs' processors do."""
        return 0 if self.mixed and self.owner_level is not None else self.owner_level


class KeptReceivers:
    """The receivers that are kept, by partition."""

    def __init__(self, address: EventHubAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._receivers: dict[str, Receiver] = {}
        self._staying: set[str] = set()
        self._closed = False

    def __getitem__(self, partition: str) -> Receiver:
        return self._receivers[partition]

    def goes_on(self, partition: str, start: int) -> bool:
        """Whether the one that is kept has come exactly there."""
        with self._lock:
            kept = self._receivers.get(partition)
        return kept is not None and kept.position == start

    def take(self, partition: str, start: int, reader: Reader) -> Receiver:
        """The receiver that goes on at `start`, for the caller alone: the one that was kept, or a new one.

        Raises `ReaderDisconnected` for one that has to look first (see above). Elsewhere a receiver that has failed
        since it was kept may have been disconnected by a reader that is gone again.
        """
        with self._lock:
            kept = self._receivers.pop(partition, None)
        if kept is not None:
            if kept.owner_level == reader.said and kept.resume() and kept.goes_on_at(start):
                return kept
            kept.close()
            if kept.disconnected_unheard and reader.mixed and reader.owner_level is not None:
                raise ReaderDisconnected(partition, reader.owner_level, start)
        return Receiver(self._address, partition, start, reader.said)

    def keep(self, partition: str, receiver: Receiver) -> None:
        """Keep a receiver for the next range; one is enough, and none once all are closed."""
        with self._lock:
            of_use = receiver.disconnected_unheard or not receiver.closed
            if of_use and not self._closed and partition not in self._receivers:
                if partition not in self._staying:
                    receiver.rest(LONGEST_REST)
                self._receivers[partition] = receiver
                return
        receiver.close()

    def attach(self, places: Mapping[str, int], reader: Reader, timeout: float) -> None:
        """Attach to these partitions, each from its sequence number on, all at once, within `timeout` seconds.

        One that could not be attached to by then is left as it is: the next read finds out why.
        """
        until = time.monotonic() + timeout
        for partition in places:
            self.detach(partition)
            self.stay(partition)
        opened = {partition: Receiver(self._address, partition, at, reader.said) for partition, at in places.items()}
        for partition, receiver in opened.items():
            if receiver.wait_attached(max(0.0, until - time.monotonic())):
                self.keep(partition, receiver)
            else:
                receiver.end()

    def stay(self, partition: str) -> None:
        """Keep what is kept for a partition until `detach`, however long nothing comes."""
        with self._lock:
            self._staying.add(partition)

    def detach(self, partition: str) -> None:
        """Close what is kept for a partition, and keep nothing for long: its work has ended here. Waits for nothing."""
        with self._lock:
            self._staying.discard(partition)
            kept = self._receivers.pop(partition, None)
        if kept is not None:
            kept.end()

    def close(self) -> None:
        """Close all, and keep no more."""
        with self._lock:
            self._closed = True
            receivers, self._receivers = list(self._receivers.values()), {}
        close_together(receivers)

    def start_anew(self) -> None:
        """Leave what there is to the parent process, with whatever lock a thread of it has."""
        self._lock, self._receivers, self._staying = threading.Lock(), {}, set()
