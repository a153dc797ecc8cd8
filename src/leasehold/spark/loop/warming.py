"""The first Python worker of a session, started while the driver still looks at the transform and the table.

Owns one job of no meaning, in a thread of its own, so that the first batch finds a worker that has imported what tasks
need, and a Java that has handed Arrow back and forth. It is one worker, which is all that small batches need: so the
first batch waits for it, or Spark would start another one; and so does the first claim, so that an instance for which a
cluster has no room takes nothing from the others. Where the job fails, the first batch fails for the same reason, and
tells it. A stop ends the waiting, and the end of the session the job: whoever has ended the session waits
for the thread too, since Python aborts if it ends while a thread is in Arrow's code.

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
_LOOK = 0.1
_LONGEST_END = 10.0
"""Seconds."""


class WarmUp:
    """The job. `wait` once nothing else is left to do before the first batch."""

    def __init__(self, spark: SparkSession) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(spark,), name="leasehold warm-up", daemon=True)
        if is_connect(spark):
            self._done.set()
        else:
            self._thread.start()

    def wait(self, stop: threading.Event) -> None:
        """Wait until it is done, or `stop` is set."""
        while not self._done.wait(_LOOK) and not stop.is_set():
            pass

    def end(self) -> None:
        """Wait until its thread has ended. For whoever has ended the session; not for ever, should Java still hang."""
        if self._thread.ident is not None:
            self._thread.join(_LONGEST_END)

    def _run(self, spark: SparkSession) -> None:
        try:
            spark.sparkContext.setJobGroup(GROUP, "starting a Python worker")
            to_arrow(spark.range(0, 1, 1, 1).mapInArrow(_import, "id LONG"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the first batch meets it too
            logger.debug("the warm-up has failed: %s", error)
        finally:
            self._done.set()


def _import(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker: import what tasks do."""
    import leasehold.formats
    import leasehold.hubs
    import leasehold.spark.loop.tasks  # noqa: F401

    yield from numbers
