"""One instance among the others of its group: what it tells them of itself, and whom it does not count.

Owns this instance's presence and the removal of presences of long ago. Promises that one which cannot or must not
acquire says so, so that the others take the rest of its share; and that two which run under one name both say so.
Refuses to share a group with another pipeline that was there before.

Concurrency: the dispatch thread uses it; `retired` and `full` may be set by any thread, and are in what is announced
next.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from leasehold.balancing.view import is_expired
from leasehold.errors import AlreadyInUse
from leasehold.model import OwnershipListing, Presence, owner_name
from leasehold.notices import NameShared
from leasehold.ownership.parts import InstanceParts
from leasehold.printable import excerpt

logger = logging.getLogger(__name__)

FORGET_AFTER = 10
"""Presence records are removed when they are this many partition expirations old."""


class Membership:
    """One instance's membership of its group."""

    def __init__(self, parts: InstanceParts) -> None:
        self.retired = False
        """Acquire nothing more, for good: the end has come."""
        self.full = False
        """Acquire nothing while this is set: the work hangs in something that was given up."""
        self.unable = False
        """Acquire nothing while this is set: what a start needs, checkpoints or hub, is away."""
        self._parts = parts
        settings = parts.settings
        self._presence = Presence(
            parts.group,
            str(parts.owner_id),
            parts.purpose.pipeline,
            settings.strategy,
            settings.capacity,
            settings.maximum_partitions,
        )
        self._present_since: float | None = None
        self._first_look: float | None = None
        self._namesakes: set[str] = set()

    def announcement(self, own_count: int) -> Presence:
        """What the others are told: no room for more than my `own_count`, while I cannot or must not acquire.

        So they take the rest of my share. What is mine by record, and not held, I shall have again when I can.
        """
        if self.retired:
            return self.nothing_taken()
        if not (self.full or self.unable):
            return self._presence
        maximum = self._presence.maximum
        return replace(self._presence, maximum=own_count if maximum is None else min(own_count, maximum))

    def nothing_taken(self) -> Presence:
        """The announcement of one that is there and takes nothing."""
        return replace(self._presence, maximum=0)

    def check_pipeline(self, listing: OwnershipListing) -> bool:
        """Refuse to share the group with another pipeline that was there before.

        Returns whether there is one of which I cannot tell whether it is alive: in a store without a clock, as long as
        its record is as I found it. Raises `AlreadyInUse` for one that is.
        """
        own_clock = self._parts.ownership.features.own_clock
        present = {presence.owner_id: presence for presence in listing.presences}
        mine = present.get(str(self._parts.owner_id))
        stranger = False
        if mine is None or not mine.pipeline:
            return stranger
        for other in present.values():
            # Without a clock of the store's, whoever is present came first: refusing both is safer.
            first = other.created < mine.created or (
                other.created == mine.created and (not own_clock or other.owner_id < mine.owner_id)
            )
            alive = not is_expired(other, listing.as_of, self._parts.settings.partition_expiration)
            if not (first and alive and other.pipeline and other.pipeline != mine.pipeline):
                continue
            if not own_clock and other.last_modified <= other.created:
                stranger = True
            else:
                raise AlreadyInUse(
                    f"{excerpt(other.owner_id)} of pipeline {excerpt(other.pipeline)!r} works in consumer group "
                    f"{self._parts.group.name!r}, "
                    f"and this is {mine.pipeline!r}: each would see only a part of the events. Give this pipeline a "
                    "consumer group of its own"
                )
        return stranger

    def tell_namesakes(self, listing: OwnershipListing) -> None:
        """Say once of each other instance of my name that it runs as well: it was heard of after my first look.

        A predecessor that has died is not: nothing of it changes any more.
        """
        if self._first_look is None:
            self._first_look = listing.as_of
        me, name = str(self._parts.owner_id), self._parts.owner_id.name
        for other in listing.presences:
            if other.owner_id in (me, *self._namesakes) or owner_name(other.owner_id) != name:
                continue
            if other.last_modified > self._first_look:
                self._namesakes.add(other.owner_id)
                logger.warning(
                    "two instances of group %s run under the name %r: %s, and %s, which is this one. Each that starts "
                    "takes the other's partitions at once, in the middle of its work, so that events are processed "
                    "again. Give each that runs at the same time a name of its own",
                    self._parts.group.name,
                    name,
                    other.owner_id,
                    me,
                )
                self._parts.notices.publish(NameShared(other.owner_id))

    def forget_the_dead(self, listing: OwnershipListing) -> None:
        """Remove presences of long ago, and my predecessors', which would count again when I have left."""
        long = FORGET_AFTER * self._parts.settings.partition_expiration
        me, name = str(self._parts.owner_id), self._parts.owner_id.name
        if self._present_since is None:
            # The first one: my record may be made anew later, and those who came meanwhile are no predecessors.
            self._present_since = next((one.created for one in listing.presences if one.owner_id == me), None)
        since = -math.inf if self._present_since is None else self._present_since
        dead = [
            one.owner_id
            for one in listing.presences
            if one.owner_id != me
            and (
                is_expired(one, listing.as_of, long) or (owner_name(one.owner_id) == name and one.last_modified < since)
            )
        ]
        if dead:
            self._parts.ownership.withdraw_presence(self._parts.group, dead)

    def leave(self) -> None:
        """Withdraw this instance's presence."""
        self._parts.ownership.withdraw_presence(self._parts.group, [str(self._parts.owner_id)])
