"""What was told is no news for a while, and the memory of it is bounded."""

from __future__ import annotations

import logging

import pytest

from leasehold.told import MOST, Outage, Told


def test_the_same_words_about_the_same_thing_are_told_once() -> None:
    told = Told()
    asked = [("0", "away"), ("0", "refused"), ("1", "away"), (None, "away")]
    assert [told.is_news(*one, float(now)) for now in range(3) for one in asked] == [True] * 4 + [False] * 8


def test_what_goes_on_coming_is_news_again_after_its_time() -> None:
    told = Told(again=300.0)
    assert [now for now in range(0, 1_000, 50) if told.is_news("0", "away", float(now))] == [0, 300, 600, 900]


def test_what_did_not_come_again_is_forgotten_and_then_it_is_news() -> None:
    told = Told()
    assert told.has_passed("0", 0.0), "nothing was told"
    for now in (0.0, 10.0):
        told.is_news("0", "away", now)
    told.is_news("0", "refused", 5.0)
    told.is_news("1", "away", 0.0)
    assert not told.has_passed("0", 5.0), "one of them came later"
    assert told.is_news("0", "refused", 6.0)
    assert not told.is_news("0", "away", 11.0)
    assert told.has_passed("0", 11.0)
    assert told.is_news("0", "away", 12.0)
    assert not told.is_news("1", "away", 12.0), "which is another thing"


def test_the_memory_is_bounded_and_keeps_what_came_last() -> None:
    told = Told()
    for number in range(10 * MOST):
        assert told.is_news("0", str(number))
        told.is_news("0", "always")
    assert len(told._told) == MOST
    assert not told.is_news("0", "always")


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("leasehold"), "the store is away: %s", "the store is there again")
    lasted = []
    for reason in (None, "refused", "no answer", None, None, "refused"):
        outage.note(reason)
        lasted.append(outage.lasts)
    assert lasted == [False, True, True, False, False, True]
    assert caplog.messages == ["the store is away: refused", "the store is there again", "the store is away: refused"]
