"""The table of settings: each row is taken wherever it says so, refused elsewhere, and carried by one field."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.settings.names import nearest, option_name
from leasehold.settings.table import (
    ARGUMENT,
    ARGUMENTS,
    KEY,
    OPTION,
    OPTIONS,
    REQUIRED,
    SECTIONS,
    SETTINGS,
    Place,
    Setting,
)
from leasehold.spark.loop.micro_batches import MicroBatches
from leasehold.spark.loop.settings import LoopSettings, loop_settings
from leasehold.spark.plan.options import COLUMNS, READS, SourceOptions, parse_options

HUB = {"hub": "log:///x.db"}
EXAMPLES = {"duration": "2s", "whole number": "7", "number": "1.5", "true or false": "true", "position": "latest"}
"""A text of each kind, and of the settings that take no text of their kind."""
OWN_EXAMPLES = {
    "hub": "log:///x.db",
    "partitions": "0,3",
    "columns": "sequenceNumber,body",
    "tables": "[]",
    "metrics_listen": "127.0.0.1:9465",
    "strategy": "greedy",
    "fail_on_data_loss": "false",
    "partition_expiration": "60s",
    "margin": "500ms",
    "clock_rate_ratio": "1.1",
    "stall_timeout": "20m",
    "timestamps": "truncate",
    "on_error": "reject",
}
ALL = [pytest.param(row, id=f"{row.section}.{row.name}") for row in SETTINGS]
READ = [name for name, row in ARGUMENTS.items() if row.kind.name != "object" and name != "schema"]
"""Arguments that are settings: the others are handed on as they are."""


def example(row: Setting) -> str:
    return OWN_EXAMPLES.get(row.name) or EXAMPLES.get(row.kind.name) or "words"


def carried(options: SourceOptions, name: str) -> Any:
    """What options hold of a setting."""
    if name == "store":
        return options.ownership_store if options.ownership_store == options.checkpoint_store else None
    return getattr(options if hasattr(options, name) else options.settings, name)


# Places


@pytest.mark.parametrize("name", OPTIONS)
def test_the_source_takes_each_of_its_options(name: str) -> None:
    row = OPTIONS[name]
    options = parse_options({**HUB, name: example(row)})
    assert carried(options, row.name) == row.read(example(row), name, READS) != row.default_at(OPTION)


@pytest.mark.parametrize("name", READ)
def test_the_loop_takes_each_of_its_arguments(name: str) -> None:
    row = ARGUMENTS[name]
    settings = loop_settings({**HUB, name: example(row)})
    found = getattr(settings, name) if hasattr(settings, name) else carried(settings.source, name)
    assert found == row.read(example(row), name, READS) != row.default_at(ARGUMENT)


@pytest.mark.parametrize("row", ALL)
def test_a_setting_is_refused_where_it_does_not_belong(row: Setting) -> None:
    if OPTION not in row.places and row.name not in (one.name for one in OPTIONS.values()):
        with pytest.raises(ConfigError, match=f"^{option_name(row.name)} = .*: not an option; there are"):
            parse_options({**HUB, option_name(row.name): "x"})
    if ARGUMENT not in row.places and row.name not in ARGUMENTS:
        with pytest.raises(ConfigError, match=f"^{row.name} = .*: not an argument; there are"):
            loop_settings({**HUB, row.name: "x"})


def refusal(place: Place, name: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        parse_options({**HUB, name: "x"}) if place is OPTION else loop_settings({**HUB, name: "x"})
    return error.value


@pytest.mark.parametrize(("place", "name"), [*((OPTION, one) for one in OPTIONS), *((ARGUMENT, one) for one in READ)])
def test_a_misspelt_name_is_refused_with_the_nearest(place: Place, name: str) -> None:
    error = refusal(place, f"{name}x")
    assert (error.field, error.remedy) == (f"{name}x", f"Did you mean {name}?")


def test_a_name_of_nothing_is_refused_without_a_nearest() -> None:
    assert refusal(OPTION, "quux").remedy == refusal(ARGUMENT, "quux").remedy == "Leave it out"
    assert nearest("quux", ["hub"]) == ""


def test_the_nearest_name_is_told_in_its_own_spelling() -> None:
    assert nearest("CONSUMER_GROUP", ["consumerGroup", "capacity"]) == "Did you mean consumerGroup?"
    assert nearest("kafk", ["kafka", "log"], behind="://") == "Did you mean kafka://?"


@pytest.mark.parametrize("row", ALL)
def test_a_name_is_there_once_in_each_place(row: Setting) -> None:
    for place in row.places:
        known = {OPTION: OPTIONS.get(option_name(row.name)), ARGUMENT: ARGUMENTS.get(row.name)}
        assert known.get(place, SECTIONS[row.section].get(row.name)) is row


# What carries them


def of(*carriers: Any) -> set[str]:
    return {one.name for carrier in carriers for one in fields(carrier)} - {"source", "settings"}


def test_each_row_has_a_field_and_each_field_a_row() -> None:
    """The store stands for two fields, and what only a program can give is an argument of the constructor."""
    assert {row.name for row in OPTIONS.values()} == of(SourceOptions, OwnershipSettings) | {"store"}
    of_queries = {row.name for row in SETTINGS if row.places == OPTION}
    constructor = {name for name in inspect.signature(MicroBatches).parameters if name != "options"}
    assert set(ARGUMENTS) == of(SourceOptions, OwnershipSettings, LoopSettings) - of_queries | constructor


def defaults(place: Place, *carriers: Any) -> Iterator[tuple[Place, Setting, Field[Any]]]:
    known = {row.name: row for row in (OPTIONS if place is OPTION else ARGUMENTS).values()}
    for carrier in carriers:
        yield from ((place, known[one.name], one) for one in fields(carrier) if one.name in known)


@pytest.mark.parametrize(
    ("place", "row", "carrier"),
    [*defaults(OPTION, SourceOptions, OwnershipSettings), *defaults(ARGUMENT, LoopSettings)],
    ids=lambda one: getattr(one, "name", None),
)
def test_the_defaults_are_those_of_the_fields(place: Place, row: Setting, carrier: Field[Any]) -> None:
    made = carrier.default_factory() if carrier.default_factory is not MISSING else carrier.default
    stated = row.default_at(place)
    if row.name == "columns":
        assert (stated, made, row.shown) == (None, COLUMNS, "all"), "the columns are not known to the table"
    elif row.name == "tables":
        assert (stated, made) == (None, ())
    elif row.kind.name == "position":
        assert row.read(stated, row.name) == made
    else:
        assert (MISSING if stated is REQUIRED else stated) == made


def test_a_loop_has_the_defaults_of_arguments() -> None:
    settings = loop_settings(HUB)
    assert settings == LoopSettings(source=settings.source)
    for name in READ:
        row = ARGUMENTS[name]
        if row.default is REQUIRED or row.name in ("columns", "starting_position") or hasattr(settings, name):
            continue
        assert carried(settings.source, name) == row.default_at(ARGUMENT), name


@pytest.mark.parametrize("row", ALL)
def test_each_setting_says_what_it_means(row: Setting) -> None:
    assert len(row.meaning) > 10
    assert "|" not in row.meaning
    assert not row.meaning.endswith(".")
    assert (KEY in row.places) or row.section == ""
