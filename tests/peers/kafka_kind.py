"""A topic of a real Kafka as the hub of a fleet."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from unittest import mock

from leasehold.hubs import Hub, open_hub
from leasehold.model import Event
from tests.faults.hub_kinds import PARTITIONS
from tests.peers.kafka_broker import Cluster


class RealKafka:
    """A `HubKind`. The cluster is not part of it, and goes on when it is closed."""

    one_reader = False

    def __init__(
        self, cluster: Cluster, partitions: int = PARTITIONS, environment: Mapping[str, str] | None = None
    ) -> None:
        self.cluster = cluster
        self.environment = environment or {}
        self.topic = cluster.create(f"fleet-{secrets.token_hex(4)}", partitions)
        self.url = cluster.url(self.topic)
        with mock.patch.dict(os.environ, self.environment):
            self.hub: Hub = open_hub(self.url)

    def send(self, partition: str, bodies: Sequence[bytes]) -> None:
        self.hub.send([Event(body) for body in bodies], partition=partition)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The brokers are killed, and started again with what they had on disk."""
        with self.cluster.away():
            yield

    def close(self) -> None:
        self.hub.close()
