"""Spark's own speculation on a cluster: of two attempts of a task one counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from tests.faults.spark_cluster import SparkCluster
from tests.repository import ROOT
from tests.sinks.postgres import Place

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

KINDS = ("before", "behind", "late") * 4
EACH = 200


def test_the_second_attempt_of_a_slow_task_counts_and_nothing_of_the_first(place: Place, tmp_path: Path) -> None:
    partitions, numbers = ("0", "1"), range(len(KINDS) * EACH // 2)
    hub = LogHub.create(tmp_path / "hub.db", partitions=len(partitions))
    for partition in partitions:
        hub.send([Event(json.dumps({"id": partition, "n": n}).encode()) for n in numbers], partition=partition)
    folder = tmp_path / "cluster"
    folder.mkdir()
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "SPARK_LOCAL_IP": "127.0.0.1"}
    with ExitStack() as stack:
        stack.callback(hub.close)
        # Spark gives a host no second attempt of a task that it has. Two slow ones leave a core of each host.
        cluster = SparkCluster(folder, environment, cores=2, hosts=("127.0.0.1", "127.0.0.2"))
        stack.callback(cluster.close)
        program = [sys.executable, "-m", "tests.faults.speculated_program", cluster.url, place.url, hub.url]
        ended = subprocess.run(
            [*program, str(tmp_path), str(EACH), *KINDS],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 0
    assert set(ended.stdout.splitlines()) == {"failure: None applied: True"}
    slow = {mark.name.removeprefix("slow-"): mark.read_text() for mark in tmp_path.glob("slow-*")}
    assert set(slow.values()) == set(KINDS)
    assert all((tmp_path / f"second-{name}").exists() for name in slow)
    found = place.look('SELECT id, n, partition, "sequenceNumber" FROM flights ORDER BY 1, 2')
    assert found == [(partition, n, partition, n) for partition in partitions for n in numbers]
