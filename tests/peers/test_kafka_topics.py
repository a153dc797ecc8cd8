"""What a real Kafka does to a topic and the mock cannot: transactions, compaction, retention, look-up by time."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from leasehold.cli.app import app
from leasehold.cli.status import describe
from leasehold.hubs import Hub, open_hub
from leasehold.model import Checkpoint, EventPosition, PositionKind
from leasehold.operations.lag_times import lag_times
from leasehold.operations.progress import group_progress
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import read_ranges, shared_hub
from leasehold.stores.memory.store import MemoryStore
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered
from tests.peers.kafka_broker import Cluster
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("_", "-")


@pytest.fixture
def transactions(one_broker: Cluster, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": one_broker.servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(PATIENCE)
    return producer


def as_a_task_reads(hub: Hub, end: int) -> Iterator[bytes]:
    """The events up to `end`; a gap in the numbers is no loss."""
    batches = read_ranges(
        hub.url, [ReadRange("0", 0, end, 1)], ["body"], batch_rows=7, fail_on_data_loss=True, identity=hub.identity
    )
    for batch in batches:
        yield from batch.column(0).to_pylist()
    shared_hub(hub.url, hub.identity).close()
    shared_hub.cache_clear()


def transaction(producer: Producer, topic: str, *bodies: bytes) -> None:
    producer.begin_transaction()
    for body in bodies:
        producer.produce(topic, body, partition=0)


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(
    one_broker: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_broker.create(topic, 2)
    ask = AdminClient.describe_topics
    asked: list[str] = []

    def behind(client: AdminClient, topics: TopicCollection, **options: float) -> object:
        """The first broker that is asked for the topic's id is asked for a topic that it does not know."""
        asked.append(topic)
        return ask(client, topics if len(asked) > 1 else TopicCollection(["not-known-yet"]), **options)

    monkeypatch.setattr(AdminClient, "describe_topics", behind)
    hub = open_hub(one_broker.url(topic))
    assert hub.partition_ids() == ("0", "1")
    assert len(asked) > 1


def test_only_committed_transactions_are_read_and_an_open_one_holds_back_what_follows(
    one_broker: Cluster, topic: str, transactions: Producer
) -> None:
    one_broker.create(topic, 1)
    hub = open_hub(one_broker.url(topic))
    transaction(transactions, topic, b"a", b"b")
    transactions.commit_transaction(PATIENCE)
    transaction(transactions, topic, b"not", b"these")
    transactions.flush(PATIENCE)
    transactions.abort_transaction(PATIENCE)
    assert bodies_of(hub, "0") == [b"a", b"b"]
    end = hub.partition_properties()["0"].end
    assert end == 2 + 1 + 2 + 1, "the marks of transactions take numbers"

    transaction(transactions, topic, b"c")
    transactions.flush(PATIENCE)
    hub.send(numbered(1, first=7), partition="0")
    assert hub.partition_properties()["0"].end == end, "nothing behind an open transaction is there yet"
    assert bodies_of(hub, "0") == [b"a", b"b"]
    transactions.commit_transaction(PATIENCE)
    until(lambda: hub.partition_properties()["0"].end == end + 3, "the commit")
    assert bodies_of(hub, "0") == list(as_a_task_reads(hub, end + 3)) == [b"a", b"b", b"c", b"7"]
    ranges = [hub.read("0", start, start + 1) for start in range(end + 3)]
    assert [row["body"] for one in ranges for batch in one for row in batch.to_pylist()] == [b"a", b"b", b"c", b"7"]
    hub.close()


