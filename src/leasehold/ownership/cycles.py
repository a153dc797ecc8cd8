"""What is kept of dispatch cycles: how many have ended, when the next is due, and what trouble they are in.

Owns the log of trouble: a line when each trouble begins and when all are over, however many cycles they take, and
however they take turns. A trouble is over that did not come back for `OVER` intervals of balancing. The dispatch thread
writes; any thread may ask how many cycles have ended, or wait for one.
"""

from __future__ import annotations

import logging
import threading

from leasehold.notices import CycleBegun, CycleEnded, CycleFailed
from leasehold.ownership.holds import Holds
from leasehold.ownership.pace import OVER, CycleOutcome, pause_after
from leasehold.ownership.parts import InstanceParts
from leasehold.told import Told

logger = logging.getLogger(__name__)


class Cycles:
    """The dispatch cycles of one instance. Times are of its monotonic clock."""

    def __init__(self, parts: InstanceParts, holds: Holds) -> None:
        self._parts, self._holds = parts, holds
        self._changed = threading.Condition()
        self._ended = 0
        self._begun = False
        self._told = Told()
        self._troubled = False
        self.due = parts.clock.monotonic()

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
        if not self._begun:
            self._begun = True
            parts = self._parts
            parts.notices.publish(CycleBegun(str(parts.owner_id), parts.settings.stall_timeout))

    def tell_trouble(self, what: str, error: Exception) -> None:
        """A store or hub is away or refuses."""
        self._parts.notices.publish(CycleFailed(error))
        self._troubled, trouble = True, f"{what}: {error}"
        if self._told.is_news(None, trouble, self._parts.clock.monotonic()):
            logger.warning("%s", trouble)

    def end(self, started: float, now: float, outcome: CycleOutcome, *, partitions: int, stalled: bool) -> None:
        """A cycle has ended. `partitions`: how many the hub has; `stalled`: the work makes no progress."""
        over = self._told.has_passed(None, now - OVER * self._parts.settings.load_balancing_interval)
        if self._troubled and over:
            self._troubled = False
            logger.warning("dispatch cycles work again")
        settling = outcome is CycleOutcome.SETTLING
        if settling:
            self.due = now + self._parts.settings.settle_delay
        else:
            self.due = now + pause_after(
                self._parts.settings.load_balancing_interval, now - started, outcome, self._parts.rng
            )
        self._tell(now - started, outcome, partitions, stalled=stalled)
        if settling:
            return
        with self._changed:
            self._ended += 1
            self._changed.notify_all()

    def _tell(self, seconds: float, outcome: CycleOutcome, partitions: int, *, stalled: bool) -> None:
        settings = self._parts.settings
        self._parts.notices.publish(
            CycleEnded(
                owner_id=str(self._parts.owner_id),
                seconds=seconds,
                due_in=max(settings.load_balancing_interval, settings.settle_delay),
                holds={partition: hold.trusted_until for partition, hold in self._holds.all().items()},
                known=partitions,
                settled=outcome is CycleOutcome.IDLE and not stalled,
                failed=outcome is CycleOutcome.FAILED,
                stalled=stalled,
                stall_timeout=settings.stall_timeout,
            )
        )
