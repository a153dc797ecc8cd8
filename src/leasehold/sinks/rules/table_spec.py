"""What an entity table is asked to be, and what became of a batch, as frozen values.

Owns the settings of a table and their rules, checked when they are made, the names of the columns that
carry the fence, and what became of a batch (`leasehold.counts` has the words). Nothing here does I/O. Rows are rows of
the batch: an event that was exploded into three rows counts three times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leasehold.config import check_number, default_where_none
from leasehold.counts import NONE, Counts
from leasehold.errors import ConfigError
from leasehold.sinks.rules.again import RetryResult
from leasehold.sinks.rules.messages import MessageOutcome
from leasehold.sinks.rules.table_name import TableName

HUB = "hub"
PARTITION = "partition"
SEQUENCE_NUMBER = "sequenceNumber"
OWNER_LEVEL = "ownerLevel"
FENCE_COLUMNS = (HUB, PARTITION, SEQUENCE_NUMBER, OWNER_LEVEL)
"""The columns that say which event a row comes from and under which ownership it was read."""

MODES = ("upsert", "append")
ADD = "add"
STOP, REJECT = "stop", "reject"
_AROUND_A_CHANGE = re.compile(r"(?i)\b__(?:source_\w+|ts_(?:ms|us|ns)|lsn|gtid|file|pos|row|txid|transaction_\w+)\b")
"""Columns that Debezium, and `format = "debezium"`, call so: the time, and the place in its log, of a change."""
_ASCII = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def folded(name: str) -> str:
    """The name as SQLite compares it: ASCII letters in lower case, all others as they are."""
    return name.translate(_ASCII)


def repeated(names: Iterable[str]) -> list[str]:
    """Those names that are there more than once, however they are capitalised."""
    seen: set[str] = set()
    return [name for name in names if folded(name) in seen or seen.add(folded(name))]  # type: ignore[func-returns-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """An entity table and the pipeline that fills it.

    name            of the table; `<name>_rejected` is made beside it. In place of `schema` its text may name that as
                    well: `sales.flights`, with quotes around a part that has a dot (`table_name`)
    schema          of the table and of all that is kept beside it; empty: the one that the connection leads to. None:
                    what `name` says
    pipeline        the pipeline that the table belongs to, for good
    consumer_group  the watermarks are kept for this reader of the hub
    mode            `upsert` keeps the last event of each key, `append` every event
    keys            the columns that name an entity (`upsert` only, and then at least one)
    keep            which of the fence's columns are stored as well
    only_columns    the columns of rows that are stored. Default: all
    except_columns  columns of rows that are not stored: those that `sequence_by` or `delete_when` alone is about
    unavailable_value  a text that stands in a column for the value that is there: an event that leaves a value as it is
                    has it, as changes of Debezium do (`unchanged`). Default: each text is itself
    sequence_by     what the values of `Batch.sequence_by` are, as text: the table remembers it, and refuses another
    spread          a key may come from several partitions, and batches say which versions of their entities they have
                    read (`versions`); `sequence_by` then says which events come late, and decides no more
    schema_evolution  `add` adds columns that the table has not; by default such a schema is refused
    handled         its rows are what a handler has made of events: one that is read again would count twice
    on_two_partitions  what becomes of an event whose key was last written from another partition, where no
                    `sequence_by` compares them: `stop` raises `KeyFromTwoPartitions`, `reject` sets it aside
    """

    name: str
    schema: str | None = None
    pipeline: str
    consumer_group: str = "$Default"
    mode: str = "upsert"
    keys: Sequence[str] = ()
    keep: Sequence[str] = ()
    only_columns: Sequence[str] = ()
    except_columns: Sequence[str] = ()
    unavailable_value: str | None = None
    sequence_by: str | None = None
    spread: bool = False
    schema_evolution: str | None = None
    handled: bool = False
    on_two_partitions: str = STOP

    def __post_init__(self) -> None:
        default_where_none(self)
        for setting, value in (("table", self.name), ("pipeline", self.pipeline)):
            _check_name(setting, value)
        if self.schema is None:
            stated = TableName.parse(self.name)
            object.__setattr__(self, "name", stated.name)
            object.__setattr__(self, "schema", stated.schema)
        _check_name("consumer_group", self.consumer_group)
        if folded(self.name).startswith(("leasehold_", "sqlite_")):
            raise ConfigError(
                "table", self.name, "names that begin with leasehold_ or sqlite_ are taken", "Choose another name"
            )
        if self.mode not in MODES:
            raise ConfigError("mode", self.mode, f"one of {', '.join(MODES)}", "upsert is the default")
        if self.schema_evolution not in (None, ADD):
            raise ConfigError(
                "schema_evolution", self.schema_evolution, f"{ADD!r}, or nothing", "Without it a new column is refused"
            )
        self._check_strangers()
        for setting in ("keys", "keep", "only_columns", "except_columns"):
            names = getattr(self, setting)
            if isinstance(names, str):
                raise ConfigError(setting, names, "a list of column names", f"Write {setting}=({names!r},)")
            for name in names:
                _check_name(setting, name)
            if twice := repeated(names):
                raise ConfigError(setting, tuple(names), f"{twice[0]} is named twice", "Name each column once")
            object.__setattr__(self, setting, tuple(names))
        if self.unavailable_value is not None:
            _check_name("unavailable_value", self.unavailable_value)
        if self.sequence_by is not None:
            _check_name("sequence_by", self.sequence_by)
            object.__setattr__(self, "sequence_by", _spaced(self.sequence_by))
            self._check_around_changes(self.sequence_by)
        self._check_columns()

    @staticmethod
    def _check_around_changes(sequence_by: str) -> None:
        """In Postgres a snapshot's row may be older than an update, and have the higher LSN; a server that takes the
        place of another may begin its log anew; and times are not in the order of commits."""
        if named := _AROUND_A_CHANGE.search(sequence_by):
            raise ConfigError(
                "sequence_by",
                sequence_by,
                f"{named[0]} is not in the order of a row's changes: rows would stay as they were before, in silence",
                "Leave sequence_by out: Debezium sends a row's changes to one partition, in their order. Or name a "
                "column of the row that each update raises",
            )

    def _check_strangers(self) -> None:
        given, name = self.on_two_partitions, "on_two_partitions"
        if given not in (STOP, REJECT):
            raise ConfigError(name, given, f"{STOP!r} or {REJECT!r}", f"{STOP!r} is the default")
        if given == REJECT and (self.sequence_by is not None or not self.keys):
            raise ConfigError(
                name,
                given,
                "events of a key are compared across partitions by sequence_by, and appended ones never",
                "Leave it out: no event is in conflict with another partition's",
            )

    @property
    def rejects_strangers(self) -> bool:
        """Whether an event whose key was last written from another partition is rejected, and does not end the run."""
        return self.on_two_partitions == REJECT

    def _check_columns(self) -> None:
        if self.mode == "upsert" and not self.keys:
            raise ConfigError(
                "keys",
                tuple(self.keys),
                "mode upsert needs the columns that name an entity",
                'For example keys=("tail_number",); or mode="append" to keep every event',
            )
        if self.mode == "append" and self.keys:
            raise ConfigError(
                "keys",
                self.keys,
                "mode append keeps every event and knows no keys",
                'Leave keys out, or use mode="upsert"',
            )
        if self.spread and (self.sequence_by is None or not self.keys):
            raise ConfigError(
                "spread",
                self.spread,
                "of an entity's events in several partitions, only sequence_by says which is later",
                'Give keys, and sequence_by="version", or whatever grows with each event of an entity',
            )
        if self.unavailable_value is not None and (not self.keys or self.handled):
            rule = "it stands for what the row had before the event, in a table with keys that no handler fills"
            raise ConfigError("unavailable_value", self.unavailable_value, rule, "Leave it out")
        if self.only_columns and self.except_columns:
            rule = "only_columns says already what is stored"
            raise ConfigError("except_columns", self.except_columns, rule, "Give one of them")
        if dropped := [name for name in self.keys if folded(name) in map(folded, self.except_columns)]:
            raise ConfigError("except_columns", self.except_columns, f"{dropped[0]} is a key", "Store it")
        if self.only_columns and (dropped := [name for name in self.keys if not self.is_stored(name)]):
            rule = f"{dropped[0]} is a key, and not among them"
            raise ConfigError("only_columns", self.only_columns, rule, f"Add {dropped[0]!r}")
        fence = {folded(name) for name in FENCE_COLUMNS}
        kept = {folded(name) for name in self.keep}
        if strangers := [name for name in self.keep if folded(name) not in fence]:
            raise ConfigError(
                "keep",
                self.keep,
                f"{strangers[0]} is none of {', '.join(FENCE_COLUMNS)}",
                "All other columns are stored anyway",
            )
        if dropped := [name for name in self.keys if folded(name) in fence - kept]:
            raise ConfigError(
                "keys",
                self.keys,
                f"{dropped[0]} is not stored unless asked for",
                f'Add keep=("{dropped[0]}",)',
            )

    def is_stored(self, column: str) -> bool:
        """Whether the table stores this column of its rows."""
        name = folded(column)
        if name in map(folded, FENCE_COLUMNS):
            return name in map(folded, self.keep)
        if self.only_columns:
            return name in map(folded, self.only_columns)
        return name not in map(folded, self.except_columns)

    @property
    def called(self) -> TableName:
        """How the table is called, for people."""
        return self.beside(self.name)

    def beside(self, name: str) -> TableName:
        """How a table of this name is called that is in the same schema."""
        return TableName(name, self.schema or "")

    @property
    def order(self) -> str:
        """What the table remembers of what orders its rows; empty if it is their place in the partition."""
        return f"{self.sequence_by} (spread)" if self.spread else self.sequence_by or ""

    @property
    def rejected(self) -> str:
        """The name of the table of rejected events."""
        return f"{self.name}_rejected"

    @property
    def memory(self) -> str | None:
        """The name of the memory of keys, None for a table without keys."""
        return f"leasehold_key_{self.name}" if self.keys else None

    @property
    def identities(self) -> str:
        """The name of the memory of events' identities (`duplicates`)."""
        return f"leasehold_identity_{self.name}"


