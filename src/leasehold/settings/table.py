"""The one table of settings: name, kind, default, meaning, and where each may be written.

Options of the source, arguments of `MicroBatches`, keys of the pipeline file, `--set`, what errors list and the page
docs/reference/settings.md are read from it. A setting is a row here and a field of the dataclass that carries it: no
place has a list of its own. What a field of `OwnershipSettings` means, and its default, are read from that class.

Meanings are Markdown, with links as docs/reference/settings.md needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Flag, auto
from functools import partial
from typing import Any

from leasehold.config import OwnershipSettings
from leasehold.errors import ConfigError
from leasehold.settings.kinds import (
    BYTES,
    COUNT,
    DURATION,
    END_POSITION,
    FLAG,
    LIMIT,
    NUMBER,
    OBJECT,
    OWNER_NAME,
    PARTITIONS,
    PIPELINE_NAME,
    POSITION,
    TEXT,
    WORDS,
    Kind,
    Read,
    choice,
)
from leasehold.settings.names import nearest, option_name


class SettingPlace(Flag):
    """Where a setting may be written: as an option of the source, an argument of `MicroBatches`, a key of a file."""

    OPTION = auto()
    ARGUMENT = auto()
    KEY = auto()


OPTION, ARGUMENT, KEY = SettingPlace.OPTION, SettingPlace.ARGUMENT, SettingPlace.KEY
ANYWHERE = OPTION | ARGUMENT | KEY
REQUIRED = object()
"""The default of a setting that has none."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row. `section` is that of the pipeline file, `""` outside of one.

    `elsewhere` has the defaults of places whose default differs, and `shown` says the default where its value does not.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    places: SettingPlace
    section: str = ""
    elsewhere: Mapping[SettingPlace, Any] = field(default_factory=dict)
    shown: str = ""

    def default_at(self, place: SettingPlace) -> Any:
        """The default in one place."""
        return self.elsewhere.get(place, self.default)

    def read(self, value: Any, name: str, reads: Mapping[str, Read] | None = None) -> Any:
        """What the value of an option or an argument stands for; `reads` has texts that are read otherwise.

        Raises `ConfigError` that calls the setting `name`.
        """
        taken = value if isinstance(value, str) else self.kind.value(value, name)
        return (reads or {}).get(self.name, self.kind.text)(taken, name) if isinstance(taken, str) else taken


def said_of_fields(carrier: Any) -> dict[str, str]:
    """What a dataclass's docstring says of each field: a line that begins with its name, and those indented below it.

    Empty where docstrings are stripped (`python -OO`).
    """
    names = "|".join(one.name for one in fields(carrier))
    lines = re.findall(rf"^    ({names}) +(\S.*(?:\n {{5,}}\S.*)*)", carrier.__doc__ or "", flags=re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in lines}


_OF_OWNERSHIP = said_of_fields(OwnershipSettings)
_DEFAULTS = {one.name: one.default for one in fields(OwnershipSettings)}


def _held(name: str, kind: Kind, more: str = "") -> Setting:
    """How partitions are held: a field of `OwnershipSettings`. `more` stands behind what that says of it."""
    meaning = _OF_OWNERSHIP.get(name, "") + more
    return Setting(name, kind, _DEFAULTS[name], meaning, ANYWHERE, "ownership")


_read = partial(Setting, places=ANYWHERE, section="source")
_stored = partial(Setting, places=ANYWHERE, section="ownership")
_program = partial(Setting, places=OPTION | ARGUMENT)
_argument = partial(Setting, places=ARGUMENT)
_option = partial(Setting, places=OPTION)
_loop = partial(Setting, places=ARGUMENT | KEY, section="source")
_file_source = partial(Setting, places=KEY, section="source")
_bodies = partial(Setting, places=ARGUMENT | KEY, section="transform")
_transform = partial(Setting, places=KEY, section="transform")
_sink = partial(Setting, places=KEY, section="sink")

