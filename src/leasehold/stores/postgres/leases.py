"""Leases in a Postgres database, for any number of hosts.

The URL, the server's clock, durability, forks and time-outs are as in `store.py`. Owns the tables
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
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from leasehold.database.postgres.connections import Connections, Errors, Row
from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import SchemaChange, StoreFeatures
from leasehold.stores.lease_base import LeaseStatus
from leasehold.stores.lease_rules import check_duration, check_keys, check_leases, check_listing, check_owner
from leasehold.stores.names import legible
from leasehold.stores.postgres import lease_statements as sql
from leasehold.stores.postgres.schema import LEASES, PostgresSchema
from leasehold.stores.table_versions import gone

LONGEST = 3e9
"""Seconds, about a hundred years: a time that is certain to fit in a timestamp."""

RECENT = 100_000
"""Acquisitions after which the row of a key that nobody holds is cleared."""

_CLEARED = 10_000  # rows of one transaction, while which nobody acquires
_WORTH_A_LOCK = 100  # rows below which the table is not locked

_Named = tuple[str, str, str, int]
"""What a lease says: its scope and key, its session's id and its fence."""


class PostgresLeaseStore:
    """Leases in the database at `url`. `timeout` is the longest that a call takes, in seconds."""

    features = StoreFeatures(shared=True, longest_lease=LONGEST)

    def __init__(self, url: str, *, timeout: float = 3.0) -> None:
        self._connections = Connections(
            url,
            timeout,
            lambda connection: self._schema.prepare(connection),
            errors=Errors(gone=lambda shown, _: gone(shown)),
        )
        self._schema = PostgresSchema(LEASES, self._connections.shown)

    def __repr__(self) -> str:
        return f"PostgresLeaseStore({self._connections.shown!r})"

    def create_schema(self) -> SchemaChange:
        """Make the tables, which the first use does too, and say what was done."""
        return self._connections.once(self._schema.create)

    def schema_statements(self) -> tuple[str, ...]:
        """What makes the tables that are missing, as SQL."""
        return self._connections.once(self._schema.missing_statements)

    def is_made(self) -> bool:
        """Whether the tables are there; makes none."""
        return self._connections.once(self._schema.is_there)

    def close(self) -> None:
        """Close the connections that no thread uses now. The store may be used again afterwards."""
        self._connections.close()

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), legible(owner), duration)
        values = {"id": session.id, "owner": session.owner, "duration": duration}
        self._connections.rows(sql.OPEN_SESSION, values)
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        [[alive]] = self._connections.rows(sql.HEARTBEAT, {"id": session.id})
        return bool(alive)

    def close_session(self, session: LeaseSession) -> None:
        self._connections.rows(sql.CLOSE_SESSION, {"id": session.id, "durable": _durable(session.duration is None)})

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        if not keys:
            return []
        asked = dict.fromkeys(keys)
        values = {"session": session.id, "scope": scope, "keys": json.dumps(sorted(asked))}
        won: dict[str, int] = dict(self._connections.rows(sql.ACQUIRE, values))
        return [Lease(scope, key, session, won[key]) for key in asked if key in won]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        return self._among(leases, sql.RENEW)

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        return self._among(leases, sql.RELEASE, durable=_durable(_without_end(leases)))

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        check_leases(leases)
        if not leases:
            return []
        rows = self._connections.rows(sql.CHANGE, {"leases": _sent(leases), "to": to.id})
        fences = {named: fence for *named_, fence in rows for named in [_named_row(named_)]}
        return [
            Lease(lease.scope, lease.key, to, fences[_named(lease)])
            for lease in dict.fromkeys(leases)
            if _named(lease) in fences
        ]

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        asked = dict.fromkeys(keys)

        def break_them(connection: Any) -> list[Row]:
            with connection.transaction():
                wanted = {"scope": scope, "keys": json.dumps(sorted(asked))}
                there = [key for (key,) in connection.execute(sql.LOCK_LEASES, wanted)]
                locked = {"scope": scope, "keys": json.dumps(there)}  # a key acquired from here on is not looked at
                held: list[Row] = connection.execute(sql.HOLDERS, locked).fetchall()
                connection.execute(sql.FREE_LEASES, locked)
            return held

        return _leases(scope, asked, self._connections.run(break_them) if asked else [])

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        asked = dict.fromkeys(keys)
        if not asked:
            return []
        return _leases(
            scope, asked, self._connections.rows(sql.HOLDERS, {"scope": scope, "keys": json.dumps(sorted(asked))})
        )

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        wanted = {"scope": scope, "keys": None if keys is None else json.dumps(sorted(set(keys))), "most": most}
        return [
            LeaseStatus(Lease(found, key, LeaseSession(*session), fence), remaining)
            for found, key, fence, remaining, *session in self._connections.rows(sql.LIST, wanted)
        ]

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

    def _among(self, leases: Sequence[Lease], statement: str, **values: str) -> list[Lease]:
        """Those leases that a statement meets; all of them are sent in one request."""
        check_leases(leases)
        if not leases:
            return []
        rows = self._connections.rows(statement, {"leases": _sent(leases), **values})
        distinct = list(dict.fromkeys(leases))
        if len(rows) == len(distinct):
            return distinct
        met = {_named_row(row) for row in rows}
        return [lease for lease in distinct if _named(lease) in met]


def _sent(leases: Sequence[Lease]) -> str:
    """Leases as JSON, those that were acquired together in one object: most have scope, session and fence in common."""
    together: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for lease in leases:
        together[lease.scope, lease.session.id, lease.fence].append(lease.key)
    return json.dumps(
        [
            {"scope": scope, "session": session, "fence": fence, "keys": keys}
            for (scope, session, fence), keys in together.items()
        ]
    )


def _named(lease: Lease) -> _Named:
    return lease.scope, lease.key, lease.session.id, lease.fence


def _named_row(row: Iterable[Any]) -> _Named:
    scope, key, session, fence = row
    return scope, key, session, fence


def _leases(scope: str, keys: Iterable[str], rows: Iterable[Row]) -> list[Lease]:
    held = {key: Lease(scope, key, LeaseSession(*session), fence) for key, fence, *session in rows}
    return [held[key] for key in keys if key in held]


def _without_end(leases: Sequence[Lease]) -> bool:
    return any(lease.session.duration is None for lease in leases)


def _durable(is_durable: bool) -> str:
    return "on" if is_durable else "off"


def open_postgres_leases(url: str, base: Path, timeout: float) -> PostgresLeaseStore:
    """The leases in the database that a `postgresql://` URL names; `base` has no meaning here."""
    return PostgresLeaseStore(url, timeout=timeout)
