"""A queue drained into a hub: once into an embedded log, whoever is killed, and never less than once."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

from leasehold.cli.app import app
from leasehold.errors import HubUnavailable, LeaseholdError, QueueUnavailable
from leasehold.hubs import Hub, open_hub
from leasehold.hubs.log.hub import LogHub
from leasehold.operations.bridging import Bridge, Bridged
from leasehold.queues import QueueMessage, open_queue
from leasehold.queues.keys import key_by
from leasehold.queues.service_bus import queue as of_service_bus
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.amqp.types import Described, Symbol, ULong, encode
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.hubs.kafka_cluster import Cluster
from tests.queues.conftest import url
from tests.queues.messages import received
from tests.queues.servers import Message, Server, connected, put, send
from tests.waiting import NEVER, PATIENCE, until

pytestmark = [LEAVES_SOCKETS, pytest.mark.usefixtures("drains")]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogHub]:
    with closing(LogHub.create(tmp_path / "orders.db", partitions=3)) as hub:
        yield hub


def rows(hub: Hub) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition, place in hub.partition_properties().items():
        for batch in hub.read(partition, place.begin, place.end):
            found += batch.to_pylist()
    return found


def test_an_event_says_which_message_it_was(server: ServiceBusServer, log: LogHub) -> None:
    with connected(server) as client:
        messages = [
            Message(f"{n}", message_id=f"m{n}", application_properties={"customer": f"c{n % 2}", "n": n})
            for n in range(6)
        ]
        send(client, "orders", *messages)
    ran = CliRunner().invoke(
        app, ["bridge", url(server), log.url, "--key", "customer", "--until-empty", "--most", "4", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    assert {name: said[name] for name in ("received", "appended", "repeated", "deadLettered", "lost")} == {
        **{"received": 6, "appended": 6, "repeated": 0, "deadLettered": 0, "lost": 0}
    }
    assert server.count("orders") == 0
    found = rows(log)
    assert {row["partition"] for row in found if row["partitionKey"] == "c0"} != set()
    for customer in ("c0", "c1"):
        mine = [row for row in found if row["partitionKey"] == customer]
        assert [row["body"] for row in mine] == [str(n).encode() for n in range(6) if f"c{n % 2}" == customer]
    properties = dict(next(row for row in found if row["body"] == b"3")["properties"])
    assert properties == {
        **{"customer": "c1", "n": "3", "leasehold-queue": f"{server.namespace}/orders"},
        **{"leasehold-sequence-number": "4", "leasehold-message-id": "m3"},
    }


def test_a_message_without_bytes_is_dead_lettered(server: ServiceBusServer, log: LogHub) -> None:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

    with connected(server) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(AmqpAnnotatedMessage(value_body={"a": 1}))
        sender.send_messages(Message("bytes"))
    ran = CliRunner().invoke(app, ["bridge", url(server), log.url, "--key", "session", "--until-empty"])
    assert ran.exit_code == 0, ran.output
    assert "1 message appended, 1 dead-lettered, which can be no events" in " ".join(ran.stdout.split())
    assert (server.count("orders"), server.count("orders", dead=True)) == (0, 1)
    assert [row["body"] for row in rows(log)] == [b"bytes"]


def test_a_message_that_the_hub_refuses_stops_no_other(
    server: ServiceBusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.send("twice", "a", "x" * 40_000, "b", "c", session_id="s")
    with EventHubsServer({"hub": (memory := MemoryHub(2))}, limits=Limits(message_size=20_000)) as hubs:
        monkeypatch.setenv("LEASEHOLD_EVENT_HUBS_CONNECTION_STRING", hubs.connection_string("hub"))
        target = f"eventhubs://{hubs.namespace}/hub"
        command = ["bridge", url(server, "twice"), target, "--key", "session", "--until-empty", "--json"]
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
        said = json.loads(ran.stdout.splitlines()[-1])
        assert (said["received"], said["appended"], said["deadLettered"]) == (4, 3, 1)
        assert sum(memory.state(partition).end for partition in memory.partition_ids()) >= 3
    assert (server.count("twice"), server.count("twice", dead=True)) == (0, 1)
    with closing(open_queue(url(server, "twice"))) as queue, closing(queue.dead_letters()) as dead:
        [left] = dead.peek(0, 10)
    assert (left.dead_letter_reason, left.body) == ("RefusedByHub", b"x" * 40_000)
    assert "larger than" in (left.dead_letter_description or "")


def test_messages_that_a_hub_refuses_together_go_one_by_one(
    server: ServiceBusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.send("orders", *"abc", session_id="s")
    with EventHubsServer({"hub": (memory := MemoryHub(1))}) as hubs:
        monkeypatch.setenv("LEASEHOLD_EVENT_HUBS_CONNECTION_STRING", hubs.connection_string("hub"))
        command = ["bridge", url(server), f"eventhubs://{hubs.namespace}/hub", "--key", "session", "--until-empty"]
        with hubs.faults.refusing_sends("amqp:precondition-failed", least=2):
            ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
        assert memory.state("0").end == 3
    assert (server.count("orders"), server.count("orders", dead=True)) == (0, 0)


@pytest.mark.parametrize(
    ("code", "why"),
    [("RECORD_LIST_TOO_LARGE", "segment.bytes"), ("POLICY_VIOLATION", "policy")],
)
def test_a_message_that_kafka_refuses_alone_is_dead_lettered(
    server: ServiceBusServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    monkeypatch.setenv("LEASEHOLD_KAFKA_REQUEST_TIMEOUT", f"{PATIENCE:g}s")
    target = cluster.url(cluster.topic(1))
    with closing(open_queue(url(server))) as queue, closing(open_hub(target)) as hub:
        mover = Bridge(queue, hub, key_of=key_by("session"), say=print, pause=lambda seconds: True)
        server.send("orders", "refused")
        cluster.fail(0, getattr(KafkaError, code))
        assert mover.step(1, PATIENCE) == Bridged(received=1, dead_lettered=1)
        server.send("orders", "taken")
        assert mover.step(1, PATIENCE) == Bridged(received=1, appended=1)
        assert [row["body"] for row in rows(hub)] == [b"taken"]
        with closing(queue.dead_letters()) as dead:
            [left] = dead.peek(0, 10)
    assert (left.dead_letter_reason, left.body) == ("RefusedByHub", b"refused")
    assert why in (left.dead_letter_description or "")


def test_a_clock_whose_times_kafka_refuses_dead_letters_nothing(
    server: ServiceBusServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event gets the time at which it is sent: it passes as soon as the clock is right."""
    monkeypatch.setenv("LEASEHOLD_KAFKA_REQUEST_TIMEOUT", f"{PATIENCE:g}s")
    said: list[LeaseholdError] = []
    with closing(open_queue(url(server))) as queue, closing(open_hub(cluster.url(cluster.topic(1)))) as hub:
        mover = Bridge(queue, hub, key_of=key_by("session"), say=said.append, pause=lambda seconds: False)
        server.send("orders", *"ab", session_id="s")
        cluster.fail(0, *[KafkaError.INVALID_TIMESTAMP] * 3)
        assert mover.step(2, PATIENCE) == Bridged(received=2, appended=2)
        assert [row["body"] for row in rows(hub)] == [b"a", b"b"]
    [error] = said
    assert isinstance(error, HubUnavailable)
    assert "set the clock that is wrong" in str(error)
    assert (server.count("orders"), server.count("orders", dead=True)) == (0, 0)


