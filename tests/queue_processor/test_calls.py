"""Calls a message, as docs/queues.md has them: counted at the server, the store of leases and the sink."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.handlers.contract import EntityEvent
from leasehold.leases import EntityLeases
from leasehold.processors.queues import QueueDelivery, QueueProcessor, work
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.counted import CountedLeases, count_service
from tests.queue_processor.runs import bodies, running
from tests.queues.conftest import url
from tests.queues.servers import connected, receive
from tests.repository import ROOT
from tests.waiting import until

pytestmark = LEAVES_SOCKETS
PAGE = ROOT / "docs" / "queues.md"
Calls = tuple[float, float, float]
ENTITIES, EACH = 4, 10


def stated(row: str) -> Calls:
    """The numbers of the page's row of this name: of the service, of leases, of state; their sum has to be right."""
    found = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(found) == 1, row
    service, leases, state, together = (float(number) for number in found[0].split(" | "))
    assert together == pytest.approx(service + leases + state)
    return service, leases, state


def counted(calls: Counter[str], messages: int) -> Calls:
    return calls["service"] / messages, calls["lease"] / messages, calls["state"] / messages


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, server: ServiceBusServer) -> Counter[str]:
    return count_service(monkeypatch)


def counting(of: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls["state"] += 1
        return of(*arguments)

    return call


def observed(
    monkeypatch: pytest.MonkeyPatch,
    calls: Counter[str],
    at: str,
    folder: Path,
    before: Callable[[EntityEvent], object] = lambda event: None,
    **settings: Any,
) -> QueueProcessor:
    """A processor of which each call of leases and of the sink is counted."""
    leases: Any = None if "sessions" in at else CountedLeases(f"sqlite:////{folder}/leases.db", calls)
    made = processor(at, folder, "one", before, leases=leases, delivery=QueueDelivery(workers=1, **settings))
    monkeypatch.setattr(work, "_TOGETHER", 3_600.0)  # a busy machine takes its time
    sink: Any = made._sink
    for name in ("read_messages", "apply"):
        monkeypatch.setattr(sink, name, counting(getattr(sink, name), calls))
    return made


@pytest.mark.parametrize(
    "policy", ["wait", *(pytest.param(each, marks=pytest.mark.soak) for each in ("abandon", "park"))]
)
def test_of_a_policy_with_one_message_or_ten_of_an_entity_at_hand(
    monkeypatch: pytest.MonkeyPatch, server: ServiceBusServer, calls: Counter[str], tmp_path: Path, policy: str
) -> None:
    def gate(event: EntityEvent) -> None:
        if event.key == "gate":
            until(lambda: made.counts["received"] == ENTITIES * EACH + 1, "messages that count as received")

    server.send("orders", *bodies(0, account="gate"))
    server.send("orders", *(json.dumps({"account": f"a{n % ENTITIES}", "n": n}) for n in range(ENTITIES * EACH)))
    made = observed(monkeypatch, calls, url(server), tmp_path, gate, busy=policy)
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    first = stated(f"`{policy}`, one of an entity at hand")
    calls.subtract({"service": int(first[0]), "lease": int(first[1]), "state": int(first[2])})
    service, lease, state = stated(f"`{policy}`, ten of an entity at hand")
    found = counted(calls, ENTITIES * EACH)
    assert found == (service, found[1], state)
    assert 0 < found[1] <= lease


def test_of_sessions(
    monkeypatch: pytest.MonkeyPatch, server: ServiceBusServer, calls: Counter[str], tmp_path: Path
) -> None:
    for entity in range(ENTITIES):
        server.send("sessions", *(json.dumps({"n": n}) for n in range(EACH)), session_id=f"a{entity}")
    made = observed(monkeypatch, calls, f"{url(server, 'sessions')}?sessions=true", tmp_path)
    with running(made):
        until(lambda: server.count("sessions") == 0 and calls["closed"] >= ENTITIES, "an empty queue")
    assert logs(tmp_path) == {f"a{entity}": list(range(EACH)) for entity in range(ENTITIES)}
    assert calls["requests"] >= ENTITIES, "a session that was taken is renewed"
    again = calls["requests"] - ENTITIES  # its messages may come in several parts on a busy machine, each renewed
    calls["service"] -= again
    calls["state"] -= 2 * again
    assert counted(calls, ENTITIES * EACH) == stated("sessions, ten of an entity at hand")


@pytest.mark.parametrize("policy", ["wait", pytest.param("abandon", marks=pytest.mark.soak)])
def test_of_each_time_an_entity_is_found_busy(
    monkeypatch: pytest.MonkeyPatch, server: ServiceBusServer, calls: Counter[str], tmp_path: Path, policy: str
) -> None:
    settings: dict[str, Any] = {"first_pause": 0.01, "longest_pause": 0.05, "busy": policy}
    made = observed(monkeypatch, calls, url(server), tmp_path, **settings)
    other = EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="accounts/accounts", holder="other")
    with closing(other), running(made):
        with other.hold("a"):
            server.send("orders", *bodies(1))
            until(lambda: made.counts["busy"] >= 3, "messages that count as busy")
        until(lambda: server.count("orders") == 0, "an empty queue")
    once = stated(f"`{policy}`, one of an entity at hand")
    busy = made.counts["busy"]
    more = tuple((all_ - first) / busy for all_, first in zip(counted(calls, 1), once, strict=True))
    assert more == stated(f"`{policy}`, more for each time the entity is busy")


