"""The pipeline file: TOML in, checked values out.

Owns the keys of the file and their defaults. Refuses unknown and missing keys, values of another type, and
sets of settings that cannot keep their promise, each with the key as the file names it. URLs of files with
three slashes are relative to the pipeline file. Values from elsewhere, `${VARIABLE}` and `--set`, are put in by
`pipeline_values.py`. Needs neither Spark nor a database.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from leasehold import hubs, queues, sinks, stores
from leasehold.backends import absolute, check_scheme
from leasehold.combinations import Combination, check, is_mixed, place_at, place_of
from leasehold.config import OwnershipSettings, parse_duration
from leasehold.errors import ConfigError
from leasehold.listening import Address
from leasehold.model import Positions
from leasehold.pipeline_values import Duration, Name, Option, Position, Substituted, meant, of_another_type, put_over
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.rules.table import TableSpec, check_deduplication
from leasehold.store_choice import NONE, Stores, TablePlaces, check_alone, open_stores
from leasehold.stores import Store
from leasehold.stores.stand_ins import NoCheckpoints

Listen = Annotated[Address, BeforeValidator(lambda value: Address.parse(str(value), "metrics.listen"))]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SourceSection(_Section):
    """`[source]`: which hub, as which consumer group, from where, and how much at a time."""

    hub: Name = Field(repr=False)
    consumer_group: Name = "$Default"
    starting_position: Position = "earliest"
    max_events_per_trigger: PositiveInt = 100_000
    min_events_per_trigger: PositiveInt | None = None
    max_trigger_delay: Duration | None = None
    fail_on_data_loss: bool = True
    min_partitions: PositiveInt | None = None
    trigger_interval: Duration | None = None
    max_bytes_per_trigger: PositiveInt | None = None
    stop_timeout: Duration | None = None
    retention: Duration | None = None
    deduplicate_by: Name | None = None
    deduplicate_for: Duration | None = None


class OwnershipSection(_Section):
    """`[ownership]`: the stores, and how partitions are held."""

    store: Name | None = Field(default=None, repr=False)
    ownership_store: Name | None = Field(default=None, repr=False)
    checkpoint_store: Name | None = Field(default=None, repr=False)
    partitions: tuple[Name, ...] | None = Field(default=None, strict=False)
    strategy: str | None = None
    load_balancing_interval: Duration | None = None
    partition_expiration: Duration | None = None
    foreign_expiration: Duration | None = None
    request_timeout: Duration | None = None
    margin: Duration | None = None
    clock_rate_ratio: float | None = None
    stall_timeout: Duration | None = None
    hand_over_timeout: Duration | None = None
    settle_delay: Duration | None = None
    capacity: float | None = None
    maximum_partitions: int | None = None

    @model_validator(mode="after")
    def _names_both_stores(self) -> OwnershipSection:
        if self.partitions is not None and self.store is None and self.checkpoint_store is None:
            raise ValueError("name a checkpoint_store: a fixed share of partitions goes on at its checkpoints")
        named = self.ownership_store is not None or self.partitions is not None
        if self.store is None and not (named and self.checkpoint_store is not None):
            raise ValueError("name a store for both, or an ownership_store and a checkpoint_store")
        return self

    def settings(self) -> OwnershipSettings:
        """The settings that this section makes. Raises `ConfigError` for a set that cannot be."""
        others = {"store", "ownership_store", "checkpoint_store", "partitions"}
        given = self.model_dump(exclude=others, exclude_none=True, exclude_unset=True)
        timed: dict[str, Any] = {
            name: parse_duration(value, name) if isinstance(value, str) and name != "strategy" else value
            for name, value in given.items()
        }
        with naming("ownership."):
            return OwnershipSettings(**timed)


class TransformSection(_Section):
    """`[transform]`: the schema of the JSON body, and what is done to each row."""

    schema_: Name | None = Field(default=None, alias="schema")
    rescue: Name | None = None
    timestamps: Literal["exact", "truncate"] = "exact"
    sql: Name | None = None
    python: Name | None = None
    on_error: Literal["reject", "stop"] = "reject"
    max_poison: PositiveInt = 100

    @model_validator(mode="after")
    def _one_transform(self) -> TransformSection:
        if self.sql is not None and self.python is not None:
            raise ValueError("sql and python are both given: keep one")
        if self.rescue is not None and self.schema_ is None:
            raise ValueError("rescue keeps the fields that the schema does not know: give a schema")
        if self.timestamps != "exact" and self.schema_ is None:
            raise ValueError("timestamps is about the times in bodies that a schema reads: give a schema")
        return self


class SinkSection(_Section):
    """`[sink]`: the entity table."""

    url: Name = Field(repr=False)
    table: Name
    mode: Literal["upsert", "append"] = "upsert"
    keys: tuple[Name, ...] = Field(default=(), strict=False)
    sequence_by: Name | None = None
    delete_when: Name | None = None
    keep: tuple[Name, ...] = Field(default=(), strict=False)
    schema_evolution: Literal["add"] | None = None
    stage_from: Annotated[int, Field(ge=0)] | None = None
    stage_connections: PositiveInt | None = None
    rejected_retention: Duration | None = None
    memory_retention: Duration | None = None
    tombstone_retention: Duration | None = None
    handler: Name | None = None
    state: Name | None = None
    on_failure: Literal["park", "discard", "wait"] = "park"
    handler_timeout: Duration | None = None
    spread: bool = False
    late: Literal["apply", "reject"] = "apply"
    exclusive: bool = False
    related: tuple[Name, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _of_one_kind(self) -> SinkSection:
        if (self.handler is None) != (self.state is None):
            raise ValueError("handler and state go together: a function, and the columns of the table that it fills")
        for name, mine in _OF_HANDLERS.items():
            if mine == (self.handler is None) and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for a table with{'' if mine else 'out'} a handler: leave it out")
        return self


_MINE = ("on_failure", "handler_timeout", "spread", "late", "exclusive", "related")
_KEPT_FOR = ("rejected_retention", "memory_retention", "tombstone_retention")
_OTHERS = ("mode", "delete_when", "keep", "stage_from", "stage_connections", *_KEPT_FOR)
_OF_HANDLERS = dict.fromkeys(_MINE, True) | dict.fromkeys(_OTHERS, False)
"""Keys of `[sink]` that are for tables with a handler, or only for those without one."""


class OutboxSection(_Section):
    """`[outbox]`: to which hub events are sent that the handler emits."""

    hub: Name | None = Field(default=None, repr=False)


class MetricsSection(_Section):
    """`[metrics]`: where an instance serves its own metrics and its health. Nowhere, if it does not say."""

    listen: Listen | None = None


class PipelineFile(_Section):
    """A whole pipeline file. `path` is where it was read from."""

    path: Path = Field(exclude=True)
    name: Annotated[str, Field(pattern=r"^\w[\w.-]{0,99}$")]
    source: SourceSection
    ownership: OwnershipSection
    transform: TransformSection = TransformSection()
    sink: SinkSection
    outbox: OutboxSection = OutboxSection()
    metrics: MetricsSection = MetricsSection()
    spark: dict[str, Option] = Field(default={}, repr=False)

    @property
    def folder(self) -> Path:
        """What relative paths in the file are relative to."""
        return self.path.parent.absolute()

    @property
    def hub_url(self) -> str:
        """The hub, with an absolute path."""
        return self._absolute(self.source.hub, "source.hub", hubs.BACKENDS, "leasehold.hubs")

    @property
    def retention(self) -> float | None:
        """For how long the hub keeps an event, in seconds, if the file says so."""
        stated = self.source.retention
        return None if stated is None else parse_duration(stated, "source.retention")

    @property
    def deduplicate_for(self) -> float | None:
        """For how long after an event the same identity is a duplicate, in seconds."""
        stated = self.source.deduplicate_for
        return None if stated is None else parse_duration(stated, "source.deduplicate_for")

    @property
    def ownership_url(self) -> str | None:
        """The ownership store, with an absolute path; None with a fixed share of partitions, which has none."""
        if self.ownership.partitions is not None:
            return None
        return self._store_url(self.ownership.ownership_store, "ownership.ownership_store")

    @property
    def checkpoint_url(self) -> str | None:
        """The checkpoint store, with an absolute path; None where none is wanted."""
        if self.ownership.checkpoint_store == NONE:
            return None
        return self._store_url(self.ownership.checkpoint_store, "ownership.checkpoint_store")

    @property
    def sink_url(self) -> str:
        """The database of the entity table, with an absolute path."""
        return self._absolute(self.sink.url, "sink.url", sinks.BACKENDS, "leasehold.sinks")

    @property
    def outbox_url(self) -> str | None:
        """The hub to which the handler's events are sent, with an absolute path, if there is one."""
        stated = self.outbox.hub
        return stated and self._absolute(stated, "outbox.hub", {**hubs.BACKENDS, **queues.BACKENDS}, "leasehold.hubs")

    def _store_url(self, own: str | None, key: str) -> str:
        url, key = (own, key) if own else (self.ownership.store or "", "ownership.store")
        return self._absolute(url, key, stores.BACKENDS, "leasehold.stores")

    def _absolute(self, url: str, key: str, builtin: Mapping[str, str], group: str) -> str:
        check_scheme(url, key, builtin, group)
        return absolute(url, self.folder, key)

    def open_stores(self, opener: Callable[..., Store], places: Callable[[], TablePlaces] | None = None) -> Stores:
        """The stores of the file. `opener` opens a URL with a `timeout`; `places` stand in for checkpoints."""
        return open_stores(
            self.ownership_url,
            self.checkpoint_url,
            self.ownership.partitions,
            partial(opener, timeout=self.ownership.settings().request_timeout),
            places=places() if places is not None and self.checkpoint_url is None else None,
        )

    def check_promises(self) -> None:
        """Refuse a hub, stores and settings that do not go together, as far as URLs tell. Raises `ConfigError`."""
        ownership, checkpoints = self.ownership_url, self.checkpoint_url
        try:
            check(
                Combination(
                    ownership=place_at(ownership or checkpoints or ""),
                    checkpoints=place_of(NoCheckpoints()) if checkpoints is None else place_at(checkpoints),
                    mixed=is_mixed(self.hub_url),
                    several_processes=True,
                    settings=self.ownership.settings(),
                )
            )
        except ConfigError as error:
            key = error.field if getattr(self.ownership, error.field) is not None else "store"
            raise ConfigError(f"ownership.{key}", error.value, error.rule, error.remedy) from None

    def table_spec(self) -> TableSpec:
        """The entity table and whose it is. Raises `ConfigError` that names the key of the file."""
        with naming("sink."):
            return TableSpec(
                name=self.sink.table,
                pipeline=self.name,
                consumer_group=self.source.consumer_group,
                handled=self.sink.handler is not None,
                **self.sink.model_dump(include={"mode", "keys", "keep", "sequence_by", "spread", "schema_evolution"}),
            )

    def kept_for(self) -> Retention:
        """For how long what is beside the table is kept. Raises `ConfigError`."""
        with naming("sink."):
            return Retention(*((it := getattr(self.sink, name)) and parse_duration(it, name) for name in _KEPT_FOR))

    def loop_options(self) -> dict[str, Any]:
        """The arguments of `MicroBatches` that this file stands for, without the owner id."""
        source, ownership = self.source, self.ownership
        return {
            "hub": self.hub_url,
            **source.model_dump(exclude={"hub", "retention", "deduplicate_by", "deduplicate_for"}, exclude_none=True),
            **ownership.model_dump(exclude={"store", "ownership_store", "checkpoint_store"}, exclude_none=True),
            "ownership_store": self.ownership_url,
            "checkpoint_store": self.checkpoint_url or NONE,
            "pipeline": self.name,
            "on_error": self.transform.on_error,
            "max_poison": self.transform.max_poison,
        }