def check_deduplication(by: str | None, seconds: float | None) -> None:
    """Refuse one of `deduplicate_by` and `deduplicate_for` without the other. Raises `ConfigError`."""
    if by is not None and not by.strip():
        raise ConfigError("deduplicate_by", by, "a Spark SQL expression", "Leave it out if there is none")
    if by is None and seconds is not None:
        raise ConfigError("deduplicate_by", None, "deduplicate_for is given, and nothing to tell by", "Give both")
    if by is not None and seconds is None:
        raise ConfigError(
            "deduplicate_for", None, "for how long an event is remembered has to be said", 'For example "10m"'
        )
    if seconds is not None:
        check_number("deduplicate_for", seconds, above=0, rule="a time above zero", remedy='For example "10m"')


def ordered_keys(spec: TableSpec) -> tuple[str, ...]:
    """The key columns in one order, however the spec writes them."""
    return tuple(sorted(spec.keys, key=folded))


_QUOTED_OR_SPACE = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|\s+""", re.DOTALL)


def _spaced(expression: str) -> str:
    """The expression with single spaces wherever it has white space outside of quotes."""
    return _QUOTED_OR_SPACE.sub(lambda found: found[1] or " ", expression).strip()


def _check_name(field: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(field, value, "a text that is not empty", "Give it a name")
    check_utf8(field, value)


def check_utf8(field: str, text: str) -> None:
    """Refuse text that no database can keep. Raises `ConfigError`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(field, text, "text that can be written as UTF-8", "It holds half a surrogate pair") from None


