"""The thread that runs dispatch cycles.

Runs a cycle when it is due, or at once when the manager wants attention. Promises to end when asked to, or when
`alive` says that what the partitions are held for is gone; then it relinquishes them. An error in a cycle never
ends the thread; one that nobody foresaw is logged when it begins and changes, and published each time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError
from leasehold.logs import log_notices, working_as
from leasehold.notices import CycleFailed
from leasehold.ownership.partition_manager import PartitionManager

logger = logging.getLogger(__name__)


class DispatchThread:
    """Runs `manager.tick` until stopped, or until `alive` returns False."""

    def __init__(self, manager: PartitionManager, *, clock: Clock, alive: Callable[[], bool] = lambda: True) -> None:
        self._manager = manager
        self._clock = clock
        self._errors: Mapping[str, str] = {}
        self._alive = alive
        log_notices(manager.notices, str(manager.owner_id))
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leasehold-dispatch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float, errors: Mapping[str, str] | None = None) -> None:
        """Ask the thread to end and relinquish, and wait for at most `timeout` seconds.

        `errors` say what ended the work on a partition, where it did not end well.
        """
        self._errors = errors or {}
        self._stop.set()
        self._manager.attention.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    @property
    def running(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        with working_as(str(self._manager.owner_id)):
            self._work()

    def _work(self) -> None:
        while not self._stop.is_set() and self._alive():
            self._manager.attention.clear()
            self._tick()
            if not self._stop.is_set():
                self._manager.attention.wait(max(0.0, self._manager.due - self._clock.monotonic()))
        try:
            self._manager.relinquish(self._errors)
        except LeaseholdError as error:
            logger.warning("partitions were not relinquished and will expire: %s", error)

    def _tick(self) -> None:
        try:
            self._manager.tick()
        except BaseException as error:  # whatever it is: without this thread nothing would be renewed
            said = f"{type(error).__name__}: {error}"
            if said != self._said:  # each cycle may fail alike, for as long as a function for start positions does
                logger.exception("a dispatch cycle failed in an unexpected way")
            self._said = said
            self._manager.notices.publish(CycleFailed(error))
        else:
            self._said = ""