def test_what_any_sender_may_write_stops_no_bridge(server: ServiceBusServer, log: LogHub) -> None:
    """No client in Python sends these; others do."""
    data, mark = Described(ULong(0x75), b"odd"), {"DeadLetterReason": b"\xff", "DeadLetterErrorDescription": b"\xff"}
    of_key = [Described(ULong(0x72), {Symbol("x-opt-partition-key"): key}) for key in (b"\xff", 5)]
    properties = [Described(ULong(0x73), [b"\xff", *[None] * 9, group]) for group in (b"\xff", 5)]
    application = [Described(ULong(0x74), value) for value in (mark, {b"\xff": b"\xff", "DeadLetterReason": 5})]
    for odd in (*of_key, *properties, *application):
        put(server, "orders", encode(odd) + encode(data))
    server.send("orders", "good")
    ran = CliRunner().invoke(app, ["bridge", url(server), log.url, "--key", "partition-key", "--until-empty"])
    assert ran.exit_code == 0, ran.output
    assert sorted(row["body"] for row in rows(log)) == [b"good", *[b"odd"] * 6]
    assert server.count("orders") == server.count("orders", dead=True) == 0


def test_a_lost_connection_is_opened_again_however_short_the_wait(server: ServiceBusServer) -> None:
    server.send("orders", "a")
    with closing(open_queue(url(server))) as queue:
        assert queue.complete(received(queue, 1)) == []
        server.faults.drop_connections()
        server.send("orders", "b")
        found: list[QueueMessage] = []

        def came() -> bool:
            with contextlib.suppress(QueueUnavailable):  # what the drop has cost
                found.extend(queue.receive(1, 0.2))
                assert server.connections, "a queue that could not be asked is not empty"
            return bool(found)

        until(came, "the message")
        assert queue.complete(found) == []
    assert [message.body for message in found] == [b"b"]


