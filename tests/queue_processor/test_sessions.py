"""Processors of a queue that requires sessions, on the local server: the session's lock is the entity's lease."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.counts import Counts
from leasehold.errors import ConfigError, SinkError
from leasehold.handlers.contract import EntityEvent
from leasehold.processors.queues import QueueDelivery, QueueProcessor
from leasehold.queues import open_queue
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.conftest import Accounts
from tests.queue_processor.locks_renewed import Renewals
from tests.queue_processor.runs import QUICK, running
from tests.queues.conftest import url
from tests.queues.servers import Server
from tests.waiting import PATIENCE, until

pytestmark = LEAVES_SOCKETS


def sessions(server: ServiceBusServer, queue: str = "sessions") -> str:
    return f"{url(server, queue)}?sessions=true"


def post(server: ServiceBusServer, account: str, *numbers: int, queue: str = "sessions") -> None:
    server.send(queue, *(json.dumps({"n": n}) for n in numbers), session_id=account)


def made(
    server: ServiceBusServer,
    folder: Path,
    name: str,
    before: Callable[[EntityEvent], object] = lambda event: None,
    queue: str = "sessions",
    **options: Any,
) -> QueueProcessor:
    sink = options.pop("sink", None)
    settings = QueueDelivery(**QUICK | options)
    return processor(sessions(server, queue), folder, name, before, sink=sink, delivery=settings)


@pytest.mark.parametrize("table", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
def test_sessions_take_effect_once_and_in_order_without_leases_also_when_a_message_fails(
    server: ServiceBusServer, tmp_path: Path, table: Accounts
) -> None:
    failing = {3: 2, 17: 1}
    at_once: list[str] = []
    overlaps: list[str] = []
    several: list[int] = []
    fences: set[int] = set()

    def before(event: EntityEvent) -> None:
        overlaps.extend([event.key] if event.key in at_once else [])
        at_once.append(event.key)
        several.append(len(at_once))
        fences.add(event.fence)
        until(lambda: max(several) > 1, "another session at the same time")
        at_once.remove(event.key)
        if failing.get(event.row["n"], 0) >= event.delivery:
            raise ValueError("later")

    for account in range(4):
        post(server, f"a{account}", *range(account, 40, 4))
    one, two = (made(server, tmp_path, name, before, sink=table.sink, at_once=3) for name in ("one", "two"))
    with running(one), running(two):
        until(lambda: server.count("sessions") == 0, "an empty queue")
    assert table.logs() == {f"a{key}": list(range(key, 40, 4)) for key in range(4)}
    assert overlaps == []
    assert fences == {0}
    assert not (tmp_path / "leases.db").exists()
    counts = {name: one.counts[name] + two.counts[name] for name in one.counts}
    assert counts == {
        **Counts(used=40, applied=40).named(),
        **{"received": 40, "failed": 3, "busy": 0, "away": 0, "dead_lettered": 0, "given_back": 0, "lost": 0},
    }


def test_what_fails_for_good_is_dead_lettered_and_the_session_goes_on(server: ServiceBusServer, tmp_path: Path) -> None:
    tries: list[int] = []

    def before(event: EntityEvent) -> None:
        if event.row["n"] == 1:
            tries.append(event.delivery)
            raise ValueError("out of stock")

    post(server, "a", 0, 1, 2)
    server.send("sessions", "no JSON", "{}", '{"account": "b", "n": 3}', session_id="a")
    post(server, "a", 4)
    with running(made(server, tmp_path, "one", before, max_deliveries=4)):
        until(
            lambda: server.count("sessions") == 0 and server.count("sessions", dead=True) == 4,
            "messages that are done or set aside",
        )
    assert tries == [1, 2, 3, 4]
    assert logs(tmp_path) == {"a": [0, 2, 4]}
    with closing(open_queue(sessions(server))) as queue, closing(queue.dead_letters()) as dead:
        found = {each.body: (each.dead_letter_reason, each.dead_letter_description) for each in dead.peek(1, 10)}
    assert found[b'{"n": 1}'] == ("HandlerFailed", "ValueError: out of stock")
    assert found[b"{}"] == ("Rejected", "no n")
    assert found[b"no JSON"][0] == "Unreadable"
    assert found[b'{"account": "b", "n": 3}'][0] == "NoKey"


def test_the_lock_is_renewed_while_the_handler_runs_and_for_the_messages_that_wait(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliveries: list[int] = []
    renewals = Renewals(server, monkeypatch)

    def before(event: EntityEvent) -> None:
        deliveries.append(event.delivery)
        if event.row["n"] == 0:
            renewals.outlast([1])  # a session has one lock

    post(server, "a", 0, 1, 2)
    one = made(server, tmp_path, "one", before)
    with running(one):
        until(lambda: server.count("sessions") == 0, "an empty queue")
    assert deliveries == [1, 1, 1]
    assert logs(tmp_path) == {"a": [0, 1, 2]}
    assert one.counts["lost"] == 0


def test_a_session_that_is_lost_under_a_handler_is_done_by_another_and_not_twice(
    server: ServiceBusServer, tmp_path: Path
) -> None:
    hanging, go = threading.Event(), threading.Event()

    def hang(event: EntityEvent) -> None:
        if not hanging.is_set():
            hanging.set()
            assert go.wait(PATIENCE)

    post(server, "a", 0, 1, 2)
    one = made(server, tmp_path, "one", hang, workers=1)
    with running(one):
        until(hanging.is_set, "a handler that hangs")
        in_hand = one.counts["received"]  # all three, unless one of them was late
        server.faults.drop_connections()  # the server gives the session to the next; the first does not know yet
        with running(made(server, tmp_path, "two")):
            until(lambda: logs(tmp_path) == {"a": [0, 1, 2]}, "effects in the table")
            until(lambda: server.count("sessions") == 0, "an empty queue")
        go.set()
        until(lambda: one.counts["lost"] >= in_hand, "messages that count as lost")
        post(server, "a", 3)
        until(lambda: server.count("sessions") == 0, "an empty queue")
    assert logs(tmp_path) == {"a": [0, 1, 2, 3]}
    assert (one.counts["applied"], one.counts["lost"]) == (1, in_hand)


def test_a_stop_gives_the_session_back_at_once_and_counts_no_delivery(server: ServiceBusServer, tmp_path: Path) -> None:
    hanging, go = threading.Event(), threading.Event()
    deliveries: list[int] = []

    def hang(event: EntityEvent) -> None:
        hanging.set()
        assert go.wait(PATIENCE)

    post(server, "a", 0, 1, 2)
    one = made(server, tmp_path, "one", hang, workers=1)
    with running(one):
        until(hanging.is_set, "a handler that hangs")
        one.stop()
        go.set()
    assert logs(tmp_path) == {"a": [0]}
    in_hand = one.counts["received"]  # all three, unless one of them was late
    assert (one.counts["applied"], one.counts["given_back"], one.counts["lost"]) == (1, in_hand - 1, 0)
    with running(made(server, tmp_path, "two", lambda event: deliveries.append(event.delivery))):
        until(lambda: server.count("sessions") == 0, "an empty queue")
    assert deliveries == [1, 1]
    assert logs(tmp_path) == {"a": [0, 1, 2]}


def test_a_session_that_never_ends_leaves_the_others_their_turn(server: ServiceBusServer, tmp_path: Path) -> None:
    """There is one worker, and each message of the first session brings the next one before it is completed."""

    def before(event: EntityEvent) -> None:
        if event.key == "a" and "b" not in logs(tmp_path):
            post(server, "a", event.row["n"] + 1)

    post(server, "a", 0)
    post(server, "b", 0)
    with running(made(server, tmp_path, "one", before, workers=1, at_once=1, session_turn=0.2)):
        until(lambda: server.count("sessions") == 0, "an empty queue")
    assert logs(tmp_path)["b"] == [0]
    assert logs(tmp_path)["a"] == list(range(len(logs(tmp_path)["a"])))


def test_connections_that_are_dropped_cost_nothing_but_time(server: ServiceBusServer, tmp_path: Path) -> None:
    for account in "abc":
        post(server, account, *range(10))
    seen: list[int] = []

    def before(event: EntityEvent) -> None:
        seen.append(event.row["n"])
        if len(seen) in (4, 12):
            server.faults.drop_connections()

    with running(made(server, tmp_path, "one", before)):
        until(lambda: server.count("sessions") == 0, "an empty queue")
    assert logs(tmp_path) == {account: list(range(10)) for account in "abc"}
    assert server.count("sessions", dead=True) == 0


def test_what_no_waiting_mends_ends_the_run(server: ServiceBusServer, tmp_path: Path) -> None:
    def before(event: EntityEvent) -> None:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            connection.execute("DROP TABLE leasehold_message")

    post(server, "a", 0)
    one = made(server, tmp_path, "one", before)
    with pytest.raises(SinkError, match="leasehold_message"):
        one.run()
    assert server.count("sessions") == 1


def test_what_sessions_leave_no_choice_of_is_refused(server: ServiceBusServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the session id"):
        processor(sessions(server), tmp_path, "one", delivery=QueueDelivery(key="message-id"))
    with pytest.raises(ConfigError, match="would be overtaken"):
        made(server, tmp_path, "one", busy="abandon")
    with pytest.raises(ConfigError, match="would be overtaken"):
        made(server, tmp_path, "one", busy="park")
    with pytest.raises(ConfigError, match="None for a queue that requires sessions"):
        processor(sessions(server), tmp_path, "one", leases=f"sqlite:////{tmp_path}/leases.db")
    with pytest.raises(ConfigError, match="only a queue that requires sessions needs none"):
        processor(url(server), tmp_path, "one", leases=None)
