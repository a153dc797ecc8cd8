"""Go's official client, alone against the local Service Bus server: each operation once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings
from tests.peers.go_programs import built

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("go")]
SOURCE = Path(__file__).with_name("go_service_bus")

SAID = [
    {"received": ["complete", "abandon", "defer", "dead-letter", "renew"]},
    {"properties": ["id-complete", 7, 1]},
    {"renewed": True},
    {"again": ["abandon", 2, "once"]},  # Go counts the delivery at hand
    {"peeked": ["defer"]},
    {"deferred": ["defer"]},
    {"lost": True},
    {"dead": ["dead-letter", "bad", "no amount"]},
    {"scheduled": ["soon"]},
    {"refused": True},
    {"session": ["a", "half way", ["of a", "of a"]]},
    {"subscription": ["headline"]},
]


@pytest.fixture(scope="module")
def program() -> Path:
    return built("Go's client", SOURCE, "go-service-bus")


@pytest.mark.timeout(900)
def test_gos_client_does_each_operation(program: Path, tmp_path: Path) -> None:
    queues = {"orders": QueueSettings(), "sessions": QueueSettings(requires_session=True)}
    topics = {"news": TopicSettings({"all": QueueSettings()})}
    with ServiceBusServer(queues, topics, path=tmp_path / "bus.db") as server:
        ran = subprocess.run(
            [str(program), server.connection_string()], capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert [json.loads(line) for line in ran.stdout.splitlines()] == SAID
        assert [server.count(name) for name in server.names] == [0, 0, 0, 0]
