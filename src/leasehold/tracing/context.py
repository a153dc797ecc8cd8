"""Between OpenTelemetry and the properties of events, whose names `leasehold.hubs.trace_context` owns.

A malformed trace context, which others wrote, never raises: it counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opentelemetry import trace
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leasehold.hubs.trace_context import DIAGNOSTIC, MOST_LINKS, PARENT, STATE
from leasehold.model import Event

_W3C = TraceContextTextMapPropagator()


def links_to(events: Iterable[Event]) -> list[Link]:
    """A link to each trace context that these events carry, each once, `MOST_LINKS` at most."""
    return links_of(_contexts_in(events))


def links_of(contexts: Iterable[tuple[str, str]]) -> list[Link]:
    """A link for each of these pairs of `traceparent` and `tracestate`, each once, `MOST_LINKS` at most."""
    found: dict[tuple[str, str], Link] = {}
    for context in contexts:
        if context not in found and (link := _link(*context)) is not None:
            found[context] = link
            if len(found) == MOST_LINKS:
                break
    return list(found.values())


def _contexts_in(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    for event in events:
        if parent := event.properties.get(PARENT) or event.properties.get(DIAGNOSTIC):
            yield parent, event.properties.get(STATE, "")


def _link(parent: str, state: str) -> Link | None:
    carrier = {PARENT: parent, **({STATE: state} if state else {})}
    context = trace.get_current_span(_W3C.extract(carrier)).get_span_context()
    return Link(context) if context.is_valid else None


def current_context() -> dict[str, str]:
    """The properties that carry the context of the current span; none where there is no span."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return {**carrier, DIAGNOSTIC: carrier[PARENT]} if PARENT in carrier else {}
