"""A file means the same on Spark and in a plain process: each continues where the other has stopped."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from cloudevents.core.bindings.kafka import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from pyspark.sql import SparkSession

from leasehold import Event
from leasehold.hubs.log import LogHub
from leasehold.operations.aside.contract import EntryFilter
from leasehold.operations.aside.rejected import RejectedAside
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks import open_sink
from leasehold.sinks.set_aside import RetryResult
from leasehold.spark import PipelineRun
from leasehold.spark.retrying import Retransform
from leasehold_testkit.emulators.registry import RegistryServer
from tests.projected.cloud_flights import cloud_events, event_of, send_cloud_events, write_cloud_events
from tests.projected.debezium_flights import debezium_bodies, debezium_start, write_debezium
from tests.projected.flights import (
    avro_bodies,
    avro_start,
    bodies,
    contents_of,
    json_start,
    registered,
    registered_start,
    send,
    write,
    write_avro,
    write_registered,
)
from tests.projected.protobuf_flights import (
    protobuf_bodies,
    protobuf_start,
    registered_protobuf,
    registered_protobuf_start,
    write_protobuf,
    write_registered_protobuf,
)
from tests.spark.handled_runs import opened_as
from tests.spark.ways import on_spark, plain
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.more


RULES = {
    "sequence_by": {"delete_when": 'sequence_by = "at"'},
    "when": {"delete_when": """when = "op = 'u'"\nonly_columns = ["ID", "late", "told", "raw"]"""},
}


@pytest.mark.parametrize("order", ["delete_when", "sequence_by", "when", "avro", "protobuf", "debezium"])
def test_the_same_rows_and_rejects_whoever_reads(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    changes = RULES.get(order, {})
    made, start, make = {
        "avro": (avro_bodies, avro_start, write_avro),
        "protobuf": (protobuf_bodies, protobuf_start, write_protobuf),
        "debezium": (debezium_bodies, debezium_start, write_debezium),
    }.get(order, (bodies, json_start, write))
    parts = [made(Random(order), 400), made(Random(f"{order} again"), 400)]
    ways = {
        "plain": (plain, plain),
        "spark": (on_spark, on_spark),
        "mixed": (on_spark, plain),
        "back": (plain, on_spark),
    }
    found = {}
    for name, way in ways.items():
        folder = tmp_path / name
        folder.mkdir()
        hub, file = LogHub.create(folder / "hub.db", partitions=3), make(folder, **changes)
        for part, run in zip(parts, way, strict=True):
            send(hub, part, start)
            run(file, spark)
        found[name] = contents_of(folder)
    assert found["plain"][1]
    assert found["plain"][2]
    assert found["spark"] == found["plain"] == found["mixed"] == found["back"]


def test_the_same_of_cloud_events_in_both_modes(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    dice = Random(59)
    parts = [cloud_events(dice, 400) for _ in range(2)]
    found = {}
    for name, way in {"plain": (plain, plain), "spark": (on_spark, on_spark), "mixed": (on_spark, plain)}.items():
        folder = tmp_path / name
        folder.mkdir()
        hub, file = LogHub.create(folder / "hub.db", partitions=3), write_cloud_events(folder)
        for part, run in zip(parts, way, strict=True):
            send_cloud_events(hub, part)
            run(file, spark)
        found[name] = contents_of(folder)
    reasons = [reason for _, _, reason, _ in found["plain"][2]]
    for said in ("no header ce_specversion", "is a batch of them", "no CloudEvent of version 1", "the field delay"):
        assert any(said in reason for reason in reasons), said
    assert found["plain"][1]
    assert found["spark"] == found["plain"] == found["mixed"]


@pytest.mark.parametrize("way", ["plain", "spark"])
def test_a_rejected_cloud_event_is_tried_again_with_its_headers(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Whoever has rejected it, and when the hub has removed it; the transform uses no header."""
    monkeypatch.setattr(spark, "stop", lambda: None)
    attributes = {"source": "/gates", "type": "u", "specversion": "1.0"}
    of_both = (
        event_of(to_binary_event(CloudEvent({**attributes, "id": "1", "subject": "f1"}, {"delay": "1.5"}))),
        event_of(to_structured_event(CloudEvent({**attributes, "id": "2", "subject": "f2"}, {"delay": "2.5"}))),
    )
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    hub.send([*of_both, Event(b"{}")], partition="0")
    run = plain if way == "plain" else on_spark
    run(write_cloud_events(tmp_path), spark)
    assert len(contents_of(tmp_path)[2]) == 3
    hub.retain(max_bytes=0)
    file = read_pipeline_file(write_cloud_events(tmp_path, "STRING", "CAST(delay AS DOUBLE)"))
    aside = RejectedAside(file, open_sink(file.sink_url, file.table_spec()), lambda file: Retransform(file, spark))
    done = aside.retry(EntryFilter(), None, lambda seen: None)
    assert (RetryResult(**done.counts), list(done.left)) == (RetryResult(applied=2, rejected=1), [])
    _, rows, ((_, _, reason, _),) = contents_of(tmp_path)
    assert [row[:3] for row in rows] == [("f1", 1.5, "1"), ("f2", 2.5, "2")]
    assert "no CloudEvent" in reason


