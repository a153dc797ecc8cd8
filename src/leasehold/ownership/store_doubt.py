"""Whether those who look expired are dead, or the store was away.

Owns the doubt in the store. Promises that after a time in which live owners may not have been able to renew, each gets
the time for one more cycle, and that one who holds nothing and finds everybody expired looks a second time before
it claims. Decides only: time comes in as an argument, in seconds of one monotonic clock.
"""

from __future__ import annotations

import math

from leasehold.balancing import View
from leasehold.config import OwnershipSettings


class StoreDoubt:
    """One instance's doubt in its ownership store."""

    def __init__(self, settings: OwnershipSettings) -> None:
        self._cycle = settings.load_balancing_interval * settings.clock_rate_ratio
        self._request_timeout = settings.request_timeout
        self._last_listing: float | None = None
        self._suspected_until = -math.inf
        self._doubted: frozenset[str] = frozenset()

    def suspected(self, now: float) -> bool:
        """Whether live owners may not have been able to renew yet."""
        return now < self._suspected_until

    def suspect(self, now: float) -> None:
        """Give each owner the time for one more cycle: it may not have been able to renew."""
        self._suspected_until = now + self._cycle + self._request_timeout

    def listed(self, asked_at: float, answered_at: float) -> bool:
        """Note a listing. Returns whether it shows that the store, or this process, was away: too late, or too slow."""
        since, self._last_listing = self._last_listing, answered_at
        paused = since is not None and asked_at - since > 2 * self._cycle + self._request_timeout
        return paused or answered_at - asked_at > self._request_timeout

    def look_again(self, view: View, holding: bool) -> tuple[bool, bool]:
        """Whether to look again before claiming, and whether the second look has shown that the store was away.

        I hold nothing, and all who own something look expired: that is looked at twice. If on the second look one of
        them is back, it was the store.
        """
        if view.expired and not holding:
            first, self._doubted = not self._doubted, view.expired
            return first, False
        back = bool(self._doubted & {owner for owner, _ in view.others})
        self._doubted = frozenset()
        return back, back
