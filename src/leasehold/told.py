"""What was told already, so that what comes again and again in the same words is told once.

Owns the memory of it, which is bounded: of more than `MOST`, those that came longest ago are forgotten, and would be
news. Time comes in as an argument, in seconds of one monotonic clock. Any number of threads may ask at once. Owns, too,
what a single thread says of something that is away (`Outage`).
"""

from __future__ import annotations

import logging
import math
import threading

MOST = 1_000


class Told:
    """The words told about each of several things. `again` is how many seconds later what still comes is news again."""

    def __init__(self, again: float = math.inf) -> None:
        self._again = again
        self._lock = threading.Lock()
        self._told: dict[tuple[str | None, str], tuple[float, float]] = {}  # when each was told, and when it came last

    def is_news(self, about: str | None, text: str, now: float = 0.0) -> bool:
        """Whether this is to be told, as it comes now: it has not been, or not for long."""
        with self._lock:
            told, _ = self._told.pop((about, text), (-math.inf, 0.0))
            news = now - told >= self._again
            self._told[about, text] = (now if news else told), now
            if len(self._told) > MOST:
                del self._told[next(iter(self._told))]
        return news

    def has_passed(self, about: str | None, since: float) -> bool:
        """Forget what has not come about this after `since`. Whether that leaves nothing that was told about it."""
        with self._lock:
            here = [(key, came) for key, (_, came) in self._told.items() if key[0] == about]
            passed = [key for key, came in here if came <= since]
            for key in passed:
                del self._told[key]
        return len(passed) == len(here)


class Outage:
    """Warns once when something is away, and once when it is there again. For one thread.

    `away` is a sentence with a `%s` for the reason, `back` one without.
    """

    def __init__(self, logger: logging.Logger, away: str, back: str) -> None:
        self._logger, self._away, self._back = logger, away, back
        self.lasts = False

    def note(self, reason: object) -> None:
        """Why it is away now, or None where it is there."""
        if reason is not None and not self.lasts:
            self._logger.warning(self._away, str(reason))  # an error would keep its frames alive
        elif reason is None and self.lasts:
            self._logger.warning(self._back)
        self.lasts = reason is not None
