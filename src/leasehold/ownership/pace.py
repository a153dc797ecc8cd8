"""When the next dispatch cycle is due.

Owns the pauses between cycles: none after one that won something, short ones while an answer is awaited or something
is in doubt, else the load-balancing interval; and after how long without one a trouble of cycles is over. Pure.
"""

from __future__ import annotations

from enum import Enum
from random import Random

JITTER = 0.1
"""How much of the interval a pause may be shorter, as a fraction. Never longer: renewals must be in time."""

OVER = 2.0
"""Intervals after which a trouble is over that has not come back. A healthy instance runs a cycle in each of them."""


class CycleOutcome(Enum):
    """What a dispatch cycle came to."""

    SETTLING = "announced, and waiting for others to be so"
    WON = "something was won: there may be more to claim"
    DOUBTED = "everybody looks expired: look again soon, at a random moment, before claiming"
    ASKING = "an owner was asked to hand over"
    FAILED = "the store or the hub was away"
    IDLE = "nothing to do"


def pause_after(interval: float, spent: float, outcome: CycleOutcome, rng: Random) -> float:
    """Seconds to wait before the next cycle; `spent` is how long this one took."""
    if outcome is CycleOutcome.WON:
        return 0.0
    if outcome is CycleOutcome.DOUBTED:
        # Later than those that live can be back: after a failure they come back after a quarter of it.
        return interval * (0.3 + 0.2 * rng.random())
    soon = 0.25 if outcome in (CycleOutcome.ASKING, CycleOutcome.FAILED) else 1.0
    return max(0.0, soon * interval * (1 - JITTER * rng.random()) - spent)
