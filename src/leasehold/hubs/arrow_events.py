"""From Arrow batches of a hub to events as objects, and to the table that a sink takes.

Owns the reading of a hub's columns into `Event`, for the plain processor. Whoever works on Arrow never pays for
it. Pure; use from any thread.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from leasehold.model import Event

OWNER_LEVEL = "ownerLevel"
_SETTINGS: tuple[Callable[[Event, Any], None], ...] = tuple(
    vars(Event)[field.name].__set__ for field in dataclasses.fields(Event)
)


EVENT_SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        *((name, pa.string()) for name in ("partition", "offset")),
        ("sequenceNumber", pa.int64()),
        ("enqueuedTime", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("publisher", "partitionKey")),
        *((name, pa.map_(pa.string(), pa.string())) for name in ("properties", "systemProperties")),
        ("hub", pa.string()),
        (OWNER_LEVEL, pa.int64()),
    ]
)
"""The columns of events as `Hub.read` gives them, with the owner level."""


def events_from(count: int, *columns: Iterable[Any] | None) -> list[Event]:
    """This many events, from as many values of each of their fields, in the order of the fields.

    A column of maps may be `None`: all are empty.

    What the frozen class's own constructor does for one event after another, a field at a time: in two fifths of the
    time.
    """
    events: list[Event] = [object.__new__(Event) for _ in range(count)]
    for setting, values in zip(_SETTINGS, columns, strict=True):
        if values is not None:
            deque(map(setting, events, values), maxlen=0)
    return events


def events_of(batch: pa.RecordBatch) -> list[Event]:
    """The events of a batch with all of `EVENT_COLUMNS`, in order."""
    return events_from(batch.num_rows, *field_values(batch))


def field_values(batch: pa.RecordBatch) -> tuple[list[Any] | None, ...]:
    """What `events_from` makes the events of a batch from."""

    def column(name: str) -> list[Any]:
        values: list[Any] = batch.column(name).to_pylist()
        return values

    times = batch.column("enqueuedTime").cast(pa.int64()).to_pylist()
    return (
        column("body"),
        column("partitionKey"),
        _maps(batch.column("properties")),
        column("publisher"),
        column("partition"),
        column("sequenceNumber"),
        column("offset"),
        [(time or 0) / 1e6 for time in times],  # Kafka may know none
        _maps(batch.column("systemProperties")),
    )


def table_of(batches: Sequence[pa.RecordBatch], owner_level: int) -> pa.Table:
    """The batches as one table, with the owner level as its last column."""
    table = pa.Table.from_batches(batches)
    return table.append_column(OWNER_LEVEL, pa.repeat(pa.scalar(owner_level, pa.int64()), table.num_rows))


def _maps(column: pa.MapArray) -> list[Mapping[str, str]] | None:
    """The maps of a column; `None` where all are empty, which is usual."""
    if not len(column.keys) or column.offsets[0] == column.offsets[-1]:
        return None
    return [dict(pairs) for pairs in column.to_pylist()]
