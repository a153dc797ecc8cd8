"""An entity table that a plain processor fills with columns of events, in one transaction with the watermarks.

Owns the way of a batch from the events of one partition to the sink: bodies are read by the strict rules, what cannot
be read is set aside, the projection makes the rows. Which events count, and which of a key, is the sink's, by the same
rules as on Spark, so that processes of both kinds may fill one table.

Concurrency: partitions work side by side, each by one thread of a processor; nothing is remembered but how far the
batches of an owner have come. If an owner stops for a minute before the commit, another one may have taken the
partition: then the sink refuses the batch. After the commit, the events come again and are passed by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.formats.bodies import BodyReader
from leasehold.handlers.places import CallingOwner, ReadPlace
from leasehold.hubs.arrow_events import EVENT_SCHEMA
from leasehold.model import EventRange
from leasehold.projected.projection import ON_SPARK, Projection, RowValue, read_projection, read_value
from leasehold.runtime import Runtime
from leasehold.sinks.base import LevelOf, Sink
from leasehold.sinks.features import BOOKKEEPING, EVOLUTION, require
from leasehold.sinks.notices import notice_of
from leasehold.sinks.rules.batch import IDENTITY_COLUMNS, Batch, Identities
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, folded, repeated
from leasehold.sinks.rules.values import order_kind

_ASIDE = (*FENCE_COLUMNS, *(name for name in EVENT_SCHEMA.names if name not in FENCE_COLUMNS))
"""What a rejected event carries beside its reason: all that the hub says of it."""


class OwnedEvents(ReadPlace, Protocol):
    """A batch of one partition, as a processor gives it, from the number `first` on."""

    @property
    def first(self) -> int: ...

    def arrow(self) -> pa.Table: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Which rows are a table's, and what is known of them: as `[sink]` says it, of which `at` is the name in messages.

    Each is a column, or `column = literal`, over the rows.
    """

    when: str | None = None
    sequence_by: str | None = None
    delete_when: str | None = None
    at: str = "sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """What rows are made of, as a pipeline file says it; see there.

    bodies          what reads the bodies; None: events have the columns of their source alone
    sql             the projection; None: all columns of the events
    tables          the tables that the rows are for: one, or several
    deduplicate_by  a column of the events
    deduplicate_for seconds; with `deduplicate_by`
    """

    bodies: BodyReader | None = None
    sql: str | None = None
    tables: Sequence[TableRows] = (TableRows(),)
    deduplicate_by: str | None = None
    deduplicate_for: float | None = None


def columns_of(source: RowSource) -> pa.Schema:
    """The columns of the rows, whatever else is said of them. Raises `ConfigError` as `RowMaker` does."""
    events = _events_of(source)
    return _projection(source, events).schema(events)


class RowMaker:
    """Makes the rows of a table from events. Raises `ConfigError` for what takes Spark, or names no column."""

    def __init__(self, source: RowSource) -> None:
        events = _events_of(source)
        self._bodies, self._projection = source.bodies, _projection(source, events)
        self.schema = self._projection.schema(events)
        """The columns of the rows."""
        self._tables = [_RowsOfTable(one, self.schema) for one in source.tables]
        self._identity = _identity(source.deduplicate_by, events)
        self._deduplicated = source.deduplicate_by, source.deduplicate_for

    def of(self, events: pa.Table, range_: EventRange) -> Batch:
        """The batch of these events, which are all of a range."""
        rejected, count = None, events.num_rows
        if self._bodies is not None:
            read = self._bodies.read(events.column("body"), events)
            wide = pa.Table.from_arrays(
                [*read.columns.columns, *events.columns], names=[*read.columns.schema.names, *events.schema.names]
            )
            if read.reasons is not None:
                bad = read.reasons.is_valid()
                rejected = events.filter(bad).select(_ASIDE).append_column("reason", read.reasons.filter(bad))
            events = wide if read.good is None else wide.filter(read.good)
        rows = self._projection.of(events)
        first, *beside = [table.of(rows) for table in self._tables]
        return replace(
            first,
            rejected=rejected,
            ranges=[range_],
            read=count,
            identities=self._identities(events),
            beside=tuple(beside),
        )

    def _identities(self, events: pa.Table) -> Identities | None:
        by, window = self._deduplicated
        if self._identity is None or by is None or window is None:
            return None
        hub, partition, number, identity, enqueued = IDENTITY_COLUMNS
        values = {
            hub: events.column(hub),
            partition: events.column(partition),
            number: events.column(number),
            identity: self._identity.of(events).cast(pa.string()),
            enqueued: events.column(enqueued),
        }
        found = pa.table(values)
        return Identities(found.filter(found.column(identity).is_valid()), by, window)


class _RowsOfTable:
    """What of the rows, which have the columns of `schema`, is a table's."""

    def __init__(self, table: TableRows, schema: pa.Schema) -> None:
        self._when = _condition(table.when, schema, f"{table.at}.when")
        self._order = _order(table.sequence_by, schema, f"{table.at}.sequence_by")
        self._delete = _condition(table.delete_when, schema, f"{table.at}.delete_when")

    def of(self, rows: pa.Table) -> Batch:
        """The rows that are the table's."""
        if self._when is not None:
            rows = rows.filter(self._when.of(rows))
        order = None if self._order is None else self._order.of(rows)
        return Batch(rows, sequence_by=order, delete=None if self._delete is None else self._delete.of(rows))


