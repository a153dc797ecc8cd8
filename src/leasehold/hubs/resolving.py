"""What a position in a partition stands for, by the rules that all hubs share.

Owns the rules of `Hub.resolve`; a hub brings what only it knows, which is the first event since a time.
"""

from __future__ import annotations

from collections.abc import Callable

from leasehold.errors import ConfigError
from leasehold.model import EventPosition, PartitionProperties, PositionKind


def resolved(place: PartitionProperties, position: EventPosition, url: str, since: Callable[[float], int]) -> int:
    """The sequence number that `position` stands for in a partition of the hub at `url`; see `Hub.resolve`.

    `since` gives the first event enqueued at or after a time, or the end.
    """
    match position.kind:
        case PositionKind.EARLIEST:
            return place.begin
        case PositionKind.LATEST:
            return place.end
        case PositionKind.SEQUENCE_NUMBER:
            if position.sequence_number > place.end:
                raise ConfigError(
                    "position",
                    position.sequence_number,
                    f"partition {place.partition} of {url} ends at {place.end}",
                    "Name a sequence number up to its end, or latest",
                )
            return position.sequence_number
        case PositionKind.ENQUEUED_TIME:
            return since(position.enqueued_time)
        case _:
            raise ValueError(f"a hub cannot resolve {position}: the checkpoint store knows what is committed")
