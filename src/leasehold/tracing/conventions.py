"""What OpenTelemetry's messaging conventions want: the attributes of one hub and consumer group, metrics, spans.

Owns the names, the buckets, and spans of what is over already: they are made of how long it took, and end now. Uses the
API alone. Safe for threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from leasehold._version import __version__

Attributes = Mapping[str, AttributeValue]

_SYSTEMS = {"eventhubs": "eventhubs", "kafka": "kafka"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The buckets that the conventions advise."""


class Conventions:
    """The conventions for what is done with the hub at `url`. Arguments as those of `Tracing`."""

    def __init__(
        self,
        url: str,
        consumer_group: str,
        destination: str,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
    ) -> None:
        scheme, _, rest = url.partition("://")
        self.destination = destination or rest.partition("?")[0].rstrip("/").rpartition("/")[2]
        self._tracers = tracer_provider
        self.common: Attributes = {
            "messaging.system": _SYSTEMS.get(scheme, scheme),
            "messaging.destination.name": self.destination,
        }
        self.group: Attributes = {**self.common, "messaging.consumer.group.name": consumer_group}
        meter = metrics.get_meter("leasehold", __version__, meter_provider)
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were processed."
        )
        self.process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long the processing of a batch took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long sends, fetches and checkpoints took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def active(self) -> bool:
        """Whether there is an SDK that any span would come to."""
        return self._tracers is not None or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    def tracer(self) -> trace.Tracer:
        """Where spans are made."""
        return trace.get_tracer("leasehold", __version__, self._tracers)

    def processing(self, count: int, more: Attributes) -> Attributes:
        """The attributes of a span in which `count` events are processed."""
        return {
            **self.group,
            **more,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.batch.message_count": count,
        }

    def operation_done(self, name: str, kind: str, seconds: float, error_type: str, more: Attributes) -> None:
        """Count a client's operation that has just ended, and make its span, which alone has `more`."""
        failed = {"error.type": error_type} if error_type else {}
        said = {**self.group, "messaging.operation.name": name, "messaging.operation.type": kind, **failed}
        self.operation.record(seconds, said)
        self.ended(name, SpanKind.CLIENT, seconds, {**said, **more}, error_type=error_type)

    def ended(
        self,
        name: str,
        kind: SpanKind,
        seconds: float,
        attributes: Attributes,
        *,
        links: Iterable[Link] = (),
        error_type: str = "",
        alone: bool = False,
    ) -> None:
        """Make the span of what has just ended after `seconds`; `alone`: in no other one. Nothing without an SDK."""
        if not self.active():
            return
        ended = time.time_ns()
        span = self.tracer().start_span(
            f"{name} {self.destination}",
            context=Context() if alone else None,
            kind=kind,
            attributes={**attributes, "error.type": error_type} if error_type else attributes,
            links=list(links),
            start_time=ended - round(seconds * 1e9),
        )
        if error_type:
            span.set_status(Status(StatusCode.ERROR, error_type))
        span.end(ended)
