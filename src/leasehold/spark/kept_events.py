"""Rejected events as events again: from what the table keeps of them, or from the hub.

Owns which of the two it is. What the table keeps comes first: the hub may have removed the event, and on Event Hubs a
reader would disturb the fleet. It is enough where it has all columns that the transform uses now; a transform may have
been mended to use more than it did, and of a row that could be read and does not fit the table there is no event, only
the row. Then the hub is read, one range for neighbouring events.

The columns have the types that the hub gives them. `ownerLevel` is the one that the partition's watermark has.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import pyarrow as pa

from leasehold.hubs.arrow import event_schema
from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.sinks.set_aside import EventId, RejectedRow

_OF_EVERY_ROW = ("body", "hub", "partition", "sequenceNumber")


def whole_rows(rows: Sequence[RejectedRow], used: Collection[str]) -> dict[EventId, RejectedRow]:
    """The events of which the table keeps all that is `used` of the source's columns, each with the row that has it."""
    needed = set(used) - {*_OF_EVERY_ROW, "ownerLevel"}
    return {row.event: row for row in rows if row.source is not None and needed <= set(_source(row))}


def kept_events(rows: Sequence[RejectedRow]) -> pa.Table:
    """The events of these rows, with all columns of a hub; those that were not kept are null."""
    schema = event_schema()
    sources = [_source(row) for row in rows]
    columns = [
        pa.array([_value(row, source, field) for row, source in zip(rows, sources, strict=True)], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def events_of_hub(hub: Hub, events: Collection[EventId]) -> pa.Table:
    """Those of these events that the hub still has, with all columns. Raises what reading a hub raises."""
    batches: list[pa.RecordBatch] = []
    mine = sorted(event for event in set(events) if event.hub == hub.identity)
    known = hub.partition_properties(sorted({event.partition for event in mine})) if mine else {}
    for partition, its in groupby(mine, key=lambda event: event.partition):
        if partition not in known:
            continue
        begin, end = known[partition].begin, known[partition].end
        numbers = [event.sequence_number for event in its if begin <= event.sequence_number < end]
        for first, last in _neighbours(numbers):
            batches += hub.read(partition, first, last + 1, columns=EVENT_COLUMNS)
    return pa.Table.from_batches(batches, event_schema())


def with_bodies(events: pa.Table, mended: Mapping[EventId, bytes]) -> pa.Table:
    """The events, those that were mended with their new bodies."""
    if not mended:
        return events
    bodies = [mended.get(*pair) for pair in zip(event_ids(events), events["body"].to_pylist(), strict=True)]
    place = events.schema.get_field_index("body")
    field = events.schema.field(place)
    return events.set_column(place, field, pa.array(bodies, field.type))


def with_levels(events: pa.Table, levels: Mapping[str, int]) -> pa.Table:
    """The events with the column `ownerLevel`, by partition; 0 for one that has none."""
    values = [levels.get(partition, 0) for partition in events["partition"].to_pylist()]
    return events.append_column("ownerLevel", pa.array(values, pa.int64()))


def event_ids(events: pa.Table) -> list[EventId]:
    """Which events these rows are of."""
    columns = (events[name].to_pylist() for name in ("hub", "partition", "sequenceNumber"))
    return [EventId(*row) for row in zip(*columns, strict=True)]


def _neighbours(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of numbers without a gap."""
    for _, run in groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def _source(row: RejectedRow) -> dict[str, Any]:
    source = json.loads(row.source or "{}")
    return source if isinstance(source, dict) else {}


def _value(row: RejectedRow, source: Mapping[str, Any], field: pa.Field) -> object:
    if field.name == "body":
        return row.body.encode() if isinstance(row.body, str) else row.body
    if field.name in _OF_EVERY_ROW:
        event = row.event
        return {"hub": event.hub, "partition": event.partition, "sequenceNumber": event.sequence_number}[field.name]
    value = source.get(field.name)
    if value is None:
        return None
    if pa.types.is_timestamp(field.type):
        return datetime.fromisoformat(value)
    return list(value.items()) if pa.types.is_map(field.type) else value
