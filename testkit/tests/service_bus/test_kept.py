"""What is kept: a server that stops, is killed, or is replaced loses nothing that it has acknowledged."""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.azure_clients import LEAVES_SOCKETS
from tests.queues.servers import (
    FAST,
    Message,
    Server,
    connected,
    put,
    receive,
    send,
    serve,
    servicebus,
    texts,
)

from leasehold.errors import ConfigError, StoreUnavailable
from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.types import Array, Described, Symbol, ULong, encode
from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer, TopicSettings
from leasehold_testkit.emulators.service_bus.kept import KeptQueues

pytestmark = LEAVES_SOCKETS
KEPT = Path(__file__).parent / "kept"

SERVE = """
import sys
from pathlib import Path
from leasehold_testkit.emulators.service_bus import ServiceBusServer
server = ServiceBusServer(path=Path(sys.argv[1]), port=int(sys.argv[2]))
server.start()
print(server.port, flush=True)
sys.stdin.read()
"""


def test_a_server_that_starts_again_has_what_there_was(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with serve(path) as server, connected(server) as client:
        send(client, "orders", *"abcdef")
        send(client, "sessions", Message("s", session_id="s"))
        with client.get_queue_receiver("orders") as receiver:
            found = receive(receiver, 5)
            receiver.complete_message(found[0])
            receiver.abandon_message(found[1])
            receiver.defer_message(found[2])
            receiver.dead_letter_message(found[3], reason="r")
            held = found[4]
            port = server.port
        with client.get_queue_receiver("sessions", session_id="s") as receiver:
            receiver.session.set_state(b"x")
    with Server(path=path, port=port) as server, connected(server) as client:
        assert (server.count("orders"), server.count("orders", dead=True)) == (4, 1)
        with client.get_queue_receiver("orders") as receiver:
            peeked = receiver.peek_messages(9, sequence_number=1)
            assert texts(peeked) == ["b", "c", "e", "f"]
            assert [message.state.name for message in peeked] == ["ACTIVE", "DEFERRED", "ACTIVE", "ACTIVE"]
            found = receive(receiver, 2)
            assert [(str(message), message.delivery_count) for message in found] == [("b", 1), ("f", 0)]
            receiver._settle_message_via_mgmt_link("completed", [held.lock_token])  # its lock has outlived the server
        with client.get_queue_receiver("sessions", session_id="s") as receiver:
            assert receiver.session.get_state() == b"x"
        server.send("orders", "g")
        with client.get_queue_receiver("orders") as receiver:
            assert receive(receiver, 1)[0].sequence_number == 7, "numbers go on"


@pytest.mark.more
def test_a_killed_server_has_lost_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with serve(path):
        pass
    port = 0
    sent = 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(path), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                string = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey=a2V5;"
                with (
                    servicebus.ServiceBusClient.from_connection_string(
                        f"{string}UseDevelopmentEmulator=true", **FAST
                    ) as client,
                    client.get_queue_sender("orders") as sender,
                ):
                    for _ in range(20):
                        sender.send_messages(Message(str(sent)))
                        sent += 1
                    process.kill()
            finally:
                process.kill()
    with ServiceBusServer(path=path) as server, connected(server) as client:
        mode = servicebus.ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver("orders", receive_mode=mode) as receiver:
            assert texts(receive(receiver, sent)) == [str(number) for number in range(sent)]


def test_a_server_whose_file_another_has_taken_over_acknowledges_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with serve(path) as first, connected(first, retry_total=0) as client:
        first.send("orders", "a")
        with serve(path) as second:
            with pytest.raises(servicebus.exceptions.ServiceBusError):
                send(client, "orders", "b")
            assert second.count("orders") == 1
            second.send("orders", "c")
    with ServiceBusServer(path=path) as third:
        assert third.count("orders") == 2


def test_what_can_be_read_can_be_kept_and_delivered(tmp_path: Path) -> None:
    """Any array that AMQP has, where the server writes what it read: annotations, and properties of a dead letter."""
    path = tmp_path / "bus.db"
    odd = [Array([None] * 3), Array([Described(Symbol("a"), n) for n in range(3)]), Array([Array([1]), Array([2])])]
    with serve(path) as server:
        for value in odd:
            parts = (ULong(0x72), {Symbol("x-odd"): value}), (ULong(0x74), {"odd": value}), (ULong(0x75), b"body")
            put(server, "twice", b"".join(encode(Described(*part)) for part in parts))
        port = server.port
    with ServiceBusServer(path=path, port=port) as server:
        for _ in range(2):
            with connected(server) as client, client.get_queue_receiver("twice") as receiver:
                assert texts(receive(receiver, len(odd))) == ["body"] * len(odd)
            server.faults.lose_locks()
        assert (server.count("twice"), server.count("twice", dead=True)) == (0, len(odd))


def test_after_a_write_that_failed_in_any_way_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bus.db"

    def broken(self: KeptQueues, changes: object) -> None:
        raise TypeError("unforeseen")

    with serve(path) as server:
        server.send("orders", "kept")
        with monkeypatch.context() as patched:
            patched.setattr(KeptQueues, "write", broken)
            with pytest.raises(AmqpError, match="unforeseen"):
                server.send("orders", "not kept")
        with pytest.raises(AmqpError, match="stopped serving"):
            server.send("orders", "nor this")
    with Server(path=path) as server:
        assert server.count("orders") == 1


def test_queues_are_added_to_a_file_and_their_settings_changed(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with ServiceBusServer({"a": QueueSettings()}, path=path) as server:
        server.send("a", "x")
    topics = {"t": TopicSettings({"s": QueueSettings()})}
    with ServiceBusServer({"A": QueueSettings(max_delivery_count=1)}, topics, path=path) as server:
        assert server.names == ["a", "t", "t/s"]
        assert server.count("a") == 1
        server.send("t", "y")
    with ServiceBusServer(path=path) as server:
        assert (server.count("a"), server.count("t"), server.count("t/s")) == (1, 0, 1)
    with pytest.raises(ConfigError, match="it is a queue in the file"):
        ServiceBusServer(topics={"a": TopicSettings()}, path=path).start()


def test_a_file_of_something_else_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="holds something else"):
        ServiceBusServer({"a": QueueSettings()}, path=path).start()
    assert path.read_bytes() == before
    with pytest.raises(StoreUnavailable):
        ServiceBusServer({"a": QueueSettings()}, path=tmp_path).start()


def test_a_file_of_format_1_is_read(tmp_path: Path) -> None:
    """The file was made by the release that introduced the format, with a message of each state."""
    path = tmp_path / "bus.db"
    path.write_bytes(gzip.decompress((KEPT / "format-1.db.gz").read_bytes()))
    with ServiceBusServer(path=path) as server, connected(server) as client:
        assert server.names == ["news", "news/all", "orders", "sessions"]
        with client.get_queue_receiver("orders") as receiver:
            peeked = receiver.peek_messages(9, sequence_number=1)
            assert [(str(message), message.state.name, message.delivery_count) for message in peeked] == [
                *(("abandoned", "ACTIVE", 1), ("deferred", "DEFERRED", 0), ("free", "ACTIVE", 0)),
                ("scheduled", "SCHEDULED", 0),
            ]
            assert peeked[2].message_id == "m"
        with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
            assert receive(receiver, 1)[0].dead_letter_reason == "why"
        with client.get_queue_receiver("sessions", session_id="s") as receiver:
            assert receiver.session.get_state() == b"state"
        assert server.count("news/all") == 1


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"queues": {"": QueueSettings()}},
        {"queues": {"a": QueueSettings(), "A": QueueSettings()}},
        {"queues": {"a": QueueSettings()}, "topics": {"a": TopicSettings()}},
        {"topics": {"t": TopicSettings({"a/b": QueueSettings()})}},
    ]
    for arguments in wrong:
        with pytest.raises(ConfigError):
            ServiceBusServer(**arguments)
    for settings in ({"lock_duration": 0}, {"max_delivery_count": 0}, {"duplicate_window": -1}, {"time_to_live": 0}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            QueueSettings(**settings)  # type: ignore[arg-type]


def test_stopping_leaves_nothing_behind(tmp_path: Path) -> None:
    server = serve(tmp_path / "bus.db")
    for _ in range(2):
        server.start()
        server.send("orders", "a")
        server.stop()
        server.stop()
    with server:
        assert server.count("orders") == 2
