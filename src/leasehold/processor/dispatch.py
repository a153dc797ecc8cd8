"""The thread that runs dispatch cycles.

Owns the pace: the next cycle follows at once after one that won something, else after the load-balancing
interval less the time spent, with jitter so that instances do not march in step. Promises to end when asked
to, or when `alive` says that what the partitions are held for is gone; then it relinquishes them. An error
in a cycle never ends the thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import Random

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError
from leasehold.notices import CycleFailed
from leasehold.processor.partition_manager import PartitionManager

logger = logging.getLogger(__name__)

JITTER = 0.1
"""How much of the interval a pause may be shorter, as a fraction. Never longer: renewals must be in time."""


def pause_after(interval: float, spent: float, won: bool, rng: Random) -> float:
    """Seconds to wait before the next cycle."""
    if won:
        return 0.0
    return max(0.0, interval * (1 - JITTER * rng.random()) - spent)


class DispatchThread:
    """Runs `manager.tick` until stopped, or until `alive` returns False."""

    def __init__(
        self, manager: PartitionManager, *, clock: Clock, rng: Random, alive: Callable[[], bool] = lambda: True
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._rng = rng
        self._alive = alive
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leasehold-dispatch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Ask the thread to end and relinquish, and wait for at most `timeout` seconds."""
        self._stop.set()
        self._thread.join(timeout)

    @property
    def running(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        interval = self._manager.settings.load_balancing_interval
        while not self._stop.is_set() and self._alive():
            started = self._clock.monotonic()
            won = self._tick()
            self._stop.wait(pause_after(interval, self._clock.monotonic() - started, won, self._rng))
        try:
            self._manager.relinquish()
        except LeaseholdError as error:
            logger.warning("partitions were not relinquished and will expire: %s", error)

    def _tick(self) -> bool:
        try:
            return self._manager.tick()
        except Exception as error:
            logger.exception("a dispatch cycle failed in an unexpected way")
            self._manager.notices.publish(CycleFailed(error))
            return False
