"""Azure's registry on Spark: the driver asks it, tasks read by headers, and rejected events are kept with theirs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fastavro import schemaless_writer
from pyspark.sql import SparkSession

pytest.importorskip("azure.schemaregistry")

from leasehold.hubs.log import LogHub
from leasehold.operations.aside.contract import EntryFilter
from leasehold.operations.aside.rejected import RejectedAside
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks import open_sink
from leasehold.sinks.set_aside import RetryResult
from leasehold.spark.retrying import Retransform
from tests.azure_registry import AzureRegistry, azure_registry
from tests.projected.azure_flights import NOBODYS, azure_events, named, send_azure, write_azure
from tests.projected.flights import AVRO, avro_bodies, contents_of
from tests.spark.ways import on_spark, plain

pytestmark = pytest.mark.more  # tests/projected reads them without Spark


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[AzureRegistry]:
    monkeypatch.setattr(spark, "stop", lambda: None)
    with azure_registry(tmp_path, monkeypatch) as found:
        yield found


def body(id: str) -> bytes:
    value = {"id": id, "delay": 1.5, "op": "u", "at": 7, "paid": None, "day": None, "seen": None, "note": None}
    out = io.BytesIO()
    schemaless_writer(out, AVRO, value)
    return out.getvalue()


def test_the_same_rows_and_rejects_whoever_reads(tmp_path: Path, spark: SparkSession, registry: AzureRegistry) -> None:
    dice = Random(71)
    parts = [azure_events(registry, dice, avro_bodies(dice, 400)) for _ in range(2)]
    found = {}
    for name, way in {"plain": (plain, plain), "spark": (on_spark, on_spark), "mixed": (on_spark, plain)}.items():
        folder = tmp_path / name
        folder.mkdir()
        hub, file = LogHub.create(folder / "hub.db", partitions=3), write_azure(folder, registry.url)
        for part, run in zip(parts, way, strict=True):
            send_azure(hub, part)
            run(file, spark)
        found[name] = contents_of(folder)
    reasons = {reason for _, _, reason, _ in found["plain"][2]}
    assert f"its schema, {NOBODYS}, is not known to the registry" in reasons
    assert found["plain"][1]
    assert found["spark"] == found["plain"] == found["mixed"]


@pytest.mark.parametrize("way", ["plain", "spark"])
def test_an_event_is_tried_again_by_its_content_type_when_its_schema_has_come(
    tmp_path: Path, spark: SparkSession, registry: AzureRegistry, way: str
) -> None:
    """Whoever has rejected it, and when the hub has removed it."""
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    send_azure(hub, [named(body("f1"), NOBODYS), named(body("f2"), "e" * 32)])
    (plain if way == "plain" else on_spark)(write_azure(tmp_path, registry.url), spark)
    assert len(contents_of(tmp_path)[2]) == 2
    hub.retain(max_bytes=0)
    registry.server.register("flights", "Flight", json.dumps(AVRO), id=NOBODYS)
    file = read_pipeline_file(write_azure(tmp_path, registry.url))
    aside = RejectedAside(file, open_sink(file.sink_url, file.table_spec()), lambda file: Retransform(file, spark))
    done = aside.retry(EntryFilter(), None, lambda seen: None)
    assert (RetryResult(**done.counts), list(done.left)) == (RetryResult(applied=1, rejected=1), [])
    _, rows, ((_, _, reason, _),) = contents_of(tmp_path)
    assert [row[:2] for row in rows] == [("f1", 1.5)]
    assert reason == f"its schema, {'e' * 32}, is not known to the registry"


def test_an_event_that_cannot_be_computed_is_tried_again_by_its_content_type(
    tmp_path: Path, spark: SparkSession, registry: AzureRegistry
) -> None:
    id = registry.server.register("flights", "Flight", json.dumps(AVRO))
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    send_azure(hub, [named(body(f"f{number}"), id) for number in range(4)])
    file = write_azure(tmp_path, registry.url)
    text = file.read_text()
    raises = "IF(id < 'f2', Delay, CAST(raise_error(id) AS DOUBLE)) AS late"
    file.write_text(text.replace("Delay AS late", raises))
    on_spark(file, spark)
    assert [row[0] for row in contents_of(tmp_path)[1]] == ["f0", "f1"]
    hub.retain(max_bytes=0)
    file.write_text(text)
    mended = read_pipeline_file(file)
    aside = RejectedAside(
        mended, open_sink(mended.sink_url, mended.table_spec()), lambda file: Retransform(file, spark)
    )
    done = aside.retry(EntryFilter(), None, lambda seen: None)
    assert (RetryResult(**done.counts), list(done.left)) == (RetryResult(applied=2), [])
    assert [row[0] for row in contents_of(tmp_path)[1]] == ["f0", "f1", "f2", "f3"]
