"""Locks on the versions of entities in Postgres. The rules are in `sinks.beside.versions`.

Who waits for whom: everybody inserts the rows that are missing in the order of keys, and then locks all of them in that
order. A row that somebody has just inserted is seen by others once it is committed, so nobody in the second step waits
for somebody in the first, and nobody waits in a circle. A wait ends with the connection's `lock_timeout`.
"""

from __future__ import annotations

from collections.abc import Collection

from leasehold.sinks.beside.entities import ENTITY
from leasehold.sinks.beside.keys import text_of
from leasehold.sinks.beside.session import MINE, mine_of
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.rules.ordering import Key


def locked(session: PostgresSession, keys: Collection[Key]) -> dict[Key, int]:
    """See `WritesBeside.lock_entities`. The table is there."""
    table, texts = session.names.of(ENTITY), sorted({text_of(session.spec, key) for key in keys})
    named = {**mine_of(session.spec), "keys": texts}
    found: dict[str, int] = {}
    while len(found) < len(texts):  # again where somebody has forgotten an entity in between
        session.run(
            f"INSERT INTO {table} (pipeline, entity_table, key, version) "
            "SELECT %(pipeline)s, %(name)s, key, 0 FROM unnest(%(keys)s::text[]) AS k(key) WHERE NOT EXISTS "
            f'(SELECT 1 FROM {table} AS e WHERE {MINE} AND e.key = k.key) ORDER BY key COLLATE "C" '
            "ON CONFLICT DO NOTHING",
            **named,
        )
        query = f"SELECT key, version FROM {table} WHERE {MINE} AND key = ANY(%(keys)s::text[]) ORDER BY key FOR UPDATE"
        found = dict(session.rows(query, **named))
    return {key: found[text_of(session.spec, key)] for key in keys}
