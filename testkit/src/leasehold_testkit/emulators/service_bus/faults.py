"""The faults that a local Service Bus server shows on demand: those of any server here, and of locks and outcomes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from leasehold_testkit.emulators.amqp.conditions import LINK_DETACH_FORCED, AmqpError
from leasehold_testkit.emulators.amqp.faults import AmqpFaults, Work

__all__ = ["Faults", "Work"]


class Faults(AmqpFaults):
    """The faults of one Service Bus server."""

    def __init__(
        self,
        drop: Callable[[], int],
        detach: Callable[[AmqpError, str | None], int],
        lose_locks: Callable[[str | None], int],
    ) -> None:
        super().__init__(drop, detach)
        self._lose_locks = lose_locks
        self._swallow = 0
        self._swallow_lock = Lock()

    def detach_links(
        self, condition: str = LINK_DETACH_FORCED, *, entity: str | None = None, description: str = "a fault on demand"
    ) -> int:
        """Detach every link to a queue, topic or subscription (`TOPIC/SUBSCRIPTION`), or to all, with an error.

        Return how many there were.
        """
        return self._detach(AmqpError(condition, description), entity)

    def lose_locks(self, *, entity: str | None = None) -> int:
        """End every lock of a queue or subscription, or of all, as an update of the service may; return how many.

        A session counts as one lock: with it those of its messages end, and its receiver is told that it has lost it.
        """
        return self._lose_locks(entity)

    def swallow_outcomes(self, times: int) -> None:
        """Settle this many of the next messages as asked, but cut the connection before the receiver is told."""
        with self._swallow_lock:
            self._swallow = times

    def swallows(self) -> bool:
        """Whether the outcome at hand is to be swallowed."""
        with self._swallow_lock:
            if not self._swallow:
                return False
            self._swallow -= 1
            return True