@contextmanager
def naming(prefix: str) -> Iterator[None]:
    """Put `prefix` before the setting that a `ConfigError` of the block names: the file, or a section of it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error.field}", error.value, error.rule, error.remedy) from error


def read_pipeline_file(
    path: Path, *, settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> PipelineFile:
    """Read and check the pipeline file at `path`, with `settings` (texts by dotted keys) over its own values.

    `${VARIABLE}` in a value stands for what `environment` (default: this process's) has. Raises `ConfigError` that
    names the file or the setting, and the key, and shows nothing that a variable holds.
    """
    over = settings or {}
    stated = put_over(_parsed(path), over, _SECTIONS)
    values = Substituted(os.environ if environment is None else environment)
    try:
        return _checked(path, values.document(stated), over)
    except ConfigError as error:
        raise _placed(error, path, over, stated, values) from None  # what it came from may show a value


def _parsed(path: Path) -> dict[str, Any]:
    scheme, colon, _ = str(path).partition(":")
    if colon and scheme in {*hubs.BACKENDS, *stores.BACKENDS, *sinks.BACKENDS}:
        raise ConfigError("pipeline file", None, f"a path, and not a URL of {scheme}", "Name a file PIPELINE.toml")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Check the path, and that it is saved as UTF-8"
        raise ConfigError(str(path), None, f"cannot be read ({error})", remedy) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), None, f"not valid TOML ({error})", "Correct the line it names") from error


def _checked(path: Path, document: dict[str, Any], over: Mapping[str, str]) -> PipelineFile:
    try:
        read = PipelineFile.model_validate({**document, "path": path})
    except ValidationError as error:
        raise ConfigError(str(path), None, "; ".join(_told(fault, over) for fault in error.errors())) from None
    with naming("ownership."):
        check_alone({"hub": read.source.hub, **read.ownership.model_dump(exclude_none=True)})
    with naming("source."):
        check_deduplication(read.source.deduplicate_by, read.deduplicate_for)
    if read.outbox_url is not None and read.sink.handler is None:
        raise ConfigError("outbox.hub", None, "events are sent that a handler emits", "Name a handler, or leave it out")
    read.kept_for()
    read.ownership.settings()
    Positions.parse(read.source.starting_position, "source.starting_position")
    _ = read.hub_url, read.ownership_url, read.checkpoint_url, read.sink_url, read.table_spec()
    read.check_promises()
    return read


def _placed(
    error: ConfigError, path: Path, over: Mapping[str, str], stated: Mapping[str, Any], values: Substituted
) -> ConfigError:
    """The error with where its key was stated, and with variables in the place of what they hold."""
    key = error.field
    if key != str(path):
        key = f"--set {key}" if key in over else f"{path}: {key}"
    section, _, name = error.field.partition(".")
    here = stated.get(section)
    raw = here.get(name) if isinstance(here, dict) else here
    value = raw if isinstance(raw, str) and "${" in raw and error.value is not None else error.value
    shown = values.hidden(value) if isinstance(value, str) else value
    return ConfigError(key, shown, values.hidden(error.rule), values.hidden(error.remedy))


def _told(fault: Any, over: Mapping[str, str]) -> str:
    """One fault of the file in our own words."""
    key = ".".join(str(part) for part in fault["loc"])
    flag = "--set " if any(one == key or key.startswith(f"{one}.") or one.startswith(f"{key}.") for one in over) else ""
    said = {
        "missing": "is missing",
        "extra_forbidden": f"is not a key of a pipeline file{meant(fault['loc'], PipelineFile, _SECTIONS)}",
        "value_error": str(fault.get("ctx", {}).get("error", fault["msg"])),
        "string_pattern_mismatch": f"{fault['input']!r} is not of the form it must have, for example 10s"
        if key != "name"
        else f"{fault['input']!r} must be letters, digits, . _ or -, the first a letter or digit",
    }.get(fault["type"])
    return f"{flag}{key}: {said or of_another_type(key, fault, duration=key in _DURATIONS)}"


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "source": SourceSection,
    "ownership": OwnershipSection,
    "transform": TransformSection,
    "sink": SinkSection,
    "outbox": OutboxSection,
    "metrics": MetricsSection,
}
_DURATIONS = {
    f"{section}.{name}"
    for section, model in (("source", SourceSection), ("ownership", OwnershipSection), ("sink", SinkSection))
    for name, field in model.model_fields.items()
    if field.annotation == Duration | None
}
