"""Kafka hubs that are open: how long they wait, and what is read through them."""

from __future__ import annotations

from leasehold.hubs import Hub, open_hub
from leasehold.hubs.kafka.hub import KafkaHub
from tests.waiting import PATIENCE


def opened(url: str) -> KafkaHub:
    hub = open_hub(url)
    assert isinstance(hub, KafkaHub)
    return hub


def waits(hub: Hub, *, request: float = PATIENCE, transfer: float = PATIENCE) -> None:
    """How long, in seconds, an open hub waits from now on for an answer, and for progress."""
    assert isinstance(hub, KafkaHub)
    for name, seconds in (("request_timeout", request), ("transfer_timeout", transfer)):
        object.__setattr__(hub._settings, name, seconds)


def numbers(hub: Hub, partition: str, start: int, end: int) -> list[int]:
    """The sequence numbers of a range."""
    batches = hub.read(partition, start, end, columns=["sequenceNumber"])
    return [number for batch in batches for number in batch.column(0).to_pylist()]
