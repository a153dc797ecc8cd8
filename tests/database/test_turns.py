"""Turns of threads: the order in which they came, and when they give up."""

from __future__ import annotations

import threading

from leasehold.database.turns import Turns
from leasehold_testkit.contracts.stores.groups import at_once
from tests.waiting import until


def test_threads_that_are_overdue_get_their_turns_in_the_order_in_which_they_came() -> None:
    turns, order = Turns(overdue=0), []
    assert turns.acquire(60)

    def work(number: int) -> None:
        assert turns.acquire(60)
        order.append(number)
        turns.release()

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        until(lambda: turns.waiting == len(threads), "the thread waits for its turn")
    turns.release()
    assert turns.acquire(60), "it has come last, though it was here when the turn was given up"
    assert order == [0, 1, 2, 3, 4]
    turns.release()
    for thread in threads:
        thread.join()


def test_one_that_gives_up_leaves_its_place_to_those_behind_it() -> None:
    turns = Turns()
    assert turns.acquire(60)
    assert not turns.acquire(0.01)
    assert turns.waiting == 0
    turns.release()
    assert turns.acquire(0)
    turns.release()


def test_who_waits_goes_by_what_went_on_last() -> None:
    turns = Turns()
    assert turns.deadline(1e9, 3) == 1e9 + 3
    turns.went_on()
    assert turns.deadline(-1e9, 3) > 0


def test_a_turn_that_comes_with_the_end_of_the_patience_is_not_lost() -> None:
    """Whoever gives up as it becomes its turn has it, or the next one would wait for ever."""
    turns, got = Turns(), []

    def work() -> None:
        for _ in range(2_000):
            if turns.acquire(0.0001):
                got.append(1)
                turns.release()

    at_once([work] * 8)
    assert got
    assert turns.acquire(0)
    assert turns.waiting == 0
