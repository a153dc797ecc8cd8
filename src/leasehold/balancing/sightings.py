"""Ages of records in a store that has no clock.

Owns what was seen when. A record's age is then how long it has not changed since I first saw it as it is: from the
reply that showed it first to the request that shows it again, on my own monotonic clock. So it is never older than
it seems, and an instance that starts sees everybody as fresh. An instance was there first if I saw it first: all that
I find when I start were there as early as I was.
"""

from __future__ import annotations

from dataclasses import replace

from leasehold.model import Ownership, OwnershipListing, Presence


class Sightings:
    """What one instance has seen of a group's records."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[str | None, float]] = {}
        self._appeared: dict[str, float] = {}

    def dated(self, listing: OwnershipListing, asked_at: float, answered_at: float) -> OwnershipListing:
        """The listing with ages by what was seen so far; `asked_at` and `answered_at` on my monotonic clock."""
        first: dict[tuple[str, str], tuple[str | None, float]] = {}

        def since(key: tuple[str, str], etag: str | None) -> float:
            known = self._first.get(key)
            first[key] = known if known is not None and known[0] == etag else (etag, answered_at)
            return min(first[key][1], asked_at)

        def owned(record: Ownership) -> Ownership:
            return replace(record, last_modified=since(("ownership", record.partition), record.etag))

        def present(presence: Presence) -> Presence:
            created = min(appeared[presence.owner_id], asked_at)
            return replace(
                presence, created=created, last_modified=since(("presence", presence.owner_id), presence.etag)
            )

        appeared = {one.owner_id: self._appeared.get(one.owner_id, answered_at) for one in listing.presences}

        dated = replace(
            listing,
            records=tuple(map(owned, listing.records)),
            presences=tuple(map(present, listing.presences)),
            unreadable=tuple(
                replace(one, last_modified=since((f"unreadable {one.kind}", one.name), one.etag))
                for one in listing.unreadable
            ),
            as_of=asked_at,
        )
        self._first, self._appeared = first, appeared
        return dated
