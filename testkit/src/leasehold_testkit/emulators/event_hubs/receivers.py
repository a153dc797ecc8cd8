"""Who receives from a partition: owner levels, and how many may at once.

Owns the list of receivers per hub, consumer group and partition. With an owner level (Event Hubs calls it an
epoch) a receiver is alone: its arrival disconnects all others whose level is not higher, and none without a
level or with a lower one is let in while it is there. Without one, a handful may receive at once. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from leasehold_testkit.emulators.amqp.conditions import LINK_STOLEN, RESOURCE_LIMIT_EXCEEDED, AmqpError
from leasehold_testkit.emulators.amqp.links import Link


@dataclass(slots=True)
class Receivers:
    """All receivers of a server. `most` is how many a partition and group take without an owner level."""

    most: int
    _places: dict[Hashable, dict[Link, int | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, list(self._places.values())))

    @property
    def places(self) -> frozenset[Hashable]:
        """Where there is a receiver now. May be asked from any thread."""
        return frozenset(place for place, here in list(self._places.items()) if here)

    @property
    def levels(self) -> dict[Hashable, frozenset[int | None]]:
        """The owner levels of those who receive now. May be asked from any thread."""
        return {place: frozenset(here.copy().values()) for place, here in list(self._places.items()) if here}

    def enter(self, place: Hashable, link: Link, level: int | None) -> list[tuple[Link, AmqpError]]:
        """Let a receiver in; return those that have to go, each with the reason. Raises `AmqpError`."""
        here = self._places.setdefault(place, {})
        highest = max((other for other in here.values() if other is not None), default=None)
        if highest is not None and (level is None or level < highest):
            asked = "no owner level" if level is None else f"owner level {level}"
            raise AmqpError(LINK_STOLEN, f"a receiver with {asked} is refused: one with level {highest} is connected")
        if level is None:
            if len(here) >= self.most:
                what = f"at most {self.most} receivers may read a partition in a consumer group at once"
                raise AmqpError(RESOURCE_LIMIT_EXCEEDED, what)
            here[link] = None
            return []
        reason = AmqpError(LINK_STOLEN, f"a receiver with owner level {level} has come, so this one is disconnected")
        gone = [(other, reason) for other in here]
        here.clear()
        here[link] = level
        return gone

    def leave(self, place: Hashable, link: Link) -> None:
        """A receiver has gone; also where it had to."""
        here = self._places.get(place, {})
        here.pop(link, None)
        if not here:
            self._places.pop(place, None)
