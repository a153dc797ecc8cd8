"""From what a handler has made of events to the batch that a sink applies.

Owns the form of its rows and of its rejected events, and which columns a handler's table may have. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.handlers.calling.raised import described, traced
from leasehold.handlers.contract import Computed, EntityEvent, EntityHandler
from leasehold.handlers.places import Place, ReadPlace
from leasehold.model import EventRange
from leasehold.sinks.base import Sink
from leasehold.sinks.features import RELATED, STATES, KeepsStates, require
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.related import EntityStep, Related

_HANDLER = "a handler"
_KEY_TYPES = (pa.types.is_string, pa.types.is_integer)
_FENCE = (
    pa.field("hub", pa.string()),
    pa.field("partition", pa.string()),
    pa.field("sequenceNumber", pa.int64()),
    pa.field("ownerLevel", pa.int64()),
)
_ASIDE = (
    pa.field("body", pa.binary()),
    pa.field("reason", pa.string()),
    pa.field("enqueuedTime", pa.timestamp("us", "UTC")),
)
_DEAD = (pa.field("deliveries", pa.int64()), pa.field("traceback", pa.string()))


def row_batch(
    handler: EntityHandler, state: pa.Schema, place: ReadPlace, done: Computed, begin: int, end: int
) -> Batch:
    """What the events `[begin, end)` of a partition have come to, or parked ones that lie before an empty range.

    An event that is not tried any more is rejected with its exception, and with how often it was tried and the
    traceback beside.
    """
    at = (place.last_enqueued or None) if begin < end and begin <= place.last < end else None
    changes = sorted(done.changes.values(), key=lambda change: change.number)
    gone: dict[str, Any] = dict.fromkeys(state.names)
    rows = [
        gone | dict(change.state or zip(handler.keys, change.key, strict=True)) | _fence(place, change.number)
        for change in changes
    ]
    rejected = [_aside(place, event) | {"reason": reason} for event, reason in done.rejected]
    rejected += [
        _aside(place, event) | {"reason": described(error), "deliveries": event.delivery, "traceback": traced(error)}
        for event, error in done.dead
    ]
    aside = pa.schema([*_FENCE, *_ASIDE, *(_DEAD if done.dead else ())])
    return Batch(
        pa.Table.from_pylist(rows, with_fence(state)),
        rejected=pa.Table.from_pylist(rejected, aside) if rejected else None,
        delete=pa.array([change.state is None for change in changes], pa.bool_()),
        ranges=[EventRange(place.hub, place.partition, place.owner_level, begin, end, enqueued_time=at)],
        outbox=emitted_events(done),
        related=_related(state, done),
    )


def _related(state: pa.Schema, done: Computed) -> Related | None:
    steps = written_steps(done)
    return Related(state, steps) if steps else None


def written_steps(done: Computed) -> list[EntityStep]:
    """All that is made of those entities of which the database is given more than the last state."""
    concerned = {step.key for step in done.steps if done.by_steps or step.rows or (step.changes and step.state is None)}
    return [step for step in done.steps if step.key in concerned]


def emitted_events(done: Computed) -> list[EmittedEvent]:
    """What handlers have emitted, in order, as the outbox takes it."""
    return [
        EmittedEvent(
            *(event.hub, event.partition, event.sequence_number, place, key, one.body, one.key, one.properties)
        )
        for key, event, effects in done.emitted
        for place, one in enumerate(effects)
    ]


def check_columns(handler: EntityHandler, schema: pa.Schema, state: pa.Schema) -> None:
    """Refuse columns of events and states that do not go together. Raises `ConfigError`."""
    for name in handler.keys:
        for what, columns in (("schema", schema), ("state", state)):
            if name not in columns.names:
                raise ConfigError(what, ", ".join(columns.names), f"the key {name} is not in it", "Add it")
        type_ = state.field(name).type
        if type_ != schema.field(name).type or not any(test(type_) for test in _KEY_TYPES):
            raise ConfigError(
                "keys", name, "a key is a STRING or a whole number, of one type in schema and state", "Make it so"
            )
    fields = handler.fields()
    if fields is not None and (other := sorted(set(fields) ^ set(state.names))):
        raise ConfigError(
            "state",
            ", ".join(state.names),
            f"{other[0]} is in one of {handler.state.__name__} and state alone",
            "Give both the same names",
        )


def require_handler(
    function: object, field: str = "handler", named: str | None = None, keys: Sequence[str] = ()
) -> EntityHandler:
    """What `entity` has made of a function. Raises `ConfigError` that says how, with the keys if known."""
    if isinstance(function, EntityHandler):
        return function
    shown = json.dumps([*keys]) if keys else "[…]"
    raise ConfigError(
        field,
        named or getattr(function, "__name__", None),
        f"a handler, and this is a {type(function).__name__}",
        f"Put @entity(keys={shown}) above the function: from leasehold.handlers import entity",
    )


def states_of(sink: Sink) -> KeepsStates:
    """The sink, as what a handler's table needs of one. Raises `ConfigError`."""
    return require(sink, STATES, _HANDLER)


def check_related(sink: Sink, tables: Sequence[str]) -> frozenset[str]:
    """The related tables of a handler, which are there. Raises `ConfigError`."""
    if isinstance(tables, str):
        raise ConfigError("related", tables, "a list of tables", f'Write related=["{tables}"]')
    if tables:
        require(sink, RELATED, "related, the tables that a handler writes to").check_related(tables)
    return frozenset(tables)


def with_fence(schema: pa.Schema) -> pa.Schema:
    """The columns with those by which a sink knows where a row comes from."""
    return pa.schema([*schema, *_FENCE])


def _aside(place: Place, event: EntityEvent) -> dict[str, Any]:
    try:
        at: datetime | None = datetime.fromtimestamp(event.enqueued_time, UTC)
    except (ValueError, OverflowError, OSError):  # somebody else has written a parked event
        at = None
    return _fence(place, event.sequence_number) | {"body": event.body, "enqueuedTime": at}


def _fence(place: Place, number: int) -> dict[str, Any]:
    values = (place.hub, place.partition, number, place.owner_level)
    return {one.name: value for one, value in zip(_FENCE, values, strict=True)}
