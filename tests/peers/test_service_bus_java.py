"""Java's official client, alone against the local Service Bus server: each operation once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings
from tests.peers.maven import java_program

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("java")]
JARS = ("com.azure:azure-messaging-servicebus:7.17.16",)
PROGRAM = Path(__file__).with_name("EveryServiceBusOperation.java")

SAID = """\
received: [complete, abandon, defer, dead-letter, renew]
properties: [id-complete, 7, 1]
renewed: true
again: [abandon, 1, once]
peeked: [defer]
deferred: defer
gone: GENERAL_ERROR
dead: [dead-letter, bad, no amount]
scheduled: [soon]
session: [a, half way, [of a, of a]]
other session: [of b]
subscription: [headline]
"""
"""`gone`: a deferred message that is not there any more, which Java reports as an empty answer and no more."""


@pytest.fixture(scope="module")
def program() -> list[str]:
    """The command, but for the connection string."""
    return java_program("Java's client", "service-bus", JARS, PROGRAM)


@pytest.mark.timeout(900)
def test_javas_client_does_each_operation(program: list[str], tmp_path: Path) -> None:
    queues = {"orders": QueueSettings(), "sessions": QueueSettings(requires_session=True)}
    topics = {"news": TopicSettings({"all": QueueSettings()})}
    with ServiceBusServer(queues, topics, path=tmp_path / "bus.db") as server:
        command = [*program, server.connection_string()]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == SAID
        assert [server.count(name) for name in server.names] == [0, 0, 0, 0]
