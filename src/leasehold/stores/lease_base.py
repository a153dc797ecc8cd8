"""What a lease store promises: exclusive holds of many keys, which all hang on one session.

    session   open_session ──▶ alive ──(no heartbeat for its duration, or close_session)──▶ dead, for good
    lease     free ──acquire──▶ held ──(release, break_leases, or its session dies)──▶ free

A process opens one session and acquires leases for it. One heartbeat renews all of them, however many; when
the process dies its session does, and each of its leases is free to the next session that acquires it: nothing has to
be swept first. The store's own clock decides when a session is dead. A holder, who cannot read that clock,
trusts its leases for the duration less a margin, on its own monotonic clock, from before the call was sent.

Trust can still be wrong (a process is paused right before it writes). Therefore the fence: it rises with
each acquisition and each change of a key, across expiry, release, change, break and restart, so that what is
written to can refuse the former holder. Whether a store counts per key or for all of them is its own choice.

Names: 1 to 200 bytes of UTF-8 for a scope, 1 to 1,000 for a key, up to 1,000 for a session's owner, none with a
NUL; up to 10,000 keys in one call. Anything else is refused with a `ConfigError` before anything is done
(`lease_rules.py`). Names that differ, however little, never meet.

Losing is a value: what was not won, or was lost before, is not in the result. Every method may raise
`StoreUnavailable`; after that the write may or may not have happened, and `holders` tells. No method waits
longer than the store's time-out; with `native_leases` that is the time-out of one key. Each sentence has a
test in `leasehold_testkit.contracts.stores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import StoreFeatures

__all__ = [
    "ClearsLeases",
    "LeaseStatus",
    "LeaseStore",
    "ListsLeases",
]


@runtime_checkable
class LeaseStore(Protocol):
    """Who holds which key. May be used by many threads and processes at once."""

    @property
    def features(self) -> StoreFeatures:
        """What this store can do; for leases `native_leases`, `shortest_lease` and `longest_lease` count."""
        ...

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        """Begin a session that lives for `duration` seconds without a heartbeat; `None` for one without an end.

        A duration that is not above 0, or not between the features' shortest and longest, is refused with a
        `ConfigError`. A session without an end outlives its process and a restart of the machine, until it is
        closed.
        """
        ...

    def heartbeat(self, session: LeaseSession) -> bool:
        """Let the session live for its whole duration from now, and all its leases with it.

        False if it is dead. It stays so: its leases are lost, also those that no other session has taken yet, and an
        owner that wants them opens another session. One small write however many leases there are; a store with
        `native_leases` renews, one by one, those that were acquired or renewed for the session through it.
        """
        ...

    def close_session(self, session: LeaseSession) -> None:
        """End the session. All its leases are free at once. One that is dead is left as it is."""
        ...

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        """Take those keys that are free, and return them, in the order asked for, each with a new fence.

        Each key is decided alone: of many who ask for a free key at once exactly one gets it. A key that
        is held is not won, also not by the session that holds it, and a key named twice is won once. A dead
        session wins nothing. A fence that was returned is never given again for its key, also after a power loss.
        """
        ...

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """A heartbeat for the sessions of these leases; return those of them that are held as they say.

        That is: the session is alive and the key is its own with this fence. Not needed for leases to live on
        (`heartbeat` is enough), but the way to find out that one was changed or broken.
        """
        ...

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        """Give up those leases that are held as they say, and return them. Their keys are free at once."""
        ...

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        """Hand those leases that are held as they say to the session `to`, and return them as they now stand.

        They have a new session and a new fence, and were free at no time. If `to` is dead, none is changed.
        """
        ...

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        """Free these keys, whichever session holds them, and return what was held: for repairs made by a person.

        The former holder is told nothing. Its next `renew` does not return the lease, and its fence is refused
        once another session has acquired the key.
        """
        ...

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        """The leases of those keys that are held now, in the order asked for. Changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """A lease that is held, and how many seconds its session lives on without a heartbeat, by the store's clock.

    `remaining` is None where the session has no end, or where the store cannot tell.
    """

    lease: Lease
    remaining: float | None


@runtime_checkable
class ListsLeases(Protocol):
    """What a lease store may do beside: list what is held, for people. Changes nothing."""

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        """The leases that are held now: of all scopes or one, of all its keys or of `keys`; at most `most`.

        Ordered by scope and key. `keys` without a scope is refused with a `ConfigError`. A record that cannot be read
        is no lease, and is left out. A store that keeps only the beginning of a long key lists that.
        """
        ...


@runtime_checkable
class ClearsLeases(Protocol):
    """What a lease store may do beside: forget keys that no session holds, where their records stay behind."""

    def clear_leases(self) -> int:
        """Remove records of keys that no session has held for long, and return how many were removed.

        Fences keep rising for a key that is removed and acquired again, whoever acquires at the same time. Holds
        nobody up for longer than the store's time-out. What one call leaves behind, the next one removes.
        """
        ...
