"""The plain processor beside a bare loop over `hub.read`, in turns: what ownership, threads and checkpoints cost.

Handlers only count. Each turn of the processor has a store of its own; its clock starts with the first event, so that
the time to acquire partitions is not in it. `as events` means that both sides make an object of each event.

What watching costs is measured in the same turns, against the defaults with nothing on: metrics, served and scraped
each second; tracing without an SDK; the dashboard, a process of its own with a page that follows it; and all three.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO

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
from leasehold.stores import open_store
from leasehold.tracing import Tracing

Row = tuple[str, float, str, float | None, str]
PARTITIONS = 4
STORED = 1_000
LARGE = DeliverySettings(max_batch=1_000, prefetch=3_000)
SECOND = every(seconds=1.0)
WATCHED = {
    "metrics": ("metrics",),
    "tracing without an SDK": ("tracing",),
    "the dashboard": ("dashboard",),
    "all three": ("metrics", "tracing", "dashboard"),
}
SCRAPER = """
import sys, time, urllib.request
while True:
    with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
        answer.read()
    time.sleep(1)
"""
PIPELINE = """\
name = "bench"
[source]
hub = "{hub}"
[ownership]
store = "{store}"
[transform]
schema = "id STRING"
sql = "SELECT id, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///{folder}/table.db"
table = "entities"
keys = ["id"]
"""


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
            **{what: partial(bench.watched, watchers) for what, watchers in WATCHED.items()},
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

    def ratio(watched: str) -> float:
        return speed[watched] / speed["defaults"]

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
        *(
            (f"processor: defaults, with {what}, to without", speed[what], "events/s", ratio(what), ">= 0.98")
            for what in WATCHED
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

    def watched(self, watchers: Collection[str]) -> float:
        return self.processor(DeliverySettings(), None, as_events=True, watchers=watchers)

    def processor(
        self,
        delivery: DeliverySettings,
        policy: CheckpointPolicy | None,
        *,
        as_events: bool = False,
        single: bool = False,
        watchers: Collection[str] = (),
    ) -> float:
        self._runs += 1
        store = f"sqlite:///{self._folder}/store-{self._runs}.db"
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

        handler = Tracing(self._hub).handler(on_events) if "tracing" in watchers else on_events
        notices = Notices()
        with (
            _scraped(notices) if "metrics" in watchers else nullcontext(),
            _shown(self._folder, self._hub, store) if "dashboard" in watchers else nullcontext(),
            EventProcessor(
                self._hub,
                store,
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


@contextmanager
def _scraped(notices: Notices) -> Iterator[None]:
    """Metrics are served, and another process asks for them each second."""
    with serve_metrics(notices, listen="127.0.0.1:0") as server:
        scraper = subprocess.Popen([sys.executable, "-c", SCRAPER, f"{server.url}/metrics"])
        try:
            yield
        finally:
            scraper.kill()
            scraper.wait()


@contextmanager
def _shown(folder: Path, hub: LogHub, store: str) -> Iterator[None]:
    """A dashboard of the group runs, and a page follows it."""
    open_store(store).list_ownership(hub.consumer_group("$Default"))  # it has to be there
    file = folder / "bench.toml"
    file.write_text(PIPELINE.format(hub=hub.url, store=store, folder=folder))
    command = [sys.executable, "-m", "leasehold", "dashboard", str(file), "--json", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--history", str(folder / "ring.db")], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(f"{url}events", timeout=60) as stream:  # noqa: S310 - of this machine
            assert stream.readline()
            follower = threading.Thread(target=_follow, args=(stream,))
            follower.start()
            try:
                yield
            finally:
                process.kill()  # ends the stream, and with it the thread
                follower.join()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _follow(stream: IO[bytes]) -> None:
    with suppress(OSError, ValueError, http.client.HTTPException):
        while stream.readline():
            pass


if __name__ == "__main__":
    for line in run(quick=False):
        print(line)
