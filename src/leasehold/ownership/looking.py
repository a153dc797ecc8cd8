"""What an instance sees of its group in one cycle: the hub's partitions, the records of all, and whom they show alive.

Owns the doubt in the store, the sightings where a store has no clock, and what is set aside as unreadable. Promises
that a listing which came late, or a store that was away, gives every owner the time for one more cycle. Writes nothing.
Only the thread that runs the cycles calls it, but for `finish`, which any thread may call: it adds to a set, and a
cycle that has read the set already sees the partition once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from leasehold.balancing import Limits, Me, View, make_view, target
from leasehold.balancing.sightings import Sightings
from leasehold.balancing.unreadable import Sorted, sort_out
from leasehold.errors import HubUnavailable
from leasehold.model import OwnershipListing
from leasehold.notices import PartitionsUnserved
from leasehold.ownership.pace import OVER
from leasehold.ownership.parts import InstanceParts
from leasehold.ownership.store_doubt import StoreDoubt
from leasehold.ownership.unusable_records import Skipping
from leasehold.stores.base import KnowsNamesakes
from leasehold.told import Told

logger = logging.getLogger(__name__)


class Sight:
    """One instance's view of its group. `foreign` is the expiration of other SDKs' records, in seconds;
    `on_suspicion` is called when the store turns out to have been away.
    """

    def __init__(
        self, parts: InstanceParts, skipping: Skipping, *, foreign: float, on_suspicion: Callable[[], None]
    ) -> None:
        self._parts, self._skipping = parts, skipping
        self._foreign, self._on_suspicion = foreign, on_suspicion
        self._told = Told()
        self._unserved: tuple[str, ...] = ()
        self._doubt = StoreDoubt(parts.settings)
        self._sightings = None if parts.ownership.features.own_clock else Sightings()
        self._sorted = Sorted(OwnershipListing((), 0.0), frozenset(), frozenset())
        self._names_checked = False
        self._finished: set[str] = set()
        self.partition_ids: tuple[str, ...] = ()

    @property
    def levelless(self) -> frozenset[str]:
        """Of which partitions the listing tells no owner level."""
        return self._sorted.levelless

    def finish(self, partition: str) -> None:
        """A partition has ended for good, and is not looked for again."""
        self._finished.add(partition)

    def check_names(self) -> None:
        """Before anything is written: others may keep this group's records under another spelling of its name."""
        if not self._names_checked and isinstance(self._parts.ownership, KnowsNamesakes):
            self._parts.ownership.check_names(self._parts.group)
        self._names_checked = True

    def find_partitions(self) -> None:
        """Ask the hub. Raises `HubUnavailable` only where nothing is known yet."""
        now = self._parts.clock.monotonic()
        try:
            known = tuple(p for p in self._parts.hub.partition_ids() if p not in self._finished)
            self.partition_ids = known if self._parts.purpose.share is None else self._parts.purpose.share(known)
            self._told.has_passed(None, now - OVER * self._parts.settings.load_balancing_interval)
        except HubUnavailable as error:
            if not self.partition_ids:
                raise
            if self._told.is_news(None, str(error), now):
                logger.warning("going on with the partitions known so far: %s", error)

    def list(self) -> OwnershipListing:
        """The records that can be used."""
        asked = self._parts.clock.monotonic()
        listing = self._parts.ownership.list_ownership(self._parts.group)
        answered = self._parts.clock.monotonic()
        if self._doubt.listed(asked, answered):
            self.suspect_store()
        if self._sightings is not None:
            listing = self._sightings.dated(listing, asked, answered)
        self._skipping.tell(listing.unreadable)
        expiration = self._parts.settings.partition_expiration + self._parts.ownership.features.clock_granularity
        suspected = self._doubt.suspected(self._parts.clock.monotonic())
        self._sorted = sort_out(listing, expiration, store_suspected=suspected)
        return self._sorted.listing

    def suspect_store(self) -> None:
        """Live owners may not have been able to renew, nor those I have asked to hear it."""
        self._doubt.suspect(self._parts.clock.monotonic())
        self._on_suspicion()

    def view(self, listing: OwnershipListing, me: Me) -> View:
        """Whose the partitions are, as far as this instance can know it."""
        granularity = self._parts.ownership.features.clock_granularity
        return make_view(
            [partition for partition in self.partition_ids if partition not in self._sorted.aside],
            listing,
            me=me,
            limits=Limits(
                expiration=self._parts.settings.partition_expiration + granularity,
                reservation=self._parts.settings.load_balancing_interval + self._parts.settings.request_timeout,
                foreign=self._foreign + granularity,
            ),
            store_suspected=self._doubt.suspected(self._parts.clock.monotonic()),
        )

    def in_doubt(self, view: View, *, holding: bool) -> bool:
        """Whether to look again before claiming."""
        again, away = self._doubt.look_again(view, holding=holding)
        if away:
            self.suspect_store()
        return again

    def report_unserved(self, view: View) -> None:
        """Say which partitions are more than all instances together may hold, when that changes."""
        unserved: tuple[str, ...] = ()
        if any(member.maximum is not None for member in view.members.values()):
            owned = dict(view.others) | {view.me: (*view.held, *view.reclaimable, *view.asked)}
            unserved = target(owned, view.free, view.members).unserved
        if unserved != self._unserved:
            self._unserved = unserved
            self._parts.notices.publish(PartitionsUnserved(unserved))
