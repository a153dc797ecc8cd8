"""The pauses between tries of what has failed.

Owns their formula (`Backoff`), and trying until a deadline (`until_done`). Promises that time and chance are arguments.
Who tries decides which failures may pass and how many are too many.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_MOST_STEPS = 60  # after these a pause has long been the longest; more would overflow


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow with each failure in a row. In seconds.

    first     the pause after the first failure
    longest   no pause is longer
    factor    each pause is this many times the one before
    """

    first: float
    longest: float
    factor: float = 2.0

    def pause(self, failures: int, chance: float = 0.0) -> float:
        """Seconds to wait after this many failures in a row, at least 1.

        `chance`, from 0 to 1, takes up to half of the pause away, so that those that failed together do not try again
        together.
        """
        steps = min(failures - 1, _MOST_STEPS)
        return min(self.longest, self.first * self.factor**steps) * (1 - chance / 2)


def until_done(
    act: Callable[[], T],
    may_pass: Callable[[Exception], bool],
    *,
    deadline: float,
    pauses: Backoff,
    clock: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """What `act` returns, called again after each error that `may_pass` says may pass.

    Raises any other error at once, and the last one from `deadline` on, a time of `clock`: the last try begins then.
    """
    failures = 0
    while True:
        try:
            return act()
        except Exception as error:
            failures += 1
            left = deadline - clock()
            if left <= 0 or not may_pass(error):
                raise
        sleep(min(left, pauses.pause(failures, chance())))
