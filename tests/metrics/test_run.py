"""`leasehold run` with `[metrics] listen` and an SDK around it: metrics, probes, spans, until it is told to stop."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.faults.place import FENCE, PIPELINE
from tests.metrics.groups import samples
from tests.metrics.scraper import get
from tests.waiting import PATIENCE, until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WITH_AN_SDK = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from leasehold.cli.app import main

out = open("spans.jsonl", "w", buffering=1)
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
main()
"""
"""What `opentelemetry-instrument` does before it starts a program."""


@pytest.mark.more
def test_a_run_is_served_and_traced(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    for partition in hub.partition_ids():
        bodies = [json.dumps({"id": f"{partition}-{n}", "n": n}).encode() for n in range(5)]
        sent = [Event(body, properties={"traceparent": PARENT}) for body in [*bodies, b"no json"]]
        hub.send(sent, partition=partition)
    text = PIPELINE.format(hub="log:///hub.db", name="first", fence=FENCE, order="", on_error="reject")
    (tmp_path / "p.toml").write_text(f'{text}\n[metrics]\nlisten = "127.0.0.1:0"\n')
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_AN_SDK, "run", "p.toml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")))  # type: ignore[union-attr]
    reading.start()
    try:
        until(lambda: any("metrics at" in line for line in lines), "the address")
        url = re.search(r"http://[^/\s]+", "".join(lines))
        assert url is not None
        assert get(f"{url[0]}/livez") == (200, "ok\n")

        def told(series: str) -> float:
            return samples(get(f"{url[0]}/metrics")[1]).get(f"leasehold_instance_{series}", 0.0)

        def applied() -> bool:
            assert process.poll() is None, "".join(lines)
            return told("events_total") >= 12

        until(applied, "all events to be applied", pause=0.2)
        assert (told("events_total"), told('table_rows_total{outcome="rejected"}')) == (12, 2)
        for phase in ("plan", "compute", "write"):
            assert told(f'batch_phase_seconds_sum{{phase="{phase}"}}') > 0
        for part in ("plan", "read", "transform", "stage", "merge"):
            assert told(f'batch_part_seconds_sum{{part="{part}"}}') > 0
        for parts, phase in ((("plan",), "plan"), (("read", "transform"), "compute")):
            whole = sum(told(f'batch_part_seconds_sum{{part="{part}"}}') for part in parts)
            assert whole == pytest.approx(told(f'batch_phase_seconds_sum{{phase="{phase}"}}'))
        inside = sum(told(f'batch_part_seconds_sum{{part="{part}"}}') for part in ("stage", "merge"))
        assert inside <= told('table_transaction_seconds_sum{table="entities"}')
        assert told('table_rows_total{outcome="rejected"}') == 2
        assert told("partitions") == 2
        until(lambda: get(f"{url[0]}/readyz")[0] == 200, "it to be ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        reading.join()
        process.stderr.close()
    spans = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    done = [span for span in spans if span["name"] == "process hub.db"]
    assert sum(span["attributes"]["messaging.batch.message_count"] for span in done) == 12
    for span in done:
        assert [link["context"]["trace_id"] for link in span["links"]] == [f"0x{PARENT[3:35]}"]
        assert span["parent_id"] is None
        assert span["attributes"]["leasehold.batch.compute_seconds"] > 0
    assert [span for span in spans if span["name"] == "checkpoint hub.db"]
