"""What sinks that keep messages of queues have in common: a state as a row, and times. Pure.

A process whose clock is wrong is believed no further than the time at which the service enqueued a message: nothing is
done before it was enqueued, and what was enqueued a while ago does not make other messages older than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError, UsageError
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.table import FENCE_COLUMNS, OWNER_LEVEL, SEQUENCE_NUMBER, TableSpec, ordered_keys

FORGOTTEN_AT_ONCE = 10
"""Messages that are forgotten with each one that is applied."""
_FENCE = [
    pa.field(name, pa.int64() if name in (SEQUENCE_NUMBER, OWNER_LEVEL) else pa.string()) for name in FENCE_COLUMNS
]


def fenced(schema: pa.Schema) -> pa.Schema:
    """The schema with the columns by which a hub's events are fenced, which every table is asked about."""
    return pa.schema([*schema, *_FENCE])


def done_at(message: MessageName, now: float) -> float:
    """When a message counts as done that takes effect at `now` by this process's clock."""
    return max(now, message.enqueued_time)


def by_queue(message: MessageName, now: float) -> float:
    """The time by which messages are old when this one comes. `now`, where it is not known when it was enqueued."""
    return min(now, message.enqueued_time) if message.enqueued_time > 0 else now


def check_spec(spec: TableSpec) -> None:
    """Refuse a table that keeps more of a hub's events than their columns."""
    if spec.keep:
        raise ConfigError("keep", spec.keep, "messages of a queue have no such columns", "Leave it out")


def filled_by_hub(spec: TableSpec, hub: str) -> ConfigError:
    """Neither the hub's events nor the queue's messages would see the other's changes."""
    rule = f"it is filled with events of the hub {hub}, and a table has one way to be filled"
    return ConfigError("table", spec.name, rule, "Give the queue's messages a table of their own")


def ordered(spec: TableSpec, key: Key) -> Sequence[Any]:
    """The key's values in the order of the statements, however the spec writes its columns."""
    values = dict(zip(spec.keys, key, strict=True))
    return [values[name] for name in ordered_keys(spec)]


def row_of(spec: TableSpec, schema: pa.Schema, key: Key, state: Mapping[str, Any]) -> pa.Table:
    """The new state as a table of one row. Raises `UsageError`."""
    try:
        return pa.Table.from_pylist([dict(state)], schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise misfit(spec, key, error) from error


def misfit(spec: TableSpec, key: Key, why: object) -> UsageError:
    """The table cannot hold the new state."""
    return UsageError(f"the state of {key} does not fit the table {spec.name}: {why}")


def rejected_row(message: ParkedMessage, reason: str) -> Rejected:
    """A message that was given up, as a rejected row."""
    name = message.name
    partition = name.identity.partition("@")[2]
    return Rejected(name.queue, partition, name.sequence_number, 0, message.body, reason, None)
