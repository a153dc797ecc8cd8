"""The official client, `azure-servicebus`, alone against the local server: operations as the service documents them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.azure_clients import LEAVES_SOCKETS
from tests.queues.servers import (
    LOCK,
    Message,
    Server,
    connected,
    receive,
    send,
    serve,
    servicebus,
    texts,
)
from tests.waiting import NEVER, PATIENCE, until

from leasehold_testkit.emulators.service_bus import ServiceBusServer, Work

raised: Any = pytest.importorskip("azure.servicebus.exceptions")
NEXT = servicebus.NEXT_AVAILABLE_SESSION
DEAD = servicebus.ServiceBusSubQueue.DEAD_LETTER

logging.getLogger("azure").setLevel(logging.CRITICAL)
pytestmark = LEAVES_SOCKETS


@pytest.fixture(params=["memory", "file"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceBusServer]:
    with serve(tmp_path / "bus.db" if request.param == "file" else None) as server:
        yield server


@pytest.fixture
def client(server: ServiceBusServer) -> Iterator[Any]:
    with connected(server) as client:
        yield client


@pytest.fixture
def quick() -> Iterator[Server]:
    """A server in memory, where it makes no difference where messages are."""
    with serve() as server:
        yield server


@pytest.fixture
def caller(quick: Server) -> Iterator[Any]:
    with connected(quick) as client:
        yield client


def test_a_completed_message_is_gone(server: ServiceBusServer, client: Any) -> None:
    server.send("orders", "a", "b", "c")
    with client.get_queue_receiver("orders") as receiver:
        found = receive(receiver, 3)
        assert texts(found) == ["a", "b", "c"]
        assert [message.sequence_number for message in found] == [1, 2, 3]
        for message in found:
            receiver.complete_message(message)
    assert server.count("orders") == 0


def test_a_message_arrives_with_all_that_its_sender_put_in(caller: Any) -> None:
    sent = Message(
        b"\x00body",
        **{"message_id": "m-1", "content_type": "text/plain", "correlation_id": "c", "subject": "s", "to": "t"},
        **{"reply_to": "r", "partition_key": "p", "time_to_live": timedelta(minutes=5)},
        application_properties={"text": "x", "number": 7, "flag": True, "real": 1.5},
    )
    before = datetime.now(UTC) - timedelta(seconds=5)
    send(caller, "orders", sent)
    with caller.get_queue_receiver("orders") as receiver:
        (got,) = receive(receiver, 1)
        assert b"".join(got.body) == b"\x00body"
        stated = (got.message_id, got.content_type, got.correlation_id, got.subject, got.to, got.reply_to)
        assert stated == ("m-1", "text/plain", "c", "s", "t", "r")
        assert got.partition_key == "p"
        assert got.time_to_live == timedelta(minutes=5)
        assert got.application_properties == {b"text": b"x", b"number": 7, b"flag": True, b"real": 1.5}
        assert before < got.enqueued_time_utc < got.locked_until_utc
        assert got.delivery_count == 0
        receiver.complete_message(got)


def test_an_abandoned_message_comes_again_with_its_delivery_counted(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    with caller.get_queue_receiver("orders") as receiver:
        for count in range(3):
            (message,) = receive(receiver, 1)
            assert message.delivery_count == count
            receiver.abandon_message(message)


def test_a_message_delivered_too_often_is_dead_lettered_by_the_service(quick: Server, caller: Any) -> None:
    quick.send("twice", "a")
    with caller.get_queue_receiver("twice") as receiver:
        for _ in range(2):
            (message,) = receive(receiver, 1)
            receiver.abandon_message(message)
    with caller.get_queue_receiver("twice", sub_queue=DEAD) as receiver:
        (message,) = receive(receiver, 1)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert message.dead_letter_source == "twice"


def test_a_dead_lettered_message_is_in_the_sub_queue_with_reason_and_description(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    with caller.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver, 1)
        receiver.dead_letter_message(message, reason="no amount", error_description="amount is null")
    assert quick.count("orders") == 0
    with caller.get_queue_receiver("orders", sub_queue=DEAD) as receiver:
        (message,) = receive(receiver, 1)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("no amount", "amount is null")
        receiver.complete_message(message)
    assert quick.count("orders", dead=True) == 0


def test_a_deferred_message_is_received_by_its_sequence_number_only(server: ServiceBusServer, client: Any) -> None:
    server.send("orders", "a", "b")
    with client.get_queue_receiver("orders") as receiver:
        first, second = receive(receiver, 2)
        receiver.defer_message(first)
        receiver.complete_message(second)
        assert receiver.receive_messages(1, max_wait_time=0.2) == []
        (again,) = receiver.receive_deferred_messages([first.sequence_number])
        assert str(again) == "a"
        receiver.complete_message(again)
        with pytest.raises(raised.MessageNotFoundError):
            receiver.receive_deferred_messages([first.sequence_number])
    assert server.count("orders") == 0


def test_a_lock_that_ran_out_is_lost_and_the_message_comes_again(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    with caller.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver, 1)
        quick.let_pass(LOCK)
        (again,) = receive(receiver, 1)
        assert again.delivery_count == 1
        with pytest.raises(raised.MessageLockLostError):
            receiver.complete_message(message)
        receiver.complete_message(again)
    assert quick.count("orders") == 0


def test_a_renewed_lock_holds_the_message(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    with caller.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver, 1)
        first = message.locked_until_utc
        for _ in range(4):
            quick.let_pass(LOCK * 0.4)
            receiver.renew_message_lock(message)
        assert message.locked_until_utc >= first + timedelta(seconds=LOCK * 1.6)
        receiver.complete_message(message)
    assert quick.count("orders") == 0


def holds_until(message: Any, wanted: datetime) -> bool:
    return bool(message.locked_until_utc >= wanted)


def test_the_clients_lock_renewer_keeps_a_message(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    with (
        servicebus.AutoLockRenewer(max_lock_renewal_duration=NEVER) as renewer,
        caller.get_queue_receiver("orders", auto_lock_renewer=renewer) as receiver,
    ):
        (message,) = receive(receiver, 1)
        renewer._renew_period = 3 * LOCK  # not in the last 10 s of a lock only, by its own clock: it always renews
        for _ in range(2):
            wanted = message.locked_until_utc + timedelta(seconds=LOCK * 0.6)
            quick.let_pass(LOCK * 0.6)
            until(partial(holds_until, message, wanted), "a renewal")
        receiver.complete_message(message)
    assert quick.count("orders") == 0


def test_receive_and_delete_removes_a_message_as_it_is_sent(quick: Server, caller: Any) -> None:
    quick.send("orders", *"abc")
    mode = servicebus.ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with caller.get_queue_receiver("orders", receive_mode=mode) as receiver:
        assert texts(receive(receiver, 3)) == ["a", "b", "c"]
    assert quick.count("orders") == 0


def test_peeking_locks_nothing_and_sees_messages_of_every_state(quick: Server, caller: Any) -> None:
    quick.send("orders", "deferred", "locked", "free")
    with caller.get_queue_sender("orders") as sender:
        sender.schedule_messages(Message("scheduled"), datetime.now(UTC) + timedelta(hours=1))
    with caller.get_queue_receiver("orders") as receiver:
        deferred, locked = receive(receiver, 2)
        receiver.defer_message(deferred)
        peeked = receiver.peek_messages(10, sequence_number=1)
        assert texts(peeked) == ["deferred", "locked", "free", "scheduled"]
        assert [message.state.name for message in peeked] == ["DEFERRED", "ACTIVE", "ACTIVE", "SCHEDULED"]
        assert texts(receiver.peek_messages(1, sequence_number=3)) == ["free"]
        assert receiver.peek_messages(1, sequence_number=99) == []
        receiver.complete_message(locked)
    assert quick.count("orders") == 3


def test_a_scheduled_message_arrives_when_it_is_due_under_a_new_number(quick: Server, caller: Any) -> None:
    with caller.get_queue_sender("orders") as sender:
        due = datetime.now(UTC) + timedelta(hours=1)
        (number,) = sender.schedule_messages(Message("later"), due)
        sender.send_messages(Message("and by property", scheduled_enqueue_time_utc=due))
        sender.send_messages(Message("now"))
    with caller.get_queue_receiver("orders") as receiver:
        (now,) = receive(receiver, 1)
        assert str(now) == "now"
        receiver.complete_message(now)
        quick.let_pass(3_600)
        found = receive(receiver, 2)
        assert texts(found) == ["later", "and by property"]
        assert all(message.sequence_number > number for message in found)
        assert found[0].enqueued_time_utc >= due - timedelta(milliseconds=1)


def test_a_cancelled_message_never_arrives(server: ServiceBusServer, client: Any) -> None:
    with client.get_queue_sender("orders") as sender:
        due = datetime.now(UTC) + timedelta(hours=1)
        numbers = sender.schedule_messages([Message("a"), Message("b")], due)
        sender.cancel_scheduled_messages(numbers[:1])
        with pytest.raises(raised.MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[:1])
    assert server.count("orders") == 1


def test_a_message_id_that_was_seen_in_the_window_is_dropped(quick: Server, caller: Any) -> None:
    send(caller, "once", Message("a", message_id="x"), Message("b", message_id="y"))
    send(caller, "once", Message("c", message_id="x"))
    with caller.get_queue_receiver("once") as receiver:
        assert texts(receiver.peek_messages(10)) == ["a", "b"]


def test_an_expired_message_is_dead_lettered_where_the_queue_says_so(quick: Server, caller: Any) -> None:
    quick.send("fleeting", "a")
    quick.let_pass(NEVER)
    assert quick.count("fleeting", dead=True) == 1
    with caller.get_queue_receiver("fleeting", sub_queue=DEAD) as receiver:
        assert receive(receiver, 1)[0].dead_letter_reason == "TTLExpiredException"


def test_a_batch_is_taken_whole(quick: Server, caller: Any) -> None:
    with caller.get_queue_sender("orders") as sender:
        batch = sender.create_message_batch()
        for number in range(100):
            batch.add_message(Message(str(number)))
        sender.send_messages(batch)
    with caller.get_queue_receiver("orders", prefetch_count=50) as receiver:
        assert texts(receive(receiver, 100)) == [str(number) for number in range(100)]


def test_a_large_message_comes_in_pieces(caller: Any) -> None:
    body = bytes(range(256)) * 1_000
    send(caller, "orders", Message(body))
    with caller.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver, 1)
        assert b"".join(message.body) == body


def test_two_receivers_share_a_queue(quick: Server, caller: Any) -> None:
    quick.send("orders", *map(str, range(20)))
    with caller.get_queue_receiver("orders") as one, caller.get_queue_receiver("orders") as two:
        found = texts(receive(one, 10)) + texts(receive(two, 10))
    assert sorted(found, key=int) == [str(number) for number in range(20)]


def test_a_receiver_that_closes_gives_back_what_it_was_not_asked_for(quick: Server, caller: Any) -> None:
    quick.send("orders", *map(str, range(10)))
    with caller.get_queue_receiver("orders", prefetch_count=10) as receiver:
        receive(receiver, 1)
    with caller.get_queue_receiver("orders") as receiver:
        assert texts(receive(receiver, 9)) == [str(number) for number in range(1, 10)]


@pytest.mark.more
def test_each_subscription_gets_every_message(server: ServiceBusServer, client: Any) -> None:
    with client.get_topic_sender("news") as sender:
        sender.send_messages([Message("a"), Message("b", session_id="s")])
        sender.schedule_messages(Message("c"), datetime.now(UTC) + timedelta(seconds=0.3))
    for name in ("all", "some"):
        with client.get_subscription_receiver("news", name) as receiver:
            found = receive(receiver, 3)
            assert texts(found) == ["a", "b", "c"]
            assert [message.sequence_number for message in found] == [1, 2, 3]
            receiver.dead_letter_message(found[0], reason="r")
            receiver.complete_message(found[1])
        with client.get_subscription_receiver("news", name, sub_queue=DEAD) as receiver:
            assert texts(receive(receiver, 1)) == ["a"]
    with client.get_subscription_receiver("news", "by-session", sub_queue=DEAD) as receiver:
        assert [message.dead_letter_reason for message in receive(receiver, 2)] == ["Session ID is null"] * 2
    with client.get_subscription_receiver("news", "by-session", session_id="s") as receiver:
        assert texts(receive(receiver, 1)) == ["b"]


# sessions


def test_a_session_is_received_in_order_by_one_receiver(quick: Server, caller: Any) -> None:
    send(caller, "sessions", *(Message(f"{n}", session_id="ab"[n % 2]) for n in range(6)))
    with caller.get_queue_receiver("sessions", session_id="a") as receiver:
        found = receive(receiver, 3)
        assert texts(found) == ["0", "2", "4"]
        with (
            pytest.raises(raised.SessionCannotBeLockedError),
            caller.get_queue_receiver("sessions", session_id="a") as other,
        ):
            other.receive_messages(1, max_wait_time=PATIENCE)
        for message in found:
            receiver.complete_message(message)
    assert quick.count("sessions") == 3


def test_the_next_free_session_is_the_one_with_the_oldest_message(caller: Any) -> None:
    send(caller, "sessions", *(Message(name, session_id=name) for name in "ba"))
    with caller.get_queue_receiver("sessions", session_id=NEXT) as one:
        assert one.session.session_id == "b"
        with caller.get_queue_receiver("sessions", session_id=NEXT) as two:
            assert two.session.session_id == "a"
            with pytest.raises(raised.OperationTimeoutError), next_session(caller, 0.3) as three:
                three.receive_messages(1, max_wait_time=1)


def next_session(client: Any, wait: float) -> Any:
    return client.get_queue_receiver("sessions", session_id=NEXT, max_wait_time=wait)


def test_locks_of_sessions_are_lost_on_demand_with_those_of_their_messages(quick: Server, caller: Any) -> None:
    send(caller, "sessions", Message("1", session_id="a"))
    with caller.get_queue_receiver("sessions", session_id="a") as receiver:
        (message,) = receive(receiver, 1)
        assert quick.faults.lose_locks(entity="sessions") == 1
        with pytest.raises(raised.SessionLockLostError):
            receiver.complete_message(message)
    with caller.get_queue_receiver("sessions", session_id="a") as receiver:
        (message,) = receive(receiver, 1)
        assert message.delivery_count == 1


def test_who_waits_for_a_session_gets_the_first_that_comes(quick: Server, caller: Any) -> None:
    with caller.get_queue_sender("sessions") as sender:
        sender.schedule_messages(Message("soon", session_id="new"), datetime.now(UTC) + timedelta(seconds=0.5))
    with next_session(caller, PATIENCE) as receiver:
        assert receiver.session.session_id == "new"
        assert texts(receive(receiver, 1)) == ["soon"]


def test_a_session_has_a_state_for_its_next_receiver(server: ServiceBusServer, client: Any) -> None:
    server.send("sessions", "a", session_id="s")
    with client.get_queue_receiver("sessions", session_id="s") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"half way")
        assert receiver.session.get_state() == b"half way"
    with client.get_queue_receiver("sessions", session_id="s") as receiver:
        assert receiver.session.get_state() == b"half way"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_a_session_lock_is_renewed_and_lost_when_it_is_not(quick: Server, caller: Any) -> None:
    quick.send("sessions", "a", session_id="s")
    with caller.get_queue_receiver("sessions", session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        for _ in range(4):
            quick.let_pass(LOCK * 0.4)
            receiver.session.renew_lock()
        receiver.abandon_message(message)
        (message,) = receive(receiver, 1)
        assert message.delivery_count == 1
        quick.let_pass(LOCK)
        with pytest.raises(raised.SessionLockLostError):
            receiver.complete_message(message)
    with caller.get_queue_receiver("sessions", session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        assert message.delivery_count == 2


def test_a_session_that_is_closed_is_free_at_once_and_counts_no_delivery(quick: Server, caller: Any) -> None:
    quick.send("sessions", "a", session_id="s")
    for _ in range(3):
        with caller.get_queue_receiver("sessions", session_id="s") as receiver:
            (message,) = receive(receiver, 1)
            assert message.delivery_count == 0


def test_a_deferred_message_of_a_session_is_received_by_its_holder(quick: Server, caller: Any) -> None:
    quick.send("sessions", "a", session_id="s")
    with caller.get_queue_receiver("sessions", session_id="s") as receiver:
        (message,) = receive(receiver, 1)
        receiver.defer_message(message)
        (again,) = receiver.receive_deferred_messages([message.sequence_number])
        receiver.complete_message(again)


# what is refused


def test_what_is_not_there_or_not_meant_is_refused(caller: Any) -> None:
    with pytest.raises(raised.MessagingEntityNotFoundError):
        send(caller, "nowhere", "a")
    with pytest.raises(raised.ServiceBusError, match="requires sessions"):
        send(caller, "sessions", "a")
    with (
        pytest.raises(raised.ServiceBusError, match="requires sessions"),
        caller.get_queue_receiver("sessions") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=PATIENCE)
    with (
        pytest.raises(raised.ServiceBusError, match="has no sessions"),
        caller.get_queue_receiver("orders", session_id="s") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=PATIENCE)


# faults


def test_a_client_comes_back_after_its_connection_is_dropped(quick: Server, caller: Any) -> None:
    with caller.get_queue_sender("orders") as sender, caller.get_queue_receiver("orders") as receiver:
        sender.send_messages(Message("a"))
        (message,) = receive(receiver, 1)
        assert quick.faults.drop_connections() == 2
        receiver.complete_message(message)  # over a new connection, by its lock token
        sender.send_messages(Message("b"))
        assert texts(receive(receiver, 1)) == ["b"]


def test_a_completion_whose_answer_is_lost_has_been_done(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    quick.faults.swallow_outcomes(1)
    with caller.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver, 1)
        with pytest.raises(raised.MessageLockLostError):
            receiver.complete_message(message)
    assert quick.count("orders") == 0


def test_locks_that_the_service_loses_are_lost(quick: Server, caller: Any) -> None:
    quick.send("orders", "a")
    with caller.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver, 1)
        assert quick.faults.lose_locks() == 1
        with pytest.raises(raised.MessageLockLostError):
            receiver.complete_message(message)
        (again,) = receive(receiver, 1)
        assert again.delivery_count == 1


def test_links_are_detached_and_throttled_on_demand(quick: Server, caller: Any) -> None:
    with caller.get_queue_sender("orders") as sender:
        sender.send_messages(Message("a"))
        assert quick.faults.detach_links(entity="twice") == 0
        assert quick.faults.detach_links(entity="orders") == 1
        sender.send_messages(Message("b"))
        quick.faults.throttle(1, Work.SEND)
        with pytest.raises(raised.ServiceBusServerBusyError), connected(quick, retry_total=0) as impatient:
            send(impatient, "orders", "c")
    until(lambda: quick.count("orders") == 2, "both messages")
