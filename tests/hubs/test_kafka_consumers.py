"""Many partitions on few consumers: each range is exact, and nobody waits for another's reader."""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from leasehold.errors import HubUnavailable
from leasehold.hubs.kafka import consumers as kafka_consumers
from leasehold.hubs.kafka import reading as kafka_reading
from leasehold.hubs.kafka.clients import Client
from leasehold.hubs.kafka.hub import KafkaHub
from leasehold.model import Event
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_hubs import numbers, opened, waits
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

SHARED = 4
"""Partitions of a topic that is read through one consumer here."""


pytestmark = pytest.mark.usefixtures("patient_kafka")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Client[Consumer]]:
    """The consumers that were made."""
    found: list[Client[Consumer]] = []
    original = Client.__init__

    def noted(client: Client[Any], kind: type[Any], *arguments: Any, **named: Any) -> None:
        original(client, kind, *arguments, **named)
        if kind is Consumer:
            found.append(client)

    monkeypatch.setattr(Client, "__init__", noted)
    return found


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Client[Any]]:
    """The clients that were closed."""
    found: list[Client[Any]] = []
    original = Client.close

    def noted(client: Client[Any]) -> None:
        original(client)
        found.append(client)

    monkeypatch.setattr(Client, "close", noted)
    return found


@pytest.fixture
def hub(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, made: list[Client[Consumer]]) -> Iterator[KafkaHub]:
    """One whose partitions share a consumer."""
    monkeypatch.setattr(kafka_reading, "MAX_CONSUMERS", 1)
    hub = opened(cluster.url(cluster.topic(SHARED)))
    yield hub
    hub.close()


def fill(hub: KafkaHub, count: int, size: int = 1) -> None:
    """This many events in each partition."""
    for partition in hub.partition_ids():
        hub.send([Event(b"x" * size)] * count, partition=partition)


def open_files() -> int:
    """How many this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


def kept(hub: KafkaHub) -> dict[int, int]:
    """How many bytes each lane of the consumer keeps."""
    (shared,) = hub._here.readers._consumers._shared
    return {partition: lane._bytes for partition, lane in shared.lanes.items()}


@pytest.mark.more
def test_more_partitions_than_consumers_are_read_without_opening_and_closing_any(
    cluster: Cluster, made: list[Client[Consumer]], closed: list[Client[Any]]
) -> None:
    """With a consumer for each 64 were kept, and with more partitions they were made and closed in turn."""
    hub = opened(cluster.url(cluster.topic(80)))
    files = open_files()
    partitions = hub.partition_ids()
    with ThreadPoolExecutor(len(partitions)) as pool:
        for start in (0, 5):
            fill(hub, 5)
            read = [*pool.map(lambda partition: numbers(hub, partition, start, start + 5), partitions)]  # noqa: B023
            assert read == [[*range(start, start + 5)]] * len(partitions)
    assert len(made) == 16
    assert closed == []
    assert open_files() - files < 256
    hub.close()
    assert len(closed) == 16


def test_any_range_is_exact_while_others_of_the_consumer_are_read(
    hub: KafkaHub, made: list[Client[Consumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes are moved to and fro, and rest, while the consumer is at work for others."""
    monkeypatch.setattr(kafka_consumers, "_KEPT_BYTES", SHARED * 100 * (kafka_consumers._EACH + 1))
    fill(hub, 2_000)

    def read(partition: str) -> list[tuple[int, int]]:
        dice = random.Random(partition)
        at, wrong = 0, []
        for _ in range(40):
            start = at if dice.random() < 0.7 else dice.randrange(2_000)
            at = end = min(start + dice.choice([1, 10, 700]), 2_000)
            if numbers(hub, partition, start, end) != [*range(start, end)]:
                wrong.append((start, end))
        return wrong

    with ThreadPoolExecutor(SHARED) as pool:
        assert [*pool.map(read, hub.partition_ids())] == [[]] * SHARED
    assert len(made) == 1


