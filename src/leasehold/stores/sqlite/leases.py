"""Leases in a SQLite file, for all processes of one host.

Owns the tables `leasehold_session`, `leasehold_lease` and `leasehold_fence`, which may be in the file of a store or
a sink. Its clock is the store's (`database.py`): a session from before a reboot
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from leasehold.backends import local_file_of
from leasehold.clock import UNKNOWN_BOOT, Clock
from leasehold.errors import StoreError
from leasehold.model import Lease, LeaseSession
from leasehold.stores.base import StoreFeatures
from leasehold.stores.sql.leases import Named, SqlLeaseStore, together, without_end
from leasehold.stores.sql.steps import Row
from leasehold.stores.sql.versions import StoreSession
from leasehold.stores.sqlite.database import SqliteTables, Time
from leasehold.stores.sqlite.schema import LEASES

_BLOCK = 1_000_000
"""Fences that are reserved durably at a time."""

_TRIES = 20
"""How often a block is reserved that another process uses up first. More than once is rare."""

# A clock that has gone back is another boot's, also where the system gives no boot id: no session of this boot
# has more than its whole duration left.
# What no session can have, a duration without bounds among it, is dead.
_ALIVE = (
    "(duration IS NULL OR duration < 9e999 AND boot_id = %(boot)s AND until > %(now)s AND until <= %(now)s + duration)"
)
_HELD = f"EXISTS (SELECT 1 FROM leasehold_session WHERE id = leasehold_lease.session AND {_ALIVE})"
_AS_THEY_SAY = (
    "scope = %(scope)s AND session = %(id)s AND fence = %(fence)s AND key IN (SELECT value FROM json_each(%(keys)s)) "
    f"AND EXISTS (SELECT 1 FROM leasehold_session WHERE id = %(id)s AND {_ALIVE})"
)
_OF_KEYS = "scope = %(scope)s AND key IN (SELECT value FROM json_each(%(keys)s))"
_HOLDERS = (
    "SELECT key, fence, id, owner, duration FROM leasehold_lease JOIN leasehold_session ON id = session "
    f"WHERE {_OF_KEYS} AND {_ALIVE}"
)
_LIST = (
    "SELECT scope, key, fence, CASE WHEN duration IS NULL THEN NULL ELSE until - %(now)s END, id, owner, duration "
    "FROM leasehold_lease JOIN leasehold_session ON id = session WHERE (%(scope)s IS NULL OR scope = %(scope)s) "
    f"AND (%(keys)s IS NULL OR key IN (SELECT value FROM json_each(%(keys)s))) AND {_ALIVE} "
    "ORDER BY scope, key LIMIT %(most)s"
)


class SqliteLeaseStore(SqliteTables, SqlLeaseStore):
    """Leases in the SQLite file at `path`, which is made if it is missing.

    `timeout` is the longest that a call waits for another writer, in seconds.
    """

    features = StoreFeatures(shared=False)

    def __init__(
        self, path: Path, *, timeout: float = 3.0, clock: Clock | None = None, boot: str | None = None
    ) -> None:
        super().__init__(LEASES, path, timeout, clock, boot)

    def heartbeat(self, session: LeaseSession) -> bool:
        with self._writing(durable=False) as (connection, time):
            return _heartbeat(connection, time, session.id)

    def close_session(self, session: LeaseSession) -> None:
        # The row stays and is dead, so that whoever opens the next session knows that there is something to remove.
        with self._writing(durable=session.duration is None) as (connection, _):
            ended = "UPDATE leasehold_session SET duration = 0, until = 0 WHERE id = %(id)s"
            connection.rows(ended, {"id": session.id})

    def _open(self, session: LeaseSession) -> None:
        with self._writing(durable=session.duration is None) as (connection, time):
            if connection.rows(f"DELETE FROM leasehold_session WHERE NOT {_ALIVE} RETURNING id", time):
                connection.rows(
                    "DELETE FROM leasehold_lease WHERE session NOT IN (SELECT id FROM leasehold_session)", {}
                )
            connection.rows(
                "INSERT INTO leasehold_session (id, owner, duration, boot_id, until) "
                "VALUES (%(id)s, %(owner)s, %(duration)s, %(boot)s, coalesce(%(now)s + %(duration)s, 9e999))",
                {"id": session.id, "owner": session.owner, "duration": session.duration, **time},
            )

    def _acquire(self, session: LeaseSession, scope: str, keys: Sequence[str]) -> Mapping[str, int]:
        with self._fencing(session) as (connection, time, fence):
            if not _is_alive(connection, time, session):
                return {}
            won = connection.rows(
                "INSERT INTO leasehold_lease (scope, key, session, fence) "
                "SELECT %(scope)s, value, %(id)s, %(fence)s FROM json_each(%(keys)s) WHERE true "
                "ON CONFLICT DO UPDATE SET session = excluded.session, fence = excluded.fence "
                f"WHERE NOT {_HELD} RETURNING key, fence",
                {"scope": scope, "id": session.id, "fence": fence, "keys": _json(keys), **time},
            )
        return dict(won)

    def _renew(self, leases: Sequence[Lease]) -> list[Named]:
        with self._writing(durable=False) as (connection, time):
            for session in {lease.session.id for lease in leases}:
                _heartbeat(connection, time, session)
            return _met(connection, leases, f"SELECT key FROM leasehold_lease WHERE {_AS_THEY_SAY}", time)

    def _release(self, leases: Sequence[Lease]) -> list[Named]:
        with self._writing(durable=without_end(leases)) as (connection, time):
            return _met(connection, leases, f"DELETE FROM leasehold_lease WHERE {_AS_THEY_SAY} RETURNING key", time)

    def _change(self, leases: Sequence[Lease], to: LeaseSession) -> Mapping[Named, int]:
        with self._fencing(to, durable=without_end(leases)) as (connection, time, fence):
            if not _is_alive(connection, time, to):
                return {}
            changed = f"UPDATE leasehold_lease SET session = %(to)s, fence = %(new)s WHERE {_AS_THEY_SAY} RETURNING key"
            return dict.fromkeys(_met(connection, leases, changed, {"to": to.id, "new": fence, **time}), fence)

    def _break(self, scope: str, keys: Sequence[str]) -> list[Row]:
        with self._writing() as (connection, time):
            values = {"scope": scope, "keys": _json(keys), **time}
            held = connection.rows(_HOLDERS, values)
            connection.rows(f"DELETE FROM leasehold_lease WHERE {_OF_KEYS}", values)
        return held

    def _holders(self, scope: str, keys: Sequence[str]) -> list[Row]:
        return self._read(_HOLDERS, {"scope": scope, "keys": _json(keys)})

    def _list(self, scope: str | None, keys: Sequence[str] | None, most: int) -> list[Row]:
        return self._read(_LIST, {"scope": scope, "keys": None if keys is None else _json(keys), "most": most})

    @contextmanager
    def _fencing(self, session: LeaseSession, *, durable: bool = False) -> Iterator[tuple[StoreSession, Time, int]]:
        """A transaction, with the time and a new fence."""
        durable = durable or session.duration is None or self._boot == UNKNOWN_BOOT
        for _ in range(_TRIES):
            with self._writing(durable=durable) as (connection, time):
                row = connection.rows(
                    "UPDATE leasehold_fence SET last = last + 1 WHERE boot_id = %(boot)s AND last < reserved "
                    "RETURNING last",
                    time,
                )
                if row:
                    yield connection, time, row[0][0]
                    return
            self._reserve()
        raise StoreError(
            f"{self.shown}: no fence can be reserved. Either leasehold_fence has lost its row, or several "
            "machines share the file, which it is not made for"
        )

    def _reserve(self) -> None:
        """Make the next block of fences durable. In a new boot it begins behind all that were reserved before."""
        with self._writing() as (connection, time):
            connection.rows(
                "UPDATE leasehold_fence SET last = CASE boot_id WHEN %(boot)s THEN last ELSE reserved END, "
                "reserved = reserved + %(block)s, boot_id = %(boot)s WHERE boot_id <> %(boot)s OR last >= reserved",
                {"block": _BLOCK, **time},
            )


def _json(keys: Sequence[str]) -> str:
    return json.dumps(keys, ensure_ascii=False)


def _is_alive(connection: StoreSession, time: Time, session: LeaseSession) -> bool:
    asked = f"SELECT 1 FROM leasehold_session WHERE id = %(id)s AND {_ALIVE}"
    return bool(connection.rows(asked, {"id": session.id, **time}))


def _heartbeat(connection: StoreSession, time: Time, session: str) -> bool:
    beat = (
        "UPDATE leasehold_session SET until = coalesce(%(now)s + duration, 9e999) "
        f"WHERE id = %(id)s AND {_ALIVE} RETURNING id"
    )
    return bool(connection.rows(beat, {"id": session, **time}))


def _met(
    connection: StoreSession, leases: Sequence[Lease], statement: str, parameters: Mapping[str, str | float]
) -> list[Named]:
    """Run a statement on all leases, one run for all that were acquired together; return those that it met."""
    return [
        (scope, key, session, fence)
        for (scope, session, fence), keys in together(leases).items()
        for (key,) in connection.rows(
            statement, {"scope": scope, "id": session, "fence": fence, "keys": _json(keys), **parameters}
        )
    ]


def open_sqlite_leases(url: str, base: Path, timeout: float) -> SqliteLeaseStore:
    """The leases in the file that a `sqlite:///` URL names."""
    return SqliteLeaseStore(local_file_of(url, base, "store"), timeout=timeout)