def _events_of(source: RowSource) -> pa.Schema:
    """The columns of events: those of their bodies, then those of the hub."""
    events = pa.schema([*([] if source.bodies is None else source.bodies.schema), *EVENT_SCHEMA])
    if twice := repeated(events.names):
        raise ConfigError(
            "transform.schema",
            twice[0],
            "this column occurs twice, counting those that every event has",
            "Rename it in what is sent, or leave it out",
        )
    return events


def _projection(source: RowSource, events: pa.Schema) -> Projection:
    projection = read_projection(source.sql, events)
    names = [name for _, name in projection.picks]
    if twice := repeated(names):
        raise ConfigError("transform.sql", source.sql, f"{twice[0]} occurs twice", "Give one of them another name")
    if missing := [name for name in FENCE_COLUMNS if folded(name) not in map(folded, names)]:
        raise ConfigError(
            "transform.sql",
            source.sql,
            f"it does not give the columns {', '.join(missing)}, by which a row is known to be an event's",
            f"Select them too: SELECT …, {', '.join(FENCE_COLUMNS)} FROM events",
        )
    return projection


def _order(text: str | None, rows: pa.Schema, setting: str) -> RowValue | None:
    if text is None:
        return None
    value = read_value(text, rows, setting=setting)
    if value.literal is not None or order_kind(rows.field(value.column).type) is None:
        raise ConfigError(
            setting,
            text,
            "without Spark it is a column of whole numbers, floating-point numbers, text, dates or times",
            f"Name another column, or {ON_SPARK}",
        )
    return value


def _condition(text: str | None, rows: pa.Schema, setting: str) -> RowValue | None:
    if text is None:
        return None
    value = read_value(text, rows, setting=setting)
    type_ = rows.field(value.column).type
    if value.literal is None and not pa.types.is_boolean(type_):
        raise ConfigError(setting, text, f"a {type_}, and not a condition", "Compare it with a literal")
    return value


def _identity(text: str | None, events: pa.Schema) -> RowValue | None:
    if text is None:
        return None
    value = read_value(text, events, setting="source.deduplicate_by")
    type_ = events.field(value.column).type
    if value.literal is not None or not (pa.types.is_string(type_) or pa.types.is_integer(type_)):
        raise ConfigError(
            "source.deduplicate_by",
            text,
            "without Spark it is a column of text or whole numbers",
            f"Name one, or {ON_SPARK}",
        )
    return value


class ProjectedTable:
    """The table, as a processor fills it: give its `on_events` to one. `level_of` is for you to set, as a handler's.

    Makes or checks the table at once. Raises `ConfigError`, `SchemaMismatch`.
    """

    def __init__(self, sink: Sink, source: RowSource, runtime: Runtime) -> None:
        self.sink = sink
        self.level_of: LevelOf | None = None
        self._rows = RowMaker(source)
        for one in sink.tables:
            if one.spec.schema_evolution is not None:
                require(one, EVOLUTION, "schema_evolution")
            if source.deduplicate_by is not None:
                require(one, BOOKKEEPING, "deduplicate_by")
        self._clock, self._notices = runtime.clock, runtime.notices
        self._reached: dict[tuple[str, str], tuple[CallingOwner, int]] = {}
        sink.check(self._rows.schema)

    def on_events(self, batch: OwnedEvents, context: CallingOwner) -> None:
        """Apply a batch. Raises what the sink raises, with nothing of it applied."""
        lane = batch.hub, batch.partition
        owner, reached = self._reached.get(lane, (None, 0))
        begin, end = reached if owner is context else context.start, batch.last + 1
        at = batch.last_enqueued or None
        range_ = EventRange(*lane, batch.owner_level, begin, end, enqueued_time=at)
        started = self._clock.monotonic()
        result = self.sink.apply(self._rows.of(batch.arrow(), range_), self.level_of)
        seconds = self._clock.monotonic() - started
        self._notices.publish(notice_of(self.sink, result, seconds))
        self._reached[lane] = context, end

    def close(self) -> None:
        """Close the sink. After the processor has ended."""
        self.sink.close()
