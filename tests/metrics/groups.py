"""Groups to look at: a log, a store in memory or a file, and a clock that is moved by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from leasehold.hubs.base import Hub
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics.exposition import text_of
from leasehold.metrics.group_families import LookedAt, families
from leasehold.model import BEFORE_FIRST, Checkpoint, Ownership, Presence
from leasehold.operations.group_watch import GroupSnapshot, GroupWatch, WatchedGroup
from leasehold.sinks.base import TableContents
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock

EXPIRATION, WINDOW = 30.0, 120.0


def samples(text: bytes | str) -> dict[str, float]:
    """Each series of a page with its value."""
    page = text.decode() if isinstance(text, bytes) else text
    return {
        series: float(value)
        for series, _, value in (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    }


class Group:
    """A group of one hub, whose records a test writes itself, and a watch over it."""

    def __init__(
        self,
        folder: Path,
        *,
        partitions: int = 2,
        hub: Callable[[LogHub], Hub] = lambda log: log,
        table: Callable[[], TableContents | None] = lambda: None,
        **more: object,
    ) -> None:
        self.clock = ManualClock()
        self.log = LogHub.create(folder / "hub.db", partitions=partitions, clock=self.clock)
        self.store = MemoryStore(self.clock)
        self.group = self.log.consumer_group("g")
        self.watched = WatchedGroup(
            pipeline="flights",
            hub=hub(self.log),
            group=self.group,
            ownership=self.store,
            checkpoints=self.store,
            expiration=EXPIRATION,
            table=table,
            **more,  # type: ignore[arg-type]
        )
        self.watch = GroupWatch(self.watched, window=WINDOW, clock=self.clock)
        self._held: dict[str, Ownership] = {}

    def send(self, partition: str, count: int) -> None:
        """Append events, now."""
        self.log.append(pa.table({"body": pa.array([b"x"] * count, pa.binary())}), partition=partition)

    def own(self, partition: str, owner: str, level: int = 1, **more: object) -> None:
        """Let an owner take a partition, and announce itself."""
        etag = self._held[partition].etag if partition in self._held else None
        record = dataclasses.replace(
            Ownership(self.group, partition, owner, level, etag, nonce="n", claimed_at=BEFORE_FIRST),
            **more,  # type: ignore[arg-type]
        )
        [self._held[partition]] = self.store.claim_ownership([record])
        self.renew()

    def renew(self) -> None:
        """Let all owners renew what they hold."""
        for owner in {record.owner_id for record in self._held.values() if record.owner_id}:
            mine = [record for record in self._held.values() if record.owner_id == owner]
            for record in self.store.renew_ownership(mine, Presence(self.group, owner)):
                self._held[record.partition] = record

    def give_up(self, partition: str) -> None:
        """Let the owner of a partition relinquish it."""
        [self._held[partition]] = self.store.relinquish_ownership([self._held[partition]])

    def reach(self, partition: str, number: int, level: int = 1, at: float | None = None) -> None:
        """Let the owner record that the events below `number` are done, the last of which was enqueued at `at`."""
        done = Checkpoint(self.group, partition, number - 1, level, enqueued_time=at)
        assert self.store.update_checkpoints([done]) == []

    def look(self) -> GroupSnapshot:
        """Look now."""
        return self.watch.look()

    def scrape(self) -> dict[str, float]:
        """Look now, and what Prometheus would be told."""
        return samples(text_of(families([LookedAt("flights", self.look())])))

    def pass_by(self, seconds: float, step: float = 10.0, *, renewing: bool = True) -> dict[str, float]:
        """Let time pass with a look at each step, and return the last one."""
        told: dict[str, float] = {}
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            if renewing:
                self.renew()
            told = self.scrape()
        return told


def of(told: dict[str, float], name: str, partition: str | None = None, **labels: str) -> float | None:
    """The value of one series, None where there is none."""
    all_labels = {"pipeline": "flights", **({"partition": partition} if partition is not None else {}), **labels}
    written = ",".join(f'{key}="{value}"' for key, value in sorted(all_labels.items()))
    return told.get(f"leasehold_{name}{{{written}}}")
