"""The real Kafka clusters of a run, started when the first test asks: one of one broker and one of three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.conftest import databases as databases
from tests.faults.conftest import new_fleet as new_fleet
from tests.peers.kafka_broker import Cluster
from tests.peers.kafka_secured import SecuredCluster
from tests.stores.azurite import azurite as azurite


@pytest.fixture(scope="session")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("kafka"))
    yield cluster
    cluster.kill()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path_factory.mktemp("kafka"))
    yield cluster
    cluster.kill()


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("kafka"), 3)
    yield cluster
    cluster.kill()
