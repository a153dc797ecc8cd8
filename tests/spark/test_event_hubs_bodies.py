"""Bodies of an event hub on Spark: values of AMQP are JSON, and messages without a body delete like tombstones."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

pytest.importorskip("azure.eventhub")

from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, RowRules
from leasehold_testkit.emulators.amqp.messages import Message, data_message
from leasehold_testkit.emulators.amqp.types import Described, Timestamp, ULong, encode
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub

_VALUE = 0x77


@pytest.fixture
def memory() -> MemoryHub:
    return MemoryHub(1)


@pytest.fixture
def url(memory: MemoryHub) -> Iterator[str]:
    with EventHubsServer({"hub": memory}) as server:
        # In the URL: Spark's Python workers have the environment that Java began with.
        yield f"eventhubs://{server.namespace}/hub?connection_string={quote(server.connection_string(), safe='')}"
    gc.collect()


@pytest.mark.more
def test_a_message_without_a_body_deletes_and_an_amqp_value_is_json(
    spark: SparkSession, memory: MemoryHub, url: str, tmp_path: Path
) -> None:
    sent = [
        ("deleted", data_message(b'{"n":1}', {})),
        ("emptied", data_message(b'{"n":2}', {})),
        ("made", encode(Described(ULong(_VALUE), {"n": 3, "ok": True, "at": Timestamp(1_770_091_506_007)}))),
        ("deleted", b""),
        ("emptied", data_message(b"", {})),
    ]
    memory.append("0", [Message(bare, key) for key, bare in sent])
    rules, runtime = RowRules(delete_when="body IS NULL"), Runtime(base=tmp_path)
    table = EntityTable("sqlite:///t.db", "bodies", keys=("key",), pipeline="p", rules=rules, runtime=runtime)
    events = spark.read.format("leasehold").options(hub=url, **table.stream_options()).load()
    rows = events.select(F.col("partitionKey").alias("key"), "body", "hub", "partition", "sequenceNumber", "ownerLevel")
    table.apply_batch(rows)
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        found = dict(connection.execute("SELECT key, body FROM bodies").fetchall())
    assert set(found) == {"emptied", "made"}
    assert found["emptied"] == b""
    assert json.loads(found["made"]) == {"n": 3, "ok": True, "at": "2026-02-03T04:05:06.007Z"}
