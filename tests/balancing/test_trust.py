"""Trust ends before anybody else may claim, whatever the clocks of holder and store do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import trust_duration
from leasehold.config import OwnershipSettings


def test_the_defaults() -> None:
    settings = OwnershipSettings()
    trust = trust_duration(settings.partition_expiration, settings.clock_rate_ratio, settings.margin)
    assert trust == pytest.approx(23.0)


@given(
    expiration=st.floats(1, 3600),
    ratio=st.floats(1, 3),
    margin=st.floats(0, 30),
    fraction=st.floats(0, 1),
    request=st.floats(0, 30),
    rate=st.floats(0.1, 10),
)
def test_trust_has_ended_before_the_store_lets_others_claim(
    expiration: float, ratio: float, margin: float, fraction: float, request: float, rate: float
) -> None:
    """The holder's clock runs at `rate`, the store's up to `ratio` times as fast; the store acts in mid-request."""
    store_rate = rate * (1 + (ratio - 1) * fraction)
    trust_ends = trust_duration(expiration, ratio, margin) / rate
    store_expires = request + expiration / store_rate
    assert trust_ends <= store_expires * (1 + 1e-9)
    assert store_expires - trust_ends >= margin / rate * (1 - 1e-9) - 1e-9 * store_expires


def test_with_a_clock_that_is_slower_than_agreed_it_may_not() -> None:
    """The claim is sharp: it needs the ratio."""
    assert trust_duration(30, 1.25, 0) / 0.79 > 30
    assert trust_duration(30, 1.25, 0) / 0.81 < 30


@given(interval=st.floats(0.5, 60), timeout=st.floats(0.1, 10), ratio=st.floats(1, 2))
def test_the_shortest_expiration_leaves_room_for_two_renewals(interval: float, timeout: float, ratio: float) -> None:
    """One renewal may fail after its full time-out; the next, an interval later, still finds trust."""
    settings = OwnershipSettings(
        load_balancing_interval=interval,
        request_timeout=timeout,
        clock_rate_ratio=ratio,
        margin=0.0,
        partition_expiration=2 * interval * ratio + timeout,
        stall_timeout=3600,
    )
    trust = trust_duration(settings.partition_expiration, ratio, settings.margin)
    assert trust > 2 * interval
