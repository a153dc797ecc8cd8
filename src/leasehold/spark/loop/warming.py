"""The first Python workers of a session, started while the driver still looks at the transform and the table.

Owns one job of no meaning, in a thread of its own, so that the first batch finds workers that have imported what tasks
need, and a Java that has handed Arrow back and forth. Nothing waits for it, and nothing depends on it: where it fails,
the first batch fails for the same reason, and tells it. A stop ends it with the session.

Not over Spark Connect, whose workers belong to the server.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from leasehold.spark.session.versions import is_connect, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

GROUP = "leasehold warm-up"
"""The job's group, as Spark's UI shows it."""


def warm_up(spark: SparkSession) -> threading.Thread | None:
    """Begin; returns the thread, None where there is nothing to do."""
    if is_connect(spark):
        return None
    thread = threading.Thread(target=_start_workers, args=(spark,), name="leasehold warm-up", daemon=True)
    thread.start()
    return thread


def _start_workers(spark: SparkSession) -> None:
    try:
        spark.sparkContext.setJobGroup(GROUP, "starting Python workers")
        tasks = spark.sparkContext.defaultParallelism
        to_arrow(spark.range(0, tasks, 1, tasks).mapInArrow(_import, "id LONG"))
    except Exception as error:  # noqa: BLE001 - whatever it is, the first batch meets it too
        logger.debug("the warm-up has failed: %s", error)


def _import(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: import what tasks do."""
    import leasehold.formats
    import leasehold.hubs
    import leasehold.spark.loop.tasks  # noqa: F401

    yield from numbers
