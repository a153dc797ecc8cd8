"""Parked events, and events of the outbox, of a hub that is read no more: who takes care of them, and when.

Owns these rules. Of a hub that was deleted and made anew nobody owns a partition: its events' entities would wait for
ever, those of a spread table with all that the new hub has of them.

1. What partition P of another hub has left is the concern of the owner of partition P of this hub. Where this hub has
   none of that name it is that of the owner of the first one, of those that have a watermark in the table.
2. Another hub may be alive, and its owners at work on the same table. They try what is due within seconds. So what is
   left is taken care of once something of it has been due for `UNTOUCHED` seconds, and nothing has changed: neither
   what is due first, nor how far the partition has come, nor its owner level. Since its owners may leave something
   at any time before they go, it is looked for as long as there is an owner here, every `SELDOM` seconds.
3. It is done at the owner level that is there, and under the watermark that is there (`Batch.read_under`): who does it
   outranks nobody. If an owner comes meanwhile, or anybody else does it too, one commit of the two is made, and the
   other is refused or outdated. A handler may have been called twice then, as always.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from leasehold.model import BEFORE_FIRST
from leasehold.sinks.rules.fence import Lane, Watermark

__all__ = ["SELDOM", "UNTOUCHED", "LeftBehind", "LeftOwner", "LeftPlace", "Sign", "concerns", "sign_of"]

UNTOUCHED = 60.0
SELDOM = 60.0
"""Seconds until the next look where nobody has left anything."""

Sign = tuple[Any, ...]
"""What changes whenever an owner of a left partition does anything: rule 2."""


@dataclass(frozen=True, slots=True)
class LeftPlace:
    """A partition of another hub, as an empty batch of it, at the owner level that is there."""

    hub: str
    partition: str
    owner_level: int
    first: int = BEFORE_FIRST + 1
    last: int = BEFORE_FIRST
    last_enqueued: float = 0.0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class LeftOwner:
    """Who sends what such a partition has left in the outbox: the owner of another one, as long as it is trusted."""

    hub: str
    partition: str
    owner_level: int
    is_trusted: Callable[[], bool]

    @property
    def trusted(self) -> bool:
        return self.is_trusted()


@dataclass(slots=True)
class LeftBehind:
    """What the owner of one partition knows of what others have left. Looked for at `look_at`, by the monotonic clock;
    `refused` are entities whose events cannot be applied, `said` the partitions of which a warning was given."""

    look_at: float = 0.0
    refused: set[tuple[Lane, Any]] = field(default_factory=set)
    said: set[Lane] = field(default_factory=set)
    _seen: dict[Lane, tuple[Sign, float | None]] = field(default_factory=dict)

    @property
    def lanes(self) -> Collection[Lane]:
        """Those of which something waits that this partition's owner is concerned with."""
        return self._seen.keys()

    def is_untouched(self, lane: Lane, sign: Sign | None, now: float, *, due: bool) -> bool:
        """Rule 2; `sign` is None where nothing waits."""
        if sign is None:
            self._seen.pop(lane, None)
            return False
        before, since = self._seen.get(lane, (None, None))
        if before != sign or since is None:
            since = now if due else None
            self._seen[lane] = sign, since
        return due and since is not None and now - since >= UNTOUCHED

    def done(self, lane: Lane, sign: Sign | None, *, due: bool) -> bool:
        """What has changed since `is_untouched` is our own doing. Whether anything has, and more is due."""
        before, since = self._seen.pop(lane, (None, None))
        if sign is not None:
            self._seen[lane] = sign, since
        return due and sign != before


def concerns(partition: str, lane: Lane, partitions: Collection[str]) -> bool:
    """Rule 1, for the owner of `partition`; `partitions` are this hub's partitions that have a watermark."""
    _, name = lane
    return partition == (name if name in partitions else min(partitions, default=partition))


def sign_of(mark: Watermark, waiting: Mapping[Any, float], unsent: int | None = None) -> Sign | None:
    """The sign of a left partition; None if nothing waits. `unsent` is the first number of its outbox."""
    if not waiting and unsent is None:
        return None
    first = min(((at, str(key)) for key, at in waiting.items()), default=None)
    return mark.sequence_number, mark.owner_level, first, unsent
