"""What events are known by, remembered in Postgres: the table `leasehold_identity_<table>`.

Owns this table, and its SQL. It is made when the first identity comes, so that a table without `deduplicate_by` has
none. A row without an identity has the time that the table has reached. Every function
here runs inside a transaction of the caller's.

Concurrency: a row is locked by whoever is about to judge its identity, until the transaction ends, so that two batches
that bring the same event follow one another. An identity that is not known yet is inserted at once, with no event,
which others see only if the transaction has given it one. As with the memory of keys, everybody inserts what is missing
in the order of identities, and then locks what is there in that order; whoever forgets leaves out what is locked. So
does whoever notes the time that the table has reached: nobody waits for that, and the next batch notes it. A
process that stops in its transaction holds up those who bring its identities, until the server ends the transaction.
"""

from __future__ import annotations

from collections.abc import Collection

from leasehold.sinks.postgres.catalog import kind_of_relation
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.rules.duplicates import Memory, Seen

LOCK = 0x6964656E  # "iden": whoever makes such a table holds it, for watermarks are locked before identities come


def make(session: PostgresSession) -> None:
    """Make the table unless it is there."""
    name = session.spec.identities
    if kind_of_relation(session, name):
        return
    session.run("SELECT pg_advisory_xact_lock(%(lock)s)", lock=LOCK)
    if kind_of_relation(session, name):
        return
    for statement in statements(session):
        session.run(statement)


def statements(session: PostgresSession) -> list[str]:
    """The statements that make the table."""
    table = session.names.of(session.spec.identities)
    return [
        f'CREATE TABLE {table} (identity text COLLATE "C" PRIMARY KEY, hub text COLLATE "C", '
        'partition text COLLATE "C", sequence_number bigint, enqueued bigint)',
        f"CREATE INDEX ON {table} (enqueued)",
    ]


def known(session: PostgresSession, digests: Collection[str]) -> dict[str, Seen]:
    """What is remembered of these identities, which are locked. The table is there."""
    table, wanted = session.names.of(session.spec.identities), sorted(digests)
    found: list[tuple[str, ...]] = []
    while len(found) < len(wanted):  # again where somebody has forgotten one in between
        session.run(
            f"INSERT INTO {table} (identity) SELECT given FROM unnest(%(wanted)s::text[]) AS given "
            f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE identity = given) "
            'ORDER BY given COLLATE "C" ON CONFLICT DO NOTHING',
            wanted=wanted,
        )
        found = session.rows(
            f"SELECT identity, hub, partition, sequence_number, enqueued FROM {table} "
            "WHERE identity = ANY(%(wanted)s::text[]) ORDER BY identity FOR UPDATE",
            wanted=wanted,
        )
    return {identity: Seen(*seen) for identity, *seen in found if seen[0] is not None}  # type: ignore[arg-type]


def remember(session: PostgresSession, memory: Memory) -> None:
    """Remember these, in place of what was, of identities that `known` has locked."""
    events = [memory[identity] for identity in sorted(memory)]
    session.run(
        f"UPDATE {session.names.of(session.spec.identities)} AS old SET hub = given.hub, partition = given.partition, "
        "sequence_number = given.number, enqueued = given.enqueued FROM unnest(%(identities)s::text[], "
        "%(hubs)s::text[], %(partitions)s::text[], %(numbers)s::bigint[], %(times)s::bigint[]) "
        "AS given(identity, hub, partition, number, enqueued) WHERE old.identity = given.identity",
        identities=sorted(memory),
        hubs=[seen.hub for seen in events],
        partitions=[seen.partition for seen in events],
        numbers=[seen.sequence_number for seen in events],
        times=[seen.time for seen in events],
    )


def reached(session: PostgresSession) -> int | None:
    """The time that the table has reached, if it is noted. The table is there."""
    found = session.rows(f"SELECT enqueued FROM {session.names.of(session.spec.identities)} WHERE identity = ''")
    return found[0][0] if found else None


def reach(session: PostgresSession, time: int | None) -> None:
    """Note the time that the table has reached, unless a later one is, or somebody notes one now; None: note none."""
    if time is None:
        if kind_of_relation(session, session.spec.identities):
            session.run(f"DELETE FROM {session.names.of(session.spec.identities)} WHERE identity = ''")
        return
    table = session.names.of(session.spec.identities)
    session.run(
        f"WITH new AS (INSERT INTO {table} (identity, enqueued) SELECT '', %(time)s WHERE "
        f"NOT EXISTS (SELECT 1 FROM {table} WHERE identity = '') AND pg_try_advisory_xact_lock(%(lock)s) "
        f"ON CONFLICT DO NOTHING) UPDATE {table} SET enqueued = %(time)s WHERE enqueued < %(time)s AND identity = "
        f"(SELECT identity FROM {table} WHERE identity = '' FOR UPDATE SKIP LOCKED)",
        time=time,
        lock=LOCK + 1,
    )


def forget(session: PostgresSession, before: int, at_most: int) -> None:
    """Forget the oldest of those from before this time that nobody has locked."""
    table = session.names.of(session.spec.identities)
    session.run(
        f"DELETE FROM {table} WHERE identity IN (SELECT identity FROM {table} WHERE enqueued < %(before)s "
        "AND identity <> '' ORDER BY enqueued LIMIT %(at_most)s FOR UPDATE SKIP LOCKED)",
        before=before,
        at_most=at_most,
    )
