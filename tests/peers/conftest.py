"""The real Kafka clusters of a run, started when the first test asks, and which tests go to one worker for them.

`make peers` hands tests to workers by groups (`--dist loadgroup`). All tests that use one cluster, pooler or browser
are a group, so each of these is started once and nobody kills it under another's test. So are tests that wait for one
build or download, by a mark of their own: one worker waits for it while the others go on. What takes minutes is
handed out first, or the last worker would be waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import databases as databases
from tests.faults.conftest import new_fleet as new_fleet
from tests.peers.browser import Browser, browsing
from tests.peers.debezium_mariadb import MariaDb, MariaDbSource, mariadb_of_its_own
from tests.peers.debezium_postgres import Debezium, PostgresSource, debezium_of_its_own
from tests.peers.kafka_broker import Cluster
from tests.peers.kafka_secured import SecuredCluster
from tests.peers.registry_server import RELEASES, Apicurio

SHARED = ("one_broker", "three_brokers", "secured", "behind", "browser", "registry", "debezium", "mariadb")
"""The fixtures that tests share. None uses two of them."""
LONGEST = (
    "tests/peers/test_mixed_rust.py",
    "tests/versions/test_table.py",
    "tests/peers/test_event_hubs_connector.py",
    "tests/peers/test_spark_kafka.py",
    "tests/peers/test_kafka_contract.py",
    "tests/peers/test_mixed_java.py",
    "tests/peers/test_mixed_javascript.py",
    "tests/peers/test_mixed_go.py",
)
"""The files whose builds, downloads or tests take minutes, the longest first."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test of this folder that uses a shared fixture into the group of that, and the longest first."""
    turns = {file: turn for turn, file in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(item.nodeid.partition("::")[0], len(turns)))
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for name in set(SHARED).intersection(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


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


@pytest.fixture(scope="session", params=RELEASES)
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    server = Apicurio(request.param, tmp_path_factory.mktemp("registry"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def debezium() -> Iterator[Debezium]:
    with debezium_of_its_own() as made:
        yield made


@pytest.fixture
def source(debezium: Debezium, tmp_path: Path) -> Iterator[PostgresSource]:
    """A database of the test's own, which Debezium can capture."""
    with debezium.source(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariaDb, list[str]]]:
    with mariadb_of_its_own(tmp_path_factory.mktemp("mariadb")) as made:
        yield made


@pytest.fixture
def mariadb_source(mariadb: tuple[MariaDb, list[str]], tmp_path: Path) -> Iterator[MariaDbSource]:
    """A database of the test's own on MariaDB, which Debezium can capture."""
    server, program = mariadb
    made = MariaDbSource(program, server, tmp_path)
    yield made
    made.end()
