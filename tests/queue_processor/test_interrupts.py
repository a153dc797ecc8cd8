"""Ctrl-C ends a processor of a queue in order, as SIGTERM does: what is in hand is given back, and nothing raises."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from leasehold.processors.events.signals import terminating


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """Signals as in a program that was started from a terminal, whoever started these tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_next_one_does_what_it_always_does(number: signal.Signals) -> None:
    asked: list[int] = []
    with terminating(asked, interrupts=True):
        signal.raise_signal(number)
        assert asked == [number]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_interrupts_are_left_alone_unless_asked_for_and_where_the_program_has_a_handler() -> None:
    asked: list[int] = []
    with terminating(asked), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with terminating(asked, interrupts=True):
        signal.raise_signal(signal.SIGINT)
    assert (asked, seen) == ([], [signal.SIGINT])


def test_a_handler_that_the_program_sets_meanwhile_stays_here_and_in_children() -> None:
    seen: list[int] = []

    def own(number: int, frame: object) -> None:
        seen.append(number)

    with terminating([], interrupts=True):
        signal.signal(signal.SIGTERM, own)
    assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if (child := os.fork()) == 0:
        os._exit(0 if signal.getsignal(signal.SIGTERM) is own else 1)
    assert os.waitpid(child, 0) == (child, 0)
