"""What commands do while a store is away: wait for a moment, say so once, and promise nothing when they end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.model import Checkpoint
from leasehold.stores import open_store
from leasehold.testing.stores.groups import new_group
from tests.stores.servers import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.end()


def test_a_store_that_comes_back_is_waited_for(server: RedisServer) -> None:
    group = new_group()
    open_store(server.url).raise_owner_level([Checkpoint(group, "0", 4, 1)])
    server.kill()
    again = threading.Timer(1.5, server.start)
    again.start()
    outcome = CliRunner().invoke(app, ["checkpoints", "export", server.url, "--group", str(group), "--wait", "60"])
    again.join()
    assert outcome.exit_code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["sequenceNumber"] == 4
    [line] = outcome.stderr.splitlines()
    assert line.startswith(f"leasehold: {server.url}: ")
    assert line.endswith("Waiting for it, 60 s at most")


def test_a_store_that_hangs_ends_a_command_without_a_promise(server: RedisServer) -> None:
    group = str(new_group())
    with server.frozen():
        started = time.monotonic()
        outcome = CliRunner().invoke(app, ["checkpoints", "export", server.url, "--group", group, "--wait", "1"])
        assert time.monotonic() - started < 30.0
    assert outcome.exit_code == 1
    assert "no answer within 3 s" in outcome.stderr.splitlines()[-1]
    assert "again" not in outcome.stderr
