"""Pauses grow up to the longest, chance takes at most half away, and trying ends at the deadline."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.backoff import Backoff, until_done


def test_pauses_grow_up_to_the_longest() -> None:
    assert [Backoff(0.5, 3.0).pause(n) for n in (1, 2, 3, 4, 5, 5_000)] == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
    assert [Backoff(1.0, 3.0, factor=1.5).pause(n) for n in (1, 2, 3, 4)] == [1.0, 1.5, 2.25, 3.0]


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(1e-3, 10), st.floats(1, 1e4))
def test_chance_takes_at_most_half_away(failures: int, chance: float, first: float, times: float) -> None:
    backoff = Backoff(first, first * times)
    whole = backoff.pause(failures)
    assert whole / 2 <= backoff.pause(failures, chance) <= whole <= backoff.longest


class Refused(Exception):
    pass


class Script:
    """Raises these errors, then returns. Its time moves by its sleeps alone."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.now = 0.0
        self.slept: list[float] = []

    def act(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def run(self, deadline: float, chance: Callable[[], float] = lambda: 0.0) -> str:
        return until_done(
            self.act,
            lambda error: isinstance(error, Refused),
            deadline=deadline,
            pauses=Backoff(1.0, 4.0),
            clock=lambda: self.now,
            chance=chance,
            sleep=self.sleep,
        )


def test_it_tries_again_until_it_is_done() -> None:
    script = Script(*(Refused() for _ in range(4)))
    assert script.run(deadline=100.0) == "done"
    assert script.slept == [1.0, 2.0, 4.0, 4.0]


def test_the_last_try_begins_at_the_deadline() -> None:
    script = Script(Refused("first"), Refused("second"), Refused("third"), Refused("last"))
    with pytest.raises(Refused, match="last"):
        script.run(deadline=5.0)
    assert script.slept == [1.0, 2.0, 2.0]


def test_another_error_is_raised_at_once() -> None:
    script = Script(Refused(), ValueError("another"))
    with pytest.raises(ValueError, match="another"):
        script.run(deadline=100.0)
    assert script.slept == [1.0]


def test_pauses_are_shortened_by_chance() -> None:
    script = Script(Refused(), Refused())
    draws = iter((1.0, 0.5))
    assert script.run(deadline=100.0, chance=lambda: next(draws)) == "done"
    assert script.slept == [0.5, 1.5]
