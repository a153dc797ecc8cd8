"""Children that a program on Spark forks, in its loop and in a handler that tasks call with a time-out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.children import AS_BEFORE
from tests.handlers.orders import rows
from tests.repository import ROOT
from tests.waiting import PATIENCE

PROGRAM = """
from leasehold.handlers import Failures
from leasehold.spark import HandledOnSpark, MicroBatches, open_session
from tests.children import told_of_children
from tests.handlers.forking_handlers import forking

table = HandledOnSpark(
    forking, "sqlite:///entities.db", table="orders", pipeline="p", schema="order_id STRING",
    state="order_id STRING, told STRING", failures=Failures(handler_timeout=600.0, hand_over_timeout=2000.0),
)
spark = open_session("p", master="local[1]")
with MicroBatches(
    spark, "log:///hub.db", store="sqlite:///stores.db", pipeline="p", table=table, settle_delay=0, available_now=True
) as batches:
    for batch in batches:
        table.apply(batch)
        print(told_of_children())
print(told_of_children())
"""


@pytest.mark.more  # tests/processor/test_children.py is of children without Spark
def test_children_have_the_signals_that_python_has(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    hub.send([Event(b'{"order_id": "a"}', partition_key="a")])
    hub.close()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=2 * PATIENCE
    )
    assert ended.stdout == 2 * f"{AS_BEFORE}\n", ended.stderr
    assert rows(tmp_path, "SELECT told FROM orders") == [(AS_BEFORE,)]