def test_a_session_goes_on_after_its_connection_was_lost(server: ServiceBusServer) -> None:
    server.send("sessions", *"abc", session_id="s")
    with closing(open_queue(f"{url(server, 'sessions')}?sessions=true")) as queue:
        assert queue.complete(queue.receive(1, PATIENCE)) == []
        server.faults.drop_connections()
        found: list[bytes | None] = []
        for _ in range(5):
            with contextlib.suppress(QueueUnavailable):  # what the drop has cost
                more = queue.receive(1, PATIENCE)
                assert queue.complete(more) == []
                found += [message.body for message in more]
            if len(found) == 2:
                break
    assert found == [b"b", b"c"]


def test_a_message_that_was_appended_and_not_completed_is_not_appended_again(
    server: ServiceBusServer, log: LogHub
) -> None:
    server.send("orders", *"abc")
    bridge = ["bridge", url(server), log.url, "--key", "session", "--until-empty", "--json"]
    server.faults.swallow_outcomes(1)  # it is completed, and the bridge does not learn it
    with closing(open_queue(url(server))) as queue:
        mover = Bridge(queue, log, key_of=key_by("session"), say=print, pause=lambda seconds: False)
        held = received(queue, 3)
        assert mover._sent(held) == 3  # and now this process ends without completing
        queue.abandon(held)
    ran = CliRunner().invoke(app, bridge)
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["appended"] == 0
    assert len(rows(log)) == 3
    assert server.count("orders") == 0


def test_messages_stay_locked_while_the_hub_is_away(server: Server, log: LogHub) -> None:
    server.send("orders", "a")
    told: list[LeaseholdError] = []
    back = server.clock.monotonic() + NEVER * 1.5  # by then its lock would be over

    class Away:
        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def send_once(self, *arguments: Any, **options: Any) -> int:
            if server.clock.monotonic() < back:
                raise HubUnavailable("the hub is away")
            return log.send_once(*arguments, **options)

    def pause(seconds: float) -> bool:
        server.let_pass(NEVER * 0.4)
        return False

    with closing(open_queue(url(server))) as queue:
        mover = Bridge(
            queue, cast(Hub, Away()), key_of=key_by("session"), say=told.append, pause=pause, clock=server.clock
        )
        moved = mover.step(5, PATIENCE)
    assert (moved.appended, moved.lost) == (1, 0)
    assert [str(error) for error in told] == ["the hub is away"]
    assert server.count("orders") == 0


@pytest.mark.more
def test_a_bridge_that_is_killed_and_one_beside_it_append_each_message_once(server: Server, log: LogHub) -> None:
    count = 300
    command = [sys.executable, "-m", "leasehold.cli.app", "bridge", url(server), log.url]
    options = ["--key", "session", "--most", "20"]
    first = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    second = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    with first, second:
        try:
            until(lambda: server.connections == 2, "both bridges to wait for messages")
            server.send("orders", *map(str, range(count)))
            until(lambda: len(rows(log)) >= count // 4, "the bridges to get on")
            first.kill()
            until(lambda: server.connections == 1, "the server to see that one has gone")
            server.let_pass(NEVER)  # what it had locked is free, and for once what the other has
            until(lambda: server.count("orders") == 0, "the rest")
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE) == 0
        finally:
            first.kill()
            second.kill()
    assert sorted(int(row["body"]) for row in rows(log)) == list(range(count))
    assert server.count("orders", dead=True) == 0


