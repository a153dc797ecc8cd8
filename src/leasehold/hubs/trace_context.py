"""The trace that an event was sent in, as its properties carry it.

Owns the names: `traceparent` and `tracestate` of W3C's Trace Context, and `Diagnostic-Id`, which holds the same as
`traceparent` and is what some Azure SDKs read. Every hub sends what `sent_in_span` gives.

Promises to import nothing of OpenTelemetry. A program that has a span has imported OpenTelemetry; without the import
there is no span, and checking costs one dictionary lookup. An event that carries a context keeps it, since it was made
there. An error in somebody else's tracer never keeps an event from being sent.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace

from leasehold.model import Event

PARENT, STATE, DIAGNOSTIC = "traceparent", "tracestate", "Diagnostic-Id"
MOST_LINKS = 128
"""The most producers that the span of a batch links to: OpenTelemetry's SDK keeps as many by default."""

logger = logging.getLogger(__name__)


def sent_in_span(events: Iterable[Event]) -> Iterable[Event]:
    """The events, with the context of this thread's current span if that is recorded. They are taken one by one."""
    context = recorded_context()
    return (sent_in(event, context) for event in events) if context else events


def sent_in(event: Event, context: Mapping[str, str]) -> Event:
    """The event with this context, unless it carries one already."""
    if not context or PARENT in event.properties or DIAGNOSTIC in event.properties:
        return event
    return replace(event, properties={**event.properties, **context})


def recorded_context() -> dict[str, str]:
    """The properties that carry the context of the current span; none where no span is recorded."""
    api = sys.modules.get("opentelemetry.trace")
    current_span = getattr(api, "get_current_span", None)  # None also while another thread is importing it
    if current_span is None:
        return {}
    try:
        span = current_span()
        if not span.is_recording():
            return {}
        context = span.get_span_context()
        if not context.is_valid:
            return {}
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        state = context.trace_state.to_header()
    except Exception:
        logger.exception("the current span does not tell its context: events are sent without it")
        return {}
    return {PARENT: parent, DIAGNOSTIC: parent, **({STATE: state} if state else {})}
