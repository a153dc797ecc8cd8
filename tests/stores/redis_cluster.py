"""A Redis cluster of one node, which has all slots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.stores.servers import RedisServer
from tests.waiting import until


@contextmanager
def cluster_of_one(folder: Path) -> Iterator[RedisServer]:
    """A node of its own for the length of the block."""
    server = RedisServer(folder, "--cluster-enabled", "yes")
    try:
        with redis.Redis(port=server.port) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        until(lambda: serves(server), "the cluster to serve")
        yield server
    finally:
        server.end()


def serves(server: RedisServer) -> bool:
    """Whether the node has found that all slots are served."""
    with redis.Redis(port=server.port) as client:
        return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
