"""When events of an event hub were enqueued: asked by who only looks, while others read.

Owns a few threads for each look, which go through the partitions together. The last event's time is in a
partition's properties; any other takes a receiver without an owner level, which the service refuses in a consumer
group that is read with levels, and which disconnects nobody. So it looks through the group that the option
`status_group` names, else through the one that is read. Promises an answer in about the time that it is given, and
no error: what the service does not say by then is left out. Threads that the service keeps waiting are left to end
by themselves.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from leasehold.hubs.event_hubs.events import time_of
from leasehold.hubs.event_hubs.receiver import Receiver
from leasehold.hubs.event_hubs.url import EventHubAddress, without_secrets

logger = logging.getLogger(__name__)

_AT_ONCE = 16

Describe = Callable[[str], dict[str, Any]]
"""The properties of a partition, as the client gives them."""


def first_times(
    address: EventHubAddress, describe: Describe, starts: Mapping[str, int], timeout: float
) -> dict[str, float]:
    """By partition, the enqueued time of the first event from a number on; see `Hub.enqueued_times`."""
    deadline = time.monotonic() + timeout
    looking = dataclasses.replace(address, consumer_group=address.status_group or address.consumer_group)
    asked: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    answered: queue.SimpleQueue[tuple[str, float | None]] = queue.SimpleQueue()

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                partition, start = asked.get_nowait()
            except queue.Empty:
                return
            try:
                answer = _first_time(looking, describe(partition), partition, start, deadline)
            except Exception as error:  # noqa: BLE001  whatever keeps the service from answering, it is not known
                logger.info("%s, partition %s: %s", address.url, partition, without_secrets(error))
                answer = None
            answered.put((partition, answer))

    for place in starts.items():
        asked.put(place)
    for _ in range(min(len(starts), _AT_ONCE)):
        threading.Thread(target=work, daemon=True, name="leasehold-times").start()
    found: dict[str, float] = {}
    for _ in starts:
        try:
            partition, answer = answered.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if answer is not None:
            found[partition] = answer
    return found


def _first_time(
    address: EventHubAddress, place: Mapping[str, Any], partition: str, start: int, deadline: float
) -> float | None:
    last = place["last_enqueued_sequence_number"]
    if place["is_empty"] or start > last:
        return None
    if start == last:
        enqueued: float = place["last_enqueued_time_utc"].timestamp()
        return enqueued
    receiver = Receiver(address, partition, start, most=1)
    try:
        (first,) = receiver.take(None, 1, max(0.0, deadline - time.monotonic()))
    finally:
        # Not waited for: a partition after this one may still be asked about in time.
        threading.Thread(target=receiver.close, daemon=True, name="leasehold-close").start()
    return time_of(first)
