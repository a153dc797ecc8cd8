"""NaN, which is neither above nor below any number, and infinity are refused wherever a number is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.balancing.quotas import Member
from leasehold.cli.app import app
from leasehold.config import OwnershipSettings, check_number, is_number, parse_duration
from leasehold.errors import ConfigError, UsageError
from leasehold.handlers.contract import Retry
from leasehold.handlers.parking.policy import Retries
from leasehold.hubs.log.hub import LogHub
from leasehold.leases.taking import check_wait
from leasehold.leases.times import lease_times
from leasehold.processors.events import CheckpointPolicy, DeliverySettings
from leasehold.processors.queues.settings import QueueDelivery
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.rules.table_spec import check_deduplication
from leasehold.stores import open_lease_store, open_store
from leasehold_testkit.emulators.amqp.limits import Limits
from leasehold_testkit.emulators.event_hubs import MemoryHub
from leasehold_testkit.emulators.service_bus.settings import QueueSettings, TopicSettings

SETTINGS: dict[str, Callable[..., object]] = {
    "frame_size": lambda n: Limits(frame_size=n),
    "links": lambda n: Limits(links=n),
    "idle_timeout": lambda n: Limits(idle_timeout=n),
    "lock_duration": lambda n: QueueSettings(lock_duration=n),
    "max_delivery_count": lambda n: QueueSettings(max_delivery_count=n),
    "time_to_live": lambda n: QueueSettings(time_to_live=n),
    "duplicate_window": lambda n: QueueSettings(duplicate_window=n),
    "duplicate_window of a topic": lambda n: TopicSettings(duplicate_window=n),
    "partitions": lambda n: MemoryHub(n),
    "maximum": lambda n: Member(maximum=n),
    "maximum_partitions": lambda n: OwnershipSettings(maximum_partitions=n),
    "capacity": lambda n: OwnershipSettings(capacity=n),
    "max_batch": lambda n: DeliverySettings(max_batch=n),
    "attempts": lambda n: DeliverySettings(attempts=n),
    "events": lambda n: CheckpointPolicy(events=n),
    "deliveries": lambda n: Retries(deliveries=n),
    "most": lambda n: QueueDelivery(most=n),
    "remember of queues": lambda n: QueueDelivery(remember=n),
    "memory_retention": lambda n: Retention(memories=n),
    "deduplicate_for": lambda n: check_deduplication("id", n),
    "duration": lease_times,
    "timeout of a store": lambda n: open_store("memory://numbers", timeout=n),
    "timeout of leases": lambda n: open_lease_store("memory://numbers", timeout=n),
    "timeout of a sink": lambda n: open_sink(
        "sqlite:///numbers.db", TableSpec(name="t", keys=("id",), pipeline="p"), timeout=n
    ),
}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_refuses_what_is_no_number(setting: str, number: float) -> None:
    with pytest.raises(ConfigError, match=setting.partition(" ")[0]):
        SETTINGS[setting](number)


@pytest.mark.parametrize("number", [math.nan, math.inf, -1])
def test_so_does_a_log(tmp_path: Path, number: float) -> None:
    log = LogHub.create(tmp_path / "log.db", partitions=1)
    calls: list[Callable[[], object]] = [
        lambda: log.read("0", 0, 0, batch_rows=number),  # type: ignore[arg-type]
        lambda: log.retain(max_age=number),
        lambda: log.retain(max_bytes=number),  # type: ignore[arg-type]
        lambda: log.send_once("source", [], remember=number),
    ]
    for call in calls:
        with pytest.raises(ConfigError):
            call()
    log.close()


def test_so_does_a_pause_and_a_wait_of_no_number() -> None:
    with pytest.raises(UsageError, match="number of seconds"):
        Retry(after=math.nan)
    with pytest.raises(ConfigError, match="wait"):
        check_wait(math.nan)
    check_wait(math.inf)


def test_a_duration_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match="finite"):
        parse_duration("9" * 400 + "s", "duration")


def test_a_whole_number_of_any_size_is_one() -> None:
    assert is_number(10**400, above=0)
    check_number("size", 10**400, least=1)
    with pytest.raises(ConfigError, match=r"size = 0: at least 1"):
        check_number("size", 0, least=1)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["check", "no.toml"], "--timeout"),
        (["check", "no.toml"], "--spark-timeout"),
        (["init", "log:///no.db"], "--timeout"),
        (["serve", "servicebus:///no.db"], "--lock-duration"),
        (["serve", "servicebus:///no.db"], "--duplicate-window"),
        (["bridge", "servicebus://n/q", "log:///no.db"], "--remember-days"),
    ],
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_so_does_an_option(words: list[str], option: str, number: str) -> None:
    said = CliRunner().invoke(app, [*words, option, number])
    assert said.exit_code == 2
    assert "finite number" in said.stderr
    assert option in said.stderr


def test_a_command_may_wait_for_ever_but_not_for_no_number(tmp_path: Path) -> None:
    words = ["init", "log:///made.db", "--wait"]
    wait = ["status", str(tmp_path / "no.toml"), "--wait"]
    said = CliRunner().invoke(app, [*wait, "nan"])
    assert (said.exit_code, "finite number" in said.stderr) == (2, True), words
    assert "finite number" not in CliRunner().invoke(app, [*wait, "inf"]).stderr
