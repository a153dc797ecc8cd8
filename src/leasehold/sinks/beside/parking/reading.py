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

from leasehold.printable import printable, shortened
from leasehold.sinks.beside.kept_values import as_bytes, as_text, count, seconds
from leasehold.sinks.beside.keys import key_of
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.rules.table_spec import TableSpec

logger = logging.getLogger(__name__)

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
                *(spec.called, _short(text), error),
            )
        return None


def event(
    key: Key, body: object, number: int, enqueued: object, deliveries: object, next_at: object, error: object
) -> ParkedEvent:
    """A parked event of an entity, from what was kept of it."""
    return ParkedEvent(
        *(key, as_bytes(body), number, seconds(enqueued), count(deliveries)), seconds(next_at), as_text(error)
    )


def shown_key(spec: TableSpec, text: object) -> Key:
    """The key of an event, for a person to see: as it was kept, where it is no key of the table."""
    return known_key(spec, text) or (_short(text),)


def _short(text: object) -> str:
    return shortened(printable(as_text(text)), _SHOWN)
