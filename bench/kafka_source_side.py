"""What `kafka_source.py` runs on another PySpark: both sources, in turns. Prints the median of each as JSON.

`python kafka_source_side.py SERVERS FULL LIVE EVENTS TURNS JARS FOLDER`, with the names of two topics: one that is
full, and one that is empty, to which this program sends.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from leasehold.spark import open_session

SOURCES = ("kafka", "leasehold", "leasehold, tuned")
TUNED = {"eventsPerTask": "125000", "maxBytesPerTrigger": str(256 << 20), "settleDelay": "0s"}
"""What an application that is alone on two cores may set: fewer tasks, larger batches, and no wait for others."""
COLUMNS = ("body", "partition", "sequenceNumber", "enqueuedTime", "partitionKey", "hub", "ownerLevel")
"""As many as Spark's own source gives, and of the same kinds."""
BATCHES = 250_000
SENT = 40
_PATIENCE = 300.0


@dataclass
class Side:
    """One of the sources, in a session that both share."""

    spark: SparkSession
    side: str
    servers: str
    folder: Path

    @property
    def name(self) -> str:
        """What Spark calls the source."""
        return self.side.partition(",")[0]

    def options(self, topic: str, *, stream: bool, most: int | None = None) -> dict[str, str]:
        if self.name == "kafka":
            given = {"kafka.bootstrap.servers": self.servers, "subscribe": topic, "startingOffsets": "earliest"}
            return given | ({} if most is None else {"maxOffsetsPerTrigger": str(most)})
        given = {"hub": f"kafka://{self.servers}/{topic}", "columns": ",".join(COLUMNS)}
        given |= {} if self.side == self.name else TUNED
        if stream:
            given |= {"store": f"sqlite:///{self.folder}/store-{next(_NUMBERS)}.db"}
        return given | ({} if most is None else {"maxEventsPerTrigger": str(most)})

    def read(self, topic: str) -> DataFrame:
        frame = self.spark.read.format(self.name).options(**self.options(topic, stream=False)).load()
        return frame.select(F.col("value" if self.name == "kafka" else "body").alias("body"), "partition")

    def query(self, topic: str, take: Callable[[DataFrame, int], None], most: int | None = None) -> Any:
        options = self.options(topic, stream=True, most=most)
        frame = self.spark.readStream.format(self.name).options(**options).load()
        frame = frame.select(F.col("value" if self.name == "kafka" else "body").alias("body"))
        scratch = str(self.folder / f"scratch-{next(_NUMBERS)}")
        return frame.writeStream.foreachBatch(take).option("checkpointLocation", scratch)

    def batch(self, topic: str, events: int) -> float:
        """Seconds to read all bodies."""
        began = time.perf_counter()
        self.read(topic).select("body").write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def aggregate(self, topic: str, events: int) -> float:
        """Seconds to count and add up the events of each partition."""
        began = time.perf_counter()
        found = self.read(topic).groupBy("partition").agg(F.count("*"), F.sum(F.length("body"))).collect()
        taken = time.perf_counter() - began
        assert sum(row[1] for row in found) == events
        return taken

    def available_now(self, topic: str, events: int) -> float:
        """Seconds of a whole query that ends when all is read."""

        def take(batch: DataFrame, number: int) -> None:
            batch.write.format("noop").mode("overwrite").save()

        began = time.perf_counter()
        query = self.query(topic, take, BATCHES).trigger(availableNow=True).start()
        assert query.awaitTermination(_PATIENCE)
        taken = time.perf_counter() - began
        assert sum(progress["numInputRows"] for progress in query.recentProgress) >= events
        return taken

    def latency(self, topic: str) -> float:
        """The median of the seconds from sending an event to having it in the function of `foreachBatch`."""
        seen: dict[bytes, float] = {}
        came = threading.Condition()

        def take(batch: DataFrame, number: int) -> None:
            bodies = [bytes(row[0]) for row in batch.collect()]
            with came:
                seen.update(dict.fromkeys(bodies, time.perf_counter()))
                came.notify_all()

        query = self.query(topic, take).start()
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0, "log_level": 0})
        times = []
        for number in range(SENT + 10):
            body, began = f"{self.name}-{next(_NUMBERS)}".encode(), time.perf_counter()
            producer.produce(topic, body, partition=number % 8)
            producer.flush(30)
            with came:
                assert came.wait_for(lambda body=body: body in seen, _PATIENCE)  # type: ignore[misc]
            if number >= 10:  # Java has compiled what it runs by then
                times.append(seen[body] - began)
            time.sleep(0.3)
        query.stop()
        return statistics.median(times)


_NUMBERS = count()


def main(servers: str, full: str, live: str, events: str, turns: str, jars: str, folder: str) -> None:
    files = ",".join(str(jar) for jar in Path(jars).glob("*.jar"))
    conf = {"spark.jars": files, "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    spark = open_session("bench kafka source", conf, "local[2]")
    sides = [Side(spark, name, servers, Path(folder)) for name in SOURCES]
    found: dict[str, dict[str, float]] = {name: {} for name in SOURCES}
    jobs = {"batch": Side.batch, "aggregate": Side.aggregate, "available now": Side.available_now}
    for job, act in jobs.items():
        taken: dict[str, list[float]] = {name: [] for name in SOURCES}
        for turn in range(int(turns)):
            for side in sides:
                seconds = act(side, full, int(events))
                if turn:  # the first one warms up
                    taken[side.side].append(seconds)
        for name, times in taken.items():
            found[name][job] = statistics.median(times)
    for side in sides:
        found[side.side]["latency"] = side.latency(live)
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
