"""When a processing task that failed is started again, and when its partition is given up.

Owns the count of failures and the pauses after them:

1. The pause doubles with each failure in a row, up to a longest.
2. A failure after progress is the first of a new row. Progress is an event processed that never was before: going
   over the same events again does not count.
3. After `attempts` failures in a row the partition is given up, with the last error.
4. A transient error (a store, hub or database that is away) is no fault of the partition: it lengthens the pause and
   is not counted by rule 3.

Pure: no clock.
"""

from __future__ import annotations

from leasehold.backoff import Backoff
from leasehold.model import BEFORE_FIRST


class Restarts:
    """The failures of one partition's processing tasks, and the pauses between them."""

    def __init__(self, attempts: int, pauses: Backoff) -> None:
        self._attempts = attempts
        self._pauses = pauses
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
        return self._pauses.pause(self._row)
