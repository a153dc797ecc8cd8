"""Settings: checked alone and together; every refusal names field, value, rule and remedy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import STRATEGIES
from leasehold.config import STRATEGY_NAMES, OwnershipSettings, parse_duration
from leasehold.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2.0),
        ("500ms", 0.5),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("7d", 604800.0),
        (" 10 s ", 10.0),
        ("0s", 0.0),
        ("007s", 7.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "field") == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "10", "10 seconds", "-1s", "1,5s", "1e3s", "1.s", ".5s", "10S", "1s2s", "nan", "infs"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_duration(text, "partition_expiration")
    assert (refused.value.field, refused.value.value) == ("partition_expiration", text)
    assert "ms, s, m, h or d" in str(refused.value)
    assert '"10s"' in str(refused.value)


@given(st.integers(0, 10**6), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)]))
def test_all_units(number: int, unit: tuple[str, float]) -> None:
    assert parse_duration(f"{number}{unit[0]}", "field") == pytest.approx(number * unit[1])


def test_the_defaults_are_those_of_the_design() -> None:
    settings = OwnershipSettings()
    assert dataclasses.astuple(settings) == (10.0, 30.0, 180.0, "planned", 3.0, 1.0, 1.25, 600.0, 30.0, 1.0, 1.0, None)
    assert settings.shortest_expiration == 30.0


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        OwnershipSettings().margin = 2.0  # type: ignore[misc]


BAD = [math.nan, math.inf, -math.inf, 0.0, -1.0]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    "field",
    [
        *("load_balancing_interval", "partition_expiration", "foreign_expiration"),
        *("request_timeout", "stall_timeout", "hand_over_timeout"),
    ],
)
def test_durations_above_zero(field: str, value: float) -> None:
    refused(field, value, "above zero")


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_the_margin(value: float) -> None:
    refused("margin", value, "zero or more")
    assert OwnershipSettings(margin=0.0).margin == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_the_settle_delay(value: float) -> None:
    refused("settle_delay", value, "zero or more")
    assert OwnershipSettings(settle_delay=0.0).settle_delay == 0.0


@pytest.mark.parametrize("value", BAD)
def test_the_capacity(value: float) -> None:
    refused("capacity", value, "above zero")
    assert OwnershipSettings(capacity=0.1).capacity == 0.1


def test_the_maximum() -> None:
    refused("maximum_partitions", -1, "zero or more")
    assert OwnershipSettings(maximum_partitions=0).maximum_partitions == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.99, 0.0, -1.0])
def test_the_clock_rate_ratio(value: float) -> None:
    refused("clock_rate_ratio", value, "at least 1")
    assert OwnershipSettings(clock_rate_ratio=1.0).clock_rate_ratio == 1.0


def test_the_strategy() -> None:
    error = refused("strategy", "random", "one of planned, greedy, balanced")
    assert "planned is the default" in str(error)
    assert set(STRATEGY_NAMES) == set(STRATEGIES)


def test_an_expiration_that_a_single_slow_renewal_would_miss() -> None:
    error = refused("partition_expiration", 29.9, "= 30 s, or a single slow renewal loses partitions")
    assert "clock_rate_ratio (1.25) x (2 x load_balancing_interval (10 s) + request_timeout (3 s) + margin (1 s))" in (
        error.rule
    )
    assert "30s or more" in error.remedy
    assert OwnershipSettings(partition_expiration=30.0).partition_expiration == 30.0


def test_an_interval_too_long_for_the_expiration_names_both() -> None:
    with pytest.raises(ConfigError) as error:
        OwnershipSettings(load_balancing_interval=20.0)
    assert "load_balancing_interval (20 s)" in str(error.value)
    assert error.value.field == "partition_expiration"


def test_a_stall_timeout_shorter_than_the_expiration() -> None:
    refused("stall_timeout", 29.0, "partition_expiration (30 s)")


@given(
    interval=st.floats(0.1, 100),
    timeout=st.floats(0.1, 10),
    margin=st.floats(0, 5),
    ratio=st.floats(1, 2),
    slack=st.floats(-1, 1),
)
def test_the_rule_across_fields(interval: float, timeout: float, margin: float, ratio: float, slack: float) -> None:
    shortest = ratio * (2 * interval + timeout + margin)
    chosen = shortest + slack

    def make() -> OwnershipSettings:
        return OwnershipSettings(
            load_balancing_interval=interval,
            request_timeout=timeout,
            margin=margin,
            clock_rate_ratio=ratio,
            partition_expiration=chosen,
            stall_timeout=10_000,
        )

    if slack > 1e-9:
        assert make().shortest_expiration == pytest.approx(shortest)
    elif slack < -1e-9:
        with pytest.raises(ConfigError):
            make()


def refused(field: str, value: Any, rule: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        OwnershipSettings(**{field: value})
    assert error.value.field == field
    assert error.value.value is value
    assert repr(value) in str(error.value)
    assert rule in error.value.rule
    assert error.value.remedy
    return error.value
