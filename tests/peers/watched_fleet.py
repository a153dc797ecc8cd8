"""A mixed fleet with an eye on who receives: what is asked of it beside the processor of another language.

Every event is delivered to somebody; at a join, at most two batches of a partition come twice; no partition is without
a receiver for longer than a take-over takes; and nothing moves once all have their share.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from leasehold.emulators.event_hubs import EventHubsServer
from tests.faults.mixed_fleet import MixedFleet
from tests.peers.reader_watch import ReaderWatch
from tests.stores.azurite import Azurite

PARTITIONS = 4
BATCH = 20
"""The largest that ours are given, as `mixed_worker` has it."""
TAKE_OVER = 5.0
"""Seconds after which the others take what is not renewed, at short times."""


class WatchedFleet(MixedFleet):
    """A mixed fleet whose other members are of one kind, which `commands` says how to start."""

    def __init__(
        self,
        folder: Path,
        server: EventHubsServer,
        azurite: Azurite,
        *,
        namespace: str,
        default_times: bool = False,
        store_options: str = "",
    ) -> None:
        super().__init__(
            folder, server, azurite, namespace=namespace, default_times=default_times, store_options=store_options
        )
        self.watch = ReaderWatch(server, self.hub.partition_ids())
        self.patience = 400.0 if default_times else 90.0

    def alone(self, kind: str, name: str) -> None:
        """The first member, which has everything and has read everything."""
        self.send(20)
        self.launch(kind, name)
        self.wait_shared(PARTITIONS)
        self.wait_read()

    def send_until_shared(self, *counts: int) -> None:
        """Events come all the time until the partitions are shared so."""

        def shared() -> bool:
            self.send(1)
            return sorted(self.owned().values()) == sorted(counts)

        self.until(shared, f"shares of {counts}")

    def rest(self, seconds: float) -> None:
        """Events come, and nothing moves."""
        owners = self.owners()
        begun = time.monotonic()
        while (passed := time.monotonic() - begun) < seconds:
            self.send(1)
            time.sleep(0.2)
            now = self.owners()
            assert now == owners, f"after {passed:.1f} s something moves: {owners} -> {now}\n{self.said()}"

    def owners(self) -> dict[str, str]:
        """The owner on record of each partition."""
        return {record.partition: record.owner_id for record in self.store.list_ownership(self.group).records}

    def twice(self) -> int:
        """How many events of the partition that has the most of them came more than once, each time counted."""
        again: Counter[str] = Counter()
        for (partition, _), count in self.read().items():
            again[partition] += count - 1
        return max(again.values())

    def check_join(self, longest: float) -> None:
        """All is read, no partition was without a receiver for longer, and no more than two batches came twice."""
        self.wait_read()
        print(f"join: {self.twice()} twice in a partition, {self.watch.longest:.1f} s without a receiver")
        assert self.watch.longest <= longest
        assert self.twice() <= 2 * BATCH

    def leave(self, name: str) -> None:
        """Ask it to end, and wait until it has. A program may end by the signal once it has closed its client."""
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(self.patience) in (0, 143, -15), (self.folder / f"log-{name}").read_text()

    def close(self) -> None:
        self.watch.close()
        super().close()

    def join_and_outlive(self, first: str, second: str) -> None:
        """One kind joins the other; then the first is killed, and later the second, which comes back and is stopped."""
        self.alone(first, "a")
        self.watch.begin()
        self.launch(second, "b")
        self.send_until_shared(2, 2)
        self.rest(8.0)
        self.check_join(TAKE_OVER)

        self.kill("a")
        self.send_until_shared(PARTITIONS)
        self.wait_read()
        self.launch(first, "c")
        self.send_until_shared(2, 2)
        self.rest(4.0)
        self.kill("b")
        self.send_until_shared(PARTITIONS)
        self.wait_read()
        self.launch(second, "d")
        self.send_until_shared(2, 2)
        self.watch.begin()
        self.leave("d")
        self.send_until_shared(PARTITIONS)
        self.wait_read()
        print(f"stop of {second}: {self.watch.longest:.1f} s without a receiver")
        self.wait_recorded()

    def join_and_rest(self, first: str, second: str) -> None:
        """At everybody's default times: one kind joins the other, ten minutes pass, and the second is killed."""
        self.alone(first, "a")
        self.watch.begin()
        self.launch(second, "b")
        self.send_until_shared(2, 2)
        self.rest(600.0)
        self.check_join(10.0)
        self.kill("b")
        self.send_until_shared(PARTITIONS)
        self.wait_read()
