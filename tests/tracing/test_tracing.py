"""Spans, links and metrics by OpenTelemetry's own SDK; and that without one nothing is done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from leasehold.counts import Counts
from leasehold.errors import ConfigError, UsageError
from leasehold.hubs.log.hub import LogHub
from leasehold.hubs.trace_context import MOST_LINKS
from leasehold.installation import command_for
from leasehold.model import Event
from leasehold.notices import BatchDone, BatchRetried, EventsReceived, Notices, StoreCalled
from leasehold.processors.events import EACH_BATCH, EventBatch, EventProcessor, PartitionContext
from leasehold.stores.memory.store import MemoryStore
from leasehold.tracing import Tracing
from leasehold.tracing.context import links_to
from tests.processor.plain import DELIVERY, SETTINGS
from tests.waiting import until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
COUNTS = Counts(used=7, applied=5, rejected=2)


@dataclass
class Sdk:
    """An SDK that keeps everything in memory."""

    tracers: TracerProvider
    meters: MeterProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        found = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [point for metric in found for point in metric.data.data_points]


@pytest.fixture
def sdk() -> Iterator[Sdk]:
    tracers, exporter, reader = TracerProvider(), InMemorySpanExporter(), InMemoryMetricReader()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider(metric_readers=[reader])
    yield Sdk(tracers, meters, exporter, reader)
    tracers.shutdown()
    meters.shutdown()


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return LogHub.create(tmp_path / "flights.db", partitions=1)


def tracing_of(hub: LogHub, sdk: Sdk) -> Tracing:
    return Tracing(hub, consumer_group="g", tracer_provider=sdk.tracers, meter_provider=sdk.meters)


def properties_in(hub: LogHub) -> list[dict[str, str]]:
    [batch] = hub.read("0", 0, 100, columns=["properties"])
    return [dict(row["properties"] or ()) for row in batch.to_pylist()]


def test_what_is_sent_carries_the_span_s_context_and_keeps_what_it_has(hub: LogHub, sdk: Sdk) -> None:
    own, others = {"traceparent": PARENT, "kind": "x"}, {"Diagnostic-Id": PARENT}
    assert tracing_of(hub, sdk).send([Event(b"1", properties={"a": "b"}), Event(b"2", properties=own),
                                      Event(b"3", properties=others)]) == 3  # fmt: skip
    [span] = sdk.spans("send flights.db")
    mine = span.get_span_context()
    assert mine is not None
    written = f"00-{mine.trace_id:032x}-{mine.span_id:016x}-{mine.trace_flags:02x}"
    assert properties_in(hub) == [{"a": "b", "traceparent": written, "Diagnostic-Id": written}, own, others]
    assert span.kind is SpanKind.PRODUCER
    assert dict(span.attributes or {}) == {
        "messaging.system": "log",
        "messaging.destination.name": "flights.db",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 3,
    }
    assert [point.value for point in sdk.points("messaging.client.sent.messages")] == [3]


def test_a_batch_links_to_its_producers_and_the_handler_runs_in_its_span(hub: LogHub, sdk: Sdk) -> None:
    tracing = tracing_of(hub, sdk)
    tracing.send([Event(b"1"), Event(b"2")])
    hub.send([Event(b"3", properties={"traceparent": PARENT}), Event(b"4", properties={"traceparent": "no such"})])
    inside: list[trace.SpanContext] = []

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        inside.append(trace.get_current_span().get_span_context())

    processor = EventProcessor(
        hub,
        MemoryStore(),
        tracing.handler(on_events),
        consumer_group="g",
        ownership=SETTINGS,
        delivery=replace(DELIVERY, checkpoint=EACH_BATCH),
    )
    tracing.watch(processor.notices)
    with processor:
        until(lambda: sdk.spans("checkpoint flights.db"), "the checkpoint")
        until(lambda: sum(point.value for point in sdk.points("messaging.client.consumed.messages")) >= 4, "all four")
    spans = sdk.spans("process flights.db")
    assert {span.get_span_context().span_id for span in spans} == {context.span_id for context in inside}  # type: ignore[union-attr]
    [sent] = sdk.spans("send flights.db")
    linked = {link.context.trace_id for span in spans for link in span.links}
    assert linked == {sent.get_span_context().trace_id, int(TRACE, 16)}  # type: ignore[union-attr]
    for span in spans:
        assert span.parent is None
        assert span.kind is SpanKind.CONSUMER
        assert (span.attributes or {})["messaging.destination.partition.id"] == "0"
        assert (span.attributes or {})["messaging.consumer.group.name"] == "g"
    fetched = sdk.spans("receive flights.db")
    assert sum((span.attributes or {})["messaging.batch.message_count"] for span in fetched) == 4  # type: ignore[misc]
    assert {
        (span.kind, span.parent, (span.attributes or {})["messaging.destination.partition.id"]) for span in fetched
    } == {(SpanKind.CLIENT, None, "0")}
    checkpoint = sdk.spans("checkpoint flights.db")[0]
    assert (checkpoint.kind, checkpoint.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    assert sdk.points("messaging.process.duration")


def test_a_send_that_fails_is_on_its_span_and_counts_nothing_as_sent(hub: LogHub, sdk: Sdk) -> None:
    with pytest.raises(ConfigError, match="the log has partitions 0 to 0"):
        tracing_of(hub, sdk).send([Event(b"1")], partition="9")
    [span] = sdk.spans("send flights.db")
    assert span.status.status_code is StatusCode.ERROR
    said = dict(span.attributes or {})
    assert (said["error.type"], said["messaging.destination.partition.id"]) == ("ConfigError", "9")
    assert "messaging.batch.message_count" not in said
    [timed] = sdk.points("messaging.client.operation.duration")
    assert (timed.attributes["messaging.operation.name"], timed.attributes["error.type"]) == ("send", "ConfigError")
    assert sdk.points("messaging.client.sent.messages") == []


def test_errors_are_on_the_span_and_pass(hub: LogHub, sdk: Sdk) -> None:
    tracing = tracing_of(hub, sdk)

    def fail(batch: EventBatch, context: PartitionContext) -> None:
        raise ValueError("no")

    class Batch(list[Event]):
        partition = "0"

    with pytest.raises(ValueError, match="no"):
        tracing.handler(fail)(Batch([Event(b"")]), None)  # type: ignore[arg-type]
    [span] = sdk.spans("process flights.db")
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "ValueError")
    notices = Notices()
    tracing.watch(notices)
    notices.publish(StoreCalled("update_checkpoints", 0.5, 1, 0, "StoreUnavailable"))
    [checkpoint] = sdk.spans("checkpoint flights.db")
    assert checkpoint.status.status_code is StatusCode.ERROR
    assert (checkpoint.end_time or 0) - (checkpoint.start_time or 0) == 500_000_000
    notices.publish(EventsReceived("0", 0, 0.5, "HubUnavailable"))
    [receive] = sdk.spans("receive flights.db")
    assert receive.status.status_code is StatusCode.ERROR
    timed = {
        (point.attributes["messaging.operation.name"], point.attributes["error.type"]): point.sum
        for point in sdk.points("messaging.client.operation.duration")
    }
    assert timed == {("checkpoint", "StoreUnavailable"): 0.5, ("receive", "HubUnavailable"): 0.5}


def test_the_batches_of_a_loop_have_spans_when_they_are_over(sdk: Sdk) -> None:
    tracing = Tracing("log:///a/flights.db?x=y", tracer_provider=sdk.tracers, meter_provider=sdk.meters)
    notices = Notices()
    tracing.watch(notices, batches=True)
    phases = {"plan": 0.25, "compute": 1.0, "write": 0.5}
    with sdk.tracers.get_tracer("mine").start_as_current_span("around"):
        notices.publish(BatchRetried("away", events=7, batch_id="b", elapsed=1.5))
        notices.publish(
            BatchDone(
                7,
                phases,
                COUNTS,
                batch_id="b",
                elapsed=2.0,
                producers=((PARENT, ""), (PARENT, ""), ("bad", "")),
            )
        )
    failed, done = sdk.spans("process flights.db")
    assert (failed.status.status_code, (failed.attributes or {})["error.type"]) == (StatusCode.ERROR, "away")
    assert [(span.end_time or 0) - (span.start_time or 0) for span in (failed, done)] == [1_500_000_000, 2_000_000_000]
    assert (done.parent, done.kind, [link.context.trace_id for link in done.links]) == (
        None,
        SpanKind.CONSUMER,
        [int(TRACE, 16)],
    )
    said = dict(done.attributes or {})
    assert (said["leasehold.batch.id"], said["messaging.batch.message_count"]) == ("b", 7)
    assert {phase: said[f"leasehold.batch.{phase}_seconds"] for phase in phases} == phases
    assert {name: said[f"leasehold.batch.{name}"] for name in COUNTS.named()} == COUNTS.named()
    assert [point.sum for point in sdk.points("messaging.process.duration")] == [1.5]
    with pytest.raises(UsageError, match="with the hub's URL"):
        tracing.send([Event(b"")])


def test_links_are_each_there_once_and_not_without_bound() -> None:
    same = [Event(b"", properties={"traceparent": PARENT})] * 10
    many = [Event(b"", properties={"Diagnostic-Id": f"00-{n + 1:032x}-{SPAN}-01"}) for n in range(1_000)]
    odd = [Event(b"", properties={"traceparent": text}) for text in ("", "x", f"00-{'0' * 32}-{SPAN}-01", "\0" * 55)]
    assert len(links_to(same)) == 1
    assert len(links_to([*odd, *many])) == MOST_LINKS
    assert links_to(odd) == []


def test_without_an_sdk_no_event_is_opened(hub: LogHub) -> None:
    tracing = Tracing(hub)
    seen = []

    class Closed:
        partition = "0"

        def __iter__(self) -> Iterator[Event]:
            raise AssertionError("an event was opened")

        def __len__(self) -> int:
            raise AssertionError("a batch was counted")

    tracing.handler(lambda batch, context: seen.append(batch))(Closed(), None)  # type: ignore[arg-type]
    assert len(seen) == 1
    assert tracing.send([Event(b"1")]) == 1
    assert properties_in(hub) == [{}]
    notices = Notices()
    end = tracing.watch(notices)
    notices.publish(EventsReceived("0", 3, 0.1))
    notices.publish(BatchDone(3, {"handle": 0.1}))
    end()


def test_a_hub_writes_the_context_of_a_span_that_is_recorded_and_of_no_other(hub: LogHub, sdk: Sdk) -> None:
    state = trace.TraceState([("vendor", "x")])
    remote = trace.SpanContext(int(TRACE, 16), int(SPAN, 16), True, trace.TraceFlags(1), state)
    around = trace.set_span_in_context(trace.NonRecordingSpan(remote))
    with trace.use_span(trace.NonRecordingSpan(remote)):
        hub.send([Event(b"1")])
    with sdk.tracers.get_tracer("mine").start_as_current_span("work", context=around) as span:
        hub.send(Event(b"2") for _ in range(2))
    hub.send([Event(b"3")])
    mine = span.get_span_context()
    parent = f"00-{TRACE}-{mine.span_id:016x}-{mine.trace_flags:02x}"
    written = {"traceparent": parent, "Diagnostic-Id": parent, "tracestate": "vendor=x"}
    assert properties_in(hub) == [{}, written, written, {}]


def test_a_span_that_fails_keeps_no_event_from_being_sent(hub: LogHub, caplog: pytest.LogCaptureFixture) -> None:
    class Bad(trace.NonRecordingSpan):
        def is_recording(self) -> bool:
            raise RuntimeError("no")

    with trace.use_span(Bad(trace.INVALID_SPAN_CONTEXT)):
        hub.send([Event(b"1")])
    assert properties_in(hub) == [{}]
    assert "events are sent without it" in caplog.text


@pytest.mark.more
def test_nothing_that_works_imports_it_and_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import leasehold.processors.events, leasehold.spark.pipeline, leasehold.tracing\n"
        "import leasehold.hubs.log.hub, leasehold.hubs.event_hubs.hub, leasehold.hubs.kafka.hub\n"
        "try: leasehold.tracing.Tracing\n"
        "except leasehold.MissingDependency as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert command_for("otel") in ran.stdout
