"""The rules for names and durations of leases, as pure functions that every lease store uses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leasehold.errors import ConfigError
from leasehold.model import Lease
from leasehold.stores.base import StoreFeatures
from leasehold.stores.names import check_text, is_text

MOST_KEYS = 10_000
"""How many keys one call may name."""

LONGEST_SCOPE = 200
"""Bytes of UTF-8."""

LONGEST_KEY = 1_000
"""Bytes of UTF-8."""

LONGEST_OWNER = 1_000
"""Bytes of UTF-8."""


def check_duration(duration: float | None, features: StoreFeatures) -> None:
    """Refuse a duration that this store cannot give a session. Raises `ConfigError`."""
    if duration is None:
        return
    shortest, longest = features.shortest_lease, features.longest_lease
    if not (0 < duration < math.inf and shortest <= duration <= longest):
        limits = f"{shortest:g} to {longest:g} seconds" if longest < math.inf else f"more than {shortest:g} seconds"
        others = "memory:// and sqlite:// take any duration, postgresql:// and redis:// up to 100 years"
        rule = f"this store's leases last {limits}, or have no end (None)"
        raise ConfigError("duration", duration, rule, others if longest < math.inf else "")


def check_owner(owner: str) -> None:
    """Refuse the name of a session's owner that not every store can keep; it may be empty. Raises `ConfigError`."""
    check_text("owner", owner, LONGEST_OWNER)


def owner_of(stored: object) -> str:
    """The name of a session's owner as somebody has written it into a store: it is for people."""
    return stored if isinstance(stored, str) and is_text(stored, LONGEST_OWNER) else "(unreadable)"


def are_names(scope: object, key: object) -> bool:
    """Whether a lease can have this scope and this key, as somebody has written them into a store."""
    both = ((scope, LONGEST_SCOPE), (key, LONGEST_KEY))
    return all(isinstance(name, str) and is_text(name, longest, shortest=1) for name, longest in both)


def check_keys(scope: str, keys: Sequence[str]) -> None:
    """Refuse names that not every store can keep, and more keys than one call may name. Raises `ConfigError`."""
    check_text("scope", scope, LONGEST_SCOPE, shortest=1)
    if isinstance(keys, str | bytes):  # a sequence of its own characters
        raise ConfigError("keys", keys, "a list of keys, and this is one key", "Put it into a list")
    _check_count(len(keys))
    # One pass over all of them: ASCII without a NUL is as many bytes as characters, and what most keys are.
    if keys and not (max(map(len, keys)) <= LONGEST_KEY and all(keys) and _plain("".join(keys))):
        for key in keys:
            check_text("key", key, LONGEST_KEY, shortest=1)


def check_listing(scope: str | None, keys: Sequence[str] | None) -> None:
    """Refuse names that no lease can have, and keys of no scope. Raises `ConfigError`."""
    if scope is not None:
        check_keys(scope, keys or [])
    elif keys is not None:
        raise ConfigError("keys", None, "keys are listed of one scope", "Name the scope")


def check_leases(leases: Sequence[Lease]) -> None:
    """Refuse more leases than one call may name. Raises `ConfigError`."""
    _check_count(len(leases))


def _check_count(keys: int) -> None:
    if keys > MOST_KEYS:
        raise ConfigError("keys", None, f"{keys:,} in one call; at most {MOST_KEYS:,}", "Ask in several calls")


def _plain(text: str) -> bool:
    return text.isascii() and "\0" not in text
