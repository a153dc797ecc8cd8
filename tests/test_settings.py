"""The table of settings: each row is taken wherever it says so, refused elsewhere, and carried by one field."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.listening import Address
from leasehold.pipeline_file import PipelineFile, read_pipeline_file
from leasehold.pipeline_sections import (
    MetricsSection,
    OutboxSection,
    OwnershipSection,
    SinkSection,
    SourceSection,
    TransformSection,
)
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
    Setting,
    SettingPlace,
)
from leasehold.spark.loop.micro_batches import MicroBatches
from leasehold.spark.loop.settings import LoopSettings, loop_settings
from leasehold.spark.plan.options import COLUMNS, READS, SourceOptions, parse_options
from tests.settings_page import COMMAND, PAGE, TABLES, page

HUB = {"hub": "log:///x.db"}
CARRIERS: dict[str, Any] = {
    "source": SourceSection,
    "ownership": OwnershipSection,
    "transform": TransformSection,
    "sink": SinkSection,
    "outbox": OutboxSection,
    "metrics": MetricsSection,
}
EXAMPLES = {
    "duration": "2s",  # by hand: only read
    "whole number": "7",
    "number": "1.5",
    "true or false": "true",
    "position": "latest",
}
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
    "format": "avro",
    "content_encoding": "zstd",
    "envelope": "cloudevents",
    "registry": "http://localhost:8081",
    "skipped_operations": "t",
    "decimal_handling_mode": "string",
    "on_error": "reject",
    "mode": "append",
    "schema_evolution": "add",
    "on_failure": "discard",
    "on_two_partitions": "reject",
    "late": "reject",
    "listen": "127.0.0.1:9465",
    "store": "sqlite:///s.db",
    "ownership_store": "sqlite:///s.db",
    "checkpoint_store": "sqlite:///s.db",
    "url": "sqlite:///t.db",
    "keep": "hub",
    "only_columns": "id,delay",
}
ALL = [pytest.param(row, id=f"{row.section}.{row.name}") for row in SETTINGS]
READ = [name for name, row in ARGUMENTS.items() if row.kind.name != "object" and name != "schema"]
"""Arguments that are settings: the others are handed on as they are."""


KEYS = [pytest.param(section, name, id=f"{section}.{name}") for section in SECTIONS for name in SECTIONS[section]]
WHOLE: dict[str, dict[str, Any]] = {
    "source": HUB,
    "ownership": {"store": "sqlite:///s.db"},
    "sink": {"url": "sqlite:///t.db", "table": "t", "keys": ["id"]},
}
HANDLED = {"handler": "m:f", "state": "id STRING"}
BESIDE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("handler", "state", "on_failure", "handler_timeout", "late", "exclusive", "related"), HANDLED),
    "outbox.hub": HANDLED,
    "spread": {**HANDLED, "sequence_by": "n"},
    "mode": {"keys": []},
}
"""What else `[sink]` states where it has a key, for the file to be taken."""


def example(row: Setting, place: SettingPlace = OPTION) -> str:
    if place is KEY and row.name == "on_error":
        return "stop"
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


@pytest.mark.more(but=56)
@pytest.mark.parametrize("row", ALL)
def test_a_setting_is_refused_where_it_does_not_belong(row: Setting) -> None:
    if OPTION not in row.places and row.name not in (one.name for one in OPTIONS.values()):
        with pytest.raises(ConfigError, match=f"^{option_name(row.name)} = .*: not an option; there are"):
            parse_options({**HUB, option_name(row.name): "x"})
    if ARGUMENT not in row.places and row.name not in ARGUMENTS:
        with pytest.raises(ConfigError, match=f"^{row.name} = .*: not an argument; there are"):
            loop_settings({**HUB, row.name: "x"})


def refusal(place: SettingPlace, name: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        parse_options({**HUB, name: "x"}) if place is OPTION else loop_settings({**HUB, name: "x"})
    return error.value


@pytest.mark.more(but=57)
@pytest.mark.parametrize(("place", "name"), [*((OPTION, one) for one in OPTIONS), *((ARGUMENT, one) for one in READ)])
def test_a_misspelt_name_is_refused_with_the_nearest(place: SettingPlace, name: str) -> None:
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


# The pipeline file


def pipeline(folder: Path, section: str, name: str, value: Any, over: dict[str, str] | None = None) -> PipelineFile:
    """The pipeline of a file that states this key, with all that it needs beside it."""
    document = {one: dict(keys) for one, keys in WHOLE.items()}
    document["sink"] |= BESIDE.get(f"{section}.{name}" if section == "outbox" else name, {})
    for both in ("deduplicate_by", "deduplicate_for"):
        if name.startswith("deduplicate"):
            document["source"][both] = "2s"
    if name in ("rescue", "timestamps", "content_encoding", "envelope"):
        document["transform"] = {"schema": "id STRING"}
    if name == "message":
        document["transform"] = {"schema": "id STRING", "format": "protobuf", "writer_schema": "message words { }"}
    if name in ("format", "writer_schema"):
        document["transform"] = {"schema": "id STRING", "format": "avro", "writer_schema": "words"}
        (folder / "words").write_text("{}")
    if name in ("skipped_operations", "decimal_handling_mode"):
        document["transform"] = {"schema": "id STRING", "format": "debezium"}
    if name == "registry":
        document["transform"] = {"schema": "id STRING", "format": "avro"}
    top = {"name": "flights"} | ({} if section else {name: value})
    if section and not over:
        document.setdefault(section, {})[name] = value
    lines = [f"{key} = {json.dumps(one)}" for key, one in top.items()]
    for header, keys in document.items():
        lines += [f"[{header}]", *(f"{key} = {json.dumps(one)}" for key, one in keys.items())]
    path = folder / "flights.toml"
    path.write_text("\n".join(lines))
    return read_pipeline_file(path, settings=over or {}, environment={})


def held(file: PipelineFile, section: str, name: str) -> Any:
    """What a file holds of a key."""
    place = getattr(file, section) if section else file
    rest = {"source": "loop", "ownership": "held"}.get(section, "")
    return getattr(place, name) if hasattr(place, name) else getattr(place, rest)[name]


@pytest.mark.parametrize(("section", "name"), KEYS)
def test_the_file_takes_each_of_its_keys_and_set_does(tmp_path: Path, section: str, name: str) -> None:
    row = SECTIONS[section][name]
    text = example(row, KEY)
    value = row.kind.set(text)
    expected = Address.parse(text) if name == "listen" else row.kind.key(value)
    assert held(pipeline(tmp_path, section, name, value), section, name) == expected != row.default_at(KEY)
    key = f"{section}.{name}" if section else name
    assert held(pipeline(tmp_path, section, name, value, over={key: text}), section, name) == expected


def test_a_file_that_states_little_has_the_defaults(tmp_path: Path) -> None:
    file = pipeline(tmp_path, "", "name", "flights")
    for section, carrier in CARRIERS.items():
        for name in of(carrier) - WHOLE.get(section, {}).keys() - {"loop", "held"}:
            assert held(file, section, name) == SECTIONS[section][name].default_at(KEY), name
    assert (file.source.loop, file.ownership.held) == ({}, {})
    assert loop_settings(file.loop_options()).on_error == "reject"


@pytest.mark.more(but=43)
@pytest.mark.parametrize("row", ALL)
def test_a_key_is_refused_in_another_section_with_its_own(tmp_path: Path, row: Setting) -> None:
    """Where no key of that section is near."""
    there = [section for section in SECTIONS if section and row.name in SECTIONS[section]]
    for section in SECTIONS.keys() - {"", *there}:
        with pytest.raises(ConfigError, match=f"{section}.{row.name}: is not a key of a pipeline file") as error:
            pipeline(tmp_path, section, row.name, "x")
        said = f"It belongs into [{there[0]}]" if there else "is not a key of a pipeline file"
        assert error.value.rule.endswith(nearest(row.name, SECTIONS[section]) or said)


@pytest.mark.parametrize(("section", "name"), KEYS)
def test_a_misspelt_key_is_refused_with_the_nearest(tmp_path: Path, section: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{section}\.?{name}x: is not a key of .*Did you mean {name}\?"):
        pipeline(tmp_path, section, f"{name}x", "x")


ODD = ["", " ", "-1", "nan", "1e999", "²", "[", "9" * 19, "9" * 5_000]
"""Texts that some settings take. All others refuse them as what is wrong with the setting."""


@pytest.mark.more(but=27)
@pytest.mark.parametrize(("section", "name"), KEYS)
def test_an_odd_text_behind_set_is_taken_or_refused_by_its_key(tmp_path: Path, section: str, name: str) -> None:
    for text in ODD:
        with suppress(ConfigError):
            key = f"{section}.{name}" if section else name
            pipeline(tmp_path, section, name, None, over={key: text}).ownership.settings()


@pytest.mark.parametrize("name", OPTIONS)
def test_an_odd_text_is_taken_or_refused_by_its_option(name: str) -> None:
    for text in ODD:
        with suppress(ConfigError):
            parse_options({**HUB, name: text})


def test_a_number_that_python_or_a_float_does_not_hold_is_refused_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ownership\.clock_rate_ratio: must be a number"):
        pipeline(tmp_path, "ownership", "clock_rate_ratio", 10**400)
    path = tmp_path / "long.toml"
    path.write_text(f"[source]\nmin_partitions = {'9' * 5_000}\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_pipeline_file(path)


# What carries them


def of(*carriers: Any) -> set[str]:
    return {one.name for carrier in carriers for one in fields(carrier)} - {"source", "settings"}


def test_each_row_has_a_field_and_each_field_a_row() -> None:
    """The store stands for two fields, and what only a program can give is an argument of the constructor."""
    assert {row.name for row in OPTIONS.values()} == of(SourceOptions, OwnershipSettings) | {"store"}
    of_queries = {row.name for row in SETTINGS if row.places == OPTION}
    constructor = {name for name in inspect.signature(MicroBatches).parameters if name != "options"}
    assert set(ARGUMENTS) == of(SourceOptions, OwnershipSettings, LoopSettings) - of_queries | constructor


def test_a_key_has_a_field_or_is_handed_on_to_a_field() -> None:
    for section, carrier in CARRIERS.items():
        passed_on = {"source": of(LoopSettings, SourceOptions), "ownership": of(OwnershipSettings)}.get(section, set())
        own = of(carrier) - {"loop", "held"}
        assert own <= set(SECTIONS[section]) <= own | passed_on, section
    assert (
        set(SECTIONS) - {""}
        == set(CARRIERS)
        == of(PipelineFile) - {"path", "name", "spark", "sinks", "at"} | {"source", "sink"}
    )


def defaults(place: SettingPlace, *carriers: Any) -> Iterator[tuple[SettingPlace, Setting, Field[Any]]]:
    known = {row.name: row for row in (OPTIONS if place is OPTION else ARGUMENTS).values()}
    for carrier in carriers:
        yield from ((place, known[one.name], one) for one in fields(carrier) if one.name in known)


@pytest.mark.parametrize(
    ("place", "row", "carrier"),
    [*defaults(OPTION, SourceOptions, OwnershipSettings), *defaults(ARGUMENT, LoopSettings)],
    ids=lambda one: getattr(one, "name", None),
)
def test_the_defaults_are_those_of_the_fields(place: SettingPlace, row: Setting, carrier: Field[Any]) -> None:
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


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in TABLES if f"<!-- table: {name} -->" not in text] == []
    assert page(text) == text, f"the page and the table differ: {COMMAND} writes the page anew"


@pytest.mark.parametrize("row", ALL)
def test_each_setting_says_what_it_means(row: Setting) -> None:
    assert len(row.meaning) > 10
    assert "|" not in row.meaning
    assert not row.meaning.endswith(".")
    assert (KEY in row.places) or row.section == ""
