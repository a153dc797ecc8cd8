"""The options of the source: names, defaults, and one error that names option, value and what is allowed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.model import EARLIEST, LATEST, Positions
from leasehold.settings.table import OPTIONS
from leasehold.spark.plan.options import (
    COLUMNS,
    SourceOptions,
    check_stores,
    check_tasks,
    parse_options,
    require_stores,
)

HUB = {"hub": "log:///x.db"}


def test_the_defaults() -> None:
    options = parse_options(HUB)
    assert options == SourceOptions(hub="log:///x.db")
    assert options.consumer_group == "$Default"
    assert (options.starting_position, options.ending_position) == (Positions(EARLIEST), Positions(LATEST))
    assert options.fail_on_data_loss
    assert options.max_events_per_trigger is None
    assert options.columns == COLUMNS == (*EVENT_COLUMNS, "ownerLevel")
    assert options.settings == OwnershipSettings()


def test_every_option() -> None:
    options = parse_options(
        {
            "hub": "log:///x.db",
            "consumerGroup": "group",
            "ownershipStore": "memory://o",
            "checkpointStore": "memory://c",
            "ownerId": " me ",
            "startingPosition": '{"0": 17, "*": "latest"}',
            "endingPosition": "2026-01-31T08:00:00Z",
            "maxEventsPerTrigger": "1000",
            "minEventsPerTrigger": "10",
            "maxTriggerDelay": "5s",
            "failOnDataLoss": "FALSE",
            "minPartitions": "4",
            "eventsPerTask": "100",
            "batchRows": "50",
            "columns": "sequencenumber, BODY",
            "strategy": "balanced",
            "loadBalancingInterval": "2s",
            "partitionExpiration": "10s",
            "foreignExpiration": "50s",
            "requestTimeout": "1s",  # by hand: only compared
            "margin": "500ms",
            "clockRateRatio": "1.5",
            "stallTimeout": "1m",
            "handOverTimeout": "20s",
            "settleDelay": "0s",
            "capacity": "2.5",
            "maximumPartitions": "3",
            "pipeline": "flights",
            "lastError": "it fell over",
        }
    )
    assert options == SourceOptions(
        hub="log:///x.db",
        consumer_group="group",
        ownership_store="memory://o",
        checkpoint_store="memory://c",
        owner_id="me",
        starting_position=Positions.parse('{"0": 17, "*": "latest"}'),
        ending_position=Positions.parse("2026-01-31T08:00:00Z"),
        max_events_per_trigger=1000,
        min_events_per_trigger=10,
        max_trigger_delay=5.0,
        fail_on_data_loss=False,
        min_partitions=4,
        events_per_task=100,
        batch_rows=50,
        columns=("sequenceNumber", "body"),
        pipeline="flights",
        last_error="it fell over",
        settings=OwnershipSettings(
            strategy="balanced",
            load_balancing_interval=2.0,
            partition_expiration=10.0,
            foreign_expiration=50.0,
            request_timeout=1.0,  # by hand: only compared
            margin=0.5,
            clock_rate_ratio=1.5,
            stall_timeout=60.0,
            hand_over_timeout=20.0,
            settle_delay=0.0,
            capacity=2.5,
            maximum_partitions=3,
        ),
    )
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 -- as Spark sends it to tasks


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase])
def test_names_are_case_insensitive(change: object) -> None:
    assert callable(change)
    options = parse_options({change("hub"): "log:///x.db", change("maxEventsPerTrigger"): "7"})
    assert options.max_events_per_trigger == 7


def test_the_hub_may_be_what_is_loaded() -> None:
    assert parse_options({"path": "log:///x.db"}).hub == "log:///x.db"


# Errors


def refused(**options: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        parse_options({**HUB, **options})
    message = str(error.value)
    assert error.value.field in message
    assert repr(error.value.value) in message
    assert error.value.rule in message
    assert error.value.remedy in message
    return error.value


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("maxEventPerTrigger", "Did you mean maxEventsPerTrigger?"),
        ("startingposition ", "Did you mean startingPosition?"),
        ("consumer_group", "Did you mean consumerGroup?"),
        ("quux", "Leave it out"),
    ],
)
def test_an_unknown_option(name: str, hint: str) -> None:
    error = refused(**{name: "5"})
    assert (error.field, error.value, error.remedy) == (name, "5", hint)
    assert all(option in error.rule for option in OPTIONS)


@pytest.mark.parametrize(
    "name", ["maxEventsPerTrigger", "minEventsPerTrigger", "minPartitions", "eventsPerTask", "batchRows"]
)
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1e3", "", "many", "1_000", "\u0661", "²"])
def test_counts(name: str, value: str) -> None:
    error = refused(**{name: value})
    assert (error.field, error.value, error.rule) == (name, value, "a whole number above zero")


@pytest.mark.parametrize("value", ["yes", "1", "", "truee"])
def test_flags(value: str) -> None:
    error = refused(failOnDataLoss=value)
    assert (error.field, error.value, error.rule) == ("failOnDataLoss", value, "true or false")


@pytest.mark.parametrize(
    "name",
    [
        *("maxTriggerDelay", "loadBalancingInterval", "partitionExpiration", "requestTimeout", "margin"),
        *("stallTimeout", "handOverTimeout", "settleDelay"),
    ],
)
@pytest.mark.parametrize("value", ["10", "-1s", "soon", ""])
def test_durations(name: str, value: str) -> None:
    error = refused(**{name: value})
    assert (error.field, error.value) == (name, value)
    assert "ms, s, m, h or d" in error.rule


@pytest.mark.parametrize(("value", "rule"), [("x", "a number"), ("0.5", "at least 1"), ("nan", "at least 1")])
def test_ratios(value: str, rule: str) -> None:
    error = refused(clockRateRatio=value)
    assert (error.field, error.rule) == ("clockRateRatio", rule)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("capacity", "much", "a number"),
        ("capacity", "0", "a number above zero"),
        ("capacity", "inf", "a number above zero"),
        ("maximumPartitions", "0", "a whole number above zero"),
        ("maximumPartitions", "1.5", "a whole number above zero"),
    ],
)
def test_what_an_instance_declares(name: str, value: str, rule: str) -> None:
    error = refused(**{name: value})
    assert (error.field, error.rule) == (name, rule)


def test_partitions_that_are_not_named_are_read_from_their_beginning_to_their_end() -> None:
    options = parse_options({"hub": "log:///x.db", "startingPosition": '{"0": 7}', "endingPosition": '{"0": 9}'})
    assert (options.starting_position.of("1"), options.ending_position.of("1")) == (EARLIEST, LATEST)
    some = parse_options({"hub": "log:///x.db", "endingPosition": '{"0": 9, "*": "earliest"}'})
    assert some.ending_position.of("1") == EARLIEST


@pytest.mark.parametrize("name", ["startingPosition", "endingPosition"])
@pytest.mark.parametrize("value", ["first", "2026-01-31", '{"0": "first"}', "{"])
def test_positions(name: str, value: str) -> None:
    assert refused(**{name: value}).field.startswith(name)


@pytest.mark.parametrize("value", ["", "body,", "body,body", "body,BODY", "nosuch", "body;partition", "*"])
def test_columns(value: str) -> None:
    error = refused(columns=value)
    assert (error.field, error.value) == ("columns", value)
    assert all(column in error.rule for column in COLUMNS)


@pytest.mark.parametrize("name", ["hub", "consumerGroup", "store", "ownershipStore", "checkpointStore", "strategy"])
@pytest.mark.parametrize("value", ["", "  "])
def test_texts(name: str, value: str) -> None:
    assert refused(**{name: value}).field == name


@pytest.mark.parametrize("value", ["", "a b", "a/b", "x" * 101])
def test_owner_ids(value: str) -> None:
    error = refused(ownerId=value)
    assert (error.field, error.value) == ("ownerId", value)
    assert "letters, digits" in error.rule


def test_a_strategy_that_there_is_not() -> None:
    error = refused(strategy="random")
    assert (error.field, error.value, error.rule) == ("strategy", "random", "one of planned, greedy, balanced")


def test_an_impossible_set_of_durations_names_the_option_as_users_write_it() -> None:
    assert refused(partitionExpiration="5s").field == "partitionExpiration"
    assert refused(loadBalancingInterval="20s").field == "partitionExpiration"
    assert refused(stallTimeout="5s").field == "stallTimeout"
    assert refused(requestTimeout="0s").field == "requestTimeout"


def test_a_minimum_above_the_maximum() -> None:
    """It would never be reached: every trigger would wait for the whole delay."""
    error = refused(minEventsPerTrigger="11", maxEventsPerTrigger="10")
    assert (error.field, error.value, error.rule) == (
        "minEventsPerTrigger",
        11,
        "no more than maxEventsPerTrigger (10)",
    )
    assert parse_options({**HUB, "minEventsPerTrigger": "10", "maxEventsPerTrigger": "10"}).min_events_per_trigger == 10


@pytest.mark.parametrize("order", [("hub", "path"), ("path", "hub"), ("PATH", "Hub")])
@pytest.mark.parametrize("second", ["log:///x.db", "log:///y.db"])
def test_the_hub_is_named_once(order: tuple[str, str], second: str) -> None:
    """Also where both name the same one."""
    with pytest.raises(ConfigError, match=r"the hub is named twice, by hub and by a path\. Keep one") as error:
        parse_options({order[0]: "log:///x.db", order[1]: second})
    assert (error.value.field, error.value.value) == (order[1], second)


def test_no_hub() -> None:
    with pytest.raises(ConfigError, match=r"^hub: is missing\. Name the hub, for example"):
        parse_options({})


# Stores


def test_one_store_for_both() -> None:
    assert require_stores(parse_options({**HUB, "store": "memory://s"})) == ("memory://s", "memory://s")


@pytest.mark.parametrize("named", ["ownershipStore", "checkpointStore"])
def test_one_store_and_an_exception(named: str) -> None:
    stores = require_stores(parse_options({**HUB, "store": "memory://s", named: "memory://x"}))
    assert sorted(map(str, stores)) == ["memory://s", "memory://x"]
    assert (stores[0] == "memory://x") == (named == "ownershipStore")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "ownershipStore"),
        ({"checkpointStore": "x"}, "ownershipStore"),
        ({"ownershipStore": "x"}, "checkpointStore"),
    ],
)
def test_a_missing_store(given: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError, match=r"a stream shares partitions through a store") as error:
        require_stores(parse_options({**HUB, **given}))
    assert error.value.field == missing


# What goes together


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"store": "memory://s"},
            r"ownershipStore = 'memory://s': .*one process.*Name one of sqlite://, postgresql://",
        ),
        ({"store": "sqlite:///s.db", "checkpointStore": "memory://s"}, r"checkpointStore = 'memory://s'.*one process"),
        (
            {"ownershipStore": "redis://r.example/0", "checkpointStore": "sqlite:///s.db"},
            r"checkpointStore = 'sqlite:///s.db': .*Name one of postgresql://, redis://",
        ),
        (
            {"hub": "eventhubs://ns/hub?fleet=mixed", "store": "redis://r.example/0"},
            r"ownershipStore = 'redis://r.example/0': .*fleet=mixed.*Name one of azblob://, aztable://",
        ),
        (
            {"hub": "eventhubs://ns/hub?fleet=mixed", "store": "azblob://account/fleet", "capacity": "2"},
            r"capacity = 2.0: .*equal shares",
        ),
    ],
)
def test_stores_that_do_not_go_together_are_refused_by_their_options(options: dict[str, str], said: str) -> None:
    parsed = parse_options({**HUB, **options})
    with pytest.raises(ConfigError, match=said):
        check_stores(parsed)


@pytest.mark.parametrize("options", [{}, {"store": "sqlite:///s.db"}, {"checkpointStore": "theirs://s"}])
def test_stores_that_go_together_and_none(options: dict[str, str]) -> None:
    check_stores(parse_options({**HUB, **options}))


class OneReceiver:
    """A hub of two partitions, each of which has one receiver for the group `levels`."""

    def one_reader_per_partition(self, group_name: str) -> bool:
        return group_name == "levels"

    def partition_ids(self) -> tuple[str, ...]:
        return "0", "1"


def test_more_tasks_than_receivers_are_refused() -> None:
    hub: Any = OneReceiver()
    check_tasks(parse_options({**HUB, "minPartitions": "2"}), hub, "levels")
    check_tasks(parse_options({**HUB, "minPartitions": "3"}), hub, "another")
    with pytest.raises(ConfigError, match=r"minPartitions = 3: .*one receiver at a time.*repartition"):
        check_tasks(parse_options({**HUB, "minPartitions": "3"}), hub, "levels")
