"""Whether the instances of a process are alive, and ready, out of their notices.

Owns the two answers:

- *Alive*: its dispatch cycles go on, and its work does. Not alive is an instance whose work has made no progress for
  the stall timeout (or one partition of a plain processor, whose thread no restart but the process's can free), and one
  whose dispatch cycle hangs for as long. A rebalance, a store that is slow or away and a hub that is away are no
  reason: a restart mends none of them, and costs all of its partitions.
- *Ready*: alive, it has seen the group, and it wants nothing that it does not hold. A new instance of a rolling deploy
  is ready when it has its share, so that the next one is stopped only then. One that has never come so far because a
  store is away is not ready.

An instance that has been told to end, or has ended, is not asked any more.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from leasehold.clock import Clock, SystemClock
from leasehold.notices import CycleBegun, CycleEnded, CycleFailed, Notice, Notices, WorkStalled
from leasehold.printable import span


@dataclass(frozen=True, slots=True)
class Health:
    """An answer, and why it is no where it is."""

    alive: bool
    ready: bool
    why: str


class InstanceHealth:
    """The health of one instance, as far as its `notices` tell."""

    def __init__(self, notices: Notices, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._cycle: CycleEnded | None = None
        self._cycle_at = 0.0
        self._first: CycleBegun | None = None
        self._hanging: tuple[str, ...] = ()
        self._error = ""
        self._ends = [
            notices.subscribe(self._hear, kind) for kind in (CycleBegun, CycleEnded, CycleFailed, WorkStalled)
        ]

    def end(self) -> None:
        """Listen no more."""
        for end in self._ends:
            end()

    def _hear(self, notice: Notice) -> None:
        with self._lock:
            match notice:
                case CycleBegun():
                    self._first, self._cycle_at = notice, self._clock.monotonic()
                case CycleEnded():
                    self._cycle, self._cycle_at = notice, self._clock.monotonic()
                    self._error = self._error if notice.failed else ""
                case CycleFailed():
                    self._error = str(notice.error)
                case WorkStalled():
                    self._hanging = notice.partitions

    @property
    def last_cycle(self) -> CycleEnded | None:
        """The last dispatch cycle that has ended."""
        with self._lock:
            return self._cycle

    @property
    def has_cycles(self) -> bool:
        """Whether a dispatch cycle has begun, as an instance's does; what only fills a table has none."""
        with self._lock:
            return self._first is not None or self._cycle is not None or bool(self._error)

    @property
    def last_error(self) -> str:
        """Why the last cycle failed, `""` if it did not."""
        with self._lock:
            return self._error

    def now(self) -> Health:
        """How it is at this moment."""
        with self._lock:
            cycle, at, hanging, error = self._cycle, self._cycle_at, self._hanging, self._error
            first = self._first
        silent = self._clock.monotonic() - at
        if cycle is None and first is not None and silent > first.stall_timeout:
            return Health(False, False, f"the first dispatch cycle has not ended for {span(silent)}")
        if cycle is None:
            return Health(True, False, "no dispatch cycle has ended yet" + (f": {error}" if error else ""))
        if hanging:
            return Health(False, False, f"the work on partitions {', '.join(hanging)} has hung for the stall timeout")
        if cycle.stalled:
            return Health(False, False, "the work has made no progress for the stall timeout")
        if silent > cycle.due_in + cycle.stall_timeout:
            return Health(False, False, f"no dispatch cycle has ended for {span(silent)}")
        if cycle.failed:
            return Health(True, False, f"the last dispatch cycle failed: {error}")
        if not cycle.settled:
            return Health(True, False, "it does not hold all that it should yet")
        return Health(True, True, "")
