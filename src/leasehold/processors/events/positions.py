"""Where a group without checkpoints starts, in the forms that people write it.

Owns these forms. Refuses (`ConfigError`) any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from leasehold.errors import ConfigError
from leasehold.model import EARLIEST, OTHERS, EventPosition, PositionKind, Positions

Position = EventPosition | str | int | datetime
"""One place: in its own form, as its text, as a sequence number, or as a time with an offset from UTC."""

Start = Positions | Position | Mapping[str, Position] | Callable[[str], Position]
"""Where a group without checkpoints starts: one position for all, by partition (`*` for all others), or a function."""

_A_POSITION = "a position is earliest, latest, a sequence number, a datetime or ISO 8601 timestamp, or an EventPosition"


@dataclass(frozen=True, slots=True)
class _PositionsByFunction(Positions):
    """A position for every partition, from a function."""

    function: Callable[[str], Position] = field(default=lambda _: EARLIEST)

    def of(self, partition: str) -> EventPosition:
        return position_of(self.function(partition), f"start({partition!r})")


def position_of(value: object, field: str = "start") -> EventPosition:
    """A position, from any form of it. `field` names it in the error. Raises `ConfigError`."""
    match value:
        case EventPosition():
            return value
        case str():
            return EventPosition.parse(value, field)
        case bool():
            pass
        case int() if value >= 0:
            return EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=value)
        case datetime():
            if value.tzinfo is None:
                remedy = "For example datetime.now(UTC), or add tzinfo=UTC"
                raise ConfigError(field, str(value), "a timestamp needs an offset from UTC", remedy)
            return EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=value.timestamp())
    raise ConfigError(field, repr(value), _A_POSITION, "Leave it out for earliest" if field == "start" else "")


def positions_of(start: Start) -> Positions:
    """Start positions, from any form of them. Raises `ConfigError`."""
    if isinstance(start, Positions):
        return start
    if isinstance(start, str):
        return Positions.parse(start, "start")
    if isinstance(start, Mapping):
        named = {str(partition): position_of(at, f"start[{partition!r}]") for partition, at in start.items()}
        return Positions(named.pop(OTHERS, EARLIEST), tuple(sorted(named.items())))
    if not isinstance(start, EventPosition) and callable(start):
        return _PositionsByFunction(function=start)
    return Positions(position_of(start))
