"""An entity table that a handler fills, in the plain processor, in one transaction with the watermarks.

    orders = HandledTable(order, "sqlite:///entities.db", table="orders", pipeline="orders",
                          schema="order_id STRING, amount DECIMAL(12,2)", state="order_id STRING, total DECIMAL(12,2)")
    EventProcessor("log:///orders.db", "sqlite:///leasehold.db", orders.on_events, table=orders.sink).run()

Owns why an event takes effect once, though its handler may be called more often:

1. Before an owner's first batch reads any state, it raises the watermark's owner level to its own. From then on no
   former owner commits; a later owner may, and then this owner's commit is refused.
2. Events at or below the watermark are not computed, states are read after it, and the commit moves it: what was
   computed from a state is committed only if no other owner has written since.
3. What Leasehold writes or forgets beside (rejected events that are tried again, `forget`, a reset) raises the
   watermark's count of changes. A commit that finds another count, or another place, than those that the states were
   read under commits nothing, and the batch is computed again. What a person writes in SQL is not seen.

One thread works on a partition at a time (the processor's), any number of partitions at once. When an owner stops at
any line before the commit, nothing has happened; after it, its events come again and are passed by. A handler that
raises fails its batch behind the last event that succeeded: the processor tries again, with pauses, so that a failing
entity holds up its partition. An entity's events in two partitions are refused by the sink (`KeyFromTwoPartitions`).
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from leasehold.entities.columns import columns_of
from leasehold.entities.handlers import Computed, EntityEvent, EntityHandler, HandlerFailed, Key, compute
from leasehold.errors import ConfigError, UsageError
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.model import BEFORE_FIRST, EventRange
from leasehold.sinks import Batch, TableSpec, open_sink
from leasehold.sinks.base import KeepsStates, LevelOf, Sink
from leasehold.sinks.fence import Watermark

if TYPE_CHECKING:
    from leasehold.processor.delivery import EventBatch
    from leasehold.processor.partition_client import PartitionContext

__all__ = [
    "HandledTable",
]

_KEY_TYPES = (pa.types.is_string, pa.types.is_integer)


class HandledTable:
    """The states of entities in a table, and the handler that computes them.

    handler         what `entity` has made of a function
    url             of the sink: `sqlite:///PATH` or `postgresql://…`
    table           the table's name; `<table>_rejected` has what was rejected
    pipeline        the pipeline that the table belongs to
    schema          the columns of an event's JSON body, as `order_id STRING, amount DECIMAL(12,2)`; read by the strict
                    rules: a body that does not fit is rejected
    state           the table's columns, in the same way; the keys among them
    consumer_group  the watermarks are kept for this reader of the hub
    level_of        from a hub and a partition to the owner level in its ownership record: give the processor's
                    `recorded_owner_level`, which tells a store that was wiped from a former owner
    base            what a relative path in `url` is relative to; default: the working directory

    Raises `ConfigError`, also for a table with constraints other than its keys, and a sink that keeps no states.
    """

    def __init__(
        self,
        handler: EntityHandler,
        url: str,
        *,
        table: str,
        pipeline: str,
        schema: str,
        state: str,
        consumer_group: str = "$Default",
        level_of: LevelOf | None = None,
        base: Path | None = None,
    ) -> None:
        self._handler = handler
        self._reader = BodyReader(read_columns(schema, "schema"))
        self._state = read_columns(state, "state")
        self._columns = columns_of(self._state)
        self.level_of = level_of
        self._check_columns()
        spec = TableSpec(name=table, pipeline=pipeline, consumer_group=consumer_group, keys=handler.keys)
        self.sink: Sink = open_sink(url, spec, base=base)
        if not isinstance(self.sink, KeepsStates):
            raise ConfigError(
                "url",
                url,
                "this sink keeps no states for handlers",
                "SQLite and Postgres do: sqlite:///PATH, postgresql://…",
            )
        self._states: KeepsStates = self.sink
        self.sink.check(_with_fence(self._state))
        self._states.check_states()
        self._raised: dict[str, int] = {}
        self._read: dict[str, tuple[PartitionContext, int]] = {}
        self._tries: dict[str, tuple[int, int]] = {}

    def on_events(self, batch: EventBatch, context: PartitionContext) -> None:
        """The `on_events` of a processor: call the handler for each event, and commit what it comes to.

        Raises `HandlerFailed` if the handler raised, with everything before that event committed.
        """
        if not self._is_owner(batch):
            # Nothing of it may be applied: the sink drops the range, or says that levels went back.
            self._apply(Computed(), batch, batch.first, batch.last + 1)
            return
        known, begin = self._read.get(batch.partition, (None, 0))
        begin = begin if known is context else context.start
        for again in count():
            mark = self.sink.watermarks(batch.hub).get(batch.partition, Watermark())
            done = self._compute(batch, mark.sequence_number, again)
            end = batch.last + 1 if done.failed is None else done.failed.sequence_number
            if end <= begin or self._apply(done, batch, begin, end, mark):
                break
        self._read[batch.partition] = context, max(begin, end)
        if done.failed is not None:
            self._tries[batch.partition] = done.failed.sequence_number, done.failed.delivery
            raise HandlerFailed(
                f"the handler {self._handler.function.__name__} raised for event {done.failed.id} of "
                f"{done.failed.key!r}, try {done.failed.delivery}: {type(done.error).__name__}: {done.error}"
            ) from done.error

    def _is_owner(self, batch: EventBatch) -> bool:
        """Rule 1. False if a later owner has been here."""
        if self._raised.get(batch.partition) != batch.owner_level:
            try:
                self.sink.raise_owner_levels(batch.hub, {batch.partition: batch.owner_level})
            except UsageError:
                return False
            self._raised[batch.partition] = batch.owner_level
        return True

    def _compute(self, batch: EventBatch, after: int, again: int) -> Computed:
        new = [event for event in batch if event.sequence_number > after]
        read = self._reader.read(pa.array([event.body for event in new], pa.binary()))
        rows = read.columns.to_pylist()
        reasons = [None] * len(new) if read.reasons is None else read.reasons.to_pylist()
        tried, deliveries = self._tries.get(batch.partition, (BEFORE_FIRST, 0))
        events: list[tuple[Key, EntityEvent, str | None]] = []
        for event, row, reason in zip(new, rows, reasons, strict=True):
            key = tuple(row[name] for name in self._handler.keys)
            if reason is None and None in key:
                reason = f"{self._handler.keys[key.index(None)]} is null, and names the entity"
            given = EntityEvent(
                key[0] if len(key) == 1 else key,
                event.body,
                row,
                batch.hub,
                batch.partition,
                event.sequence_number,
                event.enqueued_time,
                batch.owner_level,
                delivery=1 + again + (deliveries if event.sequence_number == tried else 0),
            )
            events.append((key, given, reason))
        keys = list(dict.fromkeys(key for key, _, reason in events if reason is None))
        return compute(self._handler, self._states.read_states(self._state, keys), events, self._columns)

    def _apply(
        self, done: Computed, batch: EventBatch, begin: int, end: int, read_under: Watermark | None = None
    ) -> bool:
        """Commit the changes with the watermark, together. False if they are to be computed again: rule 3."""
        changes = sorted(done.changes.values(), key=lambda change: change.number)
        gone: dict[str, Any] = dict.fromkeys(self._state.names)
        rows = [
            gone | dict(change.state or zip(self._handler.keys, change.key, strict=True)) | _place(batch, change.number)
            for change in changes
        ]
        rejected = [
            _place(batch, event.sequence_number) | {"body": event.body, "reason": reason}
            for event, reason in done.rejected
        ]
        aside = pa.schema([*_FENCE, pa.field("body", pa.binary()), pa.field("reason", pa.string())])
        result = self.sink.apply(
            Batch(
                pa.Table.from_pylist(rows, _with_fence(self._state)),
                rejected=pa.Table.from_pylist(rejected, aside) if rejected else None,
                delete=pa.array([change.state is None for change in changes], pa.bool_()),
                ranges=[EventRange(batch.hub, batch.partition, batch.owner_level, begin, end)],
                read_under=None if read_under is None else {(batch.hub, batch.partition): read_under},
            ),
            self.level_of,
        )
        return not result.outdated

    def _check_columns(self) -> None:
        read = self._reader.schema
        for name in self._handler.keys:
            for what, schema in (("schema", read), ("state", self._state)):
                if name not in schema.names:
                    raise ConfigError(what, ", ".join(schema.names), f"the key {name} is not in it", "Add it")
            type_ = self._state.field(name).type
            if type_ != read.field(name).type or not any(test(type_) for test in _KEY_TYPES):
                raise ConfigError(
                    "keys", name, "a key is a STRING or a whole number, of one type in schema and state", "Make it so"
                )
        fields = self._handler.fields()
        if fields is not None and (other := sorted(set(fields) ^ set(self._state.names))):
            raise ConfigError(
                "state",
                ", ".join(self._state.names),
                f"{other[0]} is in one of {self._handler.state.__name__} and state alone",
                "Give both the same names",
            )


_FENCE = (
    pa.field("hub", pa.string()),
    pa.field("partition", pa.string()),
    pa.field("sequenceNumber", pa.int64()),
    pa.field("ownerLevel", pa.int64()),
)


def _with_fence(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *_FENCE])


def _place(batch: EventBatch, number: int) -> dict[str, Any]:
    values = (batch.hub, batch.partition, number, batch.owner_level)
    return {one.name: value for one, value in zip(_FENCE, values, strict=True)}
