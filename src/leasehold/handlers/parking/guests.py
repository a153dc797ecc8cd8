"""Parked events of entities whose leases a batch holds, whichever partition they come from: who applies them, and when.

Owns these rules, for a table that is exclusive (`handlers.exclusive`).

1. Behind its commit a batch asks for the leases of the entities that it has parked events of, and applies what is first
   and due of those whose leases it holds, again and again, until nothing is, or `AT_MOST` seconds are over.
2. What another process's partition has parked is applied as by a guest (`sinks.beside.parking`, rule 4): at the owner
   level and under the watermark that are there, in a commit of its own. If anybody else changes that partition
   meanwhile, the commit is outdated, and its owner, or the next holder, tries.
3. What a handler emits for a guest waits in the outbox for the owner of the event's partition, who sends it. Since the
   event waits for that owner too, it looks after it every 2 s at the latest, and behind each such look into the outbox.

A guest that is stopped before its commit has done nothing; one that was paused past its lease is called no more, and
its commit finds that the events are there no more, or that their entity has another state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leasehold.handlers.contract import Key
from leasehold.handlers.known_partition import KnownPartition
from leasehold.handlers.parking.left_behind import LeftPlace
from leasehold.sinks.rules.fence import Lane

__all__ = ["AT_MOST", "GuestPlace", "by_lane"]

AT_MOST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestPlace(LeftPlace):
    """A partition of another owner, as an empty batch of it; `known` is what the guest knows of it."""

    known: KnownPartition


def by_lane(firsts: Mapping[Key, tuple[Lane, float]], now: float) -> dict[Lane, list[Key]]:
    """The entities whose first parked event is due, by where it comes from."""
    found: dict[Lane, list[Key]] = {}
    for key, (lane, at) in sorted(firsts.items(), key=lambda each: each[1]):
        if at <= now:
            found.setdefault(lane, []).append(key)
    return found
