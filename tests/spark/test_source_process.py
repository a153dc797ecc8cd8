"""The process behind a streaming query, as Spark ends it: without Spark, which cannot be told when."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Ownership
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.programs import FAST
from tests.waiting import PATIENCE

PROGRAM = """
import json, sys
from pyspark.sql.streaming.datasource import ReadAllAvailable
from leasehold.spark.stream.data_source import LeaseholdDataSource

source = LeaseholdDataSource(json.loads(sys.argv[1]))
reader = source.streamReader(source.schema())
try:
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    print("held", flush=True)
    sys.stdin.read()
    print("stopping", flush=True)
finally:
    reader.stop()
"""
"""As PySpark's own (`python_streaming_source_runner.py`), with the standard input as the socket to Spark."""


def _owned(store: SqliteStore, hub: LogHub) -> tuple[Ownership, ...]:
    return tuple(store.list_ownership(hub.consumer_group("$Default")).records)


def test_a_signal_behind_the_end_of_the_socket_does_not_cut_the_release_short(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=3)
    stores = tmp_path / "stores.db"
    options = {"hub": hub.url, "store": f"sqlite:///{stores}", "ownerId": "one", **FAST}
    command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    records = SqliteStore(stores)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert {one.owner_id.partition("/")[0] for one in _owned(records, hub)} == {"one"}
        with closing(sqlite3.connect(stores, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # the release waits for it
            process.stdin.close()
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            connection.execute("ROLLBACK")
        process.wait(PATIENCE)
    assert {one.owner_id for one in _owned(records, hub)} == {""}
