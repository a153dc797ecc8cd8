"""Trust ends before anybody else may claim, whatever the clocks of holder and store do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import trust_duration
from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError


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


@given(
    interval=st.floats(0.01, 20),
    timeout=st.floats(0.01, 60),
    margin=st.floats(0, 60),
    ratio=st.floats(1, 10),
    factor=st.sampled_from([0.9, 0.99, 0.999, 1.0]) | st.floats(0.1, 10),
)
def test_settings_that_are_accepted_leave_room_for_two_renewals(
    interval: float, timeout: float, margin: float, ratio: float, factor: float
) -> None:
    """One renewal may fail after its full time-out; the next, an interval later, still finds trust."""
    needed = 2 * interval + timeout
    expiration = factor * (ratio * (needed + margin))
    try:
        settings = OwnershipSettings(
            load_balancing_interval=interval,
            request_timeout=timeout,
            margin=margin,
            clock_rate_ratio=ratio,
            partition_expiration=expiration,
            stall_timeout=1e12,
        )
    except ConfigError:
        assert factor < 1, "refused without need"
    else:
        assert trust_duration(settings.partition_expiration, ratio, margin) >= needed - 1e-9


def test_the_defaults_leave_just_that_room() -> None:
    settings = OwnershipSettings()
    assert settings.partition_expiration == settings.shortest_expiration
    trust = trust_duration(settings.partition_expiration, settings.clock_rate_ratio, settings.margin)
    assert trust == 2 * settings.load_balancing_interval + settings.request_timeout
