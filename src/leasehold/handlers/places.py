"""Partitions and their events, as a handled table is given them: by a processor, by Spark's driver, by a simulation.

Owns these protocols, so that a table knows none of those who call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

__all__ = ["CallingOwner", "Owner", "Place", "ReadBatch", "ReadPlace", "Sent"]


class Sent(Protocol):
    """What is known of an event before its body is read."""

    @property
    def body(self) -> bytes: ...

    @property
    def sequence_number(self) -> int: ...

    @property
    def enqueued_time(self) -> float: ...


class Place(Protocol):
    """Where events come from."""

    @property
    def hub(self) -> str: ...

    @property
    def partition(self) -> str: ...

    @property
    def owner_level(self) -> int: ...


class ReadPlace(Place, Protocol):
    """What was read there: the `last` event was enqueued at `last_enqueued`, 0 where that is not known."""

    @property
    def last(self) -> int: ...

    @property
    def last_enqueued(self) -> float: ...


class ReadBatch(ReadPlace, Protocol):
    """The events that were read there, in order, from the number `first` on. As a condition: whether anything was."""

    @property
    def first(self) -> int: ...

    def __iter__(self) -> Iterator[Sent]: ...

    def __len__(self) -> int: ...


class Owner(Place, Protocol):
    """A partition that this process owns; `trusted` says whether it still does, at this moment."""

    @property
    def trusted(self) -> bool: ...


class CallingOwner(Owner, Protocol):
    """The owner of a partition that calls a handled table; its work on the partition began at the number `start`."""

    @property
    def start(self) -> int: ...

    def call_again(self, seconds: float) -> None:
        """Call the table again after `seconds` at the latest, with an empty batch if no event has come."""
        ...
