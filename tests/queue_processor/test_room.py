"""What becomes of messages in hand, with time as an argument."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from leasehold.processors.queues.messages_in_hand import (
    Complete,
    DeadLetter,
    Ending,
    GiveBack,
    HeldMessage,
    LookForParked,
    Renew,
    Start,
    TryResult,
)
from leasehold.processors.queues.room import Room
from leasehold.processors.queues.settings import QueueDelivery
from leasehold.queues.base import QueueMessage
from leasehold.queues.locks import LOST, LockTrust


def message(number: int, count: int = 0) -> QueueMessage:
    return QueueMessage(b"", number, float(number), delivery_count=count)


def taken(room: Room, number: int, key: str = "a", now: float = 0.0, *, count: int = 0) -> None:
    room.take(message(number, count), key, None, LockTrust(now + 27.0, now + 15.0, now))


def room_of(**settings: Any) -> Room:
    return Room(QueueDelivery(**settings), Random(1))


def numbers(held: tuple[HeldMessage, ...]) -> list[int]:
    return [each.message.sequence_number for each in held]


def started(room: Room, now: float = 0.0) -> Start:
    (start,) = room.due(now)
    assert isinstance(start, Start)
    return start


def test_one_worker_an_entity_and_so_many_entities_at_once() -> None:
    room = room_of(workers=2)
    for number, key in ((2, "a"), (1, "a"), (3, "b"), (4, "c")):
        taken(room, number, key)
    assert [(step.key, numbers(step.held)) for step in room.due(0.0) if isinstance(step, Start)] == [
        ("a", [1, 2]),
        ("b", [3]),
    ]
    assert room.due(0.0) == []


def test_a_worker_is_told_of_the_entities_that_are_at_work_at_once_and_next() -> None:
    room = room_of(workers=2)
    for number, key in enumerate(("a", "b", "c", "d", "e")):
        taken(room, number, key)
    starts = [step for step in room.due(0.0) if isinstance(step, Start)]
    assert [(start.key, start.ahead) for start in starts] == [("a", ("a", "b", "c", "d")), ("b", ("a", "b", "c", "d"))]
    room.finished("a")
    assert started(room).ahead == ("a", "c", "d")


def test_an_earlier_message_that_comes_while_the_entity_is_found_busy_is_the_first_then() -> None:
    room = room_of(first_pause=1.0)
    taken(room, 7)
    start = started(room)
    taken(room, 5)
    taken(room, 9)
    room.ended(start.held[0], TryResult(Ending.BUSY), 0.0)
    room.finished("a")
    assert numbers(started(room, 2.0).held) == [5, 7, 9]


def test_what_is_done_is_completed_and_what_is_rejected_set_aside() -> None:
    room = room_of()
    taken(room, 1)
    taken(room, 2)
    first, second = started(room).held
    room.ended(first, TryResult(Ending.APPLIED), 0.0)
    room.ended(second, TryResult(Ending.REJECTED, "Rejected", "no n"), 0.0)
    room.finished("a")
    assert room.due(0.0) == [DeadLetter(second, "Rejected", "no n"), Complete((first,))]
    assert room.empty


@pytest.mark.parametrize("policy", ["wait", "abandon"])
def test_a_message_that_fails_pauses_and_is_set_aside_after_its_last_delivery(policy: str) -> None:
    room = room_of(busy=policy, max_deliveries=3, first_pause=1.0)
    taken(room, 1, count=1)
    taken(room, 2)
    start = started(room)
    room.ended(start.held[0], TryResult(Ending.FAILED, description="boom"), 0.0)
    room.finished("a")
    if policy == "abandon":
        assert [numbers(step.held) for step in room.due(0.0) if isinstance(step, Start)] == [[2]]
        assert [numbers(step.held) for step in room.due(4.0) if isinstance(step, GiveBack)] == [[1]]
        return
    assert room.due(0.4) == []  # nothing overtakes it
    again = started(room, 1.0)
    assert (numbers(again.held), again.held[0].delivery) == ([1, 2], 3)
    room.ended(again.held[0], TryResult(Ending.FAILED, description="boom"), 1.0)
    room.finished("a")
    aside = [step for step in room.due(1.0) if isinstance(step, DeadLetter)]
    assert [(step.reason, step.description) for step in aside] == [("HandlerFailed", "boom")]


def test_a_busy_entity_is_waited_for_for_a_time_and_then_given_back_but_for_a_last_delivery() -> None:
    room = room_of(wait_at_most=10.0, first_pause=1.0, max_deliveries=3)
    taken(room, 1)
    taken(room, 2, count=2)
    (held, last), now = started(room).held, 0.0
    for now in (0.0, 5.0, 10.0):
        room.ended(held, TryResult(Ending.BUSY), now)
        room.finished("a")
        if now < 10.0:
            assert numbers(started(room, now + 4.0).held) == [1, 2]
    assert [numbers(step.held) for step in room.due(14.0) if isinstance(step, GiveBack)] == [[1]]
    assert room.free == 99
    assert (held.tries, last.leaves_at) == (0, None)


def test_what_is_in_hand_is_renewed_wherever_it_stands_and_dropped_when_the_service_says_that_it_is_lost() -> None:
    room = room_of(workers=1, busy="abandon", first_pause=60.0, longest_pause=60.0)
    taken(room, 1, "busy")
    start = started(room)
    room.ended(start.held[0], TryResult(Ending.BUSY), 0.0)
    room.finished("busy")
    taken(room, 2, "at work")
    taken(room, 3, "waits")
    at_work = started(room, 1.0)
    assert numbers(at_work.held) == [2]
    (renew,) = room.due(15.0)
    assert isinstance(renew, Renew)
    assert sorted(numbers(renew.held)) == [1, 2, 3]
    assert room.due(29.0) == [renew]  # the service was away: it has not said that they are lost
    for held in renew.held:
        held.trust = LOST
    assert room.due(29.0) == []
    assert room.lost == 2
    room.ended(at_work.held[0], TryResult(Ending.APPLIED), 29.0)  # it was committed: the service says whether it is its
    room.finished("at work")
    assert room.due(29.0) == [Complete(at_work.held)]


def test_a_message_that_comes_again_brings_a_new_lock() -> None:
    room = room_of()
    taken(room, 1)
    start = started(room)
    assert room.trust_in(message(2)) is None
    assert room.trust_in(message(1)) == start.held[0].trust
    taken(room, 1, now=20.0, count=1)
    assert room.free == 99
    assert start.held[0].trusted(40.0)
    assert start.held[0].message.delivery_count == 1


def test_the_end_gives_back_what_nobody_works_on() -> None:
    room = room_of(workers=1)
    taken(room, 1)
    start = started(room)
    taken(room, 2, "b")
    assert [numbers(step.held) for step in room.due(1.0, stopping=True) if isinstance(step, GiveBack)] == [[2]]
    room.ended(start.held[0], TryResult(Ending.APPLIED), 1.0)
    room.finished("a")
    assert room.due(1.0, stopping=True) == [Complete(start.held)]
    assert room.empty


def test_work_is_begun_once_the_service_has_said_that_a_doubtful_lock_is_held() -> None:
    room = room_of()
    room.take(message(1), "a", None, LockTrust(5.0, 6.0, 5.0))
    (renew,) = room.due(6.0)
    assert isinstance(renew, Renew)
    room.renewed(renew.held[0], message(1), LockTrust(10.0, 8.0, 6.0))
    assert started(room, 6.0).held == renew.held


def test_parked_messages_are_looked_for_and_come_before_those_in_hand() -> None:
    room = Room(QueueDelivery(workers=2, first_pause=1.0), Random(1), looks=True)
    assert room.due(0.0) == [LookForParked(2)]
    assert room.due(5.0) == [], "one look at a time"
    taken(room, 1, "a", now=5.0)
    room.looked({"a": ("a",), "b": ("b",)})
    assert [(step.key, numbers(step.held), step.parked) for step in room.due(5.0) if isinstance(step, Start)] == [
        ("a", [1], ("a",)),
        ("b", [], ("b",)),
    ]
    assert room.due(9.0) == [], "all workers are at work"


def test_an_entity_that_is_busy_is_asked_for_again_for_its_parked_messages_after_a_pause() -> None:
    room = Room(QueueDelivery(workers=2, first_pause=1.0), Random(1), looks=True)
    room.due(0.0)
    room.looked({"b": ("b",)})
    start = started(room)
    room.ended_parked(start, TryResult(Ending.BUSY), 0.0)
    room.finished("b")
    assert [step for step in room.due(0.4) if isinstance(step, Start)] == []
    room.looked({"b": ("b",)})
    assert [step for step in room.due(0.4) if isinstance(step, Start)] == [], "the pause goes on"
    (again,) = (step for step in room.due(1.0) if isinstance(step, Start))
    assert again == start
    room.ended_parked(again, TryResult(Ending.FAILED), 1.0)
    room.finished("b")
    assert [step for step in room.due(9.0) if isinstance(step, Start)] == [], "the sink says when"


def test_what_was_parked_is_completed_and_the_next_message_follows() -> None:
    room = room_of(busy="park")
    taken(room, 1)
    taken(room, 2)
    first, second = started(room).held
    for held, ending in ((first, Ending.PARKED), (second, Ending.APPLIED)):
        room.ended(held, TryResult(ending), 0.0)
    room.finished("a")
    assert room.due(0.0) == [Complete((first, second))]