SETTINGS = (
    Setting("name", PIPELINE_NAME, REQUIRED, "name of the pipeline: what `pipeline` is in a program", KEY),
    _argument("spark", OBJECT, REQUIRED, "the session that the batches run in, Spark Connect included"),
    _read("hub", TEXT, REQUIRED, "URL of the hub. A query may name it as the path of `load`"),
    _stored("store", TEXT, None, "URL of the store for ownership and checkpoints: see [stores](../stores.md). A batch read needs none", shown="required"),
    _stored("ownership_store", TEXT, None, "URL of the store for ownership alone", shown="`store`"),
    _stored("checkpoint_store", TEXT, None, "URL of the store for checkpoints alone. `none`: no progress is kept, and each acquisition, after a restart too, begins at the starting position: see [either store alone](../spark.md#either-store-alone)", shown="`store`"),
    _stored("partitions", PARTITIONS, None, "a fixed share in place of balancing and of an ownership store: ids of partitions, as a list or as text with commas (`0,3`). For a batch read, which partitions are read"),
    _read("consumer_group", TEXT, "$Default", "which independent reader this is; a program gives its table the same"),
    _program("owner_id", OWNER_NAME, None, "name of this instance, and of no other that runs; a new process of the name takes its partitions at once. Without a name a process that starts again is a new instance: what was not given up expires first", shown="host, process id and a random number"),
    _program("pipeline", TEXT, "", "what the events are for. A group belongs to one pipeline, from the first batch or claim on: another pipeline is refused by name, and so is a program that names none on a group that has one", shown="none"),
    # Where to start, how much at a time, and when
    _read("starting_position", POSITION, "earliest", "where a partition starts that has no checkpoint yet, and a batch read: `earliest`, `latest`, `committed`, a sequence number, an ISO 8601 timestamp, an offset as other SDKs record it (`offset 4294967296`), any of these three with `after` " 'before it, or JSON by partition: `{"0": 17, "*": "latest"}`, in a pipeline file a table; partitions that it does not name start at `earliest`. A program may give a ' "number, a `datetime` or an `EventPosition`"),
    _option("ending_position", END_POSITION, "latest", "where a batch read ends, exclusive, written like the start; partitions that JSON does not name are read to their end"),
    _read("max_events_per_trigger", COUNT, 100_000, "most events of a batch", elsewhere={OPTION: None}),
    _read("max_bytes_per_trigger", BYTES, 64 * 2**20, "about the most bytes of a batch, as Arrow holds them, by the weight of a few events at both ends of what is next. A query cannot try that on Event Hubs with one reader a partition: lower the number of events there", shown="67,108,864 (64 MiB)"),
    _read("min_events_per_trigger", COUNT, None, "wait until this many events are there. With `available_now` nothing is waited for"),
    _read("max_trigger_delay", DURATION, 60.0, "the longest wait for `min_events_per_trigger` after the last batch"),
    _loop("trigger_interval", DURATION, 0.0, "from the start of one batch to that of the next, at least; 0: as soon as there is something"),
    _argument("available_now", FLAG, False, "end when all that was in the hub at the start has been consumed, by any instance"),
    _loop("stop_timeout", DURATION, 20.0, "how long a stop waits for the batch at hand before its jobs are cancelled"),
    _read("fail_on_data_loss", FLAG, True, "fail when events were removed before they were read; else go on from what is left, and count"),
    _file_source("retention", DURATION, None, "how long the hub keeps events, for `leasehold status` where the hub cannot be asked", shown="what the hub says"),
    _file_source("deduplicate_by", TEXT, None, "an expression in SQL: what a producer repeats that sends an event twice. See [duplicates](../pipelines.md#duplicates-of-producers)"),
    _file_source("deduplicate_for", DURATION, None, "how far apart the two may be; required with `deduplicate_by`"),
    _program("columns", WORDS, None, "which columns of the source, and in which order: a list, or text with commas. Maps in particular are costly to carry", shown="all"),
    _read("min_partitions", COUNT, 1, "least number of tasks that read a batch; on Event Hubs no more than the hub has partitions"),
    _program("events_per_task", COUNT, 50_000, "events that make one more task worth while. A task costs some tenth of a second beside its work: on few cores 100,000 and more read faster. The loop spreads a batch over the cores as long as each task gets 10,000"),
    _program("batch_rows", COUNT, 10_000, "most rows of an Arrow batch in a task"),
    # Bodies, and what becomes of events
    _bodies("schema", TEXT, None, "the columns that bodies are read into, as Spark DDL, beside the source's"),
    _bodies("format", choice("json", "avro", "protobuf", "debezium"), "json", "of the bodies that `schema` reads: see [formats](formats.md). Avro takes `leasehold[avro]`, Protobuf `leasehold[protobuf]`. `debezium`: [changes of a table](formats.md#debezium), in JSON, or in Avro with `writer_schema` or `registry`"),
    _bodies("writer_schema", TEXT, None, "the schema that bodies in [Avro](formats.md#avro) or [Protobuf](formats.md#protobuf) are written by: its text, or the path of a file that has it, in a pipeline file from there"),
    _transform("registry", TEXT, None, "in place of `writer_schema`, URL of the [registry](formats.md#a-schema-registry) that has the schemas by whose numbers bodies begin, and takes `leasehold[registry]`; or `azschemas://NAMESPACE…`, [Azure's](formats.md#azure-schema-registry), whose schemas content types name: it takes `leasehold[azschemas]`, and is not for handlers"),
    _bodies("message", TEXT, None, "with `format = \"protobuf\"`, full name of the type of the bodies", shown="the schema's only one, or what a body names"),
    _bodies("envelope", choice("cloudevents"), None, "events are [CloudEvents](formats.md#cloudevents), in structured or binary mode as their headers say; `format` is that of their data, and columns called `ce_id`, `ce_time` … take their attributes. Not with a handler", shown="bodies are what `format` says"),
    _bodies("content_encoding", choice("identity", "gzip", "zstd"), "identity", "bodies that begin as gzip or Zstandard does are decompressed first; the others are read as they are"),
    _bodies("timestamps", choice("exact", "truncate"), "exact", "`truncate`: times in bodies that are finer than a microsecond are cut, not rejected"),
    _transform("rescue", TEXT, None, "name of a column for the fields that the schema does not know, as JSON"),
    _bodies("skipped_operations", WORDS, (), "with `debezium`: changes that are passed over, by their `op`: `t` (truncation) and `m` (message) are rejected otherwise", shown="none"),
    _bodies("decimal_handling_mode", choice("precise", "string"), "precise", "with `debezium` in JSON without schemas: that of the connector"),
    _transform("sql", TEXT, None, "the transform: a SELECT from the view `events`"),
    _transform("python", TEXT, None, "the transform in place of `sql`: `module:function`, from DataFrame to DataFrame, in a module beside the file"),
    _bodies("on_error", choice("reject", "stop"), "stop", "what is done about [events that cannot be computed](../when-something-fails.md#when-a-batch-fails): `reject` finds them by halving the batch and sets them aside with the error, `stop` ends the run or raises in the body", elsewhere={KEY: "reject"}),
    _bodies("max_poison", COUNT, 100, "with `reject`: more of them in a batch, or more than a hundredth of it (but three may), are an outage: nothing is rejected, and the batch comes again"),
    _argument("table", OBJECT, None, "the `EntityTable` or [`HandledOnSpark`](../handlers.md#in-a-program-on-spark) that the batches are applied to. The latter has to be given, since its parked events are tried between batches. Either is asked where a store has lost a checkpoint, and before events that retention has removed count as lost: it may hold them, after a kill between its commit and the checkpoint"),
    # How partitions are held
    _held("strategy", TEXT, ": see [how it works](../how-it-works.md#who-holds-a-partition)"),
    _held("load_balancing_interval", DURATION),
    _held("partition_expiration", DURATION),
    _held("foreign_expiration", DURATION, ". See [mixed fleets](../event-hubs.md#beside-the-official-processors)"),
    _held("request_timeout", DURATION),
    _held("margin", DURATION),
    _held("clock_rate_ratio", NUMBER),
    _held("stall_timeout", DURATION, "; the longest time that a batch may take"),
    _held("hand_over_timeout", DURATION, ": longer than a batch takes, and than the trigger interval"),
    _held("settle_delay", DURATION, "; 0 for one that is alone"),
    _held("capacity", NUMBER),
    _held("maximum_partitions", LIMIT),
    # The table of a pipeline file
    _sink("url", TEXT, REQUIRED, "URL of the database of the [table](../table.md)"),
    _sink("table", TEXT, REQUIRED, "name of the table; in Postgres its schema may stand before it: `\"sales.flights\"` ([where the tables are](../table.md#where-the-tables-are))"),
    _sink("when", TEXT, None, "a condition in SQL over the rows of the transform: only those for which it is true are this table's", shown="all rows are"),
    _sink("only_columns", WORDS, (), "which columns of its rows the table stores; `sequence_by` and `delete_when` may be about others", shown="all of them"),
    _sink("mode", choice("upsert", "append"), "upsert", "`upsert` keeps the last event of each key, `append` every event"),
    _sink("keys", WORDS, (), "the columns that name an entity: required, but with `append`", shown="none"),
    _sink("sequence_by", TEXT, None, "an expression in SQL that says which event of a key is the later one; where it names a column, rows that are there count by it", shown="the order of the partition"),
    _sink("delete_when", TEXT, None, "a condition in SQL: a row for which it is true deletes its entity"),
    _sink("on_two_partitions", choice("stop", "reject"), "stop", "what becomes of an event whose key was last written from another partition, where no `sequence_by` compares them: `stop` ends the run, `reject` sets it aside"),
    _sink("keep", WORDS, (), "which of `hub`, `partition`, `sequenceNumber` and `ownerLevel` are stored as well", shown="none"),
    _sink("except_columns", WORDS, (), "columns of rows that are not stored: those that only `delete_when` or `sequence_by` is about", shown="none; with `debezium`, `__deleted`"),
    _sink("unavailable_value", TEXT, None, "a text that stands in a column for the value that the row has: the event [leaves it as it is](formats.md#values-that-an-update-leaves-as-they-are)", shown="none; with `debezium`, `__debezium_unavailable_value`"),
    _sink("schema_evolution", choice("add"), None, "`add`: columns that the table has not are added to it", shown="they are refused"),
    _sink("rejected_retention", DURATION, None, "how long rejected rows are kept: see [what is kept](../pipelines.md#what-is-kept-beside-the-table)", shown="for ever"),
    _sink("memory_retention", DURATION, None, "how long it is kept which event wrote a key last", shown="for ever"),
    _sink("tombstone_retention", DURATION, None, "the same of deleted entities", shown="`memory_retention`"),
    _sink("handler", TEXT, None, "the [handler](../handlers.md#in-a-pipeline-file) that fills the table: `module:function`. The keys below are for it"),
    _sink("state", TEXT, None, "the columns that the handler fills, as Spark DDL; required with `handler`"),
    _sink("on_failure", choice("park", "discard", "wait"), "park", "what becomes of [an event whose handler raises](../handlers.md#when-a-handler-raises)"),
    _sink("handler_timeout", DURATION, None, "a call that takes longer is ended", shown="none"),
    _sink("spread", FLAG, False, "an entity's events may be in several partitions; it takes `sequence_by`"),
    _sink("late", choice("apply", "reject"), "apply", "with `spread`: what is done about an event that comes after a later one of its entity"),
    _sink("exclusive", FLAG, False, "with `spread`: calls hold a lease of their entity, in the store of `[ownership]`"),
    _sink("related", WORDS, (), "tables of which the handler may write rows, named as `table` is", shown="none"),
    # What an instance serves and sends
    Setting("hub", TEXT, None, "URL of the hub or queue that events go to which the handler emits", KEY, "outbox"),
    _program("metrics_listen", TEXT, None, "where it serves [metrics and health](../watching.md#of-an-instance), `HOST:PORT`. It takes `leasehold[metrics]`", shown="nowhere"),
    Setting("listen", TEXT, None, "where an instance serves [metrics and health](../watching.md#of-an-instance), `HOST:PORT`", KEY, "metrics", shown="nowhere"),
    _argument("trace_links", FLAG, False, "tasks read `properties` for the [producers' traces](../watching.md#opentelemetry), to which the span of a batch links"),
    _argument("notices", OBJECT, None, "where [notices](README.md#leaseholdnotices) go; `batches.notices` has them", shown="its own"),
    _argument("rng", OBJECT, None, "a `random.Random` for jitter, for tests", shown="a new one"),
    # What a table says to the query that fills it
    _option("tables", TEXT, None, "the tables that the query fills, as `EntityTable.stream_options` gives it"),
    _option("last_error", TEXT, "", "why the query was started again, to be kept with partitions that come to a bad end again and again. It goes with an `ownerId`, by which the next start knows its predecessor's", shown="none"),
)  # fmt: skip
"""Every setting. Its places show their rows in this order."""

OPTIONS: Mapping[str, Setting] = {option_name(row.name): row for row in SETTINGS if OPTION in row.places}
"""Options of the source, by their names in Spark's spelling."""
ARGUMENTS: Mapping[str, Setting] = {row.name: row for row in SETTINGS if ARGUMENT in row.places}
"""Arguments of `MicroBatches`."""
SECTIONS: Mapping[str, Mapping[str, Setting]] = {
    section: {row.name: row for row in SETTINGS if KEY in row.places and row.section == section}
    for section in ("", "source", "ownership", "transform", "sink", "outbox", "metrics")
}
"""Keys of a pipeline file by section; `[spark]` takes any, and has no rows."""


def find(name: str, settings: Mapping[str, Setting], what: str, value: object) -> Setting:
    """The setting of this name among `settings`, each of which is `what`. Raises `ConfigError` with the nearest."""
    if name in settings:
        return settings[name]
    rule = f"not {what}; there are {', '.join(sorted(settings))}"
    raise ConfigError(name, value, rule, nearest(name, settings) or "Leave it out")
