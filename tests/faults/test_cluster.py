"""A pipeline on a Spark standalone cluster, which loses an executor and then a worker in the middle of a batch."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import EventHubs
from tests.faults.spark_cluster import EXECUTORS, SparkCluster, executor_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(480)]

HELD = """\
import os, pathlib, time

HERE = str(pathlib.Path(__file__).parent)


def transform(events):
    from pyspark.sql.functions import udf

    # In here, so that Spark sends it to the executors: they have no module of this name.
    @udf("BIGINT")
    def worked_on(n):
        while pathlib.Path(HERE, "hold").exists():
            pathlib.Path(HERE, "held", str(os.getpid())).touch()
            time.sleep(0.05)
        return n

    return events.select("id", worked_on("n").alias("n"), "hub", "partition", "sequenceNumber", "ownerLevel")
"""


def test_executor_and_worker_killed_in_mid_batch(tmp_path: Path) -> None:
    kind = EventHubs(tmp_path)
    with contextlib.ExitStack() as stack:
        cluster_folder = tmp_path / "cluster"
        cluster_folder.mkdir()
        cluster = SparkCluster(cluster_folder, kind.environment)
        stack.callback(cluster.close)
        fleet = Fleet(
            tmp_path,
            mode="append",
            kind=kind,
            master=cluster.url,
            source="min_partitions = 4",
            spark=EXECUTORS,
            environment={"SPARK_LOCAL_IP": "127.0.0.1"},
            gate=HELD,
        )
        stack.callback(fleet.close)
        _lose_an_executor_and_a_worker(fleet, cluster)


def _lose_an_executor_and_a_worker(fleet: Fleet, cluster: SparkCluster) -> None:
    hold, held = fleet.folder / "hold", fleet.folder / "held"
    held.mkdir()

    def held_executors() -> dict[int, psutil.Process]:
        found = [executor_of(int(file.name)) for file in held.iterdir()]
        return {one.pid: one for one in found if one is not None}

    def hold_two(each: int) -> list[psutil.Process]:
        for file in held.iterdir():
            file.unlink()
        hold.touch()
        fleet.send(each)
        fleet.until(lambda: len(held_executors()) == 2, "both executors to be in a task")
        return list(held_executors().values())

    fleet.send(300)
    blue = fleet.launch("blue")
    fleet.wait_consumed()
    fleet.check_table()
    assert fleet.query("SELECT count(*) FROM entities") == [(1200,)]

    first, second = hold_two(150)
    first.kill()
    fleet.until(lambda: not first.is_running(), "the executor to be gone")
    hold.unlink()
    fleet.wait_consumed()
    fleet.check_table()

    executors = hold_two(150)
    assert first not in executors, "the master has not made another one"
    assert second in executors
    worker = cluster.workers[0]
    (orphan,) = [one for one in executors if worker in one.parents()]
    worker.kill()
    fleet.until(lambda: not orphan.is_running(), "the executor of the killed worker to end")
    assert len(cluster.workers) == 1
    hold.unlink()
    fleet.wait_consumed()
    fleet.check_table()

    fleet.send(100)
    fleet.wait_consumed()
    fleet.check_table()
    account = blue.stop()
    assert (account["applied"], account["restarts"]) == (4 * 700, 0), "Spark itself repeats the tasks that are lost"
