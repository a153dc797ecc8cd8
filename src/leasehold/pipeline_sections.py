"""The sections of a pipeline file: from a TOML document to values that are checked, each and together.

Owns what a section holds as fields, what it only hands on, and what is wrong with a document, told by its keys. The
keys, their kinds and their defaults are those of the table in `leasehold.settings`. What several sections have to agree
on is checked in `pipeline_file.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from leasehold.config import OwnershipSettings
from leasehold.listening import Address
from leasehold.settings.kinds import written
from leasehold.settings.names import naming, nearest
from leasehold.settings.table import KEY, REQUIRED, SECTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection:
    """`[source]`: which hub, as which consumer group, from where. `loop` are the other keys that are stated."""

    hub: str = field(repr=False)
    consumer_group: str
    starting_position: str
    fail_on_data_loss: bool
    retention: str | None
    deduplicate_by: str | None
    deduplicate_for: str | None
    loop: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSection:
    """`[ownership]`: the stores. `held` are the other keys that are stated: how partitions are held."""

    store: str | None = field(repr=False)
    ownership_store: str | None = field(repr=False)
    checkpoint_store: str | None = field(repr=False)
    partitions: tuple[str, ...] | None
    held: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.partitions is not None and self.store is None and self.checkpoint_store is None:
            raise ValueError("name a checkpoint_store: a fixed share of partitions goes on at its checkpoints")
        named = self.ownership_store is not None or self.partitions is not None
        if self.store is None and not (named and self.checkpoint_store is not None):
            raise ValueError("name a store for both, or an ownership_store and a checkpoint_store")

    def stated(self) -> dict[str, Any]:
        """What this section states, by its keys."""
        stores = {name: getattr(self, name) for name in ("store", "ownership_store", "checkpoint_store", "partitions")}
        return {name: value for name, value in stores.items() if value is not None} | dict(self.held)

    def settings(self) -> OwnershipSettings:
        """The settings that this section makes. Raises `ConfigError` for a set that cannot be."""
        with naming("ownership."):
            rows = SECTIONS["ownership"]
            return OwnershipSettings(**{name: rows[name].read(value, name) for name, value in self.held.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSection:
    """`[transform]`: how bodies are read, and what is done to each row."""

    schema: str | None
    format: str
    writer_schema: str | None
    registry: str | None = field(repr=False)
    message: str | None
    envelope: str | None
    content_encoding: str
    rescue: str | None
    skipped_operations: tuple[str, ...]
    decimal_handling_mode: str
    timestamps: str
    sql: str | None
    python: str | None
    on_error: str
    max_poison: int

    def __post_init__(self) -> None:
        if self.sql is not None and self.python is not None:
            raise ValueError("sql and python are both given: keep one")
        if self.rescue is not None and self.schema is None:
            raise ValueError("rescue keeps the fields that the schema does not know: give a schema")
        if self.format != "json" and self.schema is None:
            raise ValueError(f"format = {self.format!r} says how the columns of a schema are read: give a schema")
        if self.envelope is not None and self.schema is None:
            raise ValueError("envelope is about the bodies that a schema reads: give a schema")
        if self.content_encoding != "identity" and self.schema is None:
            raise ValueError("content_encoding is about the bodies that a schema reads: give a schema")
        if self.timestamps != "exact" and self.schema is None:
            raise ValueError("timestamps is about the times in bodies that a schema reads: give a schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSection:
    """`[sink]`: the entity table; or `[[sink]]`: one of several."""

    url: str = field(repr=False)
    table: str
    when: str | None
    only_columns: tuple[str, ...]
    mode: str
    keys: tuple[str, ...]
    sequence_by: str | None
    delete_when: str | None
    on_two_partitions: str
    keep: tuple[str, ...]
    except_columns: tuple[str, ...]
    unavailable_value: str | None
    schema_evolution: str | None
    rejected_retention: str | None
    memory_retention: str | None
    tombstone_retention: str | None
    handler: str | None
    state: str | None
    on_failure: str
    handler_timeout: str | None
    spread: bool
    late: str
    exclusive: bool
    related: tuple[str, ...]

    def __post_init__(self) -> None:
        if (self.handler is None) != (self.state is None):
            raise ValueError("handler and state go together: a function, and the columns of the table that it fills")
        for name, mine in _OF_HANDLERS.items():
            if mine == (self.handler is None) and getattr(self, name) != SECTIONS["sink"][name].default_at(KEY):
                raise ValueError(f"{name} is for a table with{'' if mine else 'out'} a handler: leave it out")


KEPT_FOR = ("rejected_retention", "memory_retention", "tombstone_retention")
"""Keys of `[sink]` that are how long something is kept, in the order of `Retention`."""
_MINE = ("on_failure", "handler_timeout", "spread", "late", "exclusive", "related")
_STORED = ("keep", "only_columns", "except_columns", "unavailable_value", *KEPT_FOR)
_OTHERS = ("when", "mode", "delete_when", "on_two_partitions", *_STORED)
_OF_HANDLERS = dict.fromkeys(_MINE, True) | dict.fromkeys(_OTHERS, False)
"""Keys of `[sink]` that are for tables with a handler, or only for those without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSection:
    """`[outbox]`: to which hub events are sent that the handler emits."""

    hub: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSection:
    """`[metrics]`: where an instance serves its own metrics and its health. Nowhere, if it does not say."""

    listen: Address | None


