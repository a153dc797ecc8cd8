"""CloudEvents in programs on Spark: headers are read that are no columns of a batch, and kept of what is rejected."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cloudevents.core.bindings.kafka import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from pyspark.sql import SparkSession

from leasehold import Event
from leasehold.errors import ConfigError
from leasehold.formats import BodyFormat
from leasehold.hubs.log import LogHub
from leasehold.spark import EntityTable, MicroBatches, read_bodies
from tests.projected.cloud_flights import event_of
from tests.spark.places import FENCE, QUICK

pytestmark = pytest.mark.more  # tests/formats and tests/projected read them without Spark

ATTRIBUTES = {"source": "/gates", "type": "landed", "specversion": "1.0"}
SCHEMA = "ce_id STRING, gate STRING"


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    for number, mode in enumerate((to_binary_event, to_structured_event)):
        hub.send([event_of(mode(CloudEvent({**ATTRIBUTES, "id": str(number)}, {"gate": "B7"})))], partition="0")
    hub.send([Event(b'{"gate": "B7"}', properties={"content-type": "application/json"})], partition="0")
    return hub


def test_micro_batches_read_headers_that_are_no_columns(spark: SparkSession, hub: LogHub, tmp_path: Path) -> None:
    table = EntityTable(f"sqlite:///{tmp_path}/t.db", "gates", keys=["ce_id"], pipeline="p")
    given = {**QUICK, "pipeline": "p", "available_now": True, "columns": FENCE, "schema": SCHEMA}
    store = f"sqlite:///{tmp_path}/stores.db"
    with MicroBatches(spark, hub.url, store=store, envelope="cloudevents", **given) as batches:
        for batch in batches:
            assert batch.events.columns == ["ce_id", "gate", *FENCE]
            table.apply(batch.events, batch)
    table.close()
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        assert connection.execute("SELECT * FROM gates ORDER BY 1").fetchall() == [("0", "B7"), ("1", "B7")]
        ((reason, source),) = connection.execute("SELECT reason, source FROM gates_rejected").fetchall()
    assert reason.startswith("no CloudEvent: ")
    assert json.loads(source)["properties"] == {"content-type": "application/json"}


def test_bodies_of_a_data_frame_are_read_by_its_headers(spark: SparkSession, hub: LogHub) -> None:
    events = spark.read.format("leasehold").options(hub=hub.url).load()
    how = BodyFormat(envelope="cloudevents")
    rows = read_bodies(events, SCHEMA, how).select("ce_id", "gate", "reason").collect()
    assert [(row["ce_id"], row["gate"]) for row in rows] == [("0", "B7"), ("1", "B7"), (None, None)]
    assert rows[2]["reason"].startswith("no CloudEvent: ")
    with pytest.raises(ConfigError, match="has no column properties and no systemProperties"):
        read_bodies(events.select("body", *FENCE), SCHEMA, how)
