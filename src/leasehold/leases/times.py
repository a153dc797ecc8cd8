"""When a lease is trusted, renewed and asked for again, as pure functions: time and randomness are arguments.

    sent ──── renewal due ──── renewal due ──── trust ends ──── the store lets others take it
      0         trust / 3       2 trust / 3        trust                  duration

A holder counts from before its request was sent, on its own clock, which may run slower than the store's, and stops a
margin earlier (`balancing.trust`). So two renewals may fail and the third be late before anything is lost, and whatever
the store does, the holder has given up before another may have the lease. What was answered too late extends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from leasehold.backoff import Backoff
from leasehold.balancing.trust import trust_duration
from leasehold.config import check_number

_CLOCK_RATE_RATIO = 1.25  # as for partitions: the holder's clock may run this much slower than the store's
_MARGIN = 1.0  # seconds, for the call after the last look at the clock; of a short lease a tenth
_PAUSES = Backoff(0.05, 1.0)  # between two requests for a busy lease
_PATIENCE = 3.0  # seconds, the store's time-out; of a short lease a quarter of its trust


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times that follow from a lease's duration, all in seconds.

    duration      how long the store keeps a session that is not renewed
    trust         how long the holder trusts it, from before its last renewal was sent
    renew_after   how long after a renewal was sent the next one is
    timeout       how long a call of the store may take, where nobody says otherwise
    """

    duration: float
    trust: float
    renew_after: float
    timeout: float


def lease_times(duration: float) -> LeaseTimes:
    """The times of leases of this duration. Raises `ConfigError` for one that is not a finite number above 0."""
    remedy = "A lease without an end would outlive its process: 30 is usual"
    check_number("duration", duration, above=0, rule="seconds above 0", remedy=remedy)
    trust = trust_duration(duration, _CLOCK_RATE_RATIO, min(_MARGIN, duration / 10))
    return LeaseTimes(duration, trust, trust / 3, min(_PATIENCE, trust / 4))


def trusted_until(sent: float, times: LeaseTimes) -> float:
    """Until when what was opened or renewed by a request sent then is trusted."""
    return sent + times.trust


def extended(until: float, sent: float, answered: float, times: LeaseTimes) -> float | None:
    """Until when a session is trusted that was renewed then. None if its trust ended before the answer came."""
    return None if answered >= until else max(until, trusted_until(sent, times))


def retry_after(times: LeaseTimes, rng: Random) -> float:
    """Seconds from a renewal that failed to the next try: several fit before the trust ends."""
    return rng.uniform(times.renew_after / 8, times.renew_after / 4)


def pause(attempt: int, seconds: float, rng: Random) -> float:
    """Seconds between asking for a lease that was busy for the `attempt`th time (from 0) and asking again.

    It doubles, with jitter, up to a second, and becomes shorter again for who has little of its time left: of those
    who are ready to wait for equally long, the one who came first asks most often.
    """
    longest = min(_PAUSES.longest, max(_PAUSES.first, seconds / 8))
    return max(0.0, min(seconds, Backoff(_PAUSES.first, longest).pause(attempt + 1, rng.random())))
