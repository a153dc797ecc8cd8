"""Spans and metrics of one hub and consumer group, after OpenTelemetry's messaging conventions.

Owns which spans there are: `send` (PRODUCER) around what is sent through it, `process` (CONSUMER) around a handler or
the body of a micro-batch, or of a whole batch of `leasehold run`, `receive` (CLIENT) for each fetch of a processor that
brought events or failed, and `checkpoint` (CLIENT) for each call that records progress. Fetches, checkpoints and the
batches of `leasehold run` get theirs when they are over: a checkpoint that a handler writes is in the handler's span, a
fetch in none, since it is ahead, in a thread that serves no single batch. A batch *links* to the producers' contexts
that its events carry; it has no parent among them, since it has many. The metrics are
`messaging.client.sent.messages`, `messaging.client.consumed.messages`, `messaging.process.duration` and
`messaging.client.operation.duration`.

Promises that without an SDK nothing is looked at: a handler is called as it is, and no event is opened for its
properties. Uses the API alone. Safe for threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider
from opentelemetry.util.types import AttributeValue

from leasehold.errors import UsageError
from leasehold.hubs.base import Hub
from leasehold.hubs.trace_context import sent_in
from leasehold.model import Event
from leasehold.notices import BatchDone, BatchRetried, EventsReceived, Notice, Notices, StoreCalled
from leasehold.processors.events import EventBatch, PartitionContext
from leasehold.tracing.context import current_context, links_of, links_to
from leasehold.tracing.conventions import Attributes, Conventions

if TYPE_CHECKING:
    from leasehold.processors.events.handlers import OnEvents


class _Batch(Protocol):
    """A micro-batch of `MicroBatches`, as far as a span tells of it."""

    id: str

    def __len__(self) -> int: ...

    def producers(self) -> tuple[tuple[str, str], ...]: ...


class Tracing:
    """Traces what is sent to `hub` and processed of it by `consumer_group`.

    `hub` may be a URL where nothing is sent. `destination` is what spans call the hub; default: the last part of its
    URL. `tracer_provider` and `meter_provider` are for tests and for programs with several; default: those that are set
    globally, when something happens.
    """

    def __init__(
        self,
        hub: Hub | str,
        *,
        consumer_group: str = "$Default",
        destination: str = "",
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._hub = None if isinstance(hub, str) else hub
        url = hub if isinstance(hub, str) else hub.url
        self._as = Conventions(url, consumer_group, destination, tracer_provider, meter_provider)

    @property
    def active(self) -> bool:
        """Whether there is an SDK that any span would come to."""
        return self._as.active()

    # What is sent

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        """As `Hub.send`, in a span whose context the `events` carry: `traceparent` and `Diagnostic-Id`.

        One that carries a context already keeps it. `partition` is where all go, if given. Raises what the hub raises,
        and `UsageError` where only the hub's URL is known.
        """
        if self._hub is None:
            raise UsageError("Tracing was made with the hub's URL, and sends nothing: make it with the hub (open_hub)")
        said = {**self._as.common, "messaging.operation.name": "send", "messaging.operation.type": "send"}
        if partition is not None:
            said["messaging.destination.partition.id"] = partition
        started = time.monotonic()
        failed: dict[str, AttributeValue] = {}
        sent = 0
        with self._as.tracer().start_as_current_span(
            f"send {self._as.destination}", kind=SpanKind.PRODUCER, attributes=said
        ) as span:
            context = current_context()
            try:
                sent = self._hub.send((sent_in(event, context) for event in events), partition=partition)
            except BaseException as error:
                failed = {"error.type": type(error).__qualname__}
                span.set_attributes(failed)
                raise
            finally:
                self._as.operation.record(time.monotonic() - started, {**said, **failed})
            span.set_attribute("messaging.batch.message_count", sent)
        self._as.sent.add(sent, said)
        return sent

    # What is processed

    def handler(self, on_events: OnEvents) -> OnEvents:
        """`on_events` in a span, which links to the producers of its events. Give it to `EventProcessor`."""

        def handle(batch: EventBatch, context: PartitionContext) -> object:
            if not self.active:
                return on_events(batch, context)
            more = {"messaging.destination.partition.id": batch.partition}
            with self._processing(len(batch), more, links_to(batch)):
                return on_events(batch, context)

        return handle

    @contextmanager
    def batch(self, batch: _Batch) -> Iterator[None]:
        """The body of a `MicroBatches` loop in a span.

        `batch` is what the loop has given. With `MicroBatches(trace_links=True)` the span links to the producers of
        the events that Spark's tasks have read by the end of the body.
        """
        if not self.active:
            yield
            return
        with self._processing(len(batch), {"leasehold.batch.id": batch.id}, ()) as span:
            try:
                yield
            finally:
                for link in links_of(batch.producers()):
                    span.add_link(link.context)

    def watch(self, notices: Notices, *, batches: bool = False) -> Callable[[], None]:
        """Count the batches of the instance that tells `notices`, and trace what it receives and its checkpoints.

        `batches`: a span for each of its batches too, and for each try that failed, for a loop whose body is not yours:
        `leasehold run`. Returns what ends it all.
        """

        def hear(notice: Notice) -> None:
            match notice:
                case EventsReceived():
                    self._received(notice)
                case BatchDone():
                    self._batch_done(notice, with_span=batches)
                case BatchRetried() if batches:
                    self._batch_span(notice, (), notice.reason, {})
                case StoreCalled(operation="update_checkpoints"):
                    self._as.operation_done("checkpoint", "settle", notice.seconds, notice.error_type, {})

        return notices.subscribe(hear, Notice)

    @contextmanager
    def _processing(self, count: int, more: Attributes, links: Iterable[Link]) -> Iterator[Span]:
        with self._as.tracer().start_as_current_span(
            f"process {self._as.destination}",
            kind=SpanKind.CONSUMER,
            attributes=self._as.processing(count, more),
            links=list(links),
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def _received(self, fetch: EventsReceived) -> None:
        more: dict[str, AttributeValue] = {"messaging.destination.partition.id": fetch.partition}
        if not fetch.error_type:
            more["messaging.batch.message_count"] = fetch.events
        self._as.operation_done("receive", "receive", fetch.seconds, fetch.error_type, more)

    def _batch_done(self, done: BatchDone, *, with_span: bool) -> None:
        said = {**self._as.group, "messaging.operation.name": "process"}
        self._as.consumed.add(done.events, said)
        self._as.process.record(sum(seconds for phase, seconds in done.seconds.items() if phase != "plan"), said)
        if with_span:
            phases = {f"leasehold.batch.{phase}_seconds": seconds for phase, seconds in done.seconds.items()}
            counts = {f"leasehold.batch.{name}": count for name, count in done.counts.named().items()}
            links = links_of(done.producers)
            self._batch_span(done, links, "", {**phases, **counts})

    def _batch_span(
        self, batch: BatchDone | BatchRetried, links: Iterable[Link], error_type: str, more: Attributes
    ) -> None:
        said = self._as.processing(batch.events, {"leasehold.batch.id": batch.batch_id, **more})
        self._as.ended(
            "process", SpanKind.CONSUMER, batch.elapsed, said, links=links, error_type=error_type, alone=True
        )
