"""The faults that a local Event Hubs server shows on demand: those of any server here, and links to a hub detached."""

from __future__ import annotations

from leasehold_testkit.emulators.amqp.conditions import LINK_DETACH_FORCED, AmqpError
from leasehold_testkit.emulators.amqp.faults import AmqpFaults, Work

__all__ = ["Faults", "Work"]


class Faults(AmqpFaults):
    """The faults of one Event Hubs server."""

    def detach_links(
        self, condition: str = LINK_DETACH_FORCED, *, hub: str | None = None, description: str = "a fault on demand"
    ) -> int:
        """Detach every link to a hub (to all hubs if none is named) with an error; return how many there were."""
        return self._detach(AmqpError(condition, description), hub)
