"""How long a holder may trust its own hold.

The store lets others take a partition once it has gone `partition_expiration` without renewal by the
store's clock. A holder counts on its own clock, from before it sent the request (the store may have acted
as early as that), on a clock that may run slower than the store's by the clock-rate ratio, and stops a
margin earlier. So its trust has ended before anybody else may claim, whatever the two clocks show.
"""

from __future__ import annotations


def trust_duration(expiration: float, clock_rate_ratio: float, margin: float) -> float:
    """Seconds on the holder's clock, from the start of a claim or renewal, that it may be trusted."""
    return expiration / clock_rate_ratio - margin