def test_a_cloud_event_that_cannot_be_computed_is_tried_again_with_its_headers(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    attributes = {"source": "/gates", "type": "u", "specversion": "1.0"}
    modes = [to_binary_event, to_structured_event] * 2
    events = [
        event_of(mode(CloudEvent({**attributes, "id": str(number), "subject": f"f{number}"}, {"delay": 1.5})))
        for number, mode in enumerate(modes)
    ]
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    hub.send(events, partition="0")
    raises = "IF(ce_subject < 'f2', delay, CAST(raise_error(ce_id) AS DOUBLE))"
    on_spark(write_cloud_events(tmp_path, late=raises), spark)
    assert [row[0] for row in contents_of(tmp_path)[1]] == ["f0", "f1"]
    hub.retain(max_bytes=0)
    file = read_pipeline_file(write_cloud_events(tmp_path))
    aside = RejectedAside(file, open_sink(file.sink_url, file.table_spec()), lambda file: Retransform(file, spark))
    done = aside.retry(EntryFilter(), None, lambda seen: None)
    assert (RetryResult(**done.counts), list(done.left)) == (RetryResult(applied=2), [])
    assert [row[:3] for row in contents_of(tmp_path)[1]] == [(f"f{number}", 1.5, str(number)) for number in range(4)]


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_the_same_by_the_schemas_of_a_registry(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    made, behind, start, make = {
        "avro": (avro_bodies, registered, registered_start, write_registered),
        "protobuf": (protobuf_bodies, registered_protobuf, registered_protobuf_start, write_registered_protobuf),
    }[format]
    monkeypatch.setattr(spark, "stop", lambda: None)
    dice = Random(59)
    found = {}
    with closing(RegistryServer()) as server:
        parts = [behind(server, dice, made(dice, 400)) for _ in range(2)]
        for name, way in {"plain": (plain, plain), "spark": (on_spark, on_spark), "mixed": (on_spark, plain)}.items():
            folder = tmp_path / name
            folder.mkdir()
            hub, file = LogHub.create(folder / "hub.db", partitions=3), make(folder, server.url)
            for part, run in zip(parts, way, strict=True):
                send(hub, part, start)
                run(file, spark)
            found[name] = contents_of(folder)
    assert any("is not known to the registry" in reason for _, _, reason, _ in found["plain"][2])
    assert found["plain"][1]
    assert found["spark"] == found["plain"] == found["mixed"]


def test_a_registry_that_is_away_is_waited_for(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)
    dice, said = Random(59), list[str]()
    hub = LogHub.create(tmp_path / "hub.db", partitions=3)
    with closing(RegistryServer()) as server:
        port, part = server.port, registered(server, dice, avro_bodies(dice, 400))
        file = write_registered(tmp_path, server.url)
    send(hub, part, registered_start)
    run = PipelineRun(
        read_pipeline_file(file),
        java=opened_as(spark),
        available_now=True,
        report=lambda progress: said.append(progress.note),
    )
    thread = threading.Thread(target=run.run, args=(threading.Event(),))
    thread.start()
    until(lambda: any("does not answer" in note for note in said), "the registry to be missed")
    with closing(RegistryServer(port)) as server:
        registered(server, Random(59), [])
        thread.join(PATIENCE)
    assert not thread.is_alive()
    assert contents_of(tmp_path)[1]
