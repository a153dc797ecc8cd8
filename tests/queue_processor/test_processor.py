"""One processor on the local server: order, failures, busy entities and locks."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.counts import Counts
from leasehold.errors import ConfigError, SinkError, UsageError
from leasehold.formats import BodyFormat
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.handlers import Bodies
from leasehold.handlers.contract import EntityEvent, Retry, entity
from leasehold.leases import EntityLeases
from leasehold.processors.queues import QueueDelivery, QueueProcessor
from leasehold.processors.queues.content import ContentReader, MessageContent
from leasehold.queues import QueueMessage, open_queue
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.formats.debezium_events import envelope
from tests.handlers.conftest import calls
from tests.handlers.slow_handlers import told
from tests.handlers.timed_calls import SHORT, timed
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.conftest import Accounts
from tests.queue_processor.locks_renewed import Renewals
from tests.queue_processor.runs import QUICK, bodies, running
from tests.queues.conftest import url
from tests.queues.servers import Message, Server, connected, send
from tests.waiting import PATIENCE, take, until

__all__ = ["calls", "timed"]

pytestmark = LEAVES_SOCKETS


def test_messages_of_an_entity_take_effect_once_and_in_order_also_when_one_fails(
    server: ServiceBusServer, tmp_path: Path, table: Accounts
) -> None:
    failing = {3: 2, 17: 1}
    at_once: list[str] = []
    overlaps: list[str] = []

    def before(event: EntityEvent) -> None:
        overlaps.extend([event.key] if event.key in at_once else [])
        at_once.append(event.key)
        take(0.005)
        at_once.remove(event.key)
        if failing.get(event.row["n"], 0) >= event.delivery:
            raise Retry("later")

    server.send("orders", *(json.dumps({"account": f"a{n % 4}", "n": n}) for n in range(40)))
    made = processor(url(server), tmp_path, "one", before, sink=table.sink, delivery=QueueDelivery(**QUICK))
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    assert table.logs() == {f"a{key}": list(range(key, 40, 4)) for key in range(4)}
    assert overlaps == []
    assert made.counts == {
        **Counts(used=40, applied=40).named(),
        **{"received": 40, "failed": 3, "busy": 0, "away": 0, "dead_lettered": 0, "given_back": 0, "lost": 0},
    }
    with pytest.raises(UsageError, match="has run already"):
        made.run()


@pytest.mark.more
@pytest.mark.usefixtures("timed")
def test_a_handler_that_hangs_is_ended_and_its_message_fails(server: ServiceBusServer, tmp_path: Path) -> None:
    server.send("orders", *(json.dumps({"account": account}) for account in ("a", "hangs", "b", "hangs-2")))
    made = QueueProcessor(
        url(server),
        f"sqlite:////{tmp_path}/leases.db",
        told,
        sink=f"sqlite:////{tmp_path}/table.db",
        table="accounts",
        pipeline="accounts",
        schema="account STRING",
        state="account STRING, seen STRING",
        delivery=QueueDelivery(**QUICK, max_deliveries=1, handler_timeout=SHORT),
    )
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert connection.execute("SELECT account FROM accounts ORDER BY 1").fetchall() == [("a",), ("b",)]
    assert (made.counts["applied"], made.counts["dead_lettered"]) == (2, 2)
    assert (made.counts["rejected"], made.counts["read"], made.counts["rows"]) == (2, 4, 4)


@pytest.mark.parametrize("policy", ["wait", pytest.param("abandon", marks=pytest.mark.soak)])
def test_what_fails_is_tried_until_the_delivery_count_and_dead_lettered_with_its_reason(
    server: ServiceBusServer, tmp_path: Path, policy: str
) -> None:
    tries: list[int] = []

    def before(event: EntityEvent) -> None:
        if event.row["n"] == 1:
            tries.append(event.delivery)
            raise ValueError("out of stock")

    server.send("orders", *bodies(0, 1, 2), '{"account": "b"}', '{"n": 5}', "no JSON")
    made = processor(
        url(server), tmp_path, "one", before, delivery=QueueDelivery(**QUICK, busy=policy, max_deliveries=4)
    )
    with running(made):
        until(
            lambda: server.count("orders") == 0 and server.count("orders", dead=True) == 4,
            "messages that are done or set aside",
        )
    assert tries == [1, 2, 3, 4]
    assert {key: sorted(log) for key, log in logs(tmp_path).items()} == {"a": [0, 2]}
    with closing(open_queue(url(server))) as queue, closing(queue.dead_letters()) as dead:
        found = {each.body: (each.dead_letter_reason, each.dead_letter_description) for each in dead.peek(1, 10)}
    assert found[bodies(1)[0].encode()] == ("HandlerFailed", "ValueError: out of stock")
    assert found[b'{"account": "b"}'] == ("Rejected", "no n")
    assert found[b'{"n": 5}'] == ("NoKey", "account is null, and names the entity")
    assert found[b"no JSON"][0] == "Unreadable"


@pytest.mark.parametrize("policy", [pytest.param("wait", marks=pytest.mark.soak), "abandon"])
def test_a_busy_entity_is_waited_for_or_its_message_given_back(
    server: ServiceBusServer, tmp_path: Path, policy: str
) -> None:
    deliveries: list[int] = []
    made = processor(
        url(server), tmp_path, "one", lambda event: deliveries.append(event.delivery),
        delivery=QueueDelivery(**QUICK, busy=policy),
    )  # fmt: skip
    other = EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="accounts/accounts", holder="other")
    with closing(other), running(made):
        with other.hold("a"):
            server.send("orders", *bodies(1))
            until(
                lambda: made.counts["given_back" if policy == "abandon" else "busy"] >= 3,
                "messages that count as given_back",
            )
            assert logs(tmp_path) == {}
        until(lambda: logs(tmp_path) == {"a": [1]}, "effects in the table")
        until(lambda: server.count("orders") == 0, "an empty queue")
    (delivery,) = deliveries
    assert (delivery == 1) is (policy == "wait")
    assert server.count("orders", dead=True) == 0


@pytest.mark.soak
def test_a_busy_entity_alone_dead_letters_nothing(server: ServiceBusServer, tmp_path: Path) -> None:
    """The queue `twice` sets a message aside that has been given back twice."""
    settings = QueueDelivery(**QUICK, busy="abandon", max_deliveries=2)
    made = processor(url(server, "twice"), tmp_path, "one", delivery=settings)
    other = EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="accounts/accounts", holder="other")
    with closing(other), running(made):
        with other.hold("a"):
            server.send("twice", *bodies(1))
            until(lambda: made.counts["busy"] >= 5, "messages that count as busy")
        until(lambda: server.count("twice") == 0, "an empty queue")
    assert (logs(tmp_path), made.counts["given_back"]) == ({"a": [1]}, 1)
    assert server.count("twice", dead=True) == 0


def test_locks_are_renewed_while_the_handler_runs_and_while_a_message_waits_behind_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliveries: list[int] = []
    renewals = Renewals(server, monkeypatch)

    def before(event: EntityEvent) -> None:
        deliveries.append(event.delivery)
        if event.row["n"] == 0:
            renewals.outlast([1, 2])

    server.send("orders", *bodies(0, 1))
    made = processor(url(server), tmp_path, "one", before)
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    assert logs(tmp_path) == {"a": [0, 1]}
    assert deliveries == [1, 1]
    assert made.counts["received"] == 2


def test_a_message_that_was_done_and_not_completed_is_completed_and_not_done_again(
    server: ServiceBusServer, tmp_path: Path
) -> None:
    calls: list[int] = []

    def before(event: EntityEvent) -> None:
        calls.append(event.row["n"])
        if len(calls) == 1:
            server.faults.lose_locks()

    server.send("orders", *bodies(7))
    made = processor(url(server), tmp_path, "one", before)
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    assert (calls, logs(tmp_path)) == ([7], {"a": [7]})
    assert (made.counts["applied"], made.counts["received"]) == (1, 2)


def test_the_key_may_be_a_property(server: ServiceBusServer, tmp_path: Path) -> None:
    with connected(server) as client:
        send(client, "orders", Message('{"n": 1}', application_properties={"shop": "mine"}), Message('{"n": 2}'))
    with running(processor(url(server), tmp_path, "one", delivery=QueueDelivery(key="shop"))):
        until(lambda: server.count("orders") == 0, "an empty queue")
    assert logs(tmp_path) == {"mine": [1]}
    assert server.count("orders", dead=True) == 1


def test_a_field_of_a_body_that_the_schema_does_not_know_is_rescued(server: ServiceBusServer, tmp_path: Path) -> None:
    @entity(keys=["account"])
    def account(state: object, event: EntityEvent) -> dict[str, Any]:
        return {"more": event.row["more"]}

    made = QueueProcessor(
        url(server), f"sqlite:////{tmp_path}/leases.db", account, sink=f"sqlite:////{tmp_path}/table.db",
        table="accounts", pipeline="accounts", schema=Bodies("account STRING", BodyFormat(rescue="more")),
        state="account STRING, more STRING",
    )  # fmt: skip
    server.send("orders", '{"account": "a", "size": 7}')
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert connection.execute("SELECT * FROM accounts").fetchall() == [("a", '{"size":7}')]


def test_a_registry_is_not_for_queues(tmp_path: Path) -> None:
    @entity(keys=["account"])
    def account(state: object, event: EntityEvent) -> None: ...

    how = BodyFormat(format="avro", registry="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="messages of a queue are read by a schema of your own"):
        QueueProcessor(
            "servicebus://h/q?endpoint=127.0.0.1:9", f"sqlite:////{tmp_path}/leases.db", account,
            sink=f"sqlite:////{tmp_path}/table.db", table="accounts", pipeline="accounts",
            schema=Bodies("account STRING", how), state="account STRING",
        )  # fmt: skip


def test_a_message_in_avro_is_read_by_its_schema(server: ServiceBusServer, tmp_path: Path) -> None:
    @entity(keys=["account"])
    def account(state: object, event: EntityEvent) -> dict[str, Any]:
        return {"size": event.row["size"]}

    fields = [{"name": "size", "type": "int"}, {"name": "account", "type": "string"}]
    avro = json.dumps({"type": "record", "name": "Account", "fields": fields})
    made = QueueProcessor(
        url(server), f"sqlite:////{tmp_path}/leases.db", account, sink=f"sqlite:////{tmp_path}/table.db",
        table="accounts", pipeline="accounts", state="account STRING, size BIGINT",
        schema=Bodies("account STRING, size BIGINT", BodyFormat(format="avro", writer_schema=avro)),
    )  # fmt: skip
    server.send("orders", b"\x0e\x02a", b"\x0e\x04a")
    with running(made):
        until(lambda: server.count("orders") == 0, "an empty queue")
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert connection.execute("SELECT * FROM accounts").fetchall() == [("a", 7)]
    assert server.count("orders", dead=True) == 1


def test_a_message_may_be_a_change_of_debezium(server: ServiceBusServer, tmp_path: Path) -> None:
    @entity(keys=["account"])
    def account(state: object, event: EntityEvent) -> dict[str, Any]:
        return {"size": event.row["size"], "gone": event.row["__deleted"]}

    def made(**how: Any) -> QueueProcessor:
        return QueueProcessor(
            url(server), f"sqlite:////{tmp_path}/leases.db", account, sink=f"sqlite:////{tmp_path}/table.db",
            table="accounts", pipeline="accounts", state="account STRING, size BIGINT, gone BOOLEAN",
            schema=Bodies("account STRING, size BIGINT", BodyFormat(format="debezium", **how)),
        )  # fmt: skip

    with pytest.raises(ConfigError, match="a message is applied or a dead letter, and none is passed over"):
        made(skipped_operations=["t"])
    there, gone = {"account": "a", "size": 7}, {"account": "b", "size": 8}
    changes = [envelope("u", after=there), envelope("d", before=gone), envelope("t")]
    server.send("orders", *(json.dumps(each).encode() for each in changes))
    with running(made()):
        until(lambda: server.count("orders") == 0, "an empty queue")
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert connection.execute("SELECT * FROM accounts ORDER BY 1").fetchall() == [("a", 7, 0), ("b", 8, 1)]
    assert server.count("orders", dead=True) == 1


def test_the_key_may_be_in_the_body_the_session_or_come_from_a_function() -> None:
    @entity(keys=["account"])
    def handler(state: object, event: object) -> None:
        pass

    def key(stated: Any, **message: Any) -> Any:
        bodies, state = BodyReader(read_columns("account STRING", "schema")), read_columns("account STRING", "state")
        reader = ContentReader(handler, bodies, state, stated, lambda lease_key: None)
        found = reader.read(QueueMessage(message.pop("body", b"{}"), 1, 0.0, **message))
        return found.key if isinstance(found, MessageContent) else found.reason

    assert key(None, body=b'{"account": "b"}') == ("b",)
    assert key(None) == "NoKey"
    assert key("session", session_id="s") == ("s",)
    assert key("session", session_id="s", body=b'{"account": "another"}') == "NoKey"
    assert key(lambda message: f"f-{message.message_id}", message_id="m") == ("f-m",)
    assert key(lambda message: message.nothing) == "NoKey"
    assert key("session", session_id="s", body=None) == "NoBytes"
    assert key("session", session_id="s", body=b"[") == "Unreadable"


@pytest.mark.more
def test_what_a_sender_sent_twice_has_one_effect(server: ServiceBusServer, tmp_path: Path, table: Accounts) -> None:
    def sent(n: int, **options: Any) -> Any:
        return Message(bodies(n)[0], **options)

    def once(by: str) -> list[int]:
        delivery = QueueDelivery(**QUICK, deduplicate_by=by)
        made = processor(url(server), tmp_path, by, sink=table.sink, delivery=delivery)
        with running(made):
            until(lambda: server.count("orders") == 0, "an empty queue")
        assert server.count("orders", dead=True) == 0
        assert made.counts["applied"] + made.counts["duplicates"] == made.counts["received"]
        return table.logs()["a"]

    with connected(server) as client:
        send(
            client,
            "orders",
            sent(1, message_id="x"),
            sent(2),
            sent(3, message_id="x"),
            sent(4),
            sent(5, message_id="y"),
        )
        assert once("message_id") == [1, 2, 4, 5]
        send(client, "orders", sent(6, message_id="x"), sent(7, message_id="z"))
        assert once("message_id") == [1, 2, 4, 5, 7]
        same: dict[str, Any] = {"application_properties": {"order": "n 1"}}
        empty: dict[str, Any] = {"application_properties": {"order": ""}}
        send(client, "orders", sent(8, message_id="x", **same), sent(9, **same), sent(10, **empty), sent(11, **empty))
        assert once("order") == [1, 2, 4, 5, 7, 8, 10, 11]


def test_a_stop_gives_back_what_waits_and_finishes_what_is_at_work(server: ServiceBusServer, tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def before(event: EntityEvent) -> None:
        begun.set()
        go.wait(PATIENCE)

    server.send("orders", *bodies(*range(5)))
    made = processor(url(server), tmp_path, "one", before)
    with running(made):
        assert begun.wait(PATIENCE)
        until(lambda: made.counts["received"] == 5, "messages that count as received")
        made.stop()
        go.set()
    assert logs(tmp_path) == {"a": [0]}
    assert (server.count("orders"), made.counts["given_back"]) == (4, 4)


@pytest.mark.soak
def test_a_table_that_is_broken_ends_the_run(server: ServiceBusServer, tmp_path: Path) -> None:
    def before(event: EntityEvent) -> None:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection, connection:
            connection.execute("DROP TABLE leasehold_message")

    server.send("orders", *bodies(1))
    made = processor(url(server), tmp_path, "one", before)
    with pytest.raises(SinkError, match="leasehold_message"):
        made.run()
    assert server.count("orders") == 1


def test_what_cannot_be_processed_is_refused(server: ServiceBusServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the name of a property"):
        processor(url(server), tmp_path, "one", delivery=QueueDelivery(key=""))
    for settings in (
        {"busy": "panic"},
        {"most": 0},
        {"remember": -1},
        {"deduplicate_by": ""},
        {"deduplicate_for": 0},
        {"longest_pause": 0.01},
    ):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            QueueDelivery(**settings)
