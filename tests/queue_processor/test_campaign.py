"""A campaign: waves of messages, several processes, one killed, one paused past lock and lease, a server that restarts.

What was applied is read from the states, which the handlers' transactions have written. Of messages that a sender sent
twice under one id, one counts. A few are rejected, cannot be read, or fail for good: they have to be dead letters, or
rejected rows where they were parked, and nothing else has to be.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leasehold.queues import open_queue
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.campaign_worker import EVERY, FAILS
from tests.queue_processor.conftest import Accounts
from tests.queue_processor.pauses import LEASE, SESSIONS, pause
from tests.queues.conftest import url
from tests.queues.servers import Message, connected
from tests.sinks.postgres import Place
from tests.waiting import PATIENCE, take, until

pytestmark = LEAVES_SOCKETS
LOCK = 3.5
"""Seconds: longer than the lease, so that both have ended for who was paused for half as long again."""
REJECTED, UNREADABLE = 13, 17
TWICE, WITH_ID, WITHIN = 3, 5, 20


@dataclass
class Sent:
    """What was sent: the numbers of each entity in the order of the queue, and what has to become of them."""

    entities: dict[str, list[int]] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)

    def expected(self) -> Counter[tuple[str, int]]:
        """What has to be applied, of a pair the first number."""
        seconds = {second for _, second in self.pairs}
        return Counter((key, n) for key, numbers in self.entities.items() for n in numbers if n not in seconds)


def wave(sent: Sent, numbers: range, total: int, entities: int) -> Iterator[tuple[str, Any]]:
    """The messages of a wave, each with its entity."""
    again = []
    for n in numbers:
        key = f"a{n % entities}"
        if n % EVERY in (REJECTED, UNREADABLE):
            body = json.dumps({"account": key, "n": None, "was": n}) if n % EVERY == REJECTED else f"{n} is no JSON"
            sent.dead.append(body.encode())
            yield key, Message(body)
            continue
        body = json.dumps({"account": key, "n": n})
        if n % EVERY == FAILS:
            sent.dead.append(body.encode())
            yield key, Message(body)
            continue
        sent.entities.setdefault(key, []).append(n)
        named = n % WITHIN in (TWICE, WITH_ID)
        yield key, Message(body, message_id=f"id-{n}") if named else Message(body)
        if n % WITHIN == TWICE:
            again.append((key, n))
    for key, n in again:
        second = total + n
        while second % EVERY in (FAILS, REJECTED, UNREADABLE):  # its number says nothing of it
            second += total * EVERY + 1
        sent.entities[key].append(second)
        sent.pairs.append((n, second))
        yield key, Message(json.dumps({"account": key, "n": second}), message_id=f"id-{n}")


def put(server: ServiceBusServer, queue: str, policy: str, messages: Iterator[tuple[str, Any]]) -> None:
    with connected(server) as client, client.get_queue_sender(queue) as sender:
        batch: list[Any] = []
        for key, message in messages:
            if policy == SESSIONS:
                message.session_id = key
            batch.append(message)
            if len(batch) == 100:
                sender.send_messages(batch)
                batch = []
        if batch:
            sender.send_messages(batch)


@contextmanager
def working(at: str, folder: Path, sink: str, name: str, policy: str) -> Iterator[subprocess.Popen[bytes]]:
    policy = "wait" if policy == SESSIONS else policy
    command = [sys.executable, "-m", "tests.queue_processor.campaign_worker", at, str(folder), sink, name, policy]
    with (folder / f"{name}.log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """Of a process that was told to stop. One that does not end says where it is, in its log."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
        take(1.0)
        raise


def rejected(folder: Path, request: pytest.FixtureRequest, table: Accounts) -> tuple[list[bytes], int]:
    """The bodies of the rejected rows, and how many messages are parked."""
    rows, parked = "SELECT body FROM accounts_rejected", "SELECT count(*) FROM leasehold_message_parked"
    if not table.sink.startswith("sqlite"):
        place: Place = request.getfixturevalue("place")
        return [bytes(body) for (body,) in place.look(rows)], place.look(parked)[0][0]
    with closing(sqlite3.connect(folder / "table.db", timeout=PATIENCE)) as connection:
        return [bytes(body) for (body,) in connection.execute(rows)], connection.execute(parked).fetchone()[0]


