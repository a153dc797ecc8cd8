"""Leases in a Postgres database, for any number of hosts.

The URL, the server's clock, durability, forks and time-outs are as in `store.py` and `database.py`. Owns the tables
`leasehold_session` and `leasehold_lease` and the sequence `leasehold_fence`: one count for all keys, of which a
call takes one. A session's row goes away when it is closed or found dead. A lease's row stays when it is given
up: while it is there, nobody can overtake it with a fence taken earlier. `clear_leases` removes the rows of keys that
are free and were not among the last `RECENT` acquisitions. It locks the table against writers for that moment: whoever
began to acquire before has ended by then, and whoever begins afterwards counts a higher fence. An acquisition is on
disk when it returns; of sessions that have an end, heartbeats and what is given up may be lost with the power, and look
later or still held then until the session's end.

Concurrency: each call is one statement and one transaction (`break_leases` is one of several), so no lock
outlives it. A session is found dead by removing its row under its lock, so that a heartbeat on its way either
was before, and the session lives, or comes too late for good. A key is written only if it still has the fence
that was read: of many who acquire a free key, the first to lock its row wins. If the server's
clock steps back, sessions live longer by as much, until the next one is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leasehold.database.postgres.connections import Row
from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import StoreFeatures
from leasehold.stores.postgres import lease_statements as sql
from leasehold.stores.postgres.database import PostgresTables
from leasehold.stores.postgres.schema import LEASES
from leasehold.stores.sql.leases import Named, SqlLeaseStore, together, without_end

LONGEST = 3e9
"""Seconds, about a hundred years: a time that is certain to fit in a timestamp."""

RECENT = 100_000
"""Acquisitions after which the row of a key that nobody holds is cleared."""

_CLEARED = 10_000  # rows of one transaction, while which nobody acquires
_WORTH_A_LOCK = 100  # rows below which the table is not locked


class PostgresLeaseStore(PostgresTables, SqlLeaseStore):
    """Leases in the database at `url`. `timeout` is the longest that a call takes, in seconds."""

    features = StoreFeatures(shared=True, longest_lease=LONGEST)

    def __init__(self, url: str, *, timeout: float = 3.0) -> None:
        super().__init__(LEASES, url, timeout)

    def heartbeat(self, session: LeaseSession) -> bool:
        [[alive]] = self._connections.rows(sql.HEARTBEAT, {"id": session.id})
        return bool(alive)

    def close_session(self, session: LeaseSession) -> None:
        self._connections.rows(sql.CLOSE_SESSION, {"id": session.id, "durable": _durable(session.duration is None)})

    def clear_leases(self, *, recent: int = RECENT, worth: int = _WORTH_A_LOCK) -> int:
        bounds = {"recent": recent, "most": _CLEARED}
        [[old]] = self._connections.rows(sql.COUNT_OLD, bounds)
        if old < worth:
            return 0

        def clear(connection: Any) -> int:
            with connection.transaction():
                connection.execute(sql.LOCK_TABLE)
                return int(connection.execute(sql.CLEAR_OLD, bounds).rowcount)

        return self._connections.run(clear)

    def _open(self, session: LeaseSession) -> None:
        values = {"id": session.id, "owner": session.owner, "duration": session.duration}
        self._connections.rows(sql.OPEN_SESSION, values)

    def _acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> Mapping[str, int]:
        values = {"session": session.id, "scope": scope, "keys": json.dumps(sorted(keys))}
        return dict(self._connections.rows(sql.ACQUIRE, values))

    def _renew(self, leases: Sequence[Lease]) -> list[Named]:
        return self._connections.rows(sql.RENEW, {"leases": _sent(leases)})

    def _release(self, leases: Sequence[Lease]) -> list[Named]:
        values = {"leases": _sent(leases), "durable": _durable(without_end(leases))}
        return self._connections.rows(sql.RELEASE, values)

    def _change(self, leases: Sequence[Lease], to: LeaseSession) -> Mapping[Named, int]:
        rows = self._connections.rows(sql.CHANGE, {"leases": _sent(leases), "to": to.id})
        return {row[:4]: row[4] for row in rows}

    def _break(self, scope: str, keys: Sequence[str]) -> list[Row]:
        def break_them(connection: Any) -> list[Row]:
            with connection.transaction():
                wanted = {"scope": scope, "keys": json.dumps(sorted(keys))}
                there = [key for (key,) in connection.execute(sql.LOCK_LEASES, wanted)]
                locked = {"scope": scope, "keys": json.dumps(there)}  # a key acquired from here on is not looked at
                held: list[Row] = connection.execute(sql.HOLDERS, locked).fetchall()
                connection.execute(sql.FREE_LEASES, locked)
            return held

        return self._connections.run(break_them)

    def _holders(self, scope: str, keys: Sequence[str]) -> list[Row]:
        return self._connections.rows(sql.HOLDERS, {"scope": scope, "keys": json.dumps(sorted(keys))})

    def _list(self, scope: str | None, keys: Sequence[str] | None, most: int) -> list[Row]:
        wanted = {"scope": scope, "keys": None if keys is None else json.dumps(sorted(set(keys))), "most": most}
        return self._connections.rows(sql.LIST, wanted)


def _sent(leases: Sequence[Lease]) -> str:
    """Leases as JSON, those that were acquired together in one object: most have scope, session and fence in common."""
    return json.dumps(
        [
            {"scope": scope, "session": session, "fence": fence, "keys": keys}
            for (scope, session, fence), keys in together(leases).items()
        ]
    )


def _durable(is_durable: bool) -> str:
    return "on" if is_durable else "off"


def open_postgres_leases(url: str, base: Path, timeout: float) -> PostgresLeaseStore:
    """The leases in the database that a `postgresql://` URL names; `base` has no meaning here."""
    return PostgresLeaseStore(url, timeout=timeout)
