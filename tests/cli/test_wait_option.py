"""What commands do while a store is away: wait for a moment, say so once, and promise nothing when they end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.cli.options import waiting
from leasehold.cli.options.waiting import patiently, said_when_slow
from leasehold.errors import StoreUnavailable
from leasehold.hubs.event_hubs.url import VARIABLE
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


def test_a_command_says_after_two_seconds_what_it_waits_for(tmp_path: Path) -> None:
    """The official client tries again by itself, for a quarter of a minute and more."""
    rows = tmp_path / "rows.csv"
    rows.write_text("key\n1\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        key = "SharedAccessKeyName=k;SharedAccessKey=aHVudGVyMg=="
        told = {VARIABLE: f"Endpoint=sb://{place};{key};UseDevelopmentEmulator=true"}
        url = f"eventhubs://{place}/flights"
        command = [sys.executable, "-m", "leasehold.cli.app", "send", url, str(rows), "--partition-key", "key"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **told}, text=True) as sending:
            assert sending.stderr is not None
            try:
                assert sending.stderr.readline() == f"leasehold: waiting for an answer of {url}\n"
                assert sending.poll() is None, "it goes on trying"
            finally:
                sending.kill()


def test_what_is_waited_for_is_said_once_and_not_beside_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def slow() -> int:
        time.sleep(0.3)
        return 7

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "SILENT", 0.05)
        assert patiently(slow, 1.0, "redis://db") == 7
        assert capsys.readouterr().err == "leasehold: waiting for an answer of redis://db\n"
        tries: list[int] = []

        def away_first() -> int:
            tries.append(1)
            if len(tries) == 1:
                raise StoreUnavailable("redis://db: connection refused")
            return slow()

        assert patiently(away_first, 1.0) == 7
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("Waiting for it, 1 s at most")
        with said_when_slow("\x1b[31mred") as answered:
            time.sleep(0.2)
            answered()
        assert "\x1b" not in capsys.readouterr().err
    assert patiently(lambda: 8, 1.0) == 8
    assert capsys.readouterr().err == ""
