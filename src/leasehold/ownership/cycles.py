"""What is kept of dispatch cycles: how many have ended, when the next is due, and what trouble they are in.

Owns the log of trouble: a line when it begins, when it changes and when it ends, however many cycles it takes. The
dispatch thread writes; any thread may ask how many cycles have ended, or wait for one.
"""

from __future__ import annotations

import logging
import threading
from random import Random

from leasehold.config import OwnershipSettings
from leasehold.notices import CycleFailed, Notices
from leasehold.ownership.pace import Outcome, pause_after

logger = logging.getLogger(__name__)


class Cycles:
    """The dispatch cycles of one instance. Times are of its monotonic clock."""

    def __init__(self, settings: OwnershipSettings, notices: Notices, rng: Random, now: float) -> None:
        self._settings, self._notices, self._rng = settings, notices, rng
        self._changed = threading.Condition()
        self._ended = 0
        self._trouble = self._told_before = ""
        self.due = now

    @property
    def ended(self) -> int:
        """How many have ended, well or not. The settle delay at the start is no cycle."""
        with self._changed:
            return self._ended

    def wait_for(self, number: int, timeout: float) -> bool:
        """Wait until `number` have ended, for at most `timeout` seconds. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended >= number, timeout)

    def begin(self) -> None:
        """A cycle begins."""
        self._told_before, self._trouble = self._trouble, ""

    def tell_trouble(self, what: str, error: Exception) -> None:
        """A store or hub is away or refuses."""
        self._notices.publish(CycleFailed(error))
        self._trouble = f"{what}: {error}"
        if self._trouble != self._told_before:
            logger.warning("%s", self._trouble)

    def end(self, started: float, now: float, outcome: Outcome) -> None:
        """A cycle has ended."""
        if self._told_before and not self._trouble:
            logger.warning("dispatch cycles work again")
        if outcome is Outcome.SETTLING:
            self.due = now + self._settings.settle_delay
            return
        self.due = now + pause_after(self._settings.load_balancing_interval, now - started, outcome, self._rng)
        with self._changed:
            self._ended += 1
            self._changed.notify_all()
