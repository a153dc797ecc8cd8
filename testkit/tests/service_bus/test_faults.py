"""Many official receivers at once, while connections are cut, outcomes swallowed, locks lost and the server restarted.

What must hold whatever happens: no message is lost; none comes again once its completion was confirmed; and those that
were given up too often, and no others, are dead letters.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.azure_clients import LEAVES_SOCKETS
from tests.queues.servers import LOCK, Server, connected, servicebus
from tests.waiting import PATIENCE, take, until

from leasehold_testkit.emulators.service_bus import QueueSettings

pytestmark = LEAVES_SOCKETS
QUEUES = {"orders": QueueSettings(lock_duration=LOCK, max_delivery_count=1_000)}


class Story:
    """What the receivers have seen, in the order of one lock."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.delivered: Counter[str] = Counter()
        self.confirmed: dict[str, float] = {}
        """When each was known to be completed, in seconds since the epoch by the server's clock."""
        self.wrong: list[str] = []
        self.lock = threading.Lock()
        self.stop = threading.Event()

    def deliver(self, body: str, locked: float) -> None:
        """A receiver looks at a message that was locked for it at this time, maybe long before: it takes several."""
        with self.lock:
            self.delivered[body] += 1
            if locked > self.confirmed.get(body, locked):
                self.wrong.append(f"{body} came again after its completion was confirmed")

    def has(self, count: int) -> bool:
        """Whether this many are known to be completed."""
        return len(self.confirmed) >= count

    def confirm(self, body: str, now: float) -> None:
        with self.lock:
            self.confirmed[body] = now


def work(server: Server, story: Story, seed: int) -> None:
    """One receiver that completes, or now and then abandons, until it is told to stop; faults make it begin again."""
    chance = random.Random(seed)
    while not story.stop.is_set():
        try:
            with connected(server, retry_total=0) as client, client.get_queue_receiver("orders") as receiver:
                while not story.stop.is_set():
                    for message in receiver.receive_messages(10, max_wait_time=1.0):
                        treat(server, receiver, message, story, chance)
        except (servicebus.exceptions.ServiceBusError, ValueError, AttributeError):
            take(0.1)  # the last two: the official client, where its connection is cut while it closes


def treat(server: Server, receiver: Any, message: Any, story: Story, chance: random.Random) -> None:
    body = str(message)
    story.deliver(body, message.locked_until_utc.timestamp() - LOCK)
    if chance.random() < 0.05:
        receiver.abandon_message(message)
        return
    receiver.complete_message(message)
    story.confirm(body, server.clock.wall())


def get_on(server: Server, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition. Where it does not come for a while, those who are gone hold the rest: their locks end."""
    for patience in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        with suppress(AssertionError):
            until(condition, what, patience)
            return
        server.let_pass(LOCK)
    until(condition, what)


def run(path: Path, count: int, receivers: int, faults: int, seed: int) -> None:
    chance, story = random.Random(seed), Story(count)
    server = Server(QUEUES, path=path)
    server.start()
    port = server.port
    server.send("orders", *map(str, range(count)))
    threads = [threading.Thread(target=work, args=(server, story, seed + at), daemon=True) for at in range(receivers)]
    for thread in threads:
        thread.start()
    try:
        for at in range(faults):
            done = round(count * (at + chance.random()) / (faults + 1))
            get_on(server, partial(story.has, done), f"seed {seed}: {done} completed messages")
            if at == faults // 2:
                server.stop()
                server = Server(path=path, port=port, clock=server.clock)
                server.start()
            match chance.randrange(4):
                case 0:
                    server.faults.drop_connections()
                case 1:
                    server.faults.swallow_outcomes(chance.randrange(1, 4))
                case 2:
                    server.faults.lose_locks()
                case 3:
                    server.faults.detach_links(entity="orders")
        server.faults.swallow_outcomes(0)
        get_on(server, lambda: not server.count("orders"), f"seed {seed}: all messages to be completed")
    finally:
        story.stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        server.stop()
    assert story.wrong == [], f"seed {seed}"
    assert set(story.delivered) == {str(number) for number in range(count)}, f"seed {seed}: some were lost"
    assert len(story.confirmed) > count // 2
    assert not any(thread.is_alive() for thread in threads)
    with Server(path=path, clock=server.clock) as again:
        assert (again.count("orders"), again.count("orders", dead=True)) == (0, 0)


def test_nothing_is_lost_and_nothing_confirmed_comes_again(tmp_path: Path) -> None:
    run(tmp_path / "bus.db", count=150, receivers=2, faults=4, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_the_same_with_many_messages_and_faults(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "bus.db", count=5_000, receivers=4, faults=40, seed=100 * seed)