def test_of_the_classic_pattern(server: ServiceBusServer, calls: Counter[str], tmp_path: Path) -> None:
    """The same six steps as the page's code, with leases and states in SQLite."""
    server.send("orders", *bodies(*range(EACH)))
    leases = EntityLeases(CountedLeases(f"sqlite:////{tmp_path}/leases.db", calls), scope="classic")

    def handle(states: sqlite3.Connection, receiver: Any, message: Any) -> None:
        order = json.loads(str(message))["account"]
        lease = leases.try_acquire(order)
        if lease is None:
            receiver.abandon_message(message)
            return
        with lease:
            row = states.execute("SELECT total FROM states WHERE key = ?", [order]).fetchone()
            states.execute("REPLACE INTO states VALUES (?, ?)", [order, (row[0] if row else 0) + 1])
        receiver.complete_message(message)

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as states, connected(server) as client:
        states.execute("CREATE TABLE states (key TEXT PRIMARY KEY, total INTEGER)")
        states.set_trace_callback(lambda statement: calls.update(state=1))
        with closing(leases), client.get_queue_receiver("orders") as receiver:
            for message in receive(receiver, EACH):
                handle(states, receiver, message)
        states.set_trace_callback(None)
        assert states.execute("SELECT total FROM states").fetchall() == [(EACH,)]
    until(lambda: server.count("orders") == 0, "an empty queue")
    assert counted(calls, EACH) == stated("today's pattern")


def test_of_the_classic_pattern_for_a_busy_entity(
    server: ServiceBusServer, calls: Counter[str], tmp_path: Path
) -> None:
    at = f"sqlite:////{tmp_path}/leases.db"
    leases = EntityLeases(CountedLeases(at, calls), scope="classic")
    server.send("orders", *bodies(1))
    with (
        closing(EntityLeases(at, scope="classic")) as other,
        closing(leases),
        other.hold("a"),
        connected(server) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        for _ in range(3):
            (message,) = receive(receiver, 1)
            assert leases.try_acquire("a") is None
            receiver.abandon_message(message)
    until(lambda: calls["outcomes"] >= 3, "outcomes at the server")
    calls["service"] -= calls["handed out"] - 3  # the last may have come once more before the receiver closed
    assert counted(calls, 3) == stated("today's pattern, more for each time the entity is busy")
