"""Kafka: when messages were enqueued and for how long a topic keeps them, as `leasehold status` asks."""

from __future__ import annotations

import math

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from leasehold.hubs import open_hub
from leasehold.hubs.kafka import times
from leasehold.hubs.kafka.times import retention_of
from leasehold_testkit.contracts.hubs.fixtures import numbered
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_configs import ConfigRelay
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("patient_kafka")


@pytest.mark.parametrize(
    ("config", "retention"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, 604_800.0),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, math.inf),
        ({"cleanup.policy": "compact", "retention.ms": "604800000"}, math.inf),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1500"}, 1.5),
        ({"cleanup.policy": "delete", "retention.ms": None}, None),
    ],
)
def test_the_retention_is_the_topics_own(
    cluster: Cluster, config: dict[str, str | None], retention: float | None
) -> None:
    relay = ConfigRelay(cluster.servers, config)
    hub = open_hub(f"kafka://{relay.servers}/{cluster.topic()}")
    try:
        assert hub.retention(PATIENCE) == retention
        assert relay.described == 1
    finally:
        hub.close()
        relay.close()


def test_a_cluster_that_does_not_tell_its_configuration(cluster: Cluster) -> None:
    hub = open_hub(cluster.url(cluster.topic()))
    assert hub.retention(5.0) is None
    hub.close()


def test_no_configuration_no_retention() -> None:
    assert retention_of({}) is None
    assert retention_of({"retention.ms": "1000"}) == 1.0


def test_the_times_are_the_messages_own_of_all_partitions_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Noted(Consumer):
        def assign(self, partitions: list[TopicPartition]) -> None:
            asked.append(len(partitions))
            super().assign(partitions)

    monkeypatch.setattr(times, "Consumer", Noted)
    topic = cluster.topic(16)
    producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    for partition in range(16):
        for number in range(20):
            producer.produce(topic, b"x", partition=partition, timestamp=1_700_000_000_000 + 1000 * number + partition)
    assert producer.flush(PATIENCE) == 0
    hub = open_hub(cluster.url(topic))
    starts = {str(partition): partition for partition in range(16)}
    found = hub.enqueued_times(starts, PATIENCE)
    assert found == {str(p): pytest.approx(1_700_000_000 + p + p / 1000) for p in range(16)}
    assert asked == [16], "together, not one after another"
    hub.close()


def test_a_silent_cluster_is_not_waited_for(cluster: Cluster) -> None:
    hub = open_hub(cluster.url(cluster.topic(3)))
    hub.send(numbered(3), partition="0")
    cluster.pause()
    try:
        assert hub.enqueued_times({"0": 0}, 1.0) == {}
        assert hub.retention(1.0) is None
    finally:
        cluster.resume()
    assert set(hub.enqueued_times({"0": 0}, PATIENCE)) == {"0"}
    hub.close()
