"""What each process of the tests does: a plain processor whose handler writes down what it got, and applies it.

A gate stops the handler in the middle of a batch: it waits while the gate's file exists. Nothing expires by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from leasehold.config import OwnershipSettings
from leasehold.hubs.log.hub import LogHub
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, PartitionContext, every
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.rules.batch import Batch
from leasehold.stores.sqlite.store import SqliteStore
from tests.waiting import NEVER, PATIENCE, take, until

TABLE = TableSpec(name="seen", pipeline="p", mode="append", keep=("partition", "sequenceNumber"))
COLUMNS = ["body", "hub", "partition", "sequenceNumber", "ownerLevel"]


def work(folder: Path, name: str) -> None:
    """Process events until asked to end."""
    sink = open_sink(f"sqlite:///{folder}/table.db", TABLE, timeout=PATIENCE)
    gate, inside = folder / f"gate-{name}", folder / f"inside-{name}"
    with (folder / f"read-{name}").open("ab") as read:

        def on_events(batch: EventBatch, context: PartitionContext) -> None:
            take(0.005)
            read.write(b"".join(b"%s %d\n" % (batch.partition.encode(), event.sequence_number) for event in batch))
            read.flush()
            os.fsync(read.fileno())
            if gate.exists():
                inside.touch()
                until(lambda: not gate.exists(), "the gate to be opened")
            result = sink.apply(Batch(batch.arrow().select(COLUMNS)), processor.recorded_owner_level)
            if result.refused:
                (folder / f"refused-{name}").touch()

        processor = EventProcessor(
            LogHub(folder / "hub.db"),
            SqliteStore(folder / "store.db", timeout=30.0),
            on_events,
            name=name,
            ownership=OwnershipSettings(
                load_balancing_interval=0.3,
                partition_expiration=NEVER,
                request_timeout=30.0,
                settle_delay=0.3,
                hand_over_timeout=NEVER,
            ),
            delivery=DeliverySettings(
                max_batch=20, prefetch=60, poll_interval=0.05, checkpoint=every(events=50, seconds=1.0)
            ),
        )
        processor.run()


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
