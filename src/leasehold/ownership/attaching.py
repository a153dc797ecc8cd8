"""Receivers that are attached with the claim, and closed with the hold.

Owns which partitions have a receiver because they were claimed. Promises that it is attached before the checkpoint is
read from which the work begins, and that none is left for a partition that is not held. Raises nothing for a hub that
is away: who reads then finds that out.

Concurrency: the dispatch thread uses it, and it waits no longer than one call to a store may take.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from leasehold.errors import HubError
from leasehold.ownership.parts import InstanceParts

logger = logging.getLogger(__name__)


class Attaching:
    """The receivers of one instance."""

    def __init__(self, parts: InstanceParts) -> None:
        self._parts = parts
        self._attached: set[str] = set()

    def attach(self, places: Mapping[str, int]) -> None:
        """Attach to what was claimed, by the sequence number that comes next as far as that is known."""
        try:
            self._parts.hub.attach(self._parts.group.name, places, self._parts.settings.request_timeout)
        except HubError as error:
            logger.warning("partitions %s are not attached to yet: %s", ", ".join(sorted(places)), error)
        self._attached |= set(places)

    def begin(self) -> None:
        """The checkpoints have been read: who does not read here leaves the partitions to those who do."""
        if not self._parts.purpose.reads_here:
            self.keep_only(())

    def keep_only(self, held: Collection[str]) -> None:
        """Close the receivers of all partitions that are not held."""
        for partition in self._attached.difference(held):
            self._parts.hub.detach(partition)
        self._attached.intersection_update(held)
