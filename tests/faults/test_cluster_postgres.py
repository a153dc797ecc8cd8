"""Two applications on a standalone cluster with one table in Postgres, which lose a worker and then a driver.

Every event is in the table once, whatever an executor, a worker or a driver was at when it was killed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest

from tests.faults.databases import postgres_database
from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import EventHubs
from tests.faults.spark_cluster import EXECUTORS, SparkCluster, executor_of
from tests.stores.servers import PostgresServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

HELD = """\
import os, pathlib, time

HERE = str(pathlib.Path(__file__).parent)
OWNER = os.environ["LEASEHOLD_OWNER"]


def transform(events):
    from pyspark.sql.functions import udf

    # In here, so that Spark sends it to the executors: they have no module of this name.
    @udf("BIGINT")
    def worked_on(n):
        while pathlib.Path(HERE, "hold").exists():
            pathlib.Path(HERE, "held", OWNER + "-" + str(os.getpid())).touch()
            time.sleep(0.05)
        return n

    return events.select("id", worked_on("n").alias("n"), "hub", "partition", "sequenceNumber", "ownerLevel")
"""


def test_worker_and_driver_killed_in_mid_batch(tmp_path: Path, postgres_server: PostgresServer) -> None:
    kind = EventHubs(tmp_path)
    with contextlib.ExitStack() as stack:
        folder = tmp_path / "cluster"
        folder.mkdir()
        cluster = SparkCluster(folder, kind.environment, cores=2)
        stack.callback(cluster.close)
        database = stack.enter_context(postgres_database(postgres_server))
        fleet = Fleet(
            tmp_path,
            mode="append",
            kind=kind,
            master=cluster.url,
            source="min_partitions = 4",
            spark=EXECUTORS,
            databases=(database, database),
            environment={"SPARK_LOCAL_IP": "127.0.0.1"},
            gate=HELD,
        )
        stack.callback(fleet.close)
        _lose_a_worker_and_a_driver(fleet, cluster)


def _lose_a_worker_and_a_driver(fleet: Fleet, cluster: SparkCluster) -> None:
    hold, held = fleet.folder / "hold", fleet.folder / "held"
    held.mkdir()

    def held_executors() -> dict[str, set[psutil.Process]]:
        found: dict[str, set[psutil.Process]] = {"blue": set(), "green": set()}
        for file in held.iterdir():
            owner, task = file.name.split("-")
            if (executor := executor_of(int(task))) is not None:
                found[owner].add(executor)
        return found

    def hold_both(each: int, executors: int) -> list[psutil.Process]:
        for file in held.iterdir():
            file.unlink()
        hold.touch()
        fleet.send(each)
        fleet.until(
            lambda: all(len(some) == executors for some in held_executors().values()),
            f"{executors} executors of each application to be in a task",
        )
        return [executor for some in held_executors().values() for executor in some]

    def all_is_there(events: int) -> None:
        hold.unlink(missing_ok=True)
        fleet.wait_consumed()
        fleet.check_table()
        assert fleet.query("SELECT count(*) FROM entities") == [(4 * events,)]

    fleet.send(300)
    blue, green = fleet.launch("blue"), fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    all_is_there(300)

    executors = hold_both(150, 2)
    worker = cluster.workers[0]
    orphans = [one for one in executors if worker in one.parents()]
    assert len(orphans) == 2, "each application has an executor with each worker"
    worker.kill()
    fleet.until(lambda: not any(one.is_running() for one in orphans), "the executors of the killed worker to end")
    all_is_there(450)

    hold_both(150, 1)
    green.kill()
    fleet.expire("green")
    fleet.wait_owned(blue=4)
    all_is_there(600)

    cluster.start_worker()  # blue has taken the cores that green had
    green = fleet.launch("green")
    fleet.wait_owned(blue=2, green=2)
    fleet.send(150)
    all_is_there(750)
    accounts = [blue.stop(), green.stop()]
    assert [one["restarts"] for one in accounts] == [0, 0], "Spark itself repeats the tasks that are lost"
