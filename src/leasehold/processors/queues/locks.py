"""How long a message's lock is trusted, as pure functions.

A lock's end is told by the service's clock. It is read by this machine's wall clock once, at the answer, and counted on
the monotonic clock from then on: at most `LONGEST` from before the request was sent. Two clocks that differ cost
renewals and second deliveries, and never a second effect: what is done is known to the sink.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST, LONGEST = 0.4, 30.0
"""Bounds, in seconds, of what is believed: a machine whose clock is ahead would else trust no lock at all."""
_MARGIN = 0.9


@dataclass(frozen=True, slots=True)
class LockTrust:
    """Until when a lock is trusted, and when it is to be renewed, on the monotonic clock."""

    until: float
    renew_at: float


def lock_trust(locked_until: float, *, sent: float, answered: float, wall: float) -> LockTrust:
    """The trust in a lock that a request brought; `answered` and `wall` are one moment on both clocks."""
    end = min(answered + locked_until - wall, sent + LONGEST)
    lasts = max(end - sent, SHORTEST)
    return LockTrust(sent + lasts * _MARGIN, sent + lasts / 2)
