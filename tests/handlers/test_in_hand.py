"""Batches of one process that want the same entities: in turn, and for no longer than the others go on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from leasehold.handlers import in_hand
from leasehold.handlers.contract import Key
from leasehold.handlers.in_hand import InHand, patience_of
from leasehold_testkit.clock import ManualClock
from tests.waiting import NEVER, PATIENCE, until

A, B, C = ("a",), ("b",), ("c",)


class Taker(threading.Thread):
    """A batch that takes, in a thread of its own."""

    def __init__(self, hands: InHand, *keys: Key) -> None:
        super().__init__(daemon=True)
        self._hands, self._keys = hands, keys
        self.taken: list[Key] | None = None
        self.start()
        until(lambda: self.taken is not None or any({*keys} == one for one in hands._queue), "a batch that waits")

    def run(self) -> None:
        self.taken = self._hands.take(self._keys, waits=True)

    def ended(self) -> Sequence[Key]:
        self.join(PATIENCE)
        assert self.taken is not None
        return self.taken


def test_a_batch_waits_for_all_that_it_wants_and_nobody_for_what_is_not_wanted() -> None:
    hands = InHand(patience=NEVER, longest=NEVER)
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
    hands = InHand(patience=NEVER, longest=NEVER)
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
    hands = InHand(patience=0.05, longest=NEVER)  # expires: nobody frees what it waits for
    hands.take([A], waits=True)
    assert Taker(hands, A, B).ended() == [B]
    patient = InHand(patience=NEVER, longest=NEVER)
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
    hands = InHand(patience=NEVER, longest=0.05)  # expires: nobody frees what it waits for
    hands.take([A], waits=True)
    assert hands.take([A, B], waits=True) == [B]


class Timed(InHand):
    """With a time that stands still, and a count of the looks of batches that wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
        super().__init__(patience=patience, longest=1_000 * NEVER)
        self.clock, self.looks = ManualClock(), 0
        monkeypatch.setattr(in_hand, "time", self.clock)

    def _in_the_way(self, wanted: frozenset[Key]) -> set[Key]:
        self.looks += 1
        return super()._in_the_way(wanted)

    def freed(self, key: Key) -> None:
        """Free it, and wait until the batch that waits has seen so, and waits again or has ended."""
        before = self.looks
        self.free([key])
        until(lambda: self.looks > before, "a batch that looks again")
        with self._changed:  # which it has while it looks
            pass


def test_patience_begins_anew_with_each_entity_that_becomes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [(f"k{number}",) for number in range(10)]
    hands = Timed(monkeypatch, patience=NEVER)
    hands.take(keys, waits=True)
    waits = Taker(hands, *keys)
    for key in keys[:-1]:
        hands.clock.advance(0.6 * NEVER)
        hands.freed(key)
        assert waits.taken is None
    hands.free(keys[-1:])
    assert waits.ended() == keys


def test_where_batches_take_longer_they_are_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert patience_of(0.5, []) == patience_of(0.5, [0.1]) == 0.5
    assert patience_of(0.5, [0.3, 0.2, 30.0]) == pytest.approx(1.2), "one that hung says nothing of the others"
    hands = Timed(monkeypatch, patience=NEVER)
    for _ in range(3):
        hands.take([A], waits=True)
        hands.clock.advance(2 * NEVER)
        hands.free([A])
    hands.take([A], waits=True)
    hands.take([B], waits=False)
    waits = Taker(hands, A)
    hands.freed(C)  # so it has begun to wait
    hands.clock.advance(2 * NEVER)  # behind one that takes as long as those before
    hands.freed(B)
    assert waits.taken is None
    hands.free([A])
    assert waits.ended() == [A]
