"""When a lease is trusted, renewed and asked for again."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import ConfigError
from leasehold.leases.times import extended, lease_times, pause, retry_after

DURATIONS = st.floats(0.01, 1e6)


@given(DURATIONS)
def test_two_renewals_fit_and_a_call_before_trust_ends_and_trust_before_the_store_gives_it_away(
    duration: float,
) -> None:
    times = lease_times(duration)
    assert 2 * times.renew_after + times.timeout < times.trust
    assert times.trust <= times.duration / 1.25


@pytest.mark.parametrize("duration", [0, -1, math.inf, math.nan])
def test_a_lease_has_an_end(duration: float) -> None:
    with pytest.raises(ConfigError, match="duration"):
        lease_times(duration)


def test_an_answer_after_the_end_extends_nothing_and_none_takes_trust_away() -> None:
    times = lease_times(30)
    assert extended(100, 90, 99.9, times) == 90 + times.trust
    assert extended(100, 90, 100, times) is None
    assert extended(200, 90, 99.9, times) == 200


@given(st.integers(0, 10_000), st.floats(0, math.inf), st.integers())
def test_pauses_are_bounded_and_never_longer_than_what_is_left(attempt: int, left: float, seed: int) -> None:
    assert 0 <= pause(attempt, left, Random(seed)) <= min(left, 1.0)


def test_pauses_double_and_get_shorter_near_the_end() -> None:
    longest = [max(pause(attempt, math.inf, Random(seed)) for seed in range(50)) for attempt in range(7)]
    assert longest == sorted(longest)
    assert longest[0] <= 0.05 < longest[2]
    assert all(pause(20, 0.8, Random(seed)) <= 0.1 < pause(20, 8.0, Random(seed)) for seed in range(50))


@given(DURATIONS, st.integers())
def test_a_failed_renewal_is_tried_several_times_before_the_next_one_is_due(duration: float, seed: int) -> None:
    times = lease_times(duration)
    assert 0 < retry_after(times, Random(seed)) <= times.renew_after / 4
