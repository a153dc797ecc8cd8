"""What comes from a Kafka cluster: the offsets of its own consumer groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition

from leasehold.cli.app import app
from leasehold.hubs import open_hub
from leasehold.stores import open_store
from leasehold_testkit.contracts.hubs.fixtures import numbered
from tests.hubs.kafka_cluster import Cluster

pytestmark = pytest.mark.usefixtures("patient_kafka")


def committed(cluster: Cluster, topic: str, group: str, offsets: dict[int, int]) -> None:
    """What an application that has read the topic as this group leaves behind."""
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_the_offsets_of_a_group_are_taken_over(cluster: Cluster, tmp_path: Path) -> None:
    topic, store = cluster.topic(3), f"sqlite:///{tmp_path}/store.db"
    url = cluster.url(topic)
    hub = open_hub(url)
    for partition in ("0", "1", "2"):
        hub.send(numbered(10), partition=partition)
    committed(cluster, topic, "old", {0: 7, 1: 0})

    def imported(source: str, *more: str) -> Result:
        return CliRunner().invoke(
            app, ["checkpoints", "import", store, source, "--hub", url, "--consumer-group", "new", "--json", *more]
        )

    done = imported(url, "--kafka-group", "old")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["partitions"]
    assert [(row["partition"], row["before"], row["after"]) for row in rows] == [("0", None, 6), ("1", None, -1)]
    found = {one.partition: one for one in open_store(store).list_checkpoints(hub.consumer_group("new"))}
    assert {name: (one.next_sequence_number, one.offset) for name, one in found.items()} == {
        "0": (7, "6"),
        "1": (0, None),
    }
    committed(cluster, topic, "old", {0: 5})
    behind = imported(url, "--kafka-group", "old")
    assert behind.exit_code == 1
    assert "is behind 6" in behind.stderr, "a step back is refused, as it is from a file"
    for source, more, said in (
        (url, (), "--kafka-group"),
        (url, ("--kafka-group", "nobody"), "the consumer group 'nobody' has committed no offset of this topic"),
        (cluster.url(cluster.topic(3)), ("--kafka-group", "old"), "another topic"),
    ):
        refused = imported(source, *more)
        assert refused.exit_code == 1
        assert said in refused.stderr
    hub.close()
