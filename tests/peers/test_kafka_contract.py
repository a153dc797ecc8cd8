"""The contract of hubs on a real Kafka, of one broker and of three."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest

from leasehold.errors import HubUnavailable
from leasehold.hubs import Hub, open_hub
from leasehold_testkit.contracts.hubs.contracts import HubContract
from leasehold_testkit.contracts.hubs.fixtures import bodies_of, numbered
from tests.peers.kafka_broker import Cluster
from tests.waiting import until

_topics = itertools.count(1)


class OnACluster(HubContract):
    """The contract; a subclass gives the cluster."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        raise NotImplementedError

    @pytest.fixture
    def new_hub(self, cluster: Cluster) -> Callable[[], Hub]:
        return lambda: open_hub(cluster.url(cluster.create(f"contract-{next(_topics)}", 3)))

    @pytest.fixture
    def add_partition(self, cluster: Cluster) -> Callable[[Hub], None]:
        return lambda hub: cluster.grow(_topic(hub), len(hub.partition_ids()) + 1)

    @pytest.fixture
    def remove_oldest(self, cluster: Cluster) -> Callable[[Hub, str], None]:
        return lambda hub, partition: cluster.trim(_topic(hub), int(partition), 45)

    @pytest.fixture
    def take_away(self, cluster: Cluster) -> Iterator[Callable[[Hub], None]]:
        def pause(hub: Hub) -> None:
            for broker in cluster.brokers.values():
                broker.pause()

        yield pause
        for broker in cluster.brokers.values():
            broker.resume()
        cluster.wait_whole()


@pytest.mark.soak  # what it shows beside the three is little
class TestOneBroker(OnACluster):
    @pytest.fixture
    def cluster(self, one_broker: Cluster) -> Cluster:
        return one_broker


@pytest.mark.peers
class TestThreeBrokers(OnACluster):
    @pytest.fixture
    def cluster(self, three_brokers: Cluster) -> Cluster:
        return three_brokers

    def test_what_was_sent_outlives_the_leader_that_took_it(self, hub: Hub, cluster: Cluster) -> None:
        hub.send(numbered(10), partition="0")
        leader = cluster.leader(_topic(hub), 0)
        assert leader is not None
        with cluster.away(leader):
            until(lambda: cluster.leader(_topic(hub), 0) not in (leader, None), "another leader")
            with contextlib.suppress(HubUnavailable):
                hub.partition_properties()  # the first question may still go to the one that is dead
            assert bodies_of(hub, "0") == [b"%d" % number for number in range(10)]
            hub.send(numbered(10, first=10), partition="0")
        assert bodies_of(hub, "0") == [b"%d" % number for number in range(20)]


def _topic(hub: Hub) -> str:
    return hub.url.rpartition("/")[2]
