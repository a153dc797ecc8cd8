"""The pipeline file: TOML in, checked values out.

Its keys are those of the table in `leasehold.settings`. Owns which of them go together. Refuses unknown and missing
keys, values of another type, and sets of settings that cannot keep their promise, each with the key as the file names
it. URLs of files with three slashes are relative to the pipeline file. Values from elsewhere, `${VARIABLE}` and
`--set`, are put in by `pipeline_values.py`. Needs neither Spark nor a database.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from leasehold import hubs, queues, sinks, stores
from leasehold.backends import absolute, check_scheme
from leasehold.body_format import DEBEZIUM, DELETED, UNAVAILABLE, BodyFormat, check_for_handlers, schema_text
from leasehold.config import parse_duration
from leasehold.errors import ConfigError
from leasehold.model import Positions
from leasehold.pipeline_sections import (
    KEPT_FOR,
    MetricsSection,
    OutboxSection,
    OwnershipSection,
    SinkSection,
    SourceSection,
    TransformSection,
    name_of,
    read_document,
)
from leasehold.pipeline_values import Substituted, put_over
from leasehold.settings.names import naming
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import TableSpec, check_deduplication, folded
from leasehold.store_choice import NONE, Stores, TablePlaces, check_alone, check_places, open_stores
from leasehold.stores import Store

_OF_TABLE = (
    *("mode", "keys", "keep", "only_columns", "except_columns", "unavailable_value", "sequence_by", "spread"),
    *("schema_evolution", "on_two_partitions"),
)
"""Keys of `[sink]` that are fields of its `TableSpec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A whole pipeline file. `path` is where it was read from, `at` what messages call the section of its table."""

    path: Path
    name: str
    source: SourceSection
    ownership: OwnershipSection
    transform: TransformSection
    sinks: tuple[SinkSection, ...]
    outbox: OutboxSection
    metrics: MetricsSection
    spark: Mapping[str, str] = field(repr=False)
    at: str = "sink"

    @property
    def sink(self) -> SinkSection:
        """The section of its table; of several, of the first."""
        return self.sinks[0]

    @property
    def tables(self) -> tuple[PipelineFile, ...]:
        """The file for each of its tables, as if that were the only one."""
        if len(self.sinks) == 1:
            return (self,)
        return tuple(replace(self, sinks=(one,), at=name_of(place)) for place, one in enumerate(self.sinks))

    def table(self, name: str | None) -> PipelineFile:
        """The file for its table of this name, as the file writes it; without a name, for the only one.

        Raises `ConfigError`, in the words of a command's option `--table`.
        """
        if name is None and len(self.sinks) == 1:
            return self
        for one in self.tables:
            if one.sink.table == name:
                return one
        names = ", ".join(one.table for one in self.sinks)
        raise ConfigError("--table", name, f"the tables of {self.path} are {names}", "Name one of them")

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
        return self._absolute(self.sink.url, f"{self.at}.url", sinks.BACKENDS, "leasehold.sinks")

    @property
    def outbox_url(self) -> str | None:
        """The hub to which the handler's events are sent, with an absolute path, if there is one."""
        stated = self.outbox.hub
        return stated and self._absolute(stated, "outbox.hub", {**hubs.BACKENDS, **queues.BACKENDS}, "leasehold.hubs")

    @property
    def body_format(self) -> BodyFormat:
        """How bodies are read; the file that `writer_schema` names is read now. Raises `ConfigError`."""
        read = self.transform
        with naming("transform."):
            return BodyFormat(
                format=read.format,
                writer_schema=read.writer_schema and schema_text(read.writer_schema, self.folder),
                registry=read.registry,
                message=read.message,
                envelope=read.envelope,
                content_encoding=read.content_encoding,
                rescue=read.rescue,
                skipped_operations=read.skipped_operations,
                decimal_handling_mode=read.decimal_handling_mode,
                timestamps=read.timestamps,
            )

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

    def open_tables(self, timeout: float = 10.0) -> Sink:
        """The sink of its table, or of all of them, which one transaction fills. Raises what `open_sink` raises."""
        opened = [sinks.open_sink(self.sink_url, one.table_spec(), timeout=timeout) for one in self.tables]
        if len(opened) == 1:
            return opened[0]
        from leasehold.sinks.table_set import TableSet

        with naming(f"{self.path}: sink."):
            return TableSet(opened)

    def table_spec(self) -> TableSpec:
        """The entity table and whose it is; of several, the first. Raises `ConfigError` that names the key."""
        with naming(f"{self.at}."):
            return TableSpec(
                name=self.sink.table,
                pipeline=self.name,
                consumer_group=self.source.consumer_group,
                handled=self.sink.handler is not None,
                **{name: getattr(self.sink, name) for name in _OF_TABLE},
            )

    def kept_for(self) -> Retention:
        """For how long what is beside the table is kept. Raises `ConfigError`."""
        with naming(f"{self.at}."):
            return Retention(*((it := getattr(self.sink, name)) and parse_duration(it, name) for name in KEPT_FOR))

    def session(self) -> tuple[str, dict[str, str], str]:
        """The arguments of `open_session` that this file stands for."""
        conf = dict(self.spark)
        master = conf.pop("master", "local[2]")
        return f"leasehold {self.name}", conf, master

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
    except ValueError as error:  # TOMLDecodeError is one, and so is a number of more digits than Python reads
        raise ConfigError(str(path), None, f"not valid TOML ({error})", "Correct the line it names") from error


def _checked(path: Path, document: dict[str, Any], over: Mapping[str, str]) -> PipelineFile:
    values, faults = read_document(document)
    if faults:
        raise ConfigError(
            str(path), None, "; ".join(f"{_flag(key, over)}{key}: {said}" for key, said in faults.items())
        )
    read = PipelineFile(path=path, **values)
    if read.transform.format == DEBEZIUM:
        read = replace(read, sinks=tuple(map(_of_changes, read.sinks)))
    with naming("ownership."):
        check_alone({"hub": read.source.hub, **read.ownership.stated()})
    with naming("source."):
        check_deduplication(read.source.deduplicate_by, read.deduplicate_for)
    if read.outbox_url is not None and read.sink.handler is None:
        raise ConfigError("outbox.hub", None, "events are sent that a handler emits", "Name a handler, or leave it out")
    if read.sink.handler is not None:
        with naming("transform."):
            check_for_handlers(read.body_format)
    for table in read.tables:
        _check_table(table)
    _check_together(read.tables)
    read.ownership.settings()
    Positions.parse(read.source.starting_position, "source.starting_position")
    _ = read.body_format, read.hub_url, read.ownership_url, read.checkpoint_url
    read.check_promises()
    return read


def _check_table(file: PipelineFile) -> None:
    """Refuse what one table cannot be, as far as the file tells."""
    sink = file.sink
    if sink.unavailable_value is not None and sink.rejected_retention is not None:
        rule = "the rejected events say which values of a row are in doubt, as long as they are there"
        raise ConfigError(f"{file.at}.rejected_retention", sink.rejected_retention, rule, "Leave it out")
    file.kept_for()
    _ = file.sink_url, file.table_spec()


def _check_together(tables: Sequence[PipelineFile]) -> None:
    """Refuse what several tables cannot be together. Raises `ConfigError`."""
    first = tables[0].sink
    named = list[str]()
    for table in tables if len(tables) > 1 else ():
        sink, at = table.sink, table.at
        if sink.handler is not None:
            rule = "a handler fills one table, and writes to others by what it returns"
            raise ConfigError(f"{at}.handler", sink.handler, rule, "Name the others as related, or use one [sink]")
        if folded(sink.table) in named:
            raise ConfigError(f"{at}.table", sink.table, "it is named before", "Name each table once")
        named.append(folded(sink.table))
        if sink.url != first.url:
            rule = "the tables of a pipeline are filled in one transaction, and have one database"
            raise ConfigError(f"{at}.url", None, rule, "Leave it out: it is that of the first table")
        schema, theirs = (TableName.parse(each.table).schema for each in (first, sink))
        if schema != theirs:
            rule = f"the tables of a pipeline are in one schema, and {first.table} is in {schema or 'the first one'}"
            raise ConfigError(f"{at}.table", sink.table, rule, "Name the tables in one way")


def _of_changes(sink: SinkSection) -> SinkSection:
    """The table of changes: what is deleted at the source is deleted here, and what is unchanged there stays."""
    if sink.mode != "upsert" or sink.handler is not None:
        return sink
    return replace(
        sink,
        delete_when=sink.delete_when or DELETED,
        except_columns=sink.except_columns or (() if sink.only_columns else (DELETED,)),
        unavailable_value=sink.unavailable_value or UNAVAILABLE,
    )


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
    return ConfigError(key, values.concealed(value), values.hidden(error.rule), values.hidden(error.remedy))


def _flag(key: str, over: Mapping[str, str]) -> str:
    """`--set`, where a key of the file was stated there."""
    return "--set " if any(f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in over) else ""
