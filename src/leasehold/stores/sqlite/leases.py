"""Leases in a SQLite file, for all processes of one host.

Owns the tables `leasehold_session`, `leasehold_lease` and `leasehold_fence`, which may be in the file of a store or
a sink. Its clock is the boot id with the boot-time clock, as the store's is: a session from before a reboot
is dead, unless it has no end. A session is alive while its row says so and a lease is held while its session
is alive, so nothing has to be swept; rows of the dead are removed when a session is opened, to save room.

Fences come from one count for all keys, so that a lease that is given up leaves nothing behind. A thousand
leases a call would spend their time on waiting for the disk; therefore only blocks of fences are
written durably, before one of the block is given, and what is lost with the power is the rest of a block:
after a reboot the count goes on behind it. Where the system has no boot id to tell a reboot by, and for
sessions without an end, each change of a lease is durable.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leasehold.backends import local_file_of
from leasehold.clock import UNKNOWN_BOOT, Clock, SystemClock, boot_id
from leasehold.database.sqlite import DatabaseFile
from leasehold.errors import StoreError, StoreUnavailable
from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import SchemaChange, StoreFeatures
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
from leasehold.stores.sqlite.schema import SqliteSchema, as_it_is
from leasehold.stores.table_versions import Component

SCHEMA = SqliteSchema(
    Component(
        "leases",
        1,
        (
            """CREATE TABLE leasehold_session (
                id TEXT PRIMARY KEY, owner TEXT NOT NULL, duration REAL, boot_id TEXT NOT NULL, until REAL
                ) WITHOUT ROWID""",
            """CREATE TABLE leasehold_lease (
                scope TEXT, key TEXT, session TEXT NOT NULL, fence INTEGER NOT NULL,
                PRIMARY KEY (scope, key)) WITHOUT ROWID""",
            "CREATE TABLE leasehold_fence (last INTEGER NOT NULL, reserved INTEGER NOT NULL, boot_id TEXT NOT NULL)",
            "INSERT INTO leasehold_fence VALUES (0, 0, '')",
        ),
        # The count is lost with its table: the time in microseconds is ahead of what anybody can have counted.
        again={
            "leasehold_fence": "UPDATE leasehold_fence "
            "SET reserved = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
        },
    )
)

_BLOCK = 1_000_000
"""Fences that are reserved durably at a time."""

_TRIES = 20
"""How often a block is reserved that another process uses up first. More than once is rare."""

# A clock that has gone back is another boot's, also where the system gives no boot id: no session of this boot
# has more than its whole duration left.
# What no session can have, a duration without bounds among it, is dead.
_ALIVE = "(duration IS NULL OR duration < 9e999 AND boot_id = :boot AND until > :now AND until <= :now + duration)"
_HELD = f"EXISTS (SELECT 1 FROM leasehold_session WHERE id = leasehold_lease.session AND {_ALIVE})"
_AS_THEY_SAY = (
    "scope = :scope AND session = :id AND fence = :fence AND key IN (SELECT value FROM json_each(:keys)) "
    f"AND EXISTS (SELECT 1 FROM leasehold_session WHERE id = :id AND {_ALIVE})"
)
_Time = dict[str, str | float]


class SqliteLeaseStore:
    """Leases in the SQLite file at `path`, which is made if it is missing.

    `timeout` is the longest that a call waits for another writer, in seconds.
    """

    features = StoreFeatures(shared=False)

    def __init__(
        self, path: Path, *, timeout: float = 3.0, clock: Clock | None = None, boot: str | None = None
    ) -> None:
        self._file = DatabaseFile(
            path,
            schema=SCHEMA.lay_out,
            check=SCHEMA.check,
            unavailable=StoreUnavailable,
            create=True,
            timeout=timeout,
            setup=as_it_is,
        )
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._boot = boot or boot_id()

    def create_schema(self) -> SchemaChange:
        return SCHEMA.create(self._file.path, self._timeout)

    def schema_statements(self) -> tuple[str, ...]:
        return () if self.is_made() else SCHEMA.statements

    def is_made(self) -> bool:
        return SCHEMA.is_there(self._file.path, self._timeout)

    def open_session(self, owner: str, duration: float | None) -> LeaseSession:
        check_owner(owner)
        check_duration(duration, self.features)
        session = LeaseSession(str(uuid.uuid4()), owner, duration)
        with self._writing(durable=duration is None) as (connection, time):
            if connection.execute(f"DELETE FROM leasehold_session WHERE NOT {_ALIVE}", time).rowcount:
                connection.execute(
                    "DELETE FROM leasehold_lease WHERE session NOT IN (SELECT id FROM leasehold_session)"
                )
            connection.execute(
                "INSERT INTO leasehold_session VALUES (:id, :owner, :duration, :boot, :now + :duration)",
                {"id": session.id, "owner": owner, "duration": duration, **time},
            )
        return session

    def heartbeat(self, session: LeaseSession) -> bool:
        with self._writing() as (connection, time):
            return _heartbeat(connection, time, session)

    def close_session(self, session: LeaseSession) -> None:
        # The row stays and is dead, so that whoever opens the next session knows that there is something to remove.
        with self._writing(durable=session.duration is None) as (connection, _):
            connection.execute("UPDATE leasehold_session SET duration = 0, until = 0 WHERE id = ?", (session.id,))

    def acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        if not keys:
            return []
        with self._fencing(session) as (connection, time, fence):
            if not _alive(connection, time, session):
                return []
            rows = connection.execute(
                "INSERT INTO leasehold_lease SELECT :scope, value, :id, :fence FROM json_each(:keys) WHERE true "
                "ON CONFLICT DO UPDATE SET session = excluded.session, fence = excluded.fence "
                f"WHERE NOT {_HELD} RETURNING key",
                {"scope": scope, "id": session.id, "fence": fence, "keys": _json(keys), **time},
            ).fetchall()
        if len(rows) < len(keys):
            won = {key for (key,) in rows}
            keys = [key for key in dict.fromkeys(keys) if key in won]
        return [Lease(scope, key, session, fence) for key in keys]

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        with self._writing() as (connection, time):
            for session in {lease.session for lease in leases}:
                _heartbeat(connection, time, session)
            return _held_among(leases, connection, f"SELECT key FROM leasehold_lease WHERE {_AS_THEY_SAY}", time)

    def release(self, leases: Sequence[Lease]) -> list[Lease]:
        check_leases(leases)
        with self._writing(durable=_without_end(leases)) as (connection, time):
            statement = f"DELETE FROM leasehold_lease WHERE {_AS_THEY_SAY} RETURNING key"
            return _held_among(leases, connection, statement, time)

    def change(self, leases: Sequence[Lease], to: LeaseSession) -> list[Lease]:
        check_leases(leases)
        with self._fencing(to, durable=_without_end(leases)) as (connection, time, fence):
            if not _alive(connection, time, to):
                return []
            statement = f"UPDATE leasehold_lease SET session = :to, fence = :new WHERE {_AS_THEY_SAY} RETURNING key"
            changed = _held_among(leases, connection, statement, {"to": to.id, "new": fence, **time})
        return [Lease(lease.scope, lease.key, to, fence) for lease in changed]

    def break_leases(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        with self._writing(durable=True) as (connection, time):
            broken = _holders(connection, time, scope, keys)
            connection.execute(
                "DELETE FROM leasehold_lease WHERE scope = ? AND key IN (SELECT value FROM json_each(?))",
                (scope, _json(keys)),
            )
        return broken

    def holders(self, scope: str, keys: Sequence[str]) -> list[Lease]:
        check_keys(scope, keys)
        with self._file.reading() as connection:
            return _holders(connection, self._time(), scope, keys)

    def list_leases(
        self, scope: str | None = None, keys: Sequence[str] | None = None, *, most: int = 1000
    ) -> list[LeaseStatus]:
        check_listing(scope, keys)
        wanted = {"scope": scope, "keys": None if keys is None else _json(keys), "most": most}
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT scope, key, fence, CASE WHEN duration IS NULL THEN NULL ELSE until - :now END, "
                "id, owner, duration FROM leasehold_lease JOIN leasehold_session ON id = session "
                "WHERE (:scope IS NULL OR scope = :scope) "
                f"AND (:keys IS NULL OR key IN (SELECT value FROM json_each(:keys))) AND {_ALIVE} "
                "ORDER BY scope, key LIMIT :most",
                {**wanted, **self._time()},
            ).fetchall()
        return [
            LeaseStatus(Lease(found, key, _session(session), fence), remaining)
            for found, key, fence, remaining, *session in rows
            if are_names(found, key) and isinstance(fence, int)
        ]

    def _time(self) -> _Time:
        return {"boot": self._boot, "now": self._clock.monotonic()}

    @contextmanager
    def _writing(self, *, durable: bool = False) -> Iterator[tuple[sqlite3.Connection, _Time]]:
        """A transaction, with the time asked for when no other writer is left to wait for."""
        with self._file.writing(durable=durable) as connection:
            yield connection, self._time()

    @contextmanager
    def _fencing(
        self, session: LeaseSession, *, durable: bool = False
    ) -> Iterator[tuple[sqlite3.Connection, _Time, int]]:
        """The same, with a new fence."""
        durable = durable or session.duration is None or self._boot == UNKNOWN_BOOT
        for _ in range(_TRIES):
            with self._writing(durable=durable) as (connection, time):
                row = connection.execute(
                    "UPDATE leasehold_fence SET last = last + 1 WHERE boot_id = :boot AND last < reserved "
                    "RETURNING last",
                    time,
                ).fetchone()
                if row:
                    yield connection, time, row[0]
                    return
            self._reserve()
        raise StoreError(
            f"{self._file.path}: no fence can be reserved. Either leasehold_fence has lost its row, or several "
            "machines share the file, which it is not made for"
        )

    def _reserve(self) -> None:
        """Make the next block of fences durable. In a new boot it begins behind all that were reserved before."""
        with self._file.writing(durable=True) as connection:
            connection.execute(
                "UPDATE leasehold_fence SET last = CASE boot_id WHEN :boot THEN last ELSE reserved END, "
                "reserved = reserved + :block, boot_id = :boot WHERE boot_id <> :boot OR last >= reserved",
                {"boot": self._boot, "block": _BLOCK},
            )


def _json(keys: Sequence[str]) -> str:
    return json.dumps(keys, ensure_ascii=False)


def _without_end(leases: Sequence[Lease]) -> bool:
    return any(lease.session.duration is None for lease in leases)


def _alive(connection: sqlite3.Connection, time: _Time, session: LeaseSession) -> bool:
    row = connection.execute(f"SELECT 1 FROM leasehold_session WHERE id = :id AND {_ALIVE}", {"id": session.id, **time})
    return row.fetchone() is not None


def _heartbeat(connection: sqlite3.Connection, time: _Time, session: LeaseSession) -> bool:
    cursor = connection.execute(
        f"UPDATE leasehold_session SET until = :now + duration WHERE id = :id AND {_ALIVE}", {"id": session.id, **time}
    )
    return cursor.rowcount == 1


def _session(row: Sequence[Any]) -> LeaseSession:
    """A session that lives, whoever has written its row."""
    id_, owner, duration = row
    return LeaseSession(id_, owner_of(owner), duration)


def _holders(connection: sqlite3.Connection, time: _Time, scope: str, keys: Sequence[str]) -> list[Lease]:
    rows = connection.execute(
        "SELECT key, id, owner, duration, fence FROM leasehold_lease JOIN leasehold_session ON id = session "
        f"WHERE scope = :scope AND key IN (SELECT value FROM json_each(:keys)) AND {_ALIVE}",
        {"scope": scope, "keys": _json(keys), **time},
    )
    held = {key: Lease(scope, key, _session(session), fence) for key, *session, fence in rows if isinstance(fence, int)}
    return [held[key] for key in dict.fromkeys(keys) if key in held]


def _held_among(
    leases: Sequence[Lease], connection: sqlite3.Connection, statement: str, parameters: Mapping[str, str | float]
) -> list[Lease]:
    """Run a statement on all leases, one run for all that were acquired together; return those that it met."""
    together: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for lease in leases:
        together[lease.scope, lease.session.id, lease.fence].append(lease.key)
    met: dict[tuple[str, str, int], list[tuple[str]]] = {}
    for group, keys in together.items():
        scope, session_id, fence = group
        values = {"scope": scope, "id": session_id, "fence": fence, "keys": _json(keys), **parameters}
        met[group] = connection.execute(statement, values).fetchall()
    if sum(map(len, met.values())) == len(leases):
        return list(leases)
    found = {(*group, key) for group, rows in met.items() for (key,) in rows}
    return [one for one in dict.fromkeys(leases) if (one.scope, one.session.id, one.fence, one.key) in found]


def open_sqlite_leases(url: str, base: Path, timeout: float) -> SqliteLeaseStore:
    """The leases in the file that a `sqlite:///` URL names."""
    return SqliteLeaseStore(local_file_of(url, base, "store"), timeout=timeout)
