"""The plain processor beside a bare loop over `hub.read`, in turns: what ownership, threads and checkpoints cost.

Handlers only count. Each turn of the processor has a store of its own; its clock starts with the first event, so that
the time to acquire partitions is not in it. `as events` means that both sides make an object of each event.

What watching costs is measured against the defaults with nothing on, and the best of many turns counts, since a few
hundredths are to be seen and what others do on the machine only adds to it: metrics, served and scraped every five
seconds (Prometheus: 15 by default); tracing without an SDK; the dashboard, a process of its own
with a page that follows it; and all three. These turns read a longer log, of several seconds.
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
from dataclasses import replace
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
from leasehold.processors.events import (
    CheckpointPolicy,
    DeliverySettings,
    EventBatch,
    EventProcessor,
    Handlers,
    PartitionContext,
    every,
)
from leasehold.runtime import Runtime
from leasehold.stores import open_store
from leasehold.tracing import Tracing

Row = tuple[str, float, str, float | None, str]
PARTITIONS = 4
STORED = 1_000
LARGE = DeliverySettings(max_batch=1_000, prefetch=3_000)
SECOND = every(seconds=1.0)
LONGER = 4
"""How many times as many events are read where a few hundredths are to be seen."""
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
    print("scraped", flush=True)
    time.sleep(5)
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
        total = each * PARTITIONS
        bench = _Bench(_filled(path / "hub.db", total), path, total)
        sides: dict[str, Callable[[], float]] = {
            "bare": lambda: bench.bare(as_events=False),
            "bare, as events": lambda: bench.bare(as_events=True),
            "batches": lambda: bench.processor(LARGE, SECOND),
            "batches, as events": lambda: bench.processor(LARGE, SECOND, as_events=True),
            "defaults": lambda: bench.processor(DeliverySettings(), None, as_events=True),
            "single": lambda: bench.processor(LARGE, SECOND, single=True),
        }
        taken = _in_turns(sides, 2 if quick else 4)
        speed = {name: total / statistics.median(times) for name, times in taken.items()}
        longer = _Bench(_filled(path / "longer.db", LONGER * total), path, LONGER * total)
        watched: dict[str, Callable[[], float]] = {
            what: partial(longer.watched, watchers) for what, watchers in {"nothing": (), **WATCHED}.items()
        }
        costs = _in_turns(watched, 2 if quick else 9)
    beside, beside_events = speed["bare"], speed["bare, as events"]

    def ratio(what: str) -> float:
        return min(costs["nothing"]) / min(costs[what])

    return [
        ("bare loop over hub.read", beside, "events/s", None, ""),
        ("processor: batches of 1,000", speed["batches"], "events/s", speed["batches"] / beside, ""),
        ("bare loop over hub.read, as events", beside_events, "events/s", None, ""),
        *(
            (f"processor: {what}", speed[name], "events/s", speed[name] / beside_events, "")
            for what, name in (
                ("batches of 1,000, as events", "batches, as events"),
                ("defaults (batches of 100)", "defaults"),
                ("one event at a time", "single"),
            )
        ),
        *(
            (
                f"processor: defaults, with {what}, to without",
                LONGER * total / min(costs[what]),
                "events/s",
                ratio(what),
                ">= 0.98",
            )
            for what in WATCHED
        ),
    ]


def _filled(file: Path, total: int) -> LogHub:
    hub = LogHub.create(file, partitions=PARTITIONS)
    events = pa.table({"body": pa.array([b"x" * 200] * STORED, pa.binary())})
    for number in range(total // STORED):
        hub.append(events, partition=str(number % PARTITIONS))
    return hub


def _in_turns(sides: dict[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """How long each side took in each turn but the first, which warms up."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name, side in sides.items():
            seconds = side()
            if turn:
                taken[name].append(seconds)
    return taken


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
        store = f"sqlite:///{self._folder}/store-{self._total}-{self._runs}.db"
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
                Handlers(None if single else handler, on_event=on_event if single else None),
                delivery=replace(delivery, checkpoint=policy),
                runtime=Runtime(notices=notices),
                ownership=OwnershipSettings(settle_delay=0),
            ),
        ):
            assert done.wait(300)
            return time.perf_counter() - began


@contextmanager
def _scraped(notices: Notices) -> Iterator[None]:
    """Metrics are served, and another process asks for them every five seconds."""
    with serve_metrics(notices, listen="127.0.0.1:0") as server:
        command = [sys.executable, "-c", SCRAPER, f"{server.url}/metrics"]
        scraper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert scraper.stdout is not None
            assert scraper.stdout.readline()  # its own start is no part of what is measured
            yield
        finally:
            scraper.kill()
            scraper.communicate()


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
            shown = False
            while not shown:  # the first look loads half a second's worth of CPU time: no part of what is measured
                line = stream.readline()
                assert line
                shown = line.startswith(b"data:") and json.loads(line[5:])["at"] > 0
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
