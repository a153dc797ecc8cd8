"""The plain processor beside a bare loop over `hub.read`, in turns: what ownership, threads and checkpoints cost.

Handlers only count. Each turn of the processor has a store of its own; its clock starts with the first event, so that
the time to acquire partitions is not in it. `as events` means that both sides make an object of each event.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa

from leasehold.config import OwnershipSettings
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics import serve_metrics
from leasehold.model import Event
from leasehold.notices import Notices
from leasehold.processor import (
    CheckpointPolicy,
    DeliverySettings,
    EventBatch,
    EventProcessor,
    PartitionContext,
    every,
)
from leasehold.tracing import Tracing

Row = tuple[str, float, str, float | None, str]
PARTITIONS = 4
STORED = 1_000
LARGE = DeliverySettings(max_batch=1_000, prefetch=3_000)
SECOND = every(seconds=1.0)


def run(quick: bool) -> list[Row]:
    """Rows of the table of figures."""
    each = 10_000 if quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        hub = LogHub.create(path / "hub.db", partitions=PARTITIONS)
        events = pa.table({"body": pa.array([b"x" * 200] * STORED, pa.binary())})
        for number in range(each // STORED * PARTITIONS):
            hub.append(events, partition=str(number % PARTITIONS))
        total = each * PARTITIONS
        bench = _Bench(hub, path, total)
        sides: dict[str, Callable[[], float]] = {
            "bare": lambda: bench.bare(as_events=False),
            "bare, as events": lambda: bench.bare(as_events=True),
            "batches": lambda: bench.processor(LARGE, SECOND),
            "batches, as events": lambda: bench.processor(LARGE, SECOND, as_events=True),
            "defaults": lambda: bench.processor(DeliverySettings(), None, as_events=True),
            "observed": lambda: bench.processor(DeliverySettings(), None, as_events=True, observed=True),
            "single": lambda: bench.processor(LARGE, SECOND, single=True),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(2 if quick else 4):
            for name, side in sides.items():
                seconds = side()
                if turn:  # the first one warms up
                    taken[name].append(seconds)
        speed = {name: total / statistics.median(times) for name, times in taken.items()}
    beside, beside_events = speed["bare"], speed["bare, as events"]
    return [
        ("bare loop over hub.read", beside, "events/s", None, ""),
        ("processor: batches of 1,000", speed["batches"], "events/s", speed["batches"] / beside, ""),
        ("bare loop over hub.read, as events", beside_events, "events/s", None, ""),
        *(
            (f"processor: {what}", speed[name], "events/s", speed[name] / beside_events, "")
            for what, name in (
                ("batches of 1,000, as events", "batches, as events"),
                ("defaults (batches of 100, each recorded)", "defaults"),
                ("one event at a time", "single"),
            )
        ),
        (
            "processor: defaults, with metrics served and tracing without an SDK, to without",
            speed["observed"],
            "events/s",
            speed["observed"] / speed["defaults"],
            ">= 0.98",
        ),
    ]


class _Bench:
    """A full log, and the ways to read it to its end. Each returns the seconds that it took."""

    def __init__(self, hub: LogHub, folder: Path, total: int) -> None:
        self._hub = hub
        self._folder = folder
        self._total = total
        self._runs = 0

    def bare(self, *, as_events: bool) -> float:
        started, count = time.perf_counter(), 0
        for partition, place in self._hub.partition_properties().items():
            for batch in self._hub.read(partition, place.begin, place.end, batch_rows=1_000):
                count += len(events_of(batch)) if as_events else batch.num_rows
        assert count == self._total
        return time.perf_counter() - started

    def processor(
        self,
        delivery: DeliverySettings,
        policy: CheckpointPolicy | None,
        *,
        as_events: bool = False,
        single: bool = False,
        observed: bool = False,
    ) -> float:
        self._runs += 1
        done, lock = threading.Event(), threading.Lock()
        count, began = 0, 0.0

        def add(events: int) -> None:
            nonlocal count, began
            with lock:
                began = began or time.perf_counter()
                count += events
                if count == self._total:
                    done.set()

        def on_events(batch: EventBatch, context: PartitionContext) -> None:
            add(sum(1 for _ in batch) if as_events else len(batch))

        def on_event(event: Event, context: PartitionContext) -> None:
            add(1)

        handler = Tracing(self._hub).handler(on_events) if observed else on_events
        notices = Notices()
        serving = serve_metrics(notices, listen="127.0.0.1:0") if observed else nullcontext()
        with (
            serving,
            EventProcessor(
                self._hub,
                f"sqlite:///{self._folder}/store-{self._runs}.db",
                None if single else handler,
                on_event=on_event if single else None,
                checkpoint=policy,
                delivery=delivery,
                notices=notices,
                ownership=OwnershipSettings(settle_delay=0),
            ),
        ):
            assert done.wait(300)
            return time.perf_counter() - began


if __name__ == "__main__":
    for line in run(quick=False):
        print(line)
