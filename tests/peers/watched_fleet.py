"""A mixed fleet with an eye on who receives: what is asked of it beside the processor of another language.

Every event is delivered to somebody; at a join, at most two batches of a partition come twice; and nothing moves once
all have their share. What was seen of each join and end is printed: the table of docs/beside-official.md. For how long
a partition was without a receiver is judged at default times alone.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from leasehold.emulators.event_hubs import EventHubsServer
from tests.faults.instance import PATIENCE
from tests.faults.mixed_fleet import MixedFleet
from tests.faults.mixed_worker import EXPIRATION
from tests.peers.reader_watch import ReaderWatch
from tests.stores.azurite import Azurite
from tests.waiting import take

PARTITIONS = 4
BATCH = 20
"""The largest that ours are given, as `mixed_worker` has it."""
TAKE_OVER = EXPIRATION
"""Seconds after which the others take what is not renewed, at short times."""


def orders(other: str) -> list[object]:
    """Who is there first, ours or the other: the other is killed and ours stopped in `make peers`, and in `make soak`
    both ways."""
    return [
        pytest.param((other, "ours"), id=f"{other}-then-ours", marks=[pytest.mark.peers, pytest.mark.soak]),
        pytest.param(("ours", other), id=f"ours-then-{other}", marks=pytest.mark.soak),
    ]


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
        level: int | None = 0,
        again_after_a_theft: bool = False,
    ) -> None:
        super().__init__(
            folder, server, azurite, namespace=namespace, default_times=default_times, store_options=store_options
        )
        self.watch = ReaderWatch(server, self.hub.partition_ids())
        self.patience = max(400.0, PATIENCE)
        self.level = level
        """The owner level that the others' receivers say. Ours say 0."""
        self.again_after_a_theft = again_after_a_theft
        """Whether the others' clients, one link stolen, read the other partitions again from where they began."""
        self.before: Counter[str] = Counter()

    def alone(self, kind: str, name: str) -> None:
        """The first member, which has everything and has read everything."""
        self.send(20)
        self.launch(kind, name)
        self.wait_shared(PARTITIONS)
        self.wait_read()
        assert self.watch.levels() == {0 if kind == "ours" else self.level}, "the owner level is another one"

    def send_until_shared(self, *counts: int) -> None:
        """Events come all the time until the partitions are shared so."""

        def shared() -> bool:
            self.send(1)
            return sorted(self.owned().values()) == sorted(counts)

        self.until(shared, f"shares of {counts}")

    def rest(self, looks: int) -> None:
        """Events come, five times a second, and nothing moves."""
        owners = self.owners()
        for look in range(looks):
            self.send(1)
            take(0.2)
            now = self.owners()
            assert now == owners, f"in look {look} something moves: {owners} -> {now}\n{self.said()}"

    def owners(self) -> dict[str, str]:
        """The owner on record of each partition."""
        return {record.partition: record.owner_id for record in self.store.list_ownership(self.group).records}

    def begin(self) -> None:
        """What is counted begins now."""
        self.watch.begin()
        self.before = self.again()

    def again(self) -> Counter[str]:
        """How many events of each partition came more than once, each time counted."""
        again: Counter[str] = Counter()
        for (partition, _), count in self.read().items():
            again[partition] += count - 1
        return again

    def check(self, what: str, longest: float | None = None) -> int:
        """All is read, and no partition was without a receiver for longer. Say what was seen, and how many came twice.

        Those twice are of the partition that has the most of them.
        """
        self.wait_read()
        twice = max((self.again() - self.before).values(), default=0)
        print(f"{what}: 0 lost, {twice} twice in a partition, {self.watch.longest:.1f} s without a receiver")
        assert longest is None or self.watch.longest <= longest, self.said()
        return twice

    def check_join(self, first: str, second: str, longest: float | None = None) -> None:
        """Beside, no more than two batches came twice, where ours or its like has what the other steals from it."""
        twice = self.check(f"{second} joins {first}", longest)
        assert twice <= 2 * BATCH or (self.again_after_a_theft and second == "ours"), self.said()

    def leave(self, name: str) -> None:
        """Ask it to end, and wait until it has. A program may end by the signal once it has closed its client."""
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(self.patience) in (0, 143, -15), (self.folder / f"log-{name}").read_text()

    def close(self) -> None:
        self.watch.close()
        super().close()

    def join_and_outlive(self, first: str, second: str) -> None:
        """One kind joins the other; then the first is killed, comes back, and the second is stopped."""
        self.alone(first, "a")
        self.begin()
        self.launch(second, "b")
        self.send_until_shared(2, 2)
        self.rest(25)
        self.check_join(first, second)

        self.begin()
        self.kill("a")
        self.send_until_shared(PARTITIONS)
        self.check(f"{first} is killed")
        self.launch(first, "c")
        self.send_until_shared(2, 2)
        self.wait_read()
        self.begin()
        self.leave("b")
        self.send_until_shared(PARTITIONS)
        self.check(f"{second} is stopped")
        self.wait_recorded()

    def join_and_rest(self, first: str, second: str) -> None:
        """At everybody's default times: one kind joins the other, ten minutes pass, and the second is killed."""
        self.alone(first, "a")
        self.begin()
        self.launch(second, "b")
        self.send_until_shared(2, 2)
        self.rest(3_000)
        # Without a level it is refused until ours has seen the loss, and tries again in its next cycle.
        self.check_join(first, second, 10.0 if self.level is not None else 60.0)
        self.begin()
        self.kill("b")
        self.send_until_shared(PARTITIONS)
        self.check(f"{second} is killed", self.patience)
