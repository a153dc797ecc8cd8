"""How often a loop looks for events while there are none, and what it says of partitions that it loses.

Owns the pause between two looks: short after something came, longer the longer nothing does. A look is a query of
less than a millisecond in one hub and a request a partition in another, so looking takes a twentieth of the time, where
that does not mean pauses of more than a tenth of a second, and never more than a fifth.

Owns, too, when a few events that have just begun to come are looked at once more: a producer appends to one partition
after the other, and a batch of the first of them makes all others wait for the next batch, which costs ten times that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from leasehold.clock import Clock
from leasehold.notices import LossReason, Notices, OwnershipLost

logger = logging.getLogger(__name__)

SHORTEST, LONGEST = 0.01, 0.03
"""Seconds between two looks: at first, and at most where a look costs next to nothing."""
AT_EASE = 0.1
"""Seconds between two looks that cost a little."""
GATHERING = 0.05
"""Seconds that the first of some events wait for the rest at most, while more come at every look."""
MANY = 10_000
"""This many events are a batch without waiting."""
AWAY = 1.0
"""Seconds between two looks at a hub that is away, or at a store that has to say whether all is consumed."""


class Pace:
    """The pauses of a loop, from one wait for events to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._usual = 0
        self._wait_anew()

    def _wait_anew(self) -> None:
        self._took = 0.0
        self._pause = SHORTEST
        self._paused = False
        self._gathering: tuple[float, int] | None = None

    def begun(self, events: int) -> None:
        """A batch of this many events is read now: the next wait begins."""
        self._usual = max(events, self._usual * 3 // 4)
        self._wait_anew()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A look, whose time counts."""
        started = self._clock.monotonic()
        yield
        self._took = self._clock.monotonic() - started

    def gathers(self, events: int) -> bool:
        """Whether this many events are looked at once more before they are read.

        Not where as many as usual were there at once: then events come faster than batches go. Nor where a look is
        dear.
        """
        at_once = not self._paused and events >= self._usual
        if at_once or events >= MANY or self._took > SHORTEST:
            return False
        now = self._clock.monotonic()
        since, before = self._gathering or (now, 0)
        if events == before or now - since >= GATHERING:
            return False
        self._gathering = since, events
        return True

    def pause(self, *, away: bool) -> float:
        """Seconds until the next look."""
        self._paused = True
        if self._gathering:
            return SHORTEST
        self._pause = min(LONGEST, 1.2 * self._pause)
        return AWAY if away else max(self._pause, min(20 * self._took, AT_EASE), 4 * self._took)


def say_losses(notices: Notices) -> None:
    """Say once for each why a partition is no longer held, where a person may want to know."""

    def tell(notice: OwnershipLost) -> None:
        if notice.reason is LossReason.LAPSED:
            logger.warning(
                "partition %s was not renewed in time: the store was away, this machine or process was paused, or "
                "code of this process held the interpreter for longer than a hold is trusted. Whoever holds it now "
                "goes on; what is written of it here is refused by the table if another has been there",
                notice.partition,
            )
        elif notice.reason is LossReason.STALLED:
            logger.error("partition %s is given up: no batch has ended for the stall timeout", notice.partition)
        else:
            logger.info("partition %s is no longer held: %s", notice.partition, notice.reason.value)

    notices.subscribe(tell, to=OwnershipLost)
