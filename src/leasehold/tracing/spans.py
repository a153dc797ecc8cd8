"""Spans and metrics of one hub and consumer group, after OpenTelemetry's messaging conventions.

Owns which spans there are: `send` (PRODUCER) around what is sent through it, `process` (CONSUMER) around a handler or
the body of a micro-batch, `receive` (CLIENT) for each fetch of a processor that brought events or failed, and
`checkpoint` (CLIENT) for each call that records progress. The last two are made when they are over: a checkpoint that a
handler writes is in the handler's span, a fetch in none, since it is ahead, in a thread that serves no single batch. A
batch *links* to the producers' contexts that its events carry; it has no parent among them, since it has many. The
metrics are `messaging.client.sent.messages`, `messaging.client.consumed.messages`, `messaging.process.duration` and
`messaging.client.operation.duration`.

Promises that without an SDK nothing is looked at: a handler is called as it is, and no event is opened for its
properties. Uses the API alone. Safe for threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from leasehold._version import __version__
from leasehold.hubs.base import Hub
from leasehold.hubs.trace_context import sent_in
from leasehold.model import Event
from leasehold.notices import BatchDone, EventsReceived, Notices, StoreCalled
from leasehold.processor import EventBatch, PartitionContext
from leasehold.tracing.context import current_context, links_to

if TYPE_CHECKING:
    from leasehold.processor.pump import OnEvents

_SYSTEMS = {"eventhubs": "eventhubs", "kafka": "kafka"}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The buckets that the conventions advise."""

_Attributes = Mapping[str, AttributeValue]


class _Batch(Protocol):
    """A micro-batch of `MicroBatches`, as far as a span tells of it."""

    id: str

    def __len__(self) -> int: ...


class Tracing:
    """Traces what is sent to `hub` and processed of it by `consumer_group`.

    `destination` is what spans call the hub; default: the last part of its URL. `tracer_provider` and `meter_provider`
    are for tests and for programs with several; default: those that are set globally, when something happens.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        consumer_group: str = "$Default",
        destination: str = "",
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        scheme, _, rest = hub.url.partition("://")
        self._hub = hub
        self._destination = destination or rest.partition("?")[0].rstrip("/").rpartition("/")[2]
        self._tracers = tracer_provider
        self._common: _Attributes = {
            "messaging.system": _SYSTEMS.get(scheme, scheme),
            "messaging.destination.name": self._destination,
        }
        self._group: _Attributes = {**self._common, "messaging.consumer.group.name": consumer_group}
        meter = metrics.get_meter("leasehold", __version__, meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were processed."
        )
        self._process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long the processing of a batch took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long sends, fetches and checkpoints took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    # What is sent

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        """As `Hub.send`, in a span whose context the `events` carry: `traceparent` and `Diagnostic-Id`.

        One that carries a context already keeps it. `partition` is where all go, if given. Raises what the hub raises.
        """
        said = {**self._common, "messaging.operation.name": "send", "messaging.operation.type": "send"}
        if partition is not None:
            said["messaging.destination.partition.id"] = partition
        started = time.monotonic()
        failed: dict[str, AttributeValue] = {}
        sent = 0
        with self._tracer().start_as_current_span(
            f"send {self._destination}", kind=SpanKind.PRODUCER, attributes=said
        ) as span:
            context = current_context()
            try:
                sent = self._hub.send((sent_in(event, context) for event in events), partition=partition)
            except BaseException as error:
                failed = {"error.type": type(error).__qualname__}
                span.set_attributes(failed)
                raise
            finally:
                self._operation.record(time.monotonic() - started, {**said, **failed})
            span.set_attribute("messaging.batch.message_count", sent)
        self._sent.add(sent, said)
        return sent

    # What is processed

    def handler(self, on_events: OnEvents) -> OnEvents:
        """`on_events` in a span, which links to the producers of its events. Give it to `EventProcessor`."""

        def handle(batch: EventBatch, context: PartitionContext) -> object:
            if not self._active():
                return on_events(batch, context)
            more = {"messaging.destination.partition.id": batch.partition}
            with self._processing(len(batch), more, batch):
                return on_events(batch, context)

        return handle

    @contextmanager
    def batch(self, batch: _Batch) -> Iterator[None]:
        """The body of a `MicroBatches` loop in a span. Without links: events are in Spark's tasks, and not here.

        `batch` is what the loop has given.
        """
        with self._processing(len(batch), {"leasehold.batch.id": batch.id}, ()):
            yield

    def watch(self, notices: Notices) -> Callable[[], None]:
        """Count the batches of the instance that tells `notices`, and trace what it receives and its checkpoints.

        Returns what ends that.
        """
        ends = [
            notices.subscribe(self._batch_done, BatchDone),
            notices.subscribe(self._received, EventsReceived),
            notices.subscribe(self._store_called, StoreCalled),
        ]

        def end() -> None:
            for one in ends:
                one()

        return end

    @contextmanager
    def _processing(self, count: int, more: _Attributes, events: Iterable[Event]) -> Iterator[None]:
        said = {
            **self._group,
            **more,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.batch.message_count": count,
        }
        with self._tracer().start_as_current_span(
            f"process {self._destination}", kind=SpanKind.CONSUMER, attributes=said, links=links_to(events)
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def _batch_done(self, done: BatchDone) -> None:
        said = {**self._group, "messaging.operation.name": "process"}
        self._consumed.add(done.events, said)
        self._process.record(sum(seconds for phase, seconds in done.seconds.items() if phase != "plan"), said)

    def _store_called(self, call: StoreCalled) -> None:
        if call.operation == "update_checkpoints":
            self._was_done("checkpoint", "settle", call.seconds, call.error_type, {})

    def _received(self, fetch: EventsReceived) -> None:
        more: dict[str, AttributeValue] = {"messaging.destination.partition.id": fetch.partition}
        if not fetch.error_type:
            more["messaging.batch.message_count"] = fetch.events
        self._was_done("receive", "receive", fetch.seconds, fetch.error_type, more)

    def _was_done(self, name: str, kind: str, seconds: float, error_type: str, more: _Attributes) -> None:
        """Count an operation that has just ended, and make its span, which alone has `more`."""
        said = {
            **self._group,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            **({"error.type": error_type} if error_type else {}),
        }
        self._operation.record(seconds, said)
        if not self._active():
            return
        ended = time.time_ns()
        span = self._tracer().start_span(
            f"{name} {self._destination}",
            kind=SpanKind.CLIENT,
            attributes={**said, **more},
            start_time=ended - round(seconds * 1e9),
        )
        if error_type:
            span.set_status(Status(StatusCode.ERROR, error_type))
        span.end(ended)

    def _active(self) -> bool:
        """Whether there is an SDK that anything would come of."""
        return self._tracers is not None or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    def _tracer(self) -> trace.Tracer:
        return trace.get_tracer("leasehold", __version__, self._tracers)
