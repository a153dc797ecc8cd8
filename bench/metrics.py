"""The metrics of a group: the time of one scrape and its requests to the stores, at the size that the goal names.

A scrape is a look and its text for Prometheus: 2,048 partitions, all held, each with unread events, in two logs (one
has 1,024 at most) that are looked at as one hub. The ratio is to the listings alone, of ownership and of checkpoints,
which every look makes.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from leasehold.hubs.base import Hub
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics.exposition import text_of
from leasehold.metrics.group_families import LookedAt, families
from leasehold.model import Checkpoint, Ownership, PartitionProperties, Presence
from leasehold.operations.group_watch import GroupWatch, WatchedGroup
from leasehold.stores import open_store

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.stores.servers import PostgresServer

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio to the listings alone, and the goal."""

PARTITIONS = 2_048
INSTANCES = 64


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes a few seconds."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        hub = _Wide(Path(folder))
        for name, opened in (("sqlite", _sqlite), ("postgresql", _postgres)):
            with opened(Path(folder)) as url:
                gc.collect()
                gc.freeze()  # as the command does
                try:
                    results += _measure(name, url, hub, 5 if quick else 30)
                finally:
                    gc.unfreeze()
    return results


def _measure(name: str, url: str, hub: _Wide, times: int) -> list[Row]:
    store = open_store(url)
    group = hub.consumer_group("metrics")
    owners = [f"host-{number}/{number:012x}" for number in range(INSTANCES)]
    claims = [
        Ownership(group, partition, owners[place % INSTANCES], 1, nonce="n")
        for place, partition in enumerate(hub.partition_ids())
    ]
    held = store.claim_ownership(claims)
    for owner in owners:
        mine = [record for record in held if record.owner_id == owner]
        store.renew_ownership(mine, Presence(group, owner, "flights", "planned"))
    store.update_checkpoints([Checkpoint(group, partition, 4, 1) for partition in hub.partition_ids()])
    asked = _counted(store)
    watched = WatchedGroup(
        pipeline="flights", hub=cast(Hub, hub), group=group, ownership=store, checkpoints=store, expiration=3600.0
    )
    watch = GroupWatch(watched, window=60.0)
    pages = [len(_page(watch))]
    requests = asked[0]
    scrape = _milliseconds(lambda: pages.append(len(_page(watch))), times)
    plain = _milliseconds(lambda: (store.list_ownership(group), store.list_checkpoints(group)), times)
    return [
        (f"{name}: one scrape of 2,048 partitions", scrape, "ms", scrape / plain, "<= 300"),
        (f"{name}: requests to the stores a scrape", requests, "requests", None, "<= 3"),
    ]


def _page(watch: GroupWatch) -> bytes:
    return text_of(families([LookedAt("flights", watch.look())]))


def _milliseconds(action: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1_000


def _counted(store: Any) -> list[int]:
    """How often a store speaks to its server or file from now on."""
    asked = [0]

    def counted(use: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **options: Any) -> Any:
            asked[0] += 1
            return use(*arguments, **options)

        return count

    for part, method in (("_connections", "run"), ("_file", "reading")):
        if hasattr(store, part):
            owner = getattr(store, part)
            setattr(owner, method, counted(getattr(owner, method)))
    return asked


class _Wide:
    """Two logs as one hub, as far as a look goes."""

    first_events = Hub.first_events

    def __init__(self, folder: Path) -> None:
        self._logs = [LogHub.create(folder / f"hub-{number}.db", partitions=PARTITIONS // 2) for number in range(2)]
        for log in self._logs:
            for partition in log.partition_ids():
                log.append(pa.table({"body": pa.array([b"x"] * 10, pa.binary())}), partition=partition)
        self.url, self.consumer_group = self._logs[0].url, self._logs[0].consumer_group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs[0], name)

    def partition_ids(self) -> tuple[str, ...]:
        return tuple(self.partition_properties())

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        return {
            f"{number}-{partition}": found
            for number, log in enumerate(self._logs)
            for partition, found in log.partition_properties().items()
        }

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        found: dict[str, float] = {}
        for number, log in enumerate(self._logs):
            mine = {key.partition("-")[2]: start for key, start in starts.items() if key.startswith(f"{number}-")}
            times = log.enqueued_times(mine, timeout)
            found |= {f"{number}-{partition}": enqueued for partition, enqueued in times.items()}
        return found

    def retention(self, timeout: float) -> float | None:
        return self._logs[0].retention(timeout)


@contextmanager
def _sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite:///{folder}/metrics.db"


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    server = PostgresServer(folder)
    try:
        yield server.url
    finally:
        server.end()


if __name__ == "__main__":
    for what, figure, unit, ratio, goal in run(quick="--quick" in sys.argv):
        print(f"{what:70} {figure:>12,.2f} {unit:9} {'' if ratio is None else f'{ratio:.2f}':>6} {goal}")
