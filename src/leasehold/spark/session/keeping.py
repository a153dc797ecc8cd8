"""Keeping a session of Spark Connect from being closed while its program waits.

The server closes a session that nobody has used for its time-out, an hour by default, and gives it to no client again.
A loop that waits for events, for partitions, or for a table that is away asks Spark nothing. So while a loop is open, a
thread asks for one setting: that is the shortest request which counts as use, since the server neither analyses nor
runs anything for it. It asks for the time-out itself, and waits a third of that until it asks again.

Concurrency: a daemon thread for each loop, and not the loop's own one: where the server is away, the client tries for
minutes, and the loop has partitions to hand over meanwhile. A process that is stopped for longer than the time-out
loses its session.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

TIMEOUT = "spark.connect.session.manager.defaultSessionTimeout"
LONGEST = 30.0
"""Seconds between two requests at most, also where the server does not say when it closes a session."""
_SHORTEST = 0.1
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_PATIENCE = 1.0


def keep_open(spark: SparkSession) -> Callable[[], None]:
    """Keep this session of Spark Connect open from now on, until what is returned is called."""
    ended = threading.Event()

    def use() -> None:
        said = False
        while not (ended.is_set() or getattr(spark, "is_stopped", False)):
            pause = LONGEST
            try:
                pause = pause_between(spark.conf.get(TIMEOUT, None))
            except Exception as error:  # noqa: BLE001  what is wrong with a session is the next batch's to raise
                if not (said or ended.is_set()):
                    logger.warning(
                        "Spark Connect may close the session while the loop waits: %s",
                        error,
                    )
                said = True
            ended.wait(pause)

    thread = threading.Thread(target=use, name="leasehold-session", daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join(_PATIENCE)

    return end


def pause_between(timeout: str | None) -> float:
    """Seconds between two requests, by a time-out as Spark writes it: a number of milliseconds, or with a unit."""
    stated = re.fullmatch(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*", (timeout or "").lower())
    if stated is None:  # not known; or a session is never closed, which is -1
        return LONGEST
    number, unit = stated.groups()
    return max(_SHORTEST, min(LONGEST, float(number) * _UNITS[unit or "ms"] / 3))