# From a document to its sections


def read_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of a `PipelineFile`, and what is wrong with the document, by its keys."""
    faults: dict[str, str] = {}
    top = _values({key: value for key, value in document.items() if key not in (*_CARRIERS, "spark")}, "", faults)
    sections = {name: _carried(name, document.get(name), faults) for name in _CARRIERS if name != "sink"}
    sections["sinks"] = _sinks(document.get("sink"), faults)
    return {**top, **sections, "spark": _spark(document.get("spark", {}), faults)}, faults


def _sinks(stated: Any, faults: dict[str, str]) -> tuple[SinkSection, ...]:
    """`[sink]`, or each `[[sink]]`: the URL is that of the first where one states none."""
    if not isinstance(stated, list) or not stated:
        return (_carried("sink", stated or None, faults),)
    shared = {"url": stated[0]["url"]} if stated and isinstance(stated[0], dict) and "url" in stated[0] else {}
    whole = [{**shared, **one} if isinstance(one, dict) else one for one in stated]
    return tuple(_carried("sink", one, faults, at=name_of(place)) for place, one in enumerate(whole))


def name_of(place: int) -> str:
    """What messages call the `[[sink]]` at this place: the first is `sink[1]`."""
    return f"sink[{place + 1}]"


def _values(stated: Mapping[str, Any], section: str, faults: dict[str, str], at: str = "") -> dict[str, Any]:
    """The values of a section as its keys' kinds take them; what is wrong goes to `faults`, by the whole key."""
    rows, values = SECTIONS[section], {}
    whole = f"{at or section}.{{}}".format if section else str
    for name, row in rows.items():
        if name in stated:
            try:
                values[name] = row.kind.key(stated[name])
            except ValueError as error:
                faults[whole(name)] = str(error)
        elif row.default_at(KEY) is REQUIRED:
            faults[whole(name)] = "is missing"
    for name in stated:
        if name not in rows:
            faults[whole(name)] = f"is not a key of a pipeline file{_meant(name, section)}"
    return values


def _carried(section: str, stated: Any, faults: dict[str, str], at: str = "") -> Any:
    """A section as its class; None where something is wrong, which goes to `faults`. `at` is what it is called."""
    if stated is None and section in _OPTIONAL:
        stated = {}
    if not isinstance(stated, dict):
        faults[at or section] = "is missing" if stated is None else _no_section(section, stated)
        return None
    before = len(faults)
    values = _values(stated, section, faults, at)
    if len(faults) > before:
        return None
    if section == "metrics" and "listen" in values:
        values["listen"] = Address.parse(values["listen"], "metrics.listen")
    carrier, rows = _CARRIERS[section], SECTIONS[section]
    own = [one.name for one in fields(carrier) if one.name in rows]
    rest = {name: value for name, value in values.items() if name not in own}
    try:
        return carrier(
            **{name: values.get(name, rows[name].default_at(KEY)) for name in own},
            **({_REST[section]: rest} if section in _REST else {}),
        )
    except ValueError as error:
        faults[at or section] = str(error)
        return None


def _spark(stated: Any, faults: dict[str, str]) -> dict[str, str]:
    """The section `[spark]`, whose names are Spark's."""
    if not isinstance(stated, dict):
        faults["spark"] = _no_section("spark", stated)
        return {}
    for name, value in stated.items():
        if isinstance(value, dict | list):
            faults[f"spark.{name}"] = (
                'must be text, a number, true or false; put a name with dots in quotes: "spark.ui.enabled" = true'
            )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in stated.items()}


def _no_section(section: str, value: Any) -> str:
    return f"must be a section, [{section}] with its keys below it, not {written(value)}"


def _meant(key: str, section: str) -> str:
    """What an unknown key was probably meant to be: a key of its section, or else the section where there is one."""
    if meant := nearest(key, SECTIONS[section] if section else [*SECTIONS[""], *_CARRIERS, "spark"]):
        return f". {meant}"
    elsewhere = [name for name in _CARRIERS if key in SECTIONS[name]]
    return f". It belongs into [{elsewhere[0]}]" if elsewhere else ""


_CARRIERS: Mapping[str, Any] = {
    "source": SourceSection,
    "ownership": OwnershipSection,
    "transform": TransformSection,
    "sink": SinkSection,
    "outbox": OutboxSection,
    "metrics": MetricsSection,
}
_OPTIONAL = ("transform", "outbox", "metrics")
_REST = {"source": "loop", "ownership": "held"}
"""Where a section keeps the keys that it only hands on."""
