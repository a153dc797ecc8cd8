"""The state machine of a queue, by values: the rules of the service that the server keeps, with the time by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold_testkit.emulators.amqp.conditions import AmqpError
from leasehold_testkit.emulators.amqp.messages import data_message, sections
from leasehold_testkit.emulators.amqp.types import Described, Symbol, Timestamp, UInt, ULong, decode, encode
from leasehold_testkit.emulators.service_bus.content import Content, content_of, delivered
from leasehold_testkit.emulators.service_bus.deliveries import payload_of
from leasehold_testkit.emulators.service_bus.queue import Queue
from leasehold_testkit.emulators.service_bus.sessions import SessionLocks
from leasehold_testkit.emulators.service_bus.settings import QueueSettings
from leasehold_testkit.emulators.service_bus.stored import MessageState, QueuedMessage

NOW = 1_800_000_000_000


def tokens() -> Callable[[], UUID]:
    numbers: Iterator[int] = count(1)
    return lambda: UUID(int=next(numbers))


def content(
    body: str = "body",
    *,
    message_id: str | None = None,
    session: str | None = None,
    ttl: int | None = None,
    at: int | None = None,
) -> Content:
    properties: list[object] = [message_id, *[None] * 9, session, None, None]
    header = encode(Described(ULong(0x70), [False, None, None if ttl is None else UInt(ttl), False, UInt(0)]))
    stated = {} if at is None else {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at)}
    annotations = encode(Described(ULong(0x72), stated))
    return content_of(header + annotations + data_message(body.encode(), {"kind": "test"}, properties))


def queue(**settings: object) -> Queue:
    stated = QueueSettings(**{"lock_duration": 10.0, **settings})  # type: ignore[arg-type]
    dead = Queue("orders/$deadletterqueue", QueueSettings(lock_duration=10.0))
    return Queue("orders", stated, dead)


def bodies(messages: list[QueuedMessage]) -> list[str]:
    return [sections(message.content.bare).data[0].decode() for message in messages]


def token_of(message: QueuedMessage) -> UUID:
    assert message.lock is not None
    return message.lock.token


def refused(condition: str) -> Any:
    return pytest.raises(AmqpError, match=condition)


def test_messages_come_in_the_order_of_their_sequence_numbers() -> None:
    one = queue()
    assert one.send([content("a"), content("b")], NOW) == [1, 2]
    assert one.send([content("c")], NOW) == [3]
    found = one.receive(2, NOW, tokens())
    assert bodies(found) == ["a", "b"]
    assert [message.sequence_number for message in found] == [1, 2]


def test_a_locked_message_is_given_to_nobody_else_until_its_lock_runs_out() -> None:
    one, token = queue(), tokens()
    one.send([content("a")], NOW)
    (first,) = one.receive(5, NOW, token)
    assert one.receive(5, NOW + 9_999, token) == []
    (again,) = one.receive(5, NOW + 10_000, token)
    assert again.delivery_count == 1
    with refused("message-lock-lost"):
        one.complete(token_of(first), NOW + 10_000)
    one.complete(token_of(again), NOW + 19_999)
    assert len(one) == 0


def test_a_renewed_lock_counts_from_its_renewal() -> None:
    one, token = queue(), tokens()
    one.send([content("a")], NOW)
    (held,) = one.receive(1, NOW, token)
    assert one.renew([token_of(held)], NOW + 8_000) == [NOW + 18_000]
    assert one.receive(1, NOW + 17_999, token) == []
    with refused("message-lock-lost"):
        one.renew([token_of(held)], NOW + 18_000)


def test_an_abandoned_message_is_free_at_once_and_dead_lettered_after_max_deliveries() -> None:
    one, token = queue(max_delivery_count=3), tokens()
    one.send([content("a")], NOW)
    for failed in range(3):
        (held,) = one.receive(1, NOW, token)
        assert held.delivery_count == failed
        one.abandon(token_of(held), NOW)
    assert one.receive(1, NOW, token) == []
    assert one.dead_letters is not None
    (dead,) = one.dead_letters.receive(1, NOW, token)
    assert dead.source == "orders"
    assert sections(dead.content.bare).application["DeadLetterReason"] == "MaxDeliveryCountExceeded"


def test_a_released_message_counts_as_never_delivered() -> None:
    one, token = queue(max_delivery_count=1), tokens()
    one.send([content("a"), content("b")], NOW)
    (held,) = one.receive(1, NOW, token)
    one.release(token_of(held), NOW)
    found = one.receive(2, NOW, token)
    assert bodies(found) == ["a", "b"]
    assert found[0].delivery_count == 0


def test_a_deferred_message_is_received_only_by_its_number_and_stays_deferred_when_abandoned() -> None:
    one, token = queue(), tokens()
    one.send([content("a")], NOW)
    (held,) = one.receive(1, NOW, token)
    one.defer(token_of(held), NOW)
    assert one.receive(1, NOW, token) == []
    with refused("message-not-found"):
        one.receive_deferred([1, 9], NOW, token)
    (held,) = one.receive_deferred([1], NOW, token)
    with refused("message-not-found"):
        one.receive_deferred([1], NOW, token)
    one.abandon(token_of(held), NOW)
    assert one.receive(1, NOW, token) == []
    (held,) = one.receive_deferred([1], NOW, token, delete=True)
    assert held.delivery_count == 1
    assert len(one) == 0


def test_a_dead_letter_keeps_number_and_properties_and_says_why() -> None:
    one, token = queue(), tokens()
    one.send([content("a", message_id="m")], NOW)
    (held,) = one.receive(1, NOW, token)
    one.dead_letter(token_of(held), NOW, "bad", "no amount", {"tried": 1})
    assert one.dead_letters is not None
    (dead,) = one.dead_letters.peek(0, 5, NOW)
    assert (dead.sequence_number, dead.content.message_id) == (1, "m")
    application = sections(dead.content.bare).application
    assert application == {
        **{"kind": "test", "tried": 1},
        **{"DeadLetterReason": "bad", "DeadLetterErrorDescription": "no amount"},
    }
    assert bodies([dead]) == ["a"]


def test_a_dead_letter_cannot_be_dead_lettered_and_outlives_its_deliveries() -> None:
    dead, token = Queue("q/$deadletterqueue", QueueSettings(max_delivery_count=1)), tokens()
    dead.send([content("a")], NOW)
    for _ in range(3):
        (held,) = dead.receive(1, NOW, token)
        dead.abandon(token_of(held), NOW)
    (held,) = dead.receive(1, NOW, token)
    with refused("not-allowed"):
        dead.dead_letter(token_of(held), NOW, "again", None)


def test_received_and_deleted_is_gone() -> None:
    one = queue()
    one.send([content("a")], NOW)
    assert [message.lock for message in one.receive(1, NOW, tokens(), delete=True)] == [None]
    assert len(one) == 0


def test_a_scheduled_message_becomes_active_when_due_under_a_new_number() -> None:
    one, token = queue(), tokens()
    assert one.send([content("later", at=NOW + 5_000), content("now")], NOW) == [1, 2]
    assert bodies(one.receive(5, NOW + 4_999, token)) == ["now"]
    assert [message.state for message in one.peek(0, 5, NOW)] == [MessageState.SCHEDULED, MessageState.ACTIVE]
    assert one.next_due() == NOW + 5_000
    (late,) = one.receive(5, NOW + 5_000, token)
    assert (late.sequence_number, late.enqueued) == (3, NOW + 5_000)


def test_cancelling_takes_back_what_is_scheduled_and_nothing_else() -> None:
    one = queue()
    one.send([content("a", at=NOW + 1_000), content("b", at=NOW + 1_000), content("c")], NOW)
    with refused("message-not-found"):
        one.cancel([1, 3], NOW)
    assert len(one) == 3
    one.cancel([1, 2], NOW)
    assert bodies(one.peek(0, 5, NOW + 2_000)) == ["c"]


def test_a_message_that_outlives_its_time_is_dropped_or_dead_lettered() -> None:
    for dead_letters in (False, True):
        one = queue(dead_letter_expired=dead_letters, time_to_live=8.0)
        one.send([content("short", ttl=2_000), content("long", ttl=60_000)], NOW)
        assert bodies(one.peek(0, 5, NOW + 1_999)) == ["short", "long"]
        assert bodies(one.peek(0, 5, NOW + 2_000)) == ["long"]
        assert bodies(one.peek(0, 5, NOW + 8_000)) == []
        assert one.dead_letters is not None
        assert len(one.dead_letters) == (2 if dead_letters else 0)


def test_a_message_under_a_lock_does_not_expire() -> None:
    one, token = queue(), tokens()
    one.send([content("a", ttl=2_000), content("b", ttl=2_000)], NOW)
    first, second = one.receive(2, NOW, token)
    one.complete(token_of(first), NOW + 3_000)
    one.abandon(token_of(second), NOW + 3_000)
    assert len(one) == 0


def test_a_duplicate_within_the_window_is_taken_and_dropped() -> None:
    one = queue(duplicate_window=60.0)
    assert one.send([content("a", message_id="x"), content("b", message_id="x"), content("c")], NOW) == [1, 0, 2]
    assert one.send([content("d", message_id="x")], NOW + 59_999) == [0]
    assert one.send([content("e", message_id="x")], NOW + 60_000) == [3]
    assert bodies(one.peek(0, 9, NOW)) == ["a", "c", "e"]


def test_a_message_without_a_session_is_refused_where_sessions_are_required_with_all_sent_beside_it() -> None:
    one = queue(requires_session=True)
    with refused("not-allowed"):
        one.send([content("a", session="s"), content("b")], NOW)
    assert len(one) == 0


def test_a_session_has_one_holder_who_gets_its_messages_in_order() -> None:
    one, token = queue(requires_session=True), tokens()
    locks = SessionLocks(one)
    one.send([content("a", session="s"), content("b", session="t"), content("c", session="s")], NOW)
    assert locks.accept(None, "first", NOW) is not None
    with refused("session-cannot-be-locked"):
        locks.accept("s", "second", NOW)
    other = locks.accept(None, "second", NOW)
    assert other is not None
    assert other.session == "t"
    assert locks.accept(None, "third", NOW) is None
    assert bodies(one.receive(5, NOW, token, session="s")) == ["a", "c"]
    with refused("session-lock-lost"):
        locks.renew("s", "second", NOW)


def test_a_session_that_runs_out_counts_its_deliveries_and_one_that_is_closed_does_not() -> None:
    one, token = queue(requires_session=True), tokens()
    locks = SessionLocks(one)
    one.send([content("a", session="s"), content("b", session="s")], NOW)
    assert locks.accept("s", "first", NOW) is not None
    one.receive(5, NOW, token, session="s")
    locks.close("s", "first", NOW)
    assert locks.accept("s", "second", NOW) is not None
    found = one.receive(5, NOW, token, session="s")
    assert [message.delivery_count for message in found] == [0, 0]
    assert locks.renew("s", "second", NOW + 5_000) == NOW + 15_000
    assert locks.advance(NOW + 14_999) == []
    (lost,) = locks.advance(NOW + 15_000)
    assert lost.holder == "second"
    assert locks.accept("s", "third", NOW + 15_000) is not None
    found = one.receive(5, NOW + 15_000, token, session="s")
    assert bodies(found) == ["a", "b"]
    assert [message.delivery_count for message in found] == [1, 1]


def test_a_session_keeps_its_state_without_messages_until_it_is_taken_away() -> None:
    one = queue(requires_session=True)
    one.set_session_state("s", b"x")
    one.send([content("a", session="t")], NOW)
    assert one.sessions() == ["s", "t"]
    assert one.session_state("s") == b"x"
    one.set_session_state("s", None)
    assert one.sessions() == ["t"]


def test_what_a_sender_put_in_is_what_a_receiver_gets() -> None:
    sent = content("body", message_id="m", session="s", ttl=5_000, at=NOW)
    again = content_of(sent.encoded())
    assert again == sent
    got = sections(delivered(sent, 3, {"x-opt-sequence-number": 7}))
    assert got.header[4] == 3
    assert got.annotations["x-opt-sequence-number"] == 7
    assert got.annotations["x-opt-scheduled-enqueue-time"] == NOW
    assert got.properties[0] == "m"
    assert got.data == (b"body",)


def test_a_message_in_an_answer_has_its_lock_token_in_it() -> None:
    """Go's client finds it nowhere else: a deferred message that it received could not be settled."""
    one, token = queue(), tokens()
    one.send([content("a")], NOW)
    (held,) = one.receive(1, NOW, token)
    found, _ = decode(payload_of(held, None, in_answer=True), decode(payload_of(held, None, in_answer=True))[1])
    assert found == Described(ULong(0x71), {Symbol("x-opt-lock-token"): token_of(held)})
    assert sections(payload_of(held, None, in_answer=True)).data == (b"a",)


