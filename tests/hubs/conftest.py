"""What the tests of several hubs look through."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from azure.eventhub._pyamqp.receiver import ReceiverLink

from tests.hubs.kafka_cluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Kafka cluster of the file's own: its tests stop it for a while, and have it refuse the next requests.

    A client that another file has left open would meet that in place of the test's own.
    """
    cluster = Cluster()
    yield cluster
    cluster.kill()


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> list[ReceiverLink]:
    """The official client's links that receive, in the order in which they are attached."""
    attached: list[ReceiverLink] = []
    attach: Callable[[ReceiverLink], None] = ReceiverLink.attach

    def noted(link: ReceiverLink) -> None:
        attached.append(link)
        attach(link)

    monkeypatch.setattr(ReceiverLink, "attach", noted)
    return attached
