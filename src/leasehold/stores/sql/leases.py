"""Leases in a database that is asked in SQL, whichever it is: what is refused, and what becomes of the answers.

Owns what both databases do alike. How a session is found dead, how a fence is counted, and whether the row of a key
outlives its lease, each database decides for itself: a subclass has the statements.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import StoreFeatures
from leasehold.stores.lease_base import LeaseStatus
from leasehold.stores.lease_rules import (
    are_names,
    check_duration,
    check_keys,
    check_leases,
    check_listing,
    check_owner,
    owner_of,
)
from leasehold.stores.sql.steps import Row

Named = tuple[str, str, str, int]
"""What a lease says: its scope and key, its session's id and its fence."""


class SqlLeaseStore(ABC):
    """Leases in a database."""

    features: StoreFeatures

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), owner, duration)
        self._open(session)
        return session

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        if not keys:
            return []
        asked = dict.fromkeys(keys)
        won = self._acquire(session, scope, [*asked])
        return [Lease(scope, key, session, won[key]) for key in asked if key in won]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        return _among(leases, self._renew(leases)) if leases else []

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        return _among(leases, self._release(leases)) if leases else []

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        check_leases(leases)
        fences = self._change(leases, to) if leases else {}
        return [Lease(one.scope, one.key, to, fences[named(one)]) for one in _among(leases, fences)]

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        asked = [*dict.fromkeys(keys)]
        return _held(scope, asked, self._break(scope, asked)) if asked else []

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        asked = [*dict.fromkeys(keys)]
        return _held(scope, asked, self._holders(scope, asked)) if asked else []

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        return [
            LeaseStatus(Lease(one, key, _session(session), fence), remaining)
            for one, key, fence, remaining, *session in self._list(scope, keys, most)
            if are_names(one, key) and isinstance(fence, int)
        ]

    @abstractmethod
    def _open(self, session: LeaseSession) -> None: ...

    @abstractmethod
    def _acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> Mapping[str, int]:
        """The keys that were won, with their fences."""

    @abstractmethod
    def _renew(self, leases: Sequence[Lease]) -> Iterable[Named]:
        """Those that are held as they say, after a heartbeat of their sessions."""

    @abstractmethod
    def _release(self, leases: Sequence[Lease]) -> Iterable[Named]:
        """Those that were held as they say, and are free now."""

    @abstractmethod
    def _change(self, leases: Sequence[Lease], to: LeaseSession) -> Mapping[Named, int]:
        """Those that were held as they say, and the fences that they have in the session `to`."""

    @abstractmethod
    def _break(self, scope: str, keys: Sequence[str]) -> Iterable[Row]:
        """What was held of these keys, as `_holders` says it; free now."""

    @abstractmethod
    def _holders(self, scope: str, keys: Sequence[str]) -> Iterable[Row]:
        """What is held of these keys: key, fence, and the session's id, owner and duration."""

    @abstractmethod
    def _list(self, scope: str | None, keys: Sequence[str] | None, most: int) -> Iterable[Row]:
        """What is held, by scope and key: both, the fence, the seconds left, and the session as in `_holders`."""


def together(leases: Iterable[Lease]) -> dict[tuple[str, str, int], list[str]]:
    """The keys of leases by their scope, session and fence, which those have in common that were acquired together."""
    keys: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for lease in leases:
        keys[lease.scope, lease.session.id, lease.fence].append(lease.key)
    return keys


def named(lease: Lease) -> Named:
    return lease.scope, lease.key, lease.session.id, lease.fence


def without_end(leases: Iterable[Lease]) -> bool:
    """Whether a session of these leases outlives its process."""
    return any(lease.session.duration is None for lease in leases)


def _among(leases: Sequence[Lease], met: Iterable[Named]) -> list[Lease]:
    """Those leases that a statement met, each once."""
    wanted, distinct = set(met), [*dict.fromkeys(leases)]
    return distinct if len(wanted) == len(distinct) else [lease for lease in distinct if named(lease) in wanted]


def _held(scope: str, keys: Iterable[str], rows: Iterable[Row]) -> list[Lease]:
    held = {key: Lease(scope, key, _session(session), fence) for key, fence, *session in rows if isinstance(fence, int)}
    return [held[key] for key in keys if key in held]


def _session(row: Sequence[object]) -> LeaseSession:
    """A session that lives, whoever has written its row."""
    id_, owner, duration = row
    return LeaseSession(id_, owner_of(owner), duration)  # type: ignore[arg-type]
