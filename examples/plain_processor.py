"""Two plain processors share a hub and keep one table, exactly once, without Spark.

    python examples/plain_processor.py

Each processor would usually be a process of its own, with `processor.run()`; the code is the same. The second one
joins while the first is at work: partitions are handed over, and no event is read twice.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from leasehold import Event, EventBatch, EventProcessor, Handlers, OwnershipSettings, PartitionContext, StopReason
from leasehold.hubs.log import LogHub
from leasehold.sinks import Batch, TableSpec, open_sink

READINGS = 4000
OFTEN = OwnershipSettings(load_balancing_interval=0.5, partition_expiration=10, settle_delay=0.1)
"""Look around more often than every 10 seconds, so that the example is short."""


def main() -> None:
    """Send readings of ten sensors, and keep the last one of each."""
    with tempfile.TemporaryDirectory() as folder:
        hub = LogHub.create(Path(folder) / "readings.db", partitions=4)
        readings = ({"sensor": f"s{n % 10}", "value": n} for n in range(READINGS))
        hub.send(Event(json.dumps(r).encode(), partition_key=str(r["sensor"])) for r in readings)
        read: Counter[tuple[str, int]] = Counter()
        with processor(folder, "left", read):
            until(lambda: len(read) > READINGS // 10)
            with processor(folder, "right", read):
                until(lambda: len(read) == READINGS)
        print(f"{len(read)} events, {sum(count - 1 for count in read.values())} of them read twice")
        with closing(sqlite3.connect(Path(folder) / "entities.db")) as table:
            for sensor, value in table.execute("SELECT sensor, value FROM sensors ORDER BY sensor"):
                print(sensor, value)


def processor(folder: str, name: str, read: Counter[tuple[str, int]]) -> EventProcessor:
    """A processor whose handler writes each event once, however often it comes."""
    sensors = open_sink(
        f"sqlite:///{folder}/entities.db", TableSpec(name="sensors", pipeline="sensors", keys=["sensor"])
    )

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        rows = [json.loads(event.body) | context.fence_columns(event) for event in batch]
        # One transaction with the watermark: what was applied before, or by a later owner, is left out.
        sensors.apply(Batch(pa.Table.from_pylist(rows)), made.recorded_owner_level)
        read.update((event.partition, event.sequence_number) for event in batch)

    def on_stop(context: PartitionContext, reason: StopReason) -> None:
        print(f"{name} stops partition {context.partition}: {reason}")

    def on_error(error: BaseException, partition: str | None) -> None:
        print(f"{name}, partition {partition}: {error!r}")

    made = EventProcessor(
        f"log:///{folder}/readings.db",
        f"sqlite:///{folder}/leasehold.db",
        Handlers(
            on_events,
            on_partition_start=lambda context: print(f"{name} starts partition {context.partition} at {context.start}"),
            on_partition_stop=on_stop,
            on_error=on_error,
        ),
        name=name,
        ownership=OFTEN,
    )
    return made


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, and not for ever."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the events were not processed within a minute")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