class QueueMachine(RuleBasedStateMachine):
    """Whatever is done in whatever order: no message is lost, held twice, or comes back once it is gone."""

    @initialize()
    def begin(self) -> None:
        self.queue, self.token, self.now = queue(max_delivery_count=3, duplicate_window=5.0), tokens(), NOW
        self.held: dict[UUID, int] = {}
        self.deferred: list[int] = []
        self.gone: set[str] = set()
        self.sent = 0
        self.kept: dict[tuple[bool, int], QueuedMessage] = {}

    @rule(later=st.integers(0, 3_000))
    def send(self, later: int) -> None:
        self.sent += 1
        self.queue.send([content(str(self.sent), message_id=str(self.sent), at=self.now + later)], self.now)

    @rule(most=st.integers(1, 3))
    def receive(self, most: int) -> None:
        for message in self.queue.receive(most, self.now, self.token):
            self.held[token_of(message)] = message.sequence_number
            assert bodies([message])[0] not in self.gone

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["complete", "abandon", "release", "defer", "dead_letter", "renew"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        token = data.draw(st.sampled_from(sorted(self.held, key=lambda each: each.int)))
        number = self.held[token]
        found = self.queue.peek(number, 1, self.now)
        try:
            match how:
                case "renew":
                    self.queue.renew([token], self.now)
                    return
                case "dead_letter":
                    self.queue.dead_letter(token, self.now, "r", None)
                case _:
                    getattr(self.queue, how)(token, self.now)
        except AmqpError as error:
            assert error.condition.endswith("message-lock-lost")  # noqa: PT017  others pass on
        else:
            if how == "complete":
                self.gone.add(bodies(found)[0])
            elif how == "defer":
                self.deferred.append(number)
        del self.held[token]

    @precondition(lambda self: self.deferred)
    @rule()
    def take_deferred(self) -> None:
        try:
            (message,) = self.queue.receive_deferred([self.deferred.pop()], self.now, self.token)
        except AmqpError as error:
            assert error.condition.endswith("message-not-found")  # noqa: PT017  others pass on
        else:
            self.held[token_of(message)] = message.sequence_number

    @rule(millis=st.integers(0, 12_000))
    def wait(self, millis: int) -> None:
        self.now += millis

    @invariant()
    def nothing_is_lost(self) -> None:
        dead = self.queue.dead_letters
        assert dead is not None
        there = bodies(self.queue.peek(0, 10_000, self.now)) + bodies(dead.peek(0, 10_000, self.now))
        assert sorted(there, key=int) == sorted({str(n + 1) for n in range(self.sent)} - self.gone, key=int)
        for is_dead, each in ((False, self.queue), (True, dead)):
            for number, message in each.drain().messages.items():
                if message is None:
                    self.kept.pop((is_dead, number), None)
                else:
                    self.kept[is_dead, number] = message
            here = {number: message for (other, number), message in self.kept.items() if other == is_dead}
            assert [here[number] for number in sorted(here)] == each.peek(0, 10_000, self.now), "what is kept"


QueueMachine.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)
TestQueueMachine = QueueMachine.TestCase
