"""Programs without signal handlers at Ctrl-C and SIGTERM: what is on the screen, and what is given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.stores.sqlite.store import SqliteStore
from tests.faults.instance import PATIENCE
from tests.waiting import take, until

pytestmark = pytest.mark.timeout(1200)

HEAD = """
from leasehold.spark import EntityTable, MicroBatches, Writing, open_session
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
spark = open_session("p", QUICK)
FENCE = ("hub", "partition", "sequenceNumber", "ownerLevel")
table = EntityTable("sqlite:///table.db", "events", mode="append", pipeline="p", writing=Writing(keep=FENCE[1:3]))
"""
LOOP = """
with MicroBatches(
    spark, "log:///hub.db", store="sqlite:///stores.db", pipeline="p", schema="n BIGINT", max_events_per_trigger=500
) as batches:
    for batch in batches:
        print(table.apply(batch.events.select("n", *FENCE), batch).applied, flush=True)
"""
QUERY = """
events = spark.readStream.format("leasehold").option("hub", "log:///hub.db").option("store", "sqlite:///stores.db")
events = events.options(**table.stream_options()).option("maxEventsPerTrigger", 500).load()
events = events.selectExpr("cast(body AS STRING) AS n", "*")

def apply(rows, number):
    table.apply_query_batch(rows, number)
    print(number, flush=True)

query = events.select("n", *FENCE).writeStream.foreachBatch(apply).option("checkpointLocation", "scratch").start()
query.awaitTermination()
"""
IN_A_BATCH = """
import os, sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from leasehold.spark import EntityTable, end_quietly, open_session

if sys.argv[1] == "open_session":
    spark = open_session("p", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
else:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    end_quietly(spark)
table = EntityTable("sqlite:///table.db", "events", mode="append", pipeline="p")

said = Path("said").absolute()

def compute(body):
    with said.open("a") as told:
        print("computing", file=told)
    threading.Event().wait()

events = spark.readStream.format("leasehold").option("hub", "log:///hub.db").option("store", "sqlite:///stores.db")
events = events.options(**table.stream_options()).option("maxEventsPerTrigger", 500).load()
rows = events.select(F.udf(compute, "STRING")("body").alias("n"), "hub", "partition", "sequenceNumber", "ownerLevel")
query = rows.writeStream.foreachBatch(table.apply_query_batch).option("checkpointLocation", "scratch").start()
if sys.argv[2] == "stop":
    while "computing" not in said.read_text():
        query.awaitTermination(0.1)
    query.stop()
    assert query.exception() is None
    spark.stop()
else:
    query.awaitTermination()
"""
PROGRAMS = {"loop": LOOP, "query": QUERY}


class Program:
    """A program that works on a long backlog, in a process group of its own, as at a terminal."""

    def __init__(self, folder: Path, text: str, *arguments: str) -> None:
        self.folder = folder
        self.hub = LogHub.create(folder / "hub.db", partitions=2)
        for partition in ("0", "1"):
            self.hub.send([Event(b'{"n":1}')] * 60_000, partition=partition)
        (folder / "program.py").write_text(text)
        self._screen, self._said = (folder / "screen").open("w"), (folder / "said").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "program.py", *arguments],
            cwd=folder,
            stdout=self._said,
            stderr=self._screen,
            start_new_session=True,
            env=dict(os.environ),
        )

    def until_batches(self, count: int) -> None:
        def told() -> bool:
            assert self.process.poll() is None, self.screen()
            return (self.folder / "said").read_text().count("\n") >= count

        until(told, f"{count} batches", PATIENCE)

    def end(self, signum: int, *, group: bool) -> int:
        (os.killpg if group else os.kill)(self.process.pid, signum)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        # Java and workers, whose last words count too.
        until(lambda: not _is_there(self.process.pid), "the last process of the program to end", PATIENCE)
        return code

    def screen(self) -> str:
        return (self.folder / "screen").read_text()

    def close(self) -> None:
        if _is_there(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._screen.close()
        self._said.close()

    def owners(self) -> set[str]:
        listing = SqliteStore(self.folder / "stores.db").list_ownership(self.hub.consumer_group("$Default"))
        return {record.owner_id for record in listing.records if record.owner_id}


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


QUICK = {("loop", signal.SIGTERM, False), ("query", signal.SIGINT, True)}
TEN = [pytest.param(number, marks=pytest.mark.soak) for number in range(1, 10)]


# The quick run has what differs most: Ctrl-C at a terminal, and a supervisor's signal to the one process.
WAYS = [
    pytest.param(
        kind,
        signum,
        group,
        id=f"{kind}-{signum.name}-{'group' if group else 'alone'}",
        marks=() if (kind, signum, group) in QUICK else pytest.mark.soak,
    )
    for kind in PROGRAMS
    for signum in (signal.SIGINT, signal.SIGTERM)
    for group in (True, False)
]


@pytest.mark.more  # each starts Spark; tests/spark/test_endings.py has their rules
@pytest.mark.parametrize("time_", [0, *TEN])
@pytest.mark.parametrize(("kind", "signum", "group"), WAYS)
def test_nothing_of_spark_is_on_the_screen_when_a_program_ends(
    tmp_path: Path, kind: str, signum: int, group: bool, time_: int
) -> None:
    program = Program(tmp_path, HEAD + PROGRAMS[kind])
    try:
        program.until_batches(2 + time_ % 4)
        take(0.13 * time_)  # at another line each time
        assert program.end(signum, group=group) == -signum
        said = [line for line in program.screen().splitlines() if "incubator modules" not in line]
        assert [line for line in said if "stopping when the batch at hand is done" not in line] == []
        if kind == "loop":
            assert program.owners() == set(), "its partitions are given up"
    finally:
        program.close()


@pytest.mark.more
def test_a_query_that_is_stopped_in_a_batch_says_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, IN_A_BATCH, "open_session", "stop")
    try:
        assert program.wait() == 0, program.screen()
        assert [line for line in program.screen().splitlines() if "incubator modules" not in line] == []
    finally:
        program.close()


@pytest.mark.more
@pytest.mark.parametrize("session", [pytest.param("open_session", marks=pytest.mark.soak), "builder"])
def test_ctrl_c_in_a_batch_is_no_fault_of_its_rows_and_prints_no_traceback(tmp_path: Path, session: str) -> None:
    program = Program(tmp_path, IN_A_BATCH, session, "wait")
    try:
        program.until_batches(1)
        assert program.end(signal.SIGINT, group=True) == -signal.SIGINT
        wrong = ("Traceback", "Error", "ERROR", "cannot be computed", "\tat ")
        assert [line for line in program.screen().splitlines() if any(word in line for word in wrong)] == []
    finally:
        program.close()
