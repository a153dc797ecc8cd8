"""The pipeline file: TOML in, checked values out.

Its keys are those of the table in `leasehold.settings`. Owns which of them go together. Refuses unknown and missing
keys, values of another type, and sets of settings that cannot keep their promise, each with the key as the file names
it. URLs of files with three slashes are relative to the pipeline file. Values from elsewhere, `${VARIABLE}` and
`--set`, are put in by `pipeline_values.py`. Needs neither Spark nor a database.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from leasehold import hubs, queues, sinks, stores
from leasehold.backends import absolute, check_scheme
from leasehold.config import OwnershipSettings, parse_duration
from leasehold.errors import ConfigError
from leasehold.listening import Address
from leasehold.model import Positions
from leasehold.pipeline_values import Substituted, put_over
from leasehold.settings.kinds import written
from leasehold.settings.names import naming, nearest
from leasehold.settings.table import KEY, REQUIRED, SECTIONS
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.rules.table import TableSpec, check_deduplication
from leasehold.store_choice import NONE, Stores, TablePlaces, check_alone, check_places, open_stores
from leasehold.stores import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection:
    """`[source]`: which hub, as which consumer group, from where. `loop` are the other keys that are stated."""

    hub: str = field(repr=False)
    consumer_group: str = "$Default"
    starting_position: str = "earliest"
    fail_on_data_loss: bool = True
    retention: str | None = None
    deduplicate_by: str | None = None
    deduplicate_for: str | None = None
    loop: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSection:
    """`[ownership]`: the stores. `held` are the other keys that are stated: how partitions are held."""

    store: str | None = field(default=None, repr=False)
    ownership_store: str | None = field(default=None, repr=False)
    checkpoint_store: str | None = field(default=None, repr=False)
    partitions: tuple[str, ...] | None = None
    held: Mapping[str, Any] = field(default_factory=dict)

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
    """`[transform]`: the schema of the JSON body, and what is done to each row."""

    schema: str | None = None
    rescue: str | None = None
    timestamps: str = "exact"
    sql: str | None = None
    python: str | None = None
    on_error: str = "reject"
    max_poison: int = 100

    def __post_init__(self) -> None:
        if self.sql is not None and self.python is not None:
            raise ValueError("sql and python are both given: keep one")
        if self.rescue is not None and self.schema is None:
            raise ValueError("rescue keeps the fields that the schema does not know: give a schema")
        if self.timestamps != "exact" and self.schema is None:
            raise ValueError("timestamps is about the times in bodies that a schema reads: give a schema")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSection:
    """`[sink]`: the entity table."""

    url: str = field(repr=False)
    table: str
    mode: str = "upsert"
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    delete_when: str | None = None
    keep: tuple[str, ...] = ()
    schema_evolution: str | None = None
    stage_from: int | None = None
    stage_connections: int | None = None
    rejected_retention: str | None = None
    memory_retention: str | None = None
    tombstone_retention: str | None = None
    handler: str | None = None
    state: str | None = None
    on_failure: str = "park"
    handler_timeout: str | None = None
    spread: bool = False
    late: str = "apply"
    exclusive: bool = False
    related: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.handler is None) != (self.state is None):
            raise ValueError("handler and state go together: a function, and the columns of the table that it fills")
        for one in fields(self):
            mine = _OF_HANDLERS.get(one.name)
            if mine is (self.handler is None) and getattr(self, one.name) != one.default:
                raise ValueError(f"{one.name} is for a table with{'' if mine else 'out'} a handler: leave it out")


_MINE = ("on_failure", "handler_timeout", "spread", "late", "exclusive", "related")
_KEPT_FOR = ("rejected_retention", "memory_retention", "tombstone_retention")
_OTHERS = ("mode", "delete_when", "keep", "stage_from", "stage_connections", *_KEPT_FOR)
_OF_HANDLERS = dict.fromkeys(_MINE, True) | dict.fromkeys(_OTHERS, False)
"""Keys of `[sink]` that are for tables with a handler, or only for those without one."""
_OF_TABLE = ("mode", "keys", "keep", "sequence_by", "spread", "schema_evolution")
"""Keys of `[sink]` that are fields of its `TableSpec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSection:
    """`[outbox]`: to which hub events are sent that the handler emits."""

    hub: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSection:
    """`[metrics]`: where an instance serves its own metrics and its health. Nowhere, if it does not say."""

    listen: Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A whole pipeline file. `path` is where it was read from."""

    path: Path
    name: str
    source: SourceSection
    ownership: OwnershipSection
    transform: TransformSection = TransformSection()
    sink: SinkSection
    outbox: OutboxSection = OutboxSection()
    metrics: MetricsSection = MetricsSection()
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

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
        ownership, checkpoints = self.ownership_url, self.checkpoint_url or NONE
        try:
            check_places(self.hub_url, ownership or checkpoints, checkpoints, self.ownership.settings())
        except ConfigError as error:
            key = error.field if error.field in self.ownership.stated() else "store"
            raise ConfigError(f"ownership.{key}", error.value, error.rule, error.remedy) from None

    def table_spec(self) -> TableSpec:
        """The entity table and whose it is. Raises `ConfigError` that names the key of the file."""
        with naming("sink."):
            return TableSpec(
                name=self.sink.table,
                pipeline=self.name,
                consumer_group=self.source.consumer_group,
                handled=self.sink.handler is not None,
                **{name: getattr(self.sink, name) for name in _OF_TABLE},
            )

    def kept_for(self) -> Retention:
        """For how long what is beside the table is kept. Raises `ConfigError`."""
        with naming("sink."):
            return Retention(*((it := getattr(self.sink, name)) and parse_duration(it, name) for name in _KEPT_FOR))

    def loop_options(self) -> dict[str, Any]:
        """The arguments of `MicroBatches` that this file stands for, without the owner id."""
        return {
            "hub": self.hub_url,
            "consumer_group": self.source.consumer_group,
            "starting_position": self.source.starting_position,
            "fail_on_data_loss": self.source.fail_on_data_loss,
            **self.source.loop,
            "partitions": self.ownership.partitions,
            **self.ownership.held,
            "ownership_store": self.ownership_url,
            "checkpoint_store": self.checkpoint_url or NONE,
            "pipeline": self.name,
            "on_error": self.transform.on_error,
            "max_poison": self.transform.max_poison,
        }


def read_pipeline_file(
    path: Path, *, settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> PipelineFile:
    """Read and check the pipeline file at `path`, with `settings` (texts by dotted keys) over its own values.

    `${VARIABLE}` in a value stands for what `environment` (default: this process's) has. Raises `ConfigError` that
    names the file or the setting, and the key, and shows nothing that a variable holds.
    """
    over = settings or {}
    stated = put_over(_parsed(path), over)
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
    read = _read(path, document, over)
    with naming("ownership."):
        check_alone({"hub": read.source.hub, **read.ownership.stated()})
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


# From a document to its sections


def _read(path: Path, document: Mapping[str, Any], over: Mapping[str, str]) -> PipelineFile:
    """The sections of a document. Raises `ConfigError` with all that is wrong in them."""
    faults: dict[str, str] = {}
    top = _values(
        {key: value for key, value in document.items() if key not in _CARRIERS and key != "spark"}, "", faults
    )
    sections = {name: _carried(name, document, faults) for name in _CARRIERS}
    spark = _spark(document.get("spark", {}), faults)
    if faults:
        raise ConfigError(
            str(path), None, "; ".join(f"{_flag(key, over)}{key}: {said}" for key, said in faults.items())
        )
    return PipelineFile(path=path, **top, **sections, spark=spark)


def _values(stated: Mapping[str, Any], section: str, faults: dict[str, str]) -> dict[str, Any]:
    """The values of a section as its keys' kinds take them; what is wrong goes to `faults`, by the whole key."""
    rows, values = SECTIONS[section], {}
    whole = f"{section}.{{}}".format if section else str
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


def _carried(section: str, document: Mapping[str, Any], faults: dict[str, str]) -> Any:
    """A section as its class; None where something is wrong, which goes to `faults`."""
    carrier = _CARRIERS[section]
    if section not in document and section in _OPTIONAL:
        return carrier()
    stated = document.get(section)
    if not isinstance(stated, dict):
        faults[section] = "is missing" if stated is None else _no_section(section, stated)
        return None
    before = len(faults)
    values = _values(stated, section, faults)
    if len(faults) > before:
        return None
    if section == "metrics" and "listen" in values:
        values["listen"] = Address.parse(values["listen"], "metrics.listen")
    names = {one.name for one in fields(carrier)}
    rest = {name: values.pop(name) for name in list(values) if name not in names}
    try:
        return carrier(**values, **({_REST[section]: rest} if section in _REST else {}))
    except ValueError as error:
        faults[section] = str(error)
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


def _flag(key: str, over: Mapping[str, str]) -> str:
    """`--set`, where a key of the file was stated there."""
    return "--set " if any(f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in over) else ""


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
