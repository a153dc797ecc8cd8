"""Asks: what others want of what is held here, and what is wanted of others.

Owns the asks that this instance hears, makes and takes back, and since when it has been waiting for each. Promises
that an ask counts only at the owner level it was made for and from one that is there, so that an ask that comes late
moves nothing. Decides by `balancing.hand_over`; draining and giving up are the work's and `keeping`'s.

Concurrency: the dispatch thread uses it. If it stops for a minute between asking and claiming, the owner has handed
over and the reservation has ended: another may have claimed.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.balancing import Claim, View
from leasehold.balancing.hand_over import Requests, requests
from leasehold.model import OwnershipListing
from leasehold.notices import HandOverAsked
from leasehold.ownership.holds import Holds
from leasehold.ownership.parts import InstanceParts


class Asking:
    """One instance's part in hand-overs."""

    def __init__(self, parts: InstanceParts, holds: Holds) -> None:
        self._parts = parts
        self._holds = holds
        self._since: dict[str, float] = {}

    def hear(self, listing: OwnershipListing, view: View) -> None:
        """Note who asks for what I hold, and take away asks that mean nothing any more."""
        held = self._holds.all()
        askers, void = {}, []
        for ask in listing.asks:
            hold = held.get(ask.partition)
            if hold is None or ask.asker == view.me:
                continue
            if ask.owner_level == hold.owner_level and ask.asker in view.members:
                askers[ask.partition] = ask.asker
            else:
                void.append(ask)
        self._holds.set_askers(askers)
        for partition, asker in askers.items():
            if held[partition].asked_by != asker:
                self._parts.notices.publish(HandOverAsked(partition, held[partition].owner_level, asker))
        if void:
            self._parts.ownership.withdraw_asks(void)

    def wishes(self, plan: Iterable[Claim], listing: OwnershipListing, view: View, now: float) -> Requests:
        """What to ask for, claim, and take back, for the claims of a plan. `now` is monotonic, in seconds."""
        wishes = requests(
            list(plan),
            {record.partition: record for record in listing.records},
            {ask.partition: ask for ask in listing.asks},
            me=view.me,
            listening=view.announced,
            waited={partition: now - since for partition, since in self._since.items()},
            deadline=self._parts.settings.hand_over_timeout,
        )
        self._since = {partition: self._since.get(partition, now) for partition in wishes.waiting}
        return wishes

    def forget_how_long(self) -> None:
        """Wait anew: whom I have asked may not have been able to hear it."""
        self._since.clear()
