"""What a position in a partition stands for, by the rules that all hubs share.

Owns the rules of `Hub.resolve`; a hub brings what only it knows: the first event since a time, and, where its offsets
are no sequence numbers, where one lies.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from leasehold.errors import ConfigError
from leasehold.model import EventPosition, PartitionProperties, PositionKind

_A_MOMENT = 1e-6
"""Seconds: the finest that any hub tells times by."""


def resolved(
    place: PartitionProperties,
    position: EventPosition,
    url: str,
    since: Callable[[float], int],
    at_offset: Callable[[str], tuple[int, bool]] | None = None,
) -> int:
    """The sequence number that `position` stands for in a partition of the hub at `url`; see `Hub.resolve`.

    `since` gives the first event enqueued at or after a time, or the end; `at_offset` the event that has an offset, or
    the first one behind it, and whether it is the one. Without it an offset is a sequence number.
    """
    after = not position.inclusive
    match position.kind:
        case PositionKind.EARLIEST:
            return place.begin
        case PositionKind.LATEST:
            return place.end
        case PositionKind.SEQUENCE_NUMBER:
            return _within(place, position, position.sequence_number + after, url)
        case PositionKind.OFFSET if at_offset is not None:
            number, exact = at_offset(position.offset)
            return number + (after and exact)
        case PositionKind.OFFSET:
            if re.fullmatch(r"[0-9]{1,19}", position.offset) is None:
                raise ConfigError(
                    "position", str(position), f"the offsets of {url} are sequence numbers", "Name one of its offsets"
                )
            return _within(place, position, int(position.offset) + after, url)
        case PositionKind.ENQUEUED_TIME:
            return since(position.enqueued_time + _A_MOMENT * after)
        case _:
            raise ValueError(f"a hub cannot resolve {position}: the checkpoint store knows what is committed")


def _within(place: PartitionProperties, position: EventPosition, number: int, url: str) -> int:
    if number > place.end:
        raise ConfigError(
            "position",
            str(position),
            f"partition {place.partition} of {url} ends at {place.end}",
            "Name a place up to its end, or latest",
        )
    return number
