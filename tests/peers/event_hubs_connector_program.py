"""The Event Hubs connector with its own simulated event hub, and the entity table behind it, on PySpark 3.5.

`python event_hubs_connector_program.py FOLDER JARS`: prints what the connector makes of the positions for an empty
table; then, for each of two runs of a query with a checkpoint folder of its own, how many events were applied and
replayed, and what its folder says of its place; then the table. The stream's identity and partitions are those of a
local server that holds no events.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from leasehold.cli.checkpoints.spark_folder import committed_places
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.runtime import Runtime
from leasehold.spark import EntityTable, EventHubsConnector, Writing, open_session
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub

HUB, PARTITIONS = "flights", 2
SECRET = f"Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey=bG9jYWw=;EntityPath={HUB}"


def main(folder: Path, jars: str, server: EventHubsServer) -> None:
    files = ",".join(str(jar) for jar in Path(jars).glob("*.jar"))
    spark = open_session("connector", {"spark.jars": files, "spark.sql.shuffle.partitions": "1"}, "local[1]")
    jvm: Any = spark._jvm
    connector = jvm.org.apache.spark.eventhubs
    simulated = connector.utils.EventHubsTestUtils()
    simulated.createEventHubs(HUB, PARTITIONS)
    source = EventHubsConnector(f"eventhubs://{server.namespace}/{HUB}")
    keep = ("partition", "sequenceNumber")
    runtime, writing = Runtime(base=folder), Writing(keep=keep)
    table = EntityTable("sqlite:///table.db", "entities", mode="append", pipeline="p", writing=writing, runtime=runtime)

    def apply(batch: DataFrame, batch_id: int) -> None:
        rows = source.events(batch)
        table.apply_query_batch(rows.selectExpr("CAST(body AS STRING) AS body", "hub", *keep, "ownerLevel"), batch_id)

    earliest = {**source.options(table), "eventhubs.connectionString": connector.EventHubsUtils.encrypt(SECRET)}
    print("positions", json.dumps(_parsed(jvm, earliest)), flush=True)
    for first, count in ((0, 30), (30, 10)):
        numbers = jvm.scala.collection.JavaConverters.asScalaBuffer(list(range(first, first + count))).toSeq()
        for partition in range(PARTITIONS):
            simulated.send(HUB, jvm.scala.Some(partition), numbers, jvm.scala.Option.empty())
        options = {
            **source.options(table, start="2020-01-01T00:00:00Z"),  # the simulated hub knows numbers alone
            "eventhubs.connectionString": connector.EventHubsUtils.encrypt(SECRET),
            "useSimulatedClient": "true",
            "maxEventsPerTrigger": "8",
        }
        before = table.totals
        writer = spark.readStream.format("eventhubs").options(**options).load().writeStream.foreachBatch(apply)
        location = source.checkpoint_location(folder / "scratch")
        query = writer.option("checkpointLocation", location).start()
        query.processAllAvailable()
        query.stop()
        print("account", table.totals.applied - before.applied, table.totals.replayed - before.replayed, flush=True)
        print("committed", json.dumps(committed_places(Path(location), HUB)), flush=True)
        shutil.rmtree(folder / "scratch")
    with closing(sqlite3.connect(folder / "table.db")) as connection:
        rows = connection.execute("SELECT body, partition, sequenceNumber FROM entities").fetchall()
    print("table", json.dumps(sorted(rows)), flush=True)
    spark.stop()


def _parsed(jvm: Any, options: dict[str, str]) -> list[list[object]]:
    """The starting positions as the connector reads them: partition, offset, sequence number, inclusive."""
    read = getattr(jvm.org.apache.spark.eventhubs, "EventHubsConf$")
    found = read.__getattr__("MODULE$").toConf(jvm.PythonUtils.toScalaMap(options)).startingPositions().get()
    entries, positions = found.iterator(), []
    while entries.hasNext():
        entry = entries.next()
        place = entry._2()
        positions.append([entry._1().partitionId(), place.offset(), place.seqNo(), place.isInclusive()])
    return sorted(positions)


if __name__ == "__main__":
    with EventHubsServer({HUB: MemoryHub(PARTITIONS)}) as server:
        os.environ[VARIABLE] = server.connection_string()
        main(Path(sys.argv[1]), sys.argv[2], server)
