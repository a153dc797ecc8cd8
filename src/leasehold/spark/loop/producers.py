"""In which traces the events of a batch were sent, for the links of the batch's span.

Owns how a task finds them among the properties that it reads, and how the driver puts together what tasks tell: each
context once, `MOST_LINKS` at most. Asked for only where somebody traces.
Malformed contexts are passed on; the code that creates the links drops them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.hubs.trace_context import DIAGNOSTIC, MOST_LINKS, PARENT, STATE

Producers = dict[tuple[str, str], None]
"""Pairs of `traceparent` and `tracestate`, in the order in which they were met."""


def note_producers(properties: pa.Array, met: Producers) -> None:
    """Add the contexts that are in these properties (a map of text to text a row), while there is room."""
    if len(met) >= MOST_LINKS:
        return
    parents = pc.coalesce(_first(properties, PARENT), _first(properties, DIAGNOSTIC))
    found = pa.table({"parent": parents, "state": _first(properties, STATE)}).filter(parents.is_valid())
    for parent, state in zip(found["parent"].to_pylist(), found["state"].to_pylist(), strict=True):
        if parent:
            met[parent, state or ""] = None
            if len(met) >= MOST_LINKS:
                return


def put_together(contexts: Iterable[Iterable[tuple[str, str]]]) -> tuple[tuple[str, str], ...]:
    """What several have told, each context once."""
    return tuple(dict.fromkeys(pair for pairs in contexts for pair in pairs))[:MOST_LINKS]


def _first(properties: pa.Array, name: str) -> pa.Array:
    return pc.map_lookup(properties, pa.scalar(name), "first")
