"""Two instances of `leasehold run` on three real brokers, under faults, while transactions are committed and aborted.

Each event of a committed transaction is in an append table exactly once at the end, and none of an aborted one. Faults
follow each other as a seed says: brokers are killed or fall silent, two of three are gone, leaders are elected,
instances are killed or paused. The next fault comes when events have moved again.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.faults.fleet import SHORT, Fleet
from tests.faults.instance import paused
from tests.peers.kafka_broker import Cluster
from tests.peers.kafka_kind import RealKafka
from tests.waiting import PATIENCE, take

pytestmark = pytest.mark.timeout(1800)

PARTITIONS = 4
ABORTED = 0.3
"""The share of transactions that are aborted."""
KINDS = ("broker killed", "instance killed", "broker silent", "two brokers gone", "instance paused", "elections")
SILENCE = 8.0
"""Seconds: longer than a broker may be silent before another leads."""


class Sender(threading.Thread):
    """Sends transactions of a few events each, and notes what was committed."""

    def __init__(self, cluster: Cluster, topic: str, dice: random.Random) -> None:
        super().__init__(daemon=True)
        self.committed: list[tuple[str, int]] = []
        self.aborted: list[tuple[str, int]] = []
        self.failure: BaseException | None = None
        self.uncertain = 0
        self._cluster, self._topic, self._dice, self._number = cluster, topic, dice, 0
        self._ending = threading.Event()
        self._producer = self._connected()

    def run(self) -> None:
        try:
            self._until_done(lambda: self._producer.init_transactions(10))
            while not self._ending.is_set():
                try:
                    self._one()
                except KafkaException:  # fatal: after a new leader of the coordinator nobody may know how it ended
                    self.uncertain += 1
                    self._producer = self._connected()
                    self._until_done(lambda: self._producer.init_transactions(10))
                self._ending.wait(0.05)
        except BaseException as error:  # noqa: BLE001 - the test is told
            self.failure = error

    def _connected(self) -> Producer:
        # The timeout is long: the coordinator must not abort what is still meant to be committed.
        return Producer(
            {
                "bootstrap.servers": self._cluster.servers,
                "transactional.id": self._topic,
                "transaction.timeout.ms": 600_000,
                "message.timeout.ms": 600_000,
                "log_level": 0,
            }
        )

    def finish(self) -> None:
        """End with the transaction at hand."""
        self._ending.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        assert self.failure is None, self.failure

    def _one(self) -> None:
        self._producer.begin_transaction()
        rows = []
        for _ in range(self._dice.randrange(1, 20)):
            self._number += 1
            row = (str(self._dice.randrange(PARTITIONS)), self._number)
            body = json.dumps({"id": row[0], "n": row[1]}).encode()
            self._producer.produce(self._topic, body, partition=int(row[0]))
            rows.append(row)
        if self._dice.random() < ABORTED:
            self._until_done(lambda: self._producer.abort_transaction(10))
            self.aborted += rows
        else:
            self._until_done(lambda: self._producer.commit_transaction(10))
            self.committed += rows

    def _until_done(self, step: Callable[[], object]) -> None:
        """Take a step of the protocol: as often as it takes, which changes nothing in what it does."""
        while True:
            try:
                step()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


class Campaign:
    """What is done to the brokers and the instances."""

    def __init__(self, fleet: Fleet, cluster: Cluster, sender: Sender, topic: str, dice: random.Random) -> None:
        self._fleet, self._cluster, self._sender, self._topic, self._dice = fleet, cluster, sender, topic, dice
        self.instances = {name: fleet.launch(name) for name in ("blue", "green")}

    def rows(self) -> list[tuple[object, ...]]:
        """What the table has."""
        if not self._fleet.query("SELECT 1 FROM sqlite_master WHERE name = 'entities'"):
            return []
        return self._fleet.query("SELECT partition, n FROM entities")

    def wait_moved(self) -> None:
        """Wait until events have come into the table since."""
        before = len(self.rows())
        self._fleet.until(lambda: self._alive() and len(self.rows()) > before, "events to move again")

    def suffer(self, kind: str) -> None:
        """One fault, and its end."""
        nodes = self._dice.sample(sorted(self._cluster.brokers), 2)
        name = self._dice.choice(sorted(self.instances))
        match kind:
            case "broker killed":
                with self._cluster.away(nodes[0]):
                    self.wait_moved()
            case "two brokers gone":
                with self._cluster.away(*nodes):
                    take(3.0)
            case "broker silent":
                with self._cluster.paused(nodes[0]):
                    take(SILENCE)
            case "elections":
                self._cluster.elect(self._topic, range(PARTITIONS))
            case "instance killed":
                self.instances[name].kill()
                self.instances[name] = self._fleet.launch(name)
            case "instance paused":
                with paused(*self.instances[name].everything()):
                    take(1.5 * SHORT)

    def _alive(self) -> bool:
        self._fleet.check_alive()
        assert self._sender.failure is None, self._sender.failure
        return True


@pytest.fixture
def hub_kind(three_brokers: Cluster) -> Callable[[Path], RealKafka]:
    patience = {"LEASEHOLD_KAFKA_REQUEST_TIMEOUT": "5s", "LEASEHOLD_KAFKA_TRANSFER_TIMEOUT": "10s"}
    return lambda folder: RealKafka(three_brokers, PARTITIONS, patience)


@pytest.mark.parametrize(
    ("faults", "seed"),
    [
        pytest.param(2, 1, id="short", marks=pytest.mark.peers),
        pytest.param(20, 2, id="long", marks=pytest.mark.soak),
    ],
)
def test_each_committed_event_is_in_the_table_once(
    new_fleet: Callable[..., Fleet], three_brokers: Cluster, faults: int, seed: int
) -> None:
    fleet, dice = new_fleet(mode="append", expiration=SHORT), random.Random(seed)
    assert isinstance(fleet.kind, RealKafka)
    sender = Sender(three_brokers, fleet.kind.topic, random.Random(seed + 1))
    sender.start()
    campaign = Campaign(fleet, three_brokers, sender, fleet.kind.topic, dice)
    campaign.wait_moved()
    for number in range(faults):
        kind = KINDS[number % len(KINDS)]
        print(f"fault {number + 1}: {kind}, {len(sender.committed):,} events are committed", flush=True)
        campaign.suffer(kind)
        campaign.wait_moved()
    sender.finish()
    committed = in_topic(three_brokers, fleet.kind.topic)
    assert set(sender.committed) <= set(committed)
    assert sender.aborted
    assert not set(sender.aborted) & set(committed)
    fleet.until(lambda: len(campaign.rows()) >= len(committed), "all to be in the table")
    for instance in campaign.instances.values():
        instance.stop()
    assert Counter(campaign.rows()) == Counter(committed), "each once, and nothing that was aborted"
    print(f"{len(committed):,} committed, {len(sender.aborted):,} aborted, {sender.uncertain} uncertain", flush=True)


def in_topic(cluster: Cluster, topic: str) -> list[tuple[str, int]]:
    """What a bare consumer of committed messages reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": "truth",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[tuple[str, int]] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(1_000, 1.0):
            error, body = message.error(), message.value()
            if error is None and body is not None:
                found.append((str(message.partition()), int(json.loads(body)["n"])))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found
