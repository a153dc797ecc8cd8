"""Batches of one process that want the same entities: in turn, and for no longer than the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from leasehold.entities.handlers import Key
from leasehold.entities.in_hand import InHand, patience_of

A, B, C = ("a",), ("b",), ("c",)
LONG = 60.0


class Taker(threading.Thread):
    """A batch that takes, in a thread of its own."""

    def __init__(self, hands: InHand, *keys: Key) -> None:
        super().__init__(daemon=True)
        self._hands, self._keys = hands, keys
        self.taken: list[Key] | None = None
        self.start()
        until(lambda: self.taken is not None or any({*keys} == one for one in hands._queue))

    def run(self) -> None:
        self.taken = self._hands.take(self._keys, waits=True)

    def ended(self) -> Sequence[Key]:
        self.join(LONG)
        assert self.taken is not None
        return self.taken


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_batch_waits_for_all_that_it_wants_and_nobody_for_what_is_not_wanted() -> None:
    hands = InHand(patience=LONG, longest=LONG)
    assert hands.take([A, B], waits=True) == [A, B]
    assert hands.take([C], waits=True) == [C]
    waits = Taker(hands, B, C)
    hands.free([C])
    assert waits.taken is None
    assert hands.take([C], waits=False) == [C], "one that does not wait takes what is free"
    hands.free([C])
    hands.free([A, B])
    assert waits.ended() == [B, C]


def test_those_who_wait_have_their_turn_in_the_order_of_coming() -> None:
    hands = InHand(patience=LONG, longest=LONG)
    hands.take([A], waits=True)
    first, second = Taker(hands, A, B), Taker(hands, B, C)
    assert second.taken is None, "the first one, which waits, wants one of its entities"
    assert hands.take([("d",)], waits=True) == [("d",)]
    hands.free([A])
    assert first.ended() == [A, B]
    assert second.taken is None
    hands.free([A, B])
    assert second.ended() == [B, C]


def test_a_call_that_hangs_holds_up_each_other_batch_once() -> None:
    hands = InHand(patience=0.05, longest=LONG)
    hands.take([A], waits=True)
    assert Taker(hands, A, B).ended() == [B]
    patient = InHand(patience=LONG, longest=LONG)
    patient._taken, patient._in_vain = hands._taken, hands._in_vain
    waits = Taker(patient, A, B, C)
    assert waits.taken is None, "for b"
    patient.free([B])
    assert waits.ended() == [B, C], "and not for a, for which one has waited in vain"
    patient.free([A])
    patient.take([A], waits=True)
    again = Taker(patient, A)
    assert again.taken is None, "it was free in between"
    patient.free([A])
    assert again.ended() == [A]


def test_nobody_waits_longer_than_the_longest_time() -> None:
    hands = InHand(patience=LONG, longest=0.05)
    hands.take([A], waits=True)
    assert hands.take([A, B], waits=True) == [B]


def test_patience_begins_anew_with_each_entity_that_becomes_free() -> None:
    keys = [(f"k{number}",) for number in range(10)]

    def taken_after_two_patiences() -> Sequence[Key]:
        hands = InHand(patience=0.25, longest=LONG)
        hands.take(keys, waits=True)
        waits = Taker(hands, *keys)
        for key in keys:
            time.sleep(0.05)
            hands.free([key])
        return waits.ended()

    until(lambda: taken_after_two_patiences() == keys)  # a machine that stops for that long has another try


def test_where_batches_take_longer_they_are_waited_for_longer() -> None:
    assert patience_of(0.5, []) == patience_of(0.5, [0.1]) == 0.5
    assert patience_of(0.5, [0.3, 0.2, 30.0]) == pytest.approx(1.2), "one that hung says nothing of the others"

    def taken_behind_one_that_takes_as_long_as_those_before() -> Sequence[Key]:
        hands = InHand(patience=0.05, longest=LONG)
        for _ in range(3):
            hands.take([A], waits=True)
            time.sleep(0.2)
            hands.free([A])
        hands.take([A], waits=True)
        waits = Taker(hands, A)
        time.sleep(0.2)
        hands.free([A])
        return waits.ended()

    until(lambda: taken_behind_one_that_takes_as_long_as_those_before() == [A])
