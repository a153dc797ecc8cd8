"""A loop over Spark Connect that waits for longer than its server keeps a session that nobody uses.

python -m tests.spark.connect_idle_program FOLDER
"""

from __future__ import annotations

import sys
import threading
import warnings
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import MicroBatches
from leasehold.spark.session.java import use_java
from leasehold.spark.session.keeping import TIMEOUT
from tests.waiting import NEVER, until

LIVES = 15.0
"""Seconds that an unused session lives."""


def main(folder: Path) -> None:
    use_java()
    warnings.simplefilter("ignore")  # the client cannot set what the server takes at its start
    settings: dict[str, str | int | float | bool | None] = {
        TIMEOUT: f"{LIVES:g}s",
        "spark.connect.session.manager.maintenanceInterval": "500ms",
    }
    spark = SparkSession.builder.remote("local[2]").config(map=settings).getOrCreate()
    hub = LogHub.create(folder / "hub.db", partitions=1)
    hub.send([Event(b"first")])
    count, begun = 0, threading.Event()

    def send_later() -> None:
        """Once a session that was used when the loop began to wait is closed."""
        another = spark.newSession()
        another.range(1).count()
        begun.wait()
        until(lambda: _is_closed(another), "a session to be closed", NEVER, pause=1.2 * LIVES)
        print("said another session is closed", flush=True)
        hub.send([Event(b"second")])

    threading.Thread(target=send_later).start()
    with MicroBatches(
        spark, hub.url, store=f"sqlite:///{folder}/stores.db", pipeline="p", partition_expiration=NEVER
    ) as batches:
        for batch in batches:
            count += batch.events.count()
            print("said", count, "event" if count == 1 else "events", flush=True)
            begun.set()
            if count == 2:
                batches.stop()
    spark.stop()


def _is_closed(session: SparkSession) -> bool:
    """Asking is a use: whoever asks too early has to wait for as long again."""
    try:
        session.range(1).count()
    except PySparkException:
        return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