def lates(folder: Path, request: pytest.FixtureRequest, table: Accounts) -> dict[str, int]:
    query = "SELECT account, late FROM accounts"
    if not table.sink.startswith("sqlite"):
        place: Place = request.getfixturevalue("place")
        return dict(place.look(query))
    with closing(sqlite3.connect(folder / "table.db", timeout=PATIENCE)) as connection:
        return dict(connection.execute(query).fetchall())


def campaign(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    table: Accounts,
    policy: str,
    *,
    messages: int,
    entities: int,
    waves: int,
    processes: int,
) -> None:
    settings = QueueSettings(lock_duration=LOCK, max_delivery_count=100, requires_session=policy == SESSIONS)
    server = ServiceBusServer({"campaign": settings}, path=tmp_path / "queues.db")
    sent, count = Sent(), 0

    def done() -> int:
        return sum(map(len, table.logs().values()))

    monkeypatch.setenv("LEASE", str(LEASE))
    with server, ExitStack() as stack:
        monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        at = url(server, "campaign") + ("?sessions=true" if policy == SESSIONS else "")
        each = messages // waves
        put(server, "campaign", policy, wave(sent, range(each), messages, entities))
        count += each
        running = [stack.enter_context(working(at, tmp_path, table.sink, f"p{n}", policy)) for n in range(processes)]
        until(lambda: done() >= each // 4, "messages that are done")
        running[0].kill()
        server.faults.drop_connections()
        until(lambda: done() >= each // 2, "messages that are done")
        pause(running[1], tmp_path)
        past = time.monotonic() + 1.5 * max(LOCK, LEASE)
        for number in range(1, waves):
            before = done()
            put(server, "campaign", policy, wave(sent, range(count, count + each), messages, entities))
            count += each
            if number == waves // 2:
                server.stop()
                server.start()
            until(lambda before=before: done() >= before + each // 2, "messages that are done", 600)  # type: ignore[misc]
            server.faults.drop_connections()
        until(lambda: time.monotonic() > past, "the end of lock and lease of the paused one")
        running[1].send_signal(signal.SIGCONT)

        def ended() -> bool:
            return server.count("campaign") == 0 and rejected(tmp_path, request, table)[1] == 0

        until(ended, "all that is to be done", 900)
        for process in running[1:]:
            process.send_signal(signal.SIGTERM)
        assert [exit_code(process) for process in running[1:]] == [0] * (processes - 1)
        with closing(open_queue(at)) as queue, closing(queue.dead_letters()) as letters:
            dead: list[bytes | None] = []
            found, start = letters.peek(1, 200), 1
            while found:
                dead += [letter.body for letter in found]
                start = found[-1].sequence_number + 1
                found = letters.peek(start, 200)
    applied = table.logs()
    seconds = {second: first for first, second in sent.pairs}
    effects = Counter((key, seconds.get(n, n)) for key, log in applied.items() for n in log)
    assert effects == sent.expected(), "each message once"
    given_up = [*dead, *rejected(tmp_path, request, table)[0]]
    assert Counter(given_up) == Counter(sent.dead), "dead letters are those that must be"
    if policy != "park":
        assert len(dead) == len(sent.dead)
    place = {n: at for numbers in sent.entities.values() for at, n in enumerate(numbers)}
    overtaken = {
        key: sum(any(place[later] > place[n] for later in log[:at]) for at, n in enumerate(log))
        for key, log in applied.items()
    }
    assert lates(tmp_path, request, table) == overtaken, "whoever is late is told so"
    if policy == SESSIONS:
        assert not any(overtaken.values()), "in the queue's order"


MESSAGES = int(os.environ.get("LEASEHOLD_CAMPAIGN_MESSAGES", "400"))
"""20,000 are of 500 entities, in eight waves."""


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("table", ["sqlite"], indirect=True)
@pytest.mark.parametrize("policy", ["park", "wait", "abandon", SESSIONS])
def test_each_message_has_one_effect_with_one_killed_one_paused_and_the_server_restarted(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, table: Accounts, policy: str
) -> None:
    size = {"messages": MESSAGES, "entities": max(20, MESSAGES // 40), "waves": 4 if MESSAGES < 10_000 else 8}
    campaign(tmp_path, request, monkeypatch, table, policy, **size, processes=4)


@pytest.mark.more
@pytest.mark.parametrize("table", ["sqlite"], indirect=True)
def test_the_same_of_a_few_messages(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, table: Accounts
) -> None:
    """Under the policy that asks most of the sink, for each run of the tests."""
    campaign(tmp_path, request, monkeypatch, table, "park", messages=120, entities=8, waves=2, processes=3)
