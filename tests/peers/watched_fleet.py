"""A mixed fleet with an eye on who receives: what is asked of it beside the processor of another language.

Every event is delivered to somebody; at a join, at most two batches of a partition come twice; and nothing moves once
all have their share. What was seen of each join and end is printed (`-rP`): the tables of docs/event-hubs.md. For
how long a partition was without a receiver is judged at default times alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from leasehold_testkit.emulators.event_hubs import EventHubsServer
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


KILLED, STOPPED = "killed", "stopped"


def courses(other: str) -> list[object]:
    """Who starts first, and who ends in each round, and how.

    In `make peers`: the other is killed, and ours stopped. In `make soak`: every end, in both orders of joining.
    """
    short = [(other, KILLED), ("ours", STOPPED)]
    ours_first = [(other, KILLED), (other, STOPPED), ("ours", KILLED)]
    other_first = [("ours", KILLED), ("ours", STOPPED), (other, KILLED)]
    every = [*ours_first, *other_first, ("ours", STOPPED), (other, STOPPED)]
    return [
        pytest.param(other, "ours", short, id=f"{other}-then-ours", marks=pytest.mark.peers),
        pytest.param("ours", other, every, id="every-end-in-both-orders", marks=pytest.mark.soak),
    ]


def at_default_times(other: str) -> list[object]:
    """Both orders of joining: the second is stopped, comes again, and is killed."""
    orders = [("ours", other), (other, "ours")]
    return [
        pytest.param(first, second, [(second, STOPPED), (second, KILLED)], id=f"{first}-then-{second}")
        for first, second in orders
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
        self.every = 1.0 if default_times else 0.05
        """Seconds between two events of a partition."""
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
            take(self.every)
            return sorted(self.owned().values()) == sorted(counts)

        self.until(shared, f"shares of {counts}")

    def rest(self, seconds: float) -> None:
        """Events come, and nothing moves."""
        owners, end = self.owners(), time.monotonic() + seconds
        while time.monotonic() < end:
            self.send(1)
            take(self.every)
            now = self.owners()
            assert now == owners, f"something moves: {owners} -> {now}\n{self.said()}"

    def owners(self) -> dict[str, str]:
        """The owner on record of each partition."""
        return {record.partition: record.owner_id for record in self.records()}

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
        """All is read, and no partition was without a receiver for longer. Say what was seen; how many came twice.

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

    def take_turns(
        self, first: str, second: str, ends: Sequence[tuple[str, str]], rest: float = 5.0, longest: float | None = None
    ) -> None:
        """In each round, the kind that is away joins the one that is there, and then one of the two ends.

        Both rest in the first round, for this many seconds. No join leaves a partition without a receiver for longer.
        """
        self.alone(first, f"{first}-0")
        there = {first: f"{first}-0"}
        for turn, (ends_now, how) in enumerate(ends, 1):
            (was_there,) = there
            (joins,) = {first, second} - {was_there}
            there[joins] = f"{joins}-{turn}"
            self.begin()
            self.launch(joins, there[joins])
            self.send_until_shared(PARTITIONS // 2, PARTITIONS // 2)
            self.rest(rest if turn == 1 else 0.0)
            self.check_join(was_there, joins, longest)

            self.begin()
            (self.kill if how == KILLED else self.leave)(there.pop(ends_now))
            self.send_until_shared(PARTITIONS)
            self.check(f"{was_there}, {joins}: {ends_now} is {how}")
        self.wait_recorded()

    def take_turns_at_default_times(self, first: str, second: str, ends: Sequence[tuple[str, str]]) -> None:
        """Nothing moves in ten minutes. Without a level, who joins is refused until ours has seen the loss, and tries
        again in its next cycle."""
        self.take_turns(first, second, ends, rest=600.0, longest=10.0 if self.level is not None else 60.0)