def test_a_queue_goes_into_an_event_hub_too(server: ServiceBusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.send("orders", *"abc", session_id="s")
    memory = MemoryHub(2)
    with EventHubsServer({"hub": memory}) as hubs:
        monkeypatch.setenv("LEASEHOLD_EVENT_HUBS_CONNECTION_STRING", hubs.connection_string("hub"))
        target = f"eventhubs://{hubs.namespace}/hub"
        ran = CliRunner().invoke(app, ["bridge", url(server), target, "--key", "session", "--until-empty"])
        assert ran.exit_code == 0, ran.output
        assert sorted(memory.state(partition).end for partition in memory.partition_ids()) == [0, 3]
        with closing(open_hub(target)) as hub:
            assert len(hub.partition_ids()) == 2
    assert server.count("orders") == 0


def test_into_kafka_a_message_may_come_twice_and_says_so(
    server: ServiceBusServer, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue and number are the same, so that `deduplicate_by` of a pipeline drops the second."""
    monkeypatch.setenv("LEASEHOLD_KAFKA_REQUEST_TIMEOUT", f"{PATIENCE:g}s")
    server.send("orders", *"abc", session_id="s")
    target = cluster.url(cluster.topic(2))
    with closing(open_queue(url(server))) as queue, closing(open_hub(target)) as hub:
        mover = Bridge(queue, hub, key_of=key_by("session"), say=print, pause=lambda seconds: False)
        held = received(queue, 3)
        assert mover._sent(held) == 3  # and now this process ends without completing
        queue.abandon(held)
        ran = CliRunner().invoke(app, ["bridge", url(server), target, "--key", "session", "--until-empty"])
        assert ran.exit_code == 0, ran.output
        found = rows(hub)
    assert [row["body"] for row in found] == [b"a", b"b", b"c"] * 2
    names = [dict(row["properties"]) for row in found]
    assert names[:3] == names[3:]
    assert [one["leasehold-sequence-number"] for one in names[:3]] == ["1", "2", "3"]
    assert server.count("orders") == 0


@pytest.mark.more
def test_a_queue_with_sessions_is_drained_session_by_session(server: ServiceBusServer, log: LogHub) -> None:
    for session in "ab":
        server.send("sessions", *(f"{session}{n}" for n in range(5)), session_id=session)
    source = f"{url(server, 'sessions')}?sessions=true"
    ran = CliRunner().invoke(
        app, ["bridge", source, log.url, "--key", "session", "--until-empty", "--most", "3", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["appended"] == 10
    assert server.count("sessions") == 0
    found = rows(log)
    for session in "ab":
        mine = [row["body"].decode() for row in found if row["partitionKey"] == session]
        assert mine == [f"{session}{n}" for n in range(5)]


@pytest.mark.more
def test_a_queue_that_is_away_is_waited_for_and_that_is_said_once(
    log: LogHub, tmp_path: Path, drains: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its port somebody hangs up, four times; then the server is there."""
    monkeypatch.setattr("leasehold.cli.queues.bridge._PAUSE", 0.05)
    with closing(socket.create_server(("127.0.0.1", 0))) as port, ExitStack() as servers:
        number = port.getsockname()[1]
        queues = {"sessions": QueueSettings(requires_session=True)}
        with ServiceBusServer(queues, path=tmp_path / "bus.db") as before:
            before.send("sessions", "a", session_id="s")
        server = Server(path=tmp_path / "bus.db", port=number)
        drains.append(server)
        monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())

        def hang_up_and_serve() -> None:
            for _ in range(4):
                port.accept()[0].close()
            port.close()
            servers.enter_context(server)

        caller = threading.Thread(target=hang_up_and_serve)
        caller.start()
        source = f"servicebus://127.0.0.1:{number}/sessions?sessions=true"
        ran = CliRunner().invoke(app, ["bridge", source, log.url, "--key", "session", "--until-empty"])
        caller.join()
    assert ran.exit_code == 0, ran.output
    said = ran.stderr.splitlines()
    assert len(said) == len(set(said)), ran.stderr
    assert "Waiting for it" in ran.stderr
    assert f"{source} is there again" in " ".join(said)
    assert [row["body"] for row in rows(log)] == [b"a"]


def test_a_queue_that_stays_away_ends_a_bridge_that_waits_for_some_time_only(
    log: LogHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.cli.queues.bridge._PAUSE", 0.05)
    monkeypatch.setattr(of_service_bus, "_RETRIES", 0)  # the driver's pauses between them are long
    with ServiceBusServer({"orders": QueueSettings()}) as server:
        source, string = url(server), server.connection_string()
    monkeypatch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", string)
    arguments = ["bridge", source, log.url, "--key", "session", "--until-empty", "--wait", "0.01"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 1, ran.output
    assert "Waiting for it" in ran.stderr, "once it was tried again"
    assert "What was not completed stays in the queue" in ran.stderr


def test_what_cannot_be_bridged_is_refused(server: ServiceBusServer, log: LogHub) -> None:
    for arguments, match in (
        ([url(server), "log:///none.db", "--key", "a"], "there is no log"),
        (["queue://x/y", log.url, "--key", "a"], "begins with servicebus://"),
        ([url(server), log.url, "--key", ""], "the name of a property"),
        ([url(server, "nowhere"), log.url, "--key", "a"], "there is no queue"),
        ([url(server, "sessions"), log.url, "--key", "session"], "write ?sessions=true"),
        ([url(server) + "?sessions=true", log.url, "--key", "session"], "leave it out with any other"),
    ):
        ran = CliRunner().invoke(app, ["bridge", *arguments, "--until-empty"])
        assert ran.exit_code == 1
        assert match in " ".join(ran.stderr.split())
