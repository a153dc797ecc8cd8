"""Leases in a Redis server, for any number of hosts.

The URL, the server's clock, durability, forks and time-outs are as in `store.py`. Owns the keys
`leasehold:{leases}:…`, which are on one node of a Cluster. A lease that is given up leaves nothing behind; one whose
session died stays as a record of nobody until its key is acquired again or `clear_leases` removes it. Fences follow the
server's clock, so that they rise also across a loss of data; refuses nothing if that clock is set back and the data is
lost at once.

What others have written under these keys raises nothing where it is read beside ours: names that no lease can have,
and scopes whose key holds no hash, are left out of what is listed and cleared, which is logged once. `lease_scripts`
says what becomes of sessions and leases that cannot be read.

With less than `appendfsync always`, an acquisition, a release or a session without an end may be lost with the power.
A holder that goes on in that belief carries a lower fence than whoever acquires next.

Concurrency: each call is one script, and the server runs one at a time, so that of many who acquire a free key the
first one gets it. A script of 1,000 keys holds up everybody else for some milliseconds. If the clock steps back,
a session lives on for at most its duration from then.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from leasehold.errors import ConfigError
from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import SchemaChange, StoreFeatures
from leasehold.stores.lease_base import LeaseStatus
from leasehold.stores.lease_rules import (
    LONGEST_KEY,
    LONGEST_SCOPE,
    check_duration,
    check_keys,
    check_leases,
    check_listing,
    check_owner,
    owner_of,
)
from leasehold.stores.names import is_text, legible
from leasehold.stores.redis import lease_scripts as lua
from leasehold.stores.redis.server import RedisServer, WrongKind
from leasehold.told import Told

logger = logging.getLogger(__name__)

LONGEST = 3e9
"""Seconds, about a hundred years: microseconds of that are exact in Lua."""


class RedisLeaseStore:
    """Leases in the server at `url`. `timeout` is the longest that a call takes, in seconds."""

    features = StoreFeatures(shared=True, longest_lease=LONGEST)

    def __init__(self, url: str, *, timeout: float = 3.0) -> None:
        self._server = RedisServer(url, timeout, "leases")
        self._told = Told()
        self._scopes = self._server.lease_key("scopes")
        self._sessions = [self._server.lease_key("sessions"), self._server.lease_key("fence")]

    def __repr__(self) -> str:
        return f"RedisLeaseStore({self._server.shown!r})"

    def create_schema(self) -> SchemaChange:
        """Mark the data with its version, which the first use does too, and say what was done."""
        return self._server.create_schema()

    def is_made(self) -> bool:
        """Whether the data is marked as Leasehold's; marks nothing."""
        return self._server.is_made()

    def close(self) -> None:
        """Close the connections of this process. The store may be used again afterwards."""
        self._server.close()

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), legible(owner), duration)
        microseconds = "" if duration is None else str(max(1, round(duration * 1e6)))
        values = [session.id, microseconds, json.dumps([session.owner, duration])]
        self._server.call(lua.OPEN_SESSION, self._sessions, values)
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        return bool(self._server.call(lua.HEARTBEAT, self._sessions, [session.id]))

    def close_session(self, session: LeaseSession) -> None:
        self._server.command("HDEL", self._sessions[0], session.id)

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        if not keys:
            return []
        asked = list(dict.fromkeys(keys))
        fence, won = self._server.call(lua.ACQUIRE, [*self._of(scope), self._scopes], [session.id, scope, *asked])
        return [Lease(scope, asked[number], session, int(fence)) for number in won]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        return self._as_they_say("renew", leases)[1]

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        return self._as_they_say("release", leases)[1]

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        fence, changed = self._as_they_say("change", leases, to.id)
        return [Lease(lease.scope, lease.key, to, fence) for lease in changed]

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        return self._held("break", scope, keys)

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        return self._held("look", scope, keys)

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        if scope is None:
            pages = self._all_pages()
        else:
            pages = _pages(scope, self._keys_of(scope) if keys is None else sorted(set(keys)))
        found: list[LeaseStatus] = []
        for one, some in pages:
            found += self._statuses("look", one, some)
            if len(found) >= most:
                break
        return found[:most]

    def clear_leases(self) -> int:
        calls = ((self._of(scope), ["clear", *some]) for scope, some in self._all_pages())
        return sum(int(self._server.call(lua.HELD, *call)) for call in calls)

    def _all_pages(self) -> Iterator[tuple[str, Sequence[str]]]:
        """The keys of all scopes, but of those whose key in the server is not ours."""
        for scope in self._names_in(self._scopes, LONGEST_SCOPE):
            try:
                keys = self._keys_of(scope)
            except WrongKind as error:
                if self._told.is_news(scope, str(error)):
                    logger.warning(
                        "%s; until then, the scope %r is left out of what is listed and cleared", error, scope
                    )
                continue
            yield from _pages(scope, keys)

    def _keys_of(self, scope: str) -> list[str]:
        return self._names_in(self._server.lease_key("scope", scope), LONGEST_KEY)

    def _names_in(self, key: str, longest: int) -> list[str]:
        """The names that a hash has, without those that no lease can have."""
        names: list[str] = self._server.command("HKEYS", key)
        good = sorted(name for name in names if is_text(name, longest, shortest=1))
        if len(good) < len(names) and self._told.is_news(None, key):
            left_out = len(names) - len(good)
            logger.warning(
                "%s: %d names in the key %s are no names of leases: left out", self._server.shown, left_out, key
            )
        return good

    def _of(self, *scopes: str) -> list[str]:
        return [*self._sessions, *(self._server.lease_key("scope", scope) for scope in scopes)]

    def _as_they_say(self, how: str, leases: Sequence[Lease], to: str = "") -> tuple[int, list[Lease]]:
        """Do this to the leases that are held as they say; return the fence it gave, and which they are."""
        check_leases(leases)
        if not leases:
            return 0, []
        distinct = list(dict.fromkeys(leases))
        together: dict[tuple[str, str, int], list[tuple[int, Lease]]] = defaultdict(list)
        for position, lease in enumerate(distinct):
            together[lease.scope, lease.session.id, lease.fence].append((position, lease))
        scopes = list(dict.fromkeys(scope for scope, _, _ in together))
        values = [how, to]
        for (scope, session, fence), some in together.items():
            values += [
                str(scopes.index(scope) + 1),
                session,
                str(fence),
                str(len(some)),
                *(lease.key for _, lease in some),
            ]
        fence, met = self._server.call(lua.AS_THEY_SAY, self._of(*scopes), values)
        if len(met) == len(distinct):
            return int(fence), distinct
        positions = [position for some in together.values() for position, _ in some]
        return int(fence), [distinct[position] for position in sorted(positions[number] for number in met)]

    def _held(self, how: str, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        return [status.lease for status in self._statuses(how, scope, list(dict.fromkeys(keys)))] if keys else []

    def _statuses(self, how: str, scope: str, keys: Sequence[str]) -> list[LeaseStatus]:
        answer: Iterable[tuple[int, str, str, str, str]] = self._server.call(lua.HELD, self._of(scope), [how, *keys])
        return [
            LeaseStatus(
                Lease(scope, keys[number], LeaseSession(legible(id_), *_owner_and_duration(session)), int(fence)),
                int(left) / 1e6 if left else None,
            )
            for number, fence, id_, session, left in answer
        ]


def _pages(scope: str, keys: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Keys of a scope by the thousand: a script of more would hold everybody up."""
    return ((scope, keys[first : first + 1000]) for first in range(0, len(keys), 1000))


def _owner_and_duration(session: str) -> tuple[str, float | None]:
    """Who has opened a session and for how long, as far as that can be read: it is for people."""
    try:
        owner, duration = json.loads(session.split("\n")[2])
    except (ValueError, TypeError, LookupError, RecursionError):
        owner = duration = None
    try:
        check_duration(duration, RedisLeaseStore.features)
    except (ConfigError, TypeError):
        duration = None
    return owner_of(owner), None if duration is None else float(duration)


def open_redis_leases(url: str, base: Path, timeout: float) -> RedisLeaseStore:
    """The leases in the server that a `redis://` or `rediss://` URL names; `base` has no meaning here."""
    return RedisLeaseStore(url, timeout=timeout)
