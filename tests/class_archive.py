"""Makes and names an archive of the classes that Spark loads, with which its Java starts in half the CPU time.

Owns the file and the options with which the Java of each test reads it (class data sharing: JEP 350). The tests start
some hundred Javas, and most of what a start costs is loading the same 20,000 classes. The archive changes nothing in
what runs: a Java or a Spark that it was not made with ignores it without a word.

Run as a program (`python -m tests.class_archive FILE`), it runs a loop and a query, and keeps the classes they needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILE = Path(sys.prefix, ".classes.jsa")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What suits a Java that lives for seconds on a machine with two cores."""

_PROGRAM = """
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import EntityTable, MicroBatches, Writing, open_session

LogHub.create("hub.db", partitions=2).send([Event(b'{"n": 1, "s": "a"}')] * 100, partition="0")
spark = open_session("class archive")
fence = ("hub", "partition", "sequenceNumber", "ownerLevel")
writing = Writing(keep=("partition", "sequenceNumber"))
table = EntityTable("sqlite:///table.db", "events", mode="append", pipeline="loop", writing=writing)
with MicroBatches(
    spark, "log:///hub.db", store="sqlite:///stores.db", pipeline="loop", schema="n BIGINT, s STRING",
    available_now=True,
) as batches:
    for batch in batches:
        table.apply(batch.events.selectExpr("n + 1 AS n", "upper(s) AS s", *fence).where("n > 0"), batch)
events = spark.readStream.format("leasehold").options(hub="log:///hub.db", store="sqlite:///stores2.db").load()
query = (
    events.selectExpr("string(body) AS text", *fence)
    .writeStream.foreachBatch(lambda rows, number: rows.collect())
    .option("checkpointLocation", "scratch").trigger(availableNow=True).start()
)
query.awaitTermination()
spark.stop()
"""


def options(file: Path = FILE) -> dict[str, str]:
    """Environment variables that have Spark's scripts start each Java with the archive; none where there is no file."""
    if not file.is_file():
        return {}
    return {
        "SPARK_LAUNCHER_OPTS": QUICK,
        "SPARK_SUBMIT_OPTS": f"{QUICK} -XX:SharedArchiveFile={file} -Xlog:disable",
    }


def make(file: Path) -> None:
    """Run Spark once, and keep the classes that it has loaded. An archive that cannot be made is only not there."""
    fresh = file.with_suffix(".new")
    dumping = {"SPARK_LAUNCHER_OPTS": QUICK, "SPARK_SUBMIT_OPTS": f"{QUICK} -XX:ArchiveClassesAtExit={fresh}"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            cwd=folder,
            env={**os.environ, **dumping},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode == 0 and fresh.is_file():
        fresh.replace(file)
    else:
        print(f"the tests run without an archive of Spark's classes: {done.stderr[-500:]}", file=sys.stderr)


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else FILE)
