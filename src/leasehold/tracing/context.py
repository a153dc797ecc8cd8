"""Between OpenTelemetry and the properties of events, whose names `leasehold.hubs.trace_context` owns.

What others wrote never raises: what is no context is none.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leasehold.hubs.trace_context import DIAGNOSTIC, PARENT, STATE
from leasehold.model import Event

MOST_LINKS = 128
"""As many as the SDK keeps of a span, unless it is told otherwise."""

_W3C = TraceContextTextMapPropagator()


def links_to(events: Iterable[Event]) -> list[Link]:
    """A link to each trace context that these events carry, each once, `MOST_LINKS` at most."""
    found: dict[tuple[str, str], Link] = {}
    for event in events:
        parent = event.properties.get(PARENT) or event.properties.get(DIAGNOSTIC)
        if not parent:
            continue
        key = parent, event.properties.get(STATE, "")
        if key in found:
            continue
        link = _link(*key)
        if link is not None:
            found[key] = link
        if len(found) == MOST_LINKS:
            break
    return list(found.values())


def _link(parent: str, state: str) -> Link | None:
    carrier = {PARENT: parent, **({STATE: state} if state else {})}
    context = trace.get_current_span(_W3C.extract(carrier)).get_span_context()
    return Link(context) if context.is_valid else None


def current_context() -> dict[str, str]:
    """The properties that carry the context of the current span; none where there is no span."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return {**carrier, DIAGNOSTIC: carrier[PARENT]} if PARENT in carrier else {}
