"""Settings: checked alone and together; every refusal names field, value, rule and remedy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.balancing import STRATEGIES
from leasehold.config import STRATEGY_NAMES, OwnershipSettings, parse_duration
from leasehold.errors import ConfigError
from leasehold.handlers.parking.policy import Retries
from leasehold.handlers.settings import Bodies, Failures, Spread, Writes
from leasehold.hubs import open_hub
from leasehold.hubs.log import LogHub
from leasehold.leases.blocking import EntityLeases
from leasehold.processors.events.delivery import DeliverySettings
from leasehold.processors.events.event_processor import EventProcessor
from leasehold.processors.queues.settings import QueueDelivery
from leasehold.queues import open_queue
from leasehold.sinks import TableSpec, open_sink
from leasehold.stores import open_lease_store, open_store
from leasehold.stores.memory.store import MemoryStore
from tests.waiting import until


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


@pytest.mark.parametrize(
    ("carrier", "required"),
    [
        (OwnershipSettings, {}),
        (DeliverySettings, {}),
        (QueueDelivery, {}),
        (Retries, {}),
        (Failures, {}),
        (Bodies, {"schema": "id STRING"}),
        (Writes, {"state": "id STRING"}),
        (Spread, {"sequence_by": "version"}),
        (TableSpec, {"name": "flights", "pipeline": "flights", "keys": ("id",)}),
    ],
)
def test_a_setting_that_is_none_is_one_that_was_not_given(carrier: Any, required: dict[str, Any]) -> None:
    """As `os.environ.get` gives it for a variable that is not set. What has no default is refused by its name."""
    left_out = {one.name: None for one in dataclasses.fields(carrier) if one.name not in required and one.init}
    assert carrier(**left_out, **required) == carrier(**required)
    for name in [name for name in required if name != "keys"]:
        with pytest.raises(ConfigError, match=rf"^{name}: None, and it has no default; os\.environ\.get gives None"):
            carrier(**{**required, name: None})


@pytest.mark.parametrize(
    ("opened", "field"),
    [
        (lambda nothing: open_hub(nothing), "hub"),
        (lambda nothing: open_store(nothing), "store"),
        (lambda nothing: open_lease_store(nothing), "store"),
        (lambda nothing: open_queue(nothing), "queue"),
        (lambda nothing: open_sink(nothing, TableSpec(name="t", pipeline="p", keys=("id",))), "sink"),
        (lambda nothing: EventProcessor(nothing, "memory://none"), "hub"),
        (lambda nothing: EventProcessor("log:///none.db", nothing), "stores"),
        (lambda nothing: EntityLeases(nothing, scope="orders"), "store"),
    ],
)
def test_a_url_that_is_none_is_refused_by_its_name(opened: Callable[[Any], object], field: str) -> None:
    """It was an AttributeError of whoever looked into it first."""
    with pytest.raises(ConfigError, match=r"os\.environ\.get gives None for a variable that is not set") as refused:
        opened(None)
    assert refused.value.field == field


def test_a_processor_takes_none_for_its_names(tmp_path: Path) -> None:
    """A group that was None had been the group 'None'."""
    hub, store = LogHub.create(tmp_path / "hub.db", partitions=1), MemoryStore()
    start: Any = None
    with EventProcessor(
        hub, store, consumer_group=None, name=None, pipeline=None, delivery=DeliverySettings(start=start)
    ) as processor:
        until(lambda: processor.partitions, "the partition")
        assert [one.partition for one in store.list_ownership(hub.consumer_group("$Default")).records] == ["0"]
    hub.close()
