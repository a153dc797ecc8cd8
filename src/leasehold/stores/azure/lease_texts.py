"""What is read from the record of a lease that others may have written.

Owns what becomes of texts that nobody of us has written: nothing raises. A fence that is missing or cannot be read is
the time in microseconds, far above any that was counted, so that the next one is higher than all before. A session
whose duration cannot be read does not count: the lease is free, and the next holder's higher fence refuses whoever held
it.
"""

from __future__ import annotations

import math
import re
import time

from leasehold.model import LeaseSession
from leasehold.stores.azure.layout import from_header
from leasehold.stores.lease_rules import are_names, owner_of


def fence_of(text: object) -> int:
    """A fence."""
    stated = str(text)
    if re.fullmatch(r"[0-9]{1,18}", stated):
        return int(stated)
    return int(time.time() * 1e6)


def names_of(asked_scope: str | None, scope: object, key: object) -> tuple[str, str] | None:
    """The scope, `asked_scope` or as it is kept, and what is kept of the key; None if no lease can have them."""
    try:
        names = asked_scope or from_header(str(scope or "")), from_header(str(key or ""))
    except ValueError:
        return None
    return names if are_names(*names) else None


def session_of(session_id: object, owner: object, duration: object) -> LeaseSession | None:
    """The session that holds the lease, None if there is none that can be read."""
    if not session_id:
        return None
    try:
        seconds = None if duration == "none" else float(str(duration))
    except ValueError:
        return None
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        return None
    try:
        name = owner_of(from_header(str(owner or "")))
    except ValueError:
        name = "(unreadable)"
    return LeaseSession(str(session_id), name, seconds)