def test_the_lag_counts_no_place_without_a_message_and_an_open_transaction_is_said(
    one_broker: Cluster, topic: str, transactions: Producer
) -> None:
    one_broker.create(topic, 2)
    hub = open_hub(one_broker.url(topic))
    store, group = MemoryStore(ManualClock()), hub.consumer_group("g")
    levels = itertools.count(1)

    def status(checkpoint: int) -> tuple[int, float | None, str]:
        store.update_checkpoints([Checkpoint(group, "0", checkpoint, next(levels))])
        progress = group_progress(hub, group, store, store, 30.0)
        times = lag_times(hub, progress.partitions, time.time())
        told = describe("flights", progress, times)
        assert told.table is not None
        assert "does not tell how old" not in told.summary
        first, second = told.table.records()
        assert first["lag"] == times.partitions[0].unread
        assert (second["lag"], second.get("remark", "")) == (0, "")
        return times.partitions[0].unread, times.partitions[0].lag, str(first.get("remark", ""))

    transaction(transactions, topic, b"a", b"b")
    transactions.commit_transaction(PATIENCE)
    until(lambda: status(1)[2] == "", "the mark of the commit, which comes a moment later")
    assert status(1) == (0, 0.0, ""), "the mark of a commit is nothing that is unread"
    lag, age, _ = status(0)
    assert lag == 2, "b, and the mark behind it"
    assert age is not None

    transaction(transactions, topic, *[b"aborted"] * 5_000)
    transactions.flush(PATIENCE)
    until(lambda: "an open transaction holds back 5,000 offsets" in status(1)[2], "the open transaction to be told")
    assert "the oldest for" in status(1)[2]
    assert status(1)[:2] == (0, 0.0)
    transactions.abort_transaction(PATIENCE)
    until(lambda: status(1)[2] == "", "the end of the transaction")
    assert status(1) == (0, 0.0, ""), "what was aborted is nothing that is unread"
    before = time.time() - 0.001  # Kafka cuts to milliseconds
    hub.send(numbered(1), partition="0")
    lag, age, _ = status(1)
    assert lag == 1
    assert age is not None
    assert 0 <= age <= time.time() - before
    hub.close()


def test_a_topic_is_made_by_a_command(one_broker: Cluster, topic: str) -> None:
    def init(*words: str) -> Result:
        return CliRunner().invoke(app, ["init", one_broker.url(topic), *words, "--json"])

    for words, said in (
        (("--replication-factor", "9"), "the cluster makes no such topic"),
        (("--topic-config", "retention.ms=soon"), "the cluster makes no such topic"),
        (("--topic-config", "retention.hours=1"), "the cluster makes no such topic"),
    ):
        refused = init("--partitions", "3", *words)
        assert refused.exit_code == 1
        assert said in refused.stderr
    made = init("--partitions", "3", "--topic-config", "retention.ms=7200000")
    assert made.exit_code == 0, made.stderr
    assert {"made": True, "partitions": 3}.items() <= json.loads(made.stdout).items()
    hub = open_hub(one_broker.url(topic))
    assert hub.retention(PATIENCE) == 7_200.0
    hub.send(numbered(1), partition="2")
    again = init("--partitions", "3")
    assert {"made": False, "partitions": 3}.items() <= json.loads(again.stdout).items(), again.stderr
    assert bodies_of(hub, "2") == [b"0"], "one that is there is left alone"
    assert "the topic is there, with 3 partitions" in init("--partitions", "5").stderr
    hub.close()


def test_a_compacted_topic_is_read_with_its_gaps(one_broker: Cluster, topic: str) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.001"}
    one_broker.create(topic, 1, {**config, "max.compaction.lag.ms": "500"})
    producer = Producer({"bootstrap.servers": one_broker.servers, "log_level": 0})
    for number in range(60):
        producer.produce(topic, b"%d" % number, f"key {number % 5}", partition=0)
    assert producer.flush(PATIENCE) == 0
    hub = open_hub(one_broker.url(topic))

    def compacted() -> bool:
        producer.produce(topic, b"last", "last", partition=0)  # a later record rolls the segment
        producer.flush(PATIENCE)
        return len([body for body in bodies_of(hub, "0") if body != b"last"]) == 5

    until(compacted, "the topic to be compacted", pause=0.3)
    place = hub.partition_properties()["0"]
    left = list(as_a_task_reads(hub, place.end))
    assert [body for body in left if body != b"last"] == [b"%d" % number for number in range(55, 60)]
    hub.close()


def test_times_are_looked_up_by_the_cluster_and_its_retention_is_told(one_broker: Cluster, topic: str) -> None:
    one_broker.create(topic, 1, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": one_broker.servers, "log_level": 0})
    for milliseconds in (1_000_000, 3_000_000, 2_000_000, 5_000_000):
        producer.produce(topic, b"", partition=0, timestamp=milliseconds)
    assert producer.flush(PATIENCE) == 0
    hub = open_hub(one_broker.url(topic))
    for at, number in {0.0: 0, 1000.0: 0, 1000.001: 1, 3000.0: 1, 3000.001: 3, 5000.0: 3, 5000.001: 4}.items():
        assert hub.resolve("0", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=at)) == number
    assert hub.retention(PATIENCE) == float("inf")
    one_broker.configure(topic, retention_ms="60000", segment_ms="500")
    until(lambda: hub.retention(PATIENCE) == 60.0, "the new configuration")
    hub.send(numbered(1), partition="0")  # the old ones are of another segment now
    until(lambda: hub.partition_properties()["0"].begin > 0, "retention to remove them")
    assert bodies_of(hub, "0") == [b"0"]
    hub.close()