@dataclass(frozen=True, slots=True)
class RefusedRange:
    """Rows that were dropped because a later owner's batch had been there first: a zombie's.

    `rows` may be 0: a transform had left none of a range that was read whole.
    """

    hub: str
    partition: str
    owner_level: int
    watermark_level: int
    rows: int


@dataclass(frozen=True, slots=True)
class BatchResult(Counts):
    """What became of the events and rows of one batch, and why.

    refused_ranges  those whose events are `refused`
    outdated        nothing was applied: the batch was computed from rows that may have changed since. Compute it again
    violations      nothing was applied: the database refuses what events make of related rows (`related`), or a state
                    of a handler. By sequence number, of a state that of its last event, why
    skipped_events  of those that are `skipped`, which they are, and why: a text for each
    again           what became of the events of `Batch.again`; nothing else is counted then
    messages        what became of each change of `Batch.messages`; nothing else is counted then
    seconds         how long parts of the transaction took: `stage` (rows brought into the database's form, and in
                    Postgres into a temporary table) and `merge` (written); locks, watermarks and the commit are in
                    neither
    of_tables       of a batch for several tables, the result of each by its name; this one is their sum. An event is
                    `used` where a row of any of them was made of it
    """

    refused_ranges: tuple[RefusedRange, ...] = ()
    outdated: bool = False
    violations: Mapping[int, str] = field(default_factory=dict)
    skipped_events: tuple[str, ...] = ()
    again: RetryResult | None = None
    messages: tuple[MessageOutcome, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    of_tables: Mapping[str, BatchResult] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """The counts alone."""
        return NONE.plus(self)

    @property
    def only_rejects(self) -> bool:
        """Whether there were rows, and each of them was rejected: the transform or the schema may be wrong."""
        return bool(self.rejected) and not (self.applied or self.replayed or self.refused or self.superseded)


@dataclass(frozen=True, slots=True)
class Totals(Counts):
    """The sum of all batch results so far."""

    batches: int = 0

    def with_batch(self, result: Counts) -> Totals:
        """These totals with one more batch."""
        return replace(self.plus(result), batches=self.batches + 1)
