"""What each process of a mixed fleet does: an official event processor, or ours, that writes down what it gets.

A line is on disk before the checkpoint that covers it is written, so a checkpoint never promises more than was read.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from azure.eventhub import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

from leasehold.config import OwnershipSettings
from leasehold.processors.events import EACH_BATCH, DeliverySettings, EventBatch, EventProcessor, PartitionContext
from tests.waiting import NEVER, until

INTERVAL = 0.7
EXPIRATION = 12.0
"""Seconds after which a member takes what another does not renew: each second, or later on a busy machine.

Azure's stores have no time that could be set back, so whoever is killed is outwaited.
"""
NAMESPACE = "fleet.servicebus.windows.net"
"""A name as it is in Azure, since the records are called by it; where the server is, is said apart."""
HUB = "Flights"


def settings(expiration: float) -> OwnershipSettings:
    """Ours, where a member that is gone is missed after this many seconds."""
    return OwnershipSettings(
        load_balancing_interval=INTERVAL,
        partition_expiration=expiration,
        foreign_expiration=expiration,
        request_timeout=5.0,
        margin=0.1,
        settle_delay=0.2,
        hand_over_timeout=NEVER,
    )


def official(told: dict[str, Any], write: Callable[[str, Iterable[int | None]], None], gate: Path) -> None:
    """The official processor, with the official store. As long as there is the gate, it writes no checkpoint."""
    store = BlobCheckpointStore.from_connection_string(told["storage"], told["container"])
    short = {"load_balancing_interval": INTERVAL, "partition_ownership_expiration_interval": told["expiration"]}
    times: dict[str, Any] = {} if told["default_times"] else short
    client = EventHubConsumerClient.from_connection_string(
        told["connection_string"],
        consumer_group="$Default",
        eventhub_name=HUB,
        custom_endpoint_address=f"sb://{told['endpoint']}",
        checkpoint_store=store,
        retry_total=1,
        **times,
    )

    def on_events(context: Any, events: list[Any]) -> None:
        if events:
            write(context.partition_id, [event.sequence_number for event in events])
            if gate.exists():
                gate.with_name(gate.name.replace("gate", "entered")).touch()
                until(lambda: not gate.exists(), "the gate to be opened")
            context.update_checkpoint(events[-1])

    def stop(signum: int, frame: FrameType | None) -> None:
        client.close()

    signal.signal(signal.SIGTERM, stop)
    client.receive_batch(on_events, max_batch_size=20, max_wait_time=0.1, starting_position="-1")
    store.close()


def ours(told: dict[str, Any], write: Callable[[str, Iterable[int | None]], None], name: str) -> None:
    """Ours, in a mixed fleet. It records each batch, as the others do.

    So what comes twice is at most what is in hand, however much it has read in the second before another takes over.
    """

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        write(batch.partition, [event.sequence_number for event in batch])

    processor = EventProcessor(
        told["hub"],
        told["store"],
        on_events,
        name=name,
        ownership=OwnershipSettings() if told["default_times"] else settings(told["expiration"]),
        delivery=DeliverySettings(max_batch=20, prefetch=60, checkpoint=EACH_BATCH),
    )
    processor.run()


def work(kind: str, folder: Path, name: str) -> None:
    """Process events until asked to end."""
    told = json.loads((folder / "fleet.json").read_text())
    with (folder / f"read-{name}").open("ab") as read:

        def write(partition: str, numbers: Iterable[int | None]) -> None:
            read.write("".join(f"{partition} {number}\n" for number in numbers).encode())
            read.flush()
            os.fsync(read.fileno())

        if kind == "official":
            official(told, write, folder / f"gate-{name}")
        else:
            ours(told, write, name)


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
