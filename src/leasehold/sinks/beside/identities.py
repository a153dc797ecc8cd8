"""What events are known by, remembered where nobody else writes meanwhile: the table `leasehold_identity_<table>`.

Owns its SQL, and its columns. It is made when the first identity comes, so that a table without `deduplicate_by` has
none. A row without an identity has the time that the table has reached. Every function here runs inside a transaction
of the caller's, which has locked the whole database. (Postgres, which locks rows, has its own.)
"""

from __future__ import annotations

from collections.abc import Collection

from leasehold.database.tables import Index, Table
from leasehold.sinks.beside.session import Session
from leasehold.sinks.rules.duplicates import Memory, Seen
from leasehold.sinks.rules.table_spec import TableSpec

_KEY = ("identity",)


def table(spec: TableSpec) -> Table:
    """The table, for `ChangesAlone.make`."""
    return Table(
        spec.identities,
        {"identity": "text", "hub": "text", "partition": "text", "sequence_number": "bigint", "enqueued": "bigint"},
        key=_KEY,
        indexes=(Index(f"{spec.identities}_enqueued", spec.identities, ("enqueued",)),),
    )


def known(session: Session, digests: Collection[str]) -> dict[str, Seen]:
    """What is remembered of these identities."""
    if not digests or not session.there(session.spec.identities):
        return {}
    asked, values = session.asked("asked", {"digest": "text"}, ((digest,) for digest in sorted(digests)))
    query = (
        f"SELECT identity, hub, partition, sequence_number, enqueued FROM {session.of(session.spec.identities)} "
        f"WHERE identity IN (SELECT asked.digest FROM {asked})"
    )
    return {identity: Seen(*seen) for identity, *seen in session.rows(query, **values)}


def remember(session: Session, memory: Memory) -> None:
    """Remember these, one at least, in place of what was. The table is there."""
    rows = [(identity, *seen.event, seen.time) for identity, seen in sorted(memory.items())]
    session.put(session.spec.identities, table(session.spec).columns, _KEY, rows)


def reached(session: Session) -> int | None:
    """The time that the table has reached, if it is noted."""
    name = session.spec.identities
    if not session.there(name):
        return None
    time = session.one(f"SELECT enqueued FROM {session.of(name)} WHERE identity = ''")
    return time if isinstance(time, int) else None


def reach(session: Session, time: int | None) -> None:
    """Note the time that the table has reached; None: note none."""
    name = session.spec.identities
    if not session.there(name):
        return
    if time is None:
        session.run(f"DELETE FROM {session.of(name)} WHERE identity = ''")
    else:
        session.put(name, table(session.spec).columns, _KEY, [("", "", "", 0, time)])


def forget(session: Session, before: int, at_most: int) -> None:
    """Forget the oldest of those from before this time."""
    if session.there(session.spec.identities):
        name = session.of(session.spec.identities)
        session.run(
            f"DELETE FROM {name} WHERE identity IN (SELECT identity FROM {name} WHERE enqueued < %(before)s "
            "AND identity <> '' ORDER BY enqueued LIMIT %(at_most)s)",
            before=before,
            at_most=at_most,
        )
