"""When a processing task that failed is started again, and when its partition is given up.

Owns the count of failures and the pauses after them:

1. The pause doubles with each failure in a row, up to a longest.
2. A failure after progress is the first of a new row. Progress is an event processed that never was before, so that
   going over the same events again is none.
3. After `attempts` failures in a row the partition is given up, with the last error.
4. A transient error (a store, hub or database that is away) is no fault of the partition: it lengthens the pause and
   is not counted by rule 3.

Pure: no clock.
"""

from __future__ import annotations

from leasehold.model import BEFORE_FIRST


def pause_after_failures(failures: int, first: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row, at least 1: rule 1."""
    return min(longest, first * 2.0 ** min(failures - 1, 60))


class Restarts:
    """The failures of one partition's processing tasks. Pauses in seconds."""

    def __init__(self, attempts: int, first: float, longest: float) -> None:
        self._attempts = attempts
        self._first = first
        self._longest = longest
        self._reached = BEFORE_FIRST
        self._row = 0
        self._counted = 0

    def failed(self, reached: int, *, transient: bool) -> float | None:
        """A task failed when events up to `reached` had been processed. The pause before the next, None: give up."""
        if reached > self._reached:
            self._row = self._counted = 0
            self._reached = reached
        self._row += 1
        self._counted += not transient
        if self._counted >= self._attempts:
            return None
        return pause_after_failures(self._row, self._first, self._longest)
