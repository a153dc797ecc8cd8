"""What commands do while a store is away: wait for a moment, say so once, and promise nothing when they end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.cli.options import logs, waiting
from leasehold.cli.options.waiting import patiently, said_when_slow
from leasehold.errors import StoreUnavailable
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.model import Checkpoint
from leasehold.stores import open_store
from leasehold_testkit.contracts.stores.groups import new_group
from tests.stores.servers import RedisServer
from tests.waiting import NEVER, PATIENCE, until


def heard(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Do something each time when a command has said what it waits for. A slow answer alone is no word."""

    def told() -> Callable[[str], None]:
        remark = logs.remark_from_any_thread()

        def say(text: str) -> None:
            remark(text)
            then()

        return say

    monkeypatch.setattr(waiting, "remark_from_any_thread", told)
    monkeypatch.setattr(waiting, "SILENT", NEVER)


def test_a_store_that_comes_back_is_waited_for(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    group = new_group()
    open_store(own_redis.url, timeout=PATIENCE).raise_owner_level([Checkpoint(group, "0", 4, 1)])
    own_redis.kill()
    heard(monkeypatch, own_redis.start)
    outcome = CliRunner().invoke(app, ["checkpoints", "export", own_redis.url, "--group", str(group), "--wait", "600"])
    assert outcome.exit_code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["sequenceNumber"] == 4
    [line] = outcome.stderr.splitlines()
    assert line.startswith(f"leasehold: {own_redis.url}: ")
    assert line.endswith("Waiting for it, 10 minutes at most")


def test_a_store_that_hangs_ends_a_command_without_a_promise(own_redis: RedisServer) -> None:
    group = str(new_group())
    with own_redis.frozen():
        outcome = CliRunner().invoke(app, ["checkpoints", "export", own_redis.url, "--group", group, "--wait", "1"])
    assert outcome.exit_code == 1
    assert "no answer within 3 s" in outcome.stderr.splitlines()[-1]
    assert "again" not in outcome.stderr


@pytest.mark.more
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


def test_what_is_waited_for_is_said_once_and_not_beside_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = threading.Event()
    heard(monkeypatch, said.set)

    def slow() -> int:
        assert said.wait(PATIENCE)
        return 7

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "SILENT", 0.05)
        assert patiently(slow, NEVER, "redis://db") == 7
        assert capsys.readouterr().err == "leasehold: waiting for an answer of redis://db\n"
        for file in ("log:////data/hub.db", "the database, sqlite:///table.db"):
            said.clear()
            assert patiently(slow, NEVER, file) == 7
            assert capsys.readouterr().err == f"leasehold: waiting for {file}: the file is locked or slow\n"
        said.clear()
        with said_when_slow("\x1b[31mred") as answered:
            until(said.is_set, "the word")
            answered()
        assert "\x1b" not in capsys.readouterr().err
    tries, before = list[int](), set(threading.enumerate())

    def away_first() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnavailable("redis://db: connection refused")
        until(lambda: not set(threading.enumerate()) - before, "the end of what would say another word")
        return 7

    assert patiently(away_first, NEVER) == 7
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Waiting for it, 10 minutes at most")
    assert patiently(lambda: 8, NEVER) == 8
    assert capsys.readouterr().err == ""
