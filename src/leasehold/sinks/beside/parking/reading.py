"""Parked events as a database has them, in which others than Leasehold may write: read one by one.

Owns what becomes of one that nobody here has written. Reading raises nothing because of it. One whose key is no key of
the table belongs to no entity: it is said once, tried by nobody, and stays until somebody drops it. Of the others, what
cannot be is taken for the nearest that can be: a time before 1970 or without end, a count below zero, an error that
is no text. Pure, but for what is said.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator

from leasehold.printable import printable
from leasehold.sinks.beside.messages.contract import MessageName
from leasehold.sinks.beside.messages.parking import ParkedMessage
from leasehold.sinks.beside.parking.keys import key_of
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.rules.table import TableSpec

logger = logging.getLogger(__name__)

MOST_DELIVERIES = 1_000_000
"""The most calls of a handler that are believed: a higher count is read as this."""

_FOREVER = 1e12  # seconds, beyond all calendars
_SHOWN = 120
_MOST_SAID = 1_000  # tables are not told for ever
_said: set[tuple[str, str, object]] = set()


def entities(spec: TableSpec, rows: Iterable[tuple[object, object]]) -> Iterator[tuple[Key, float]]:
    """Of what was kept as keys, each with its time, those that are keys of the table. `None` is infinitely late."""
    for text, at in rows:
        if (key := known_key(spec, text)) is not None:
            yield key, math.inf if at is None else seconds(at)


def known_key(spec: TableSpec, text: object) -> Key | None:
    """The key that was kept as `text`, or None where that is none of this table, which is said once."""
    try:
        return key_of(spec, text)
    except ValueError as error:
        said = (spec.pipeline, spec.name, text)
        if said not in _said and len(_said) < _MOST_SAID:
            _said.add(said)
            logger.warning(
                "table %s: what is parked under the key %s is tried by nobody (%s). `leasehold parked list` shows it, "
                "and `leasehold parked drop` removes it",
                *(spec.name, _short(text), error),
            )
        return None


def event(
    key: Key, body: object, number: int, enqueued: object, deliveries: object, next_at: object, error: object
) -> ParkedEvent:
    """A parked event of an entity, from what was kept of it."""
    return ParkedEvent(
        *(key, as_bytes(body), number, seconds(enqueued), count(deliveries)), seconds(next_at), as_text(error)
    )


def message(
    name: MessageName, key: Key, body: object, about: object, deliveries: object, next_at: object, error: object
) -> ParkedMessage:
    """A parked message of an entity, from what was kept of it."""
    kept = None if body is None else as_bytes(body)
    return ParkedMessage(name, key, kept, as_text(about), count(deliveries), seconds(next_at), as_text(error))


def shown_key(spec: TableSpec, text: object) -> Key:
    """The key of an event, for a person to see: as it was kept, where it is no key of the table."""
    return known_key(spec, text) or (_short(text),)


def seconds(value: object) -> float:
    """A time since 1970; 0 where it says nothing."""
    known = isinstance(value, int | float) and not math.isnan(value)
    return min(max(float(value), 0.0), _FOREVER) if known else 0.0  # type: ignore[arg-type]


def count(value: object) -> int:
    """How often a handler was called."""
    return min(max(value, 0), MOST_DELIVERIES) if isinstance(value, int) else 0


def as_bytes(value: object) -> bytes:
    """A body."""
    return value if isinstance(value, bytes) else as_text(value).encode("utf-8", "replace")


def as_text(value: object) -> str:
    """What a handler raised."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else "" if value is None else str(value)


def _short(text: object) -> str:
    said = printable(as_text(text))
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"
