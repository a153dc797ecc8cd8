"""What Postgres alone does beside an entity table: it makes what all tables of a schema share, and locks watermarks.

Owns the making of these tables, the locks, and the numbers that stand for partitions:

    leasehold_table        one row a table: format, pipeline, mode, keys, identity of the sink, and what orders it
                           (`sinks.beside.record`)
    leasehold_watermark    one row a pipeline, table, hub, consumer group and partition; its `id` stands for hub and
                           partition in the memory of keys (`sinks.beside.watermarks`)
    leasehold_dropped      one row a rejected row that a person has dropped (`sinks.set_aside`)
    leasehold_skip         one row an event that a person has noted to be skipped (`sinks.beside.skipping`)
    leasehold_place, leasehold_cleared  where partitions were and when, and how far memories were cleared (`forgetting`)
    leasehold_parked       one row an event that waits until its handler is tried again (`sinks.beside.parking`)
    leasehold_outbox       one row an event that a handler has emitted, until it is sent (`sinks.beside.outbox`)
    leasehold_message, leasehold_message_sent, leasehold_message_entity, leasehold_message_parked
                           messages of queues that are done, what they were sent as, versions of entities, and messages
                           that wait (`sinks.beside.messages`)
    leasehold_entity       one row an entity whose events are in several partitions: its version
                           (`sinks.beside.entities`)

Beside each entity table are `leasehold_key_<table>` (`memory`), `<table>_rejected` (`rejected`) and, with
`deduplicate_by`, `leasehold_identity_<table>` (`identities`).

They are in the schema of the entity table. The shared ones are made by whoever comes first, under an advisory lock, and
so is what belongs to one table. Every function here runs inside a transaction of the caller's.

Locks are taken in one order by everybody, so that no two wait for each other: the watermarks by hub and partition,
then rejected rows that are tried again or dropped, versions of entities by key, identities, the row of
`leasehold_table` (for as long as nothing is recorded of the order), and memories by key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import psycopg

from leasehold.database.statements import unsent
from leasehold.errors import UsageError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.beside.tables import ALL_SHARED
from leasehold.sinks.beside.watermarks import OF_READER, WATERMARK, of_reader
from leasehold.sinks.postgres.names import NEEDED
from leasehold.sinks.postgres.session import PostgresSession, reason_of
from leasehold.sinks.rules.fence import Lane

FORMAT = 4
"""The format of the bookkeeping that this release writes, and the only one that it reads."""

LOCK = 0x656E7469  # "enti": whoever makes tables of the sink holds it

_LANES = "unnest(%(hubs)s::text[], %(partitions)s::text[]) AS asked(hub, partition)"


class Bookkeeping:
    """What is kept beside the table of `session`, as far as only Postgres does it so."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._watermark = session.of(WATERMARK)
        self._mine = of_reader(session.spec)

    def make_shared(self, needed: Sequence[str] = NEEDED) -> bool:
        """Make the tables that all entity tables of the schema share, unless those needed are there; whether they
        were not. Nobody waits here who has locked anything else."""
        if self._are_there(needed):
            return False
        self._session.run("SELECT pg_advisory_xact_lock(%(lock)s)", lock=LOCK)
        if self._are_there(needed):
            return False
        names = self._session.names
        try:
            for statement in (statement for table in ALL_SHARED for statement in table.in_postgres(names.of)):
                self._session.run(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            raise UsageError(
                f"the tables that an entity table needs are missing in the schema {self._session.names.schema}, and "
                f"this user may not make them ({reason_of(error)}). Run `leasehold init PIPELINE.toml` once as "
                "somebody who may"
            ) from error
        return True

    def _are_there(self, tables: Sequence[str]) -> bool:
        names = [unsent(self._session.names.of(table)) for table in tables]
        query = "SELECT bool_and(to_regclass(it) IS NOT NULL) FROM unnest(%(names)s::text[]) AS it"
        return bool(self._session.one(query, names=names))

    def lock_watermarks(self, lanes: Collection[Lane], *, whole_table: bool, missing: bool = True) -> None:
        """Insert those that are `missing`, and lock all that are there in the order of their keys."""
        hubs, partitions = _parted(sorted(lanes))
        if hubs and missing:
            self._session.run(
                f"INSERT INTO {self._watermark} (pipeline, entity_table, consumer_group, hub, partition, "
                "sequence_number, owner_level, whole, disputed) "
                "SELECT %(pipeline)s, %(name)s, %(group)s, hub, partition, %(before)s, 0, false, false "
                f"FROM {_LANES} WHERE NOT EXISTS (SELECT 1 FROM {self._watermark} AS w WHERE {OF_READER} "
                "AND w.hub = asked.hub AND w.partition = asked.partition) "
                'ORDER BY hub COLLATE "C", partition COLLATE "C" ON CONFLICT DO NOTHING',
                **self._mine,
                hubs=hubs,
                partitions=partitions,
                before=BEFORE_FIRST,
            )
        those = "" if whole_table else f"AND (hub, partition) IN (SELECT hub, partition FROM {_LANES}) "
        self._session.run(
            f"SELECT 1 FROM {self._watermark} WHERE {OF_READER} {those}ORDER BY hub, partition FOR UPDATE",
            **self._mine,
            hubs=hubs,
            partitions=partitions,
        )

    def lane_ids(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """The number that stands for each of these partitions, whose watermarks are there."""
        hubs, partitions = _parted(lanes)
        rows = self._session.rows(
            f"SELECT hub, partition, id FROM {self._watermark} "
            f"WHERE {OF_READER} AND (hub, partition) IN (SELECT hub, partition FROM {_LANES})",
            **self._mine,
            hubs=hubs,
            partitions=partitions,
        )
        return {(hub, partition): number for hub, partition, number in rows}

    def lanes_of(self, ids: Collection[int]) -> dict[int, Lane]:
        """Which partition each of these numbers stands for."""
        rows = self._session.rows(
            f"SELECT id, hub, partition FROM {self._watermark} WHERE id = ANY(%(ids)s::bigint[])", ids=[*ids]
        )
        return {number: (hub, partition) for number, hub, partition in rows}


def _parted(lanes: Iterable[Lane]) -> tuple[Sequence[str], Sequence[str]]:
    pairs = list(lanes)
    return [hub for hub, _ in pairs], [partition for _, partition in pairs]
