"""How long a lock is trusted, by clocks that agree and by clocks that do not."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from leasehold.queues.base import QueueMessage
from leasehold.queues.locks import LONGEST, SHORTEST, Answered, LockTimes, LockTrust

NOW = 1_000_000.0
"""The service's clock when it locks a message."""


def locked(lasts: float, age: float = 0.0) -> QueueMessage:
    """A message that was locked now, this long after it was enqueued."""
    return QueueMessage(b"", 1, NOW - age, locked_until=NOW + lasts)


def answered(wrong: float = 0.0) -> Answered:
    """An answer that took half a second, to a machine whose clock is wrong by so much."""
    return Answered(100.0, 100.5, NOW + 0.5 + wrong)


def times(shortest: float = SHORTEST) -> LockTimes:
    return LockTimes("a queue", shortest)


def lasts(trust: LockTrust) -> float:
    """Seconds from before the request until the lock's end, as it is believed."""
    assert trust.since == 100.0
    assert trust.until == pytest.approx(100.0 + 0.9 * 2 * (trust.renew_at - 100.0))
    return 2 * (trust.renew_at - 100.0)


@pytest.mark.parametrize("age", [0.0, 3_600.0])
@pytest.mark.parametrize(("lock", "believed"), [(10.0, 10.0), (60.0, LONGEST)])
def test_clocks_that_agree(lock: float, believed: float, age: float, caplog: pytest.LogCaptureFixture) -> None:
    one = times()
    assert lasts(one.received(locked(lock, age), answered())) == pytest.approx(believed)
    assert lasts(one.renewed(locked(lock, age), answered())) == pytest.approx(believed)
    assert not caplog.records


@pytest.mark.parametrize("ahead", [7.0, 11.0, 3_600.0])
def test_a_clock_ahead_by_most_of_a_lock_or_more_has_the_service_asked_and_its_shortest_lock_believed(
    ahead: float, caplog: pytest.LogCaptureFixture
) -> None:
    one = times()
    doubtful = one.received(locked(10.0), answered(ahead))
    assert (doubtful.until, doubtful.renew_at) == (100.0, 100.5), "asked at once, and not trusted before"
    for _ in range(2):
        assert lasts(one.renewed(locked(10.0), answered(ahead))) == SHORTEST
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert "the clock of this machine is at least" in said.message
    assert "ahead of that of a queue" in said.message


def test_an_answer_that_was_slow_is_no_sign_of_a_wrong_clock(caplog: pytest.LogCaptureFixture) -> None:
    """The process was paused for 20 seconds between asking for a lock of 10 and reading the answer."""
    paused = Answered(100.0, 120.0, NOW + 20.0)
    assert lasts(times().renewed(locked(10.0, 3_600.0), paused)) == pytest.approx(10.0), "it has ended by now"
    assert not caplog.records
    assert lasts(times().renewed(locked(10.0, 3_600.0), replace(paused, wall=NOW + 60.0))) == SHORTEST
    assert len(caplog.records) == 1


def test_a_local_server_gives_shorter_locks_and_a_clock_ahead_costs_renewals_there() -> None:
    assert lasts(times(0.0).renewed(locked(2.0), answered())) == pytest.approx(2.0)
    assert lasts(times(0.0).renewed(locked(2.0), answered(60.0))) == pytest.approx(2.0), "the message was new"
    assert lasts(times(0.0).renewed(locked(2.0, 3_600.0), answered(60.0))) == pytest.approx(SHORTEST)


def test_a_clock_behind_is_corrected_by_a_message_that_comes_soon_after_it_was_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = times()
    assert lasts(one.received(locked(10.0, 3_600.0), answered(-900.0))) == LONGEST
    assert not caplog.records, "it was enqueued before"
    assert lasts(one.received(locked(10.0, 1.0), answered(-900.0))) == pytest.approx(11.0)
    assert lasts(one.renewed(locked(10.0, 3_600.0), answered(-900.0))) == pytest.approx(11.0), "it is remembered"
    (said,) = caplog.records
    assert "at least 898 s behind that of a queue" in said.message


def test_a_clock_behind_is_corrected_by_locks_that_were_lost() -> None:
    """A queue's locks last 6 seconds, by a clock that is 900 seconds behind, and all its messages are old."""
    one, losses = times(), 0
    while (trust := one.received(locked(6.0, 3_600.0), answered(-900.0))).renew_at > 106.0:
        one.lost(trust, trust.renew_at)
        losses += 1
    assert losses == 2


def test_a_lock_that_was_lost_at_once_makes_none_shorter_than_the_shortest() -> None:
    one = times()
    one.lost(one.received(locked(60.0), answered()), 100.6)
    assert lasts(one.received(locked(60.0), answered())) == SHORTEST
