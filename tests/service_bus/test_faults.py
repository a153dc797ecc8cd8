"""Many official receivers at once, while connections are cut, outcomes swallowed, locks lost and the server restarted.

What must hold whatever happens: no message is lost; none comes again once its completion was confirmed; and those that
were given up too often, and no others, are dead letters.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leasehold.emulators.service_bus import QueueSettings, ServiceBusServer
from tests.service_bus.servers import LEAVES_SOCKETS, connected, servicebus

pytestmark = LEAVES_SOCKETS
LOCK = 3.0
QUEUES = {"orders": QueueSettings(lock_duration=LOCK, max_delivery_count=1_000)}


class Story:
    """What the receivers have seen, in the order of one lock."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.delivered: Counter[str] = Counter()
        self.confirmed: dict[str, float] = {}
        """When each was known to be completed, in seconds since the epoch."""
        self.wrong: list[str] = []
        self.lock = threading.Lock()
        self.stop = threading.Event()

    def deliver(self, body: str, locked: float) -> None:
        """A receiver looks at a message that was locked for it at this time, maybe long before: it takes several."""
        with self.lock:
            self.delivered[body] += 1
            if locked > self.confirmed.get(body, locked):
                self.wrong.append(f"{body} came again after its completion was confirmed")

    def confirm(self, body: str) -> None:
        with self.lock:
            self.confirmed[body] = time.time()


def work(server: ServiceBusServer, story: Story, seed: int) -> None:
    """One receiver that completes, or now and then abandons, until it is told to stop; faults make it begin again."""
    chance = random.Random(seed)
    while not story.stop.is_set():
        try:
            with connected(server, retry_total=0) as client, client.get_queue_receiver("orders") as receiver:
                while not story.stop.is_set():
                    for message in receiver.receive_messages(10, max_wait_time=1.0):
                        treat(receiver, message, story, chance)
        except (servicebus.exceptions.ServiceBusError, ValueError, AttributeError):
            time.sleep(0.1)  # the last two: the official client, where its connection is cut while it closes


def treat(receiver: Any, message: Any, story: Story, chance: random.Random) -> None:
    body = str(message)
    story.deliver(body, message.locked_until_utc.timestamp() - LOCK)
    if chance.random() < 0.05:
        receiver.abandon_message(message)
        return
    receiver.complete_message(message)
    story.confirm(body)


def run(path: Path, count: int, receivers: int, faults: int, seed: int) -> None:
    chance, story = random.Random(seed), Story(count)
    server = ServiceBusServer(QUEUES, path=path)
    server.start()
    port = server.port
    server.send("orders", *map(str, range(count)))
    threads = [threading.Thread(target=work, args=(server, story, seed + at), daemon=True) for at in range(receivers)]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + 240
        for at in range(faults):
            until = time.monotonic() + chance.uniform(0.3, 1.0)
            while time.monotonic() < until and server.count("orders"):
                time.sleep(0.02)
            if at == faults // 2:
                server.stop()
                server = ServiceBusServer(path=path, port=port)
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
        while server.count("orders"):
            assert time.monotonic() < end, f"seed {seed}: {server.count('orders')} messages are never completed"
            time.sleep(0.05)
    finally:
        story.stop.set()
        for thread in threads:
            thread.join(30)
        server.stop()
    assert story.wrong == [], f"seed {seed}"
    assert set(story.delivered) == {str(number) for number in range(count)}, f"seed {seed}: some were lost"
    assert len(story.confirmed) > count // 2
    assert not any(thread.is_alive() for thread in threads)
    with ServiceBusServer(path=path) as again:
        assert (again.count("orders"), again.count("orders", dead=True)) == (0, 0)


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_confirmed_comes_again(tmp_path: Path) -> None:
    run(tmp_path / "bus.db", count=150, receivers=2, faults=4, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_the_same_with_many_messages_and_faults(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "bus.db", count=5_000, receivers=4, faults=40, seed=100 * seed)