@pytest.mark.more
def test_a_read_that_nobody_goes_on_with_holds_up_no_other_and_keeps_no_more_than_its_share(
    hub: KafkaHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 100_000  # for a lane that is alone; those that come later have a part of it
    monkeypatch.setattr(kafka_consumers, "_KEPT_BYTES", room)
    monkeypatch.setattr(kafka_consumers, "_FETCHED", 10)  # what comes at once is kept, though it be more
    fill(hub, 500, size=1_000)
    held = {partition: hub.read(partition, 0, 500, batch_rows=1) for partition in hub.partition_ids()[1:]}
    for read in held.values():
        next(read)
    for start in range(0, 500, 50):
        assert numbers(hub, "0", start, start + 50) == [*range(start, start + 50)]
    until(lambda: numbers(hub, "0", 0, 500) == [*range(500)], "all of the others to have been fetched")
    assert max(kept(hub).values()) <= room + 10 * 1_300
    for read in held.values():
        assert sum(batch.num_rows for batch in read) == 499


def test_two_reads_of_one_partition_at_once_have_two_consumers(hub: KafkaHub, made: list[Client[Consumer]]) -> None:
    fill(hub, 100)
    reads = [hub.read("0", first, 100, columns=["sequenceNumber"], batch_rows=10) for first in (0, 50)]
    seen: list[list[int]] = [[], []]
    for _ in range(5):
        for read, so_far in zip(reads, seen, strict=True):
            so_far += next(read).column(0).to_pylist()
    assert seen == [[*range(50)], [*range(50, 100)]]
    assert len(made) == 2


def test_what_retention_does_to_one_partition_no_other_notices(cluster: Cluster, hub: KafkaHub) -> None:
    fill(hub, 100)
    for partition in hub.partition_ids():
        assert numbers(hub, partition, 0, 50) == [*range(50)]
    cluster.trim(hub.url.rpartition("/")[2], "0", 90)
    assert set(numbers(hub, "0", 0, 100)) == {*range(90, 100)}
    for partition in hub.partition_ids()[1:]:
        assert numbers(hub, partition, 50, 100) == [*range(50, 100)]


def test_readers_that_are_idle_are_closed_and_a_consumer_with_the_last_of_its_own(
    hub: KafkaHub, made: list[Client[Consumer]], closed: list[Client[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(hub, 3)
    for partition in hub.partition_ids():
        assert len(numbers(hub, partition, 0, 3)) == 3
    assert len(kept(hub)) == SHARED
    monkeypatch.setattr(kafka_reading, "MAX_IDLE_SECONDS", -1.0)
    assert len(numbers(hub, "1", 0, 3)) == 3
    assert closed == made
    assert hub._here.readers._consumers._shared == []
    assert len(numbers(hub, "1", 0, 3)) == 3


def test_a_silent_broker_fails_all_that_wait_and_its_return_is_noticed_by_all(cluster: Cluster, hub: KafkaHub) -> None:
    fill(hub, 10)
    for partition in hub.partition_ids():
        assert numbers(hub, partition, 0, 10) == [*range(10)]
    partitions = hub.partition_ids()
    cluster.pause()
    waits(hub, request=1.0, transfer=1.0)

    def read(partition: str) -> bool:
        with pytest.raises(HubUnavailable):
            numbers(hub, partition, 10, 20)
        return True

    try:
        with ThreadPoolExecutor(SHARED) as pool:
            assert all(pool.map(read, partitions))
    finally:
        cluster.resume()
    waits(hub)
    fill(hub, 10)
    for partition in hub.partition_ids():
        assert numbers(hub, partition, 10, 20) == [*range(10, 20)]


LIMITED = """
import sys
from pathlib import Path
from leasehold.errors import HubUnavailable
from leasehold.hubs.kafka.hub import open_kafka_hub
from tests.many_files import no_more_files
with no_more_files():
    try:
        open_kafka_hub(sys.argv[1], Path())
    except HubUnavailable as error:
        print(error)
"""


@pytest.mark.more
def test_the_limit_of_open_files_is_named(cluster: Cluster) -> None:
    """In a process of its own: clients of other tests may give files back at any time."""
    url = cluster.url(cluster.topic(1), "request_timeout=10s")
    command = [sys.executable, "-c", LIMITED, url]
    out = subprocess.run(command, capture_output=True, timeout=PATIENCE, text=True, cwd=ROOT)
    assert re.search(r"as many files open as it may, \d+: raise the limit", out.stdout), out


@pytest.mark.parametrize("fails", [False, True])
def test_readers_that_end_together_are_served_by_one_question_for_the_topic(
    hub: KafkaHub, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """One for each was most of the time at hundreds of partitions, of which each answer names all."""
    topic = hub._here.topic
    describe, turn = topic.describe, topic._confirming
    answer = threading.Event()
    questions: list[None] = []
    waiting: list[None] = []

    def slow() -> tuple[list[int], str | None]:
        found = describe()
        questions.append(None)
        assert answer.wait(PATIENCE)
        if fails:
            topic._confirmed = -math.inf
            raise HubUnavailable("nobody answers")
        return found

    def confirm() -> bool:
        try:
            topic.confirm()
        except HubUnavailable:
            return False
        return True

    monkeypatch.setattr(topic, "describe", slow)
    with ThreadPoolExecutor(11) as pool:
        under_way = pool.submit(confirm)
        until(lambda: questions, "the first question")
        monkeypatch.setattr(topic, "_confirming", _Counted(turn, waiting))
        others = [pool.submit(confirm) for _ in range(10)]
        until(lambda: len(waiting) == 10, "all others to have come")
        answer.set()
        assert [one.result(PATIENCE) for one in (under_way, *others)] == [not fails] * 11
    assert len(questions) == 2, "what was asked before they came does not do; what is asked then does for all of them"


class _Counted:
    """A lock that notes who comes for it."""

    def __init__(self, lock: threading.Lock, came: list[None]) -> None:
        self._lock, self._came = lock, came

    def __enter__(self) -> None:
        self._came.append(None)
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Interrupted:
    """A consumer whose reader is interrupted once: what it has just been given is lost."""

    def __init__(self, consumer: Any, until_from: int, count: int) -> None:
        self._consumer, self._from, self._left = consumer, until_from, count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, most: int, patience: float) -> Any:
        if not self._left:
            return self._consumer.consume(most, patience)
        while self._left > 0:
            came = self._consumer.consume(most, 0.1)
            self._left -= sum(one.partition() == self._from and not one.error() for one in came)
        self._left = 0
        raise KeyboardInterrupt


def test_a_reader_that_is_interrupted_costs_the_others_no_message(
    hub: KafkaHub, made: list[Client[Consumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left a gap in what the others read, without a word."""
    fill(hub, 50)
    assert numbers(hub, "1", 0, 50) == [*range(50)]
    assert numbers(hub, "0", 0, 50) == [*range(50)]
    monkeypatch.setattr(made[0], "handle", Interrupted(made[0].handle, until_from=1, count=49))
    fill(hub, 50)
    with pytest.raises(KeyboardInterrupt):
        numbers(hub, "0", 50, 100)
    assert numbers(hub, "1", 50, 100) == [*range(50, 100)]
    assert numbers(hub, "0", 50, 100) == [*range(50, 100)]
    monkeypatch.undo()
