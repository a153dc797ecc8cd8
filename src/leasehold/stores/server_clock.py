"""Ages by a server's wall clock, which may step back: a record from the future counts as written now.

Pure functions for stores whose clock is a server's. The store itself is told too (their `BRING_BACK`), so that such a
record begins to age, and a dead owner's expires; one that cannot be read ages in the same way. To take it for
infinitely old instead would let everybody steal from live owners, whose last renewals are what such records are.
"""

from __future__ import annotations

import dataclasses

from leasehold.model import OwnershipListing


def is_ahead(listing: OwnershipListing) -> bool:
    """Whether a record was written later than the listing says that it is now, be it readable or not."""
    written = [
        *(record.last_modified for record in listing.records),
        *(presence.last_modified for presence in listing.presences),
        *(unreadable.last_modified for unreadable in listing.unreadable),
    ]
    return any(modified > listing.as_of for modified in written)


def brought_back(listing: OwnershipListing) -> OwnershipListing:
    """The listing, with records from the future as old as the listing."""
    now = listing.as_of
    return dataclasses.replace(
        listing,
        records=tuple(dataclasses.replace(r, last_modified=min(r.last_modified, now)) for r in listing.records),
        presences=tuple(dataclasses.replace(p, last_modified=min(p.last_modified, now)) for p in listing.presences),
        unreadable=tuple(dataclasses.replace(u, last_modified=min(u.last_modified, now)) for u in listing.unreadable),
    )
