"""Versions of entities in Postgres: the table `leasehold_entity`. The rules are in `sinks.beside.versions`.

Owns its SQL; it is made as all tables that a schema shares are (`bookkeeping`). Every function here runs inside a
transaction of the caller's.

Who waits for whom: everybody inserts the rows that are missing in the order of keys, and then locks all of them in that
order. A row that somebody has just inserted is seen by others once it is committed, so nobody in the second step waits
for somebody in the first, and nobody waits in a circle. A wait ends with the connection's `lock_timeout`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from leasehold.sinks.beside.keys import text_of, texts_of
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.versions import latest_of
from leasehold.sinks.postgres import states
from leasehold.sinks.postgres.names import ENTITY
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.rules.batch import KnownEntity, OrderValue
from leasehold.sinks.rules.ordering import Key

_OF_TABLE = "pipeline = %(pipeline)s AND entity_table = %(name)s"
_OF_KEYS = f"{_OF_TABLE} AND key = ANY(%(keys)s::text[])"


def locked(session: Session, keys: Collection[Key]) -> dict[Key, int]:
    """See `VersionsEntities.lock_entities`. The table is there."""
    table, named = session.names.of(ENTITY), _named(session, keys)
    found: dict[str, int] = {}
    while len(found) < len(named["keys"]):  # again where somebody has forgotten an entity in between
        session.run(
            f"INSERT INTO {table} (pipeline, entity_table, key, version) "
            "SELECT %(pipeline)s, %(name)s, key, 0 FROM unnest(%(keys)s::text[]) AS k(key) WHERE NOT EXISTS "
            f'(SELECT 1 FROM {table} AS e WHERE {_OF_TABLE} AND e.key = k.key) ORDER BY key COLLATE "C" '
            "ON CONFLICT DO NOTHING",
            **named,
        )
        found = dict(
            session.rows(f"SELECT key, version FROM {table} WHERE {_OF_KEYS} ORDER BY key FOR UPDATE", **named)
        )
    return {key: found[text_of(session.spec, key)] for key in keys}


def known(session: Session, schema: pa.Schema, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
    """See `KeepsVersions.read_entities`: versions are read first. The tables are there."""
    named = _named(session, keys)
    query = f"SELECT key, version, latest FROM {session.names.of(ENTITY)} WHERE {_OF_KEYS}"
    entities = {text: (version, latest) for text, version, latest in session.rows(query, **named)}
    query = (  # one row of each, however many are parked
        "SELECT its.key FROM unnest(%(keys)s::text[]) AS its(key) CROSS JOIN LATERAL "
        f"(SELECT 1 FROM {session.names.of(PARKED)} AS p WHERE {_OF_TABLE} AND p.key = its.key LIMIT 1) AS one"
    )
    waiting = {text for (text,) in session.rows(query, **named)}
    there = states.read(session, schema, keys)
    found = {}
    for key in keys:
        version, latest = entities.get(text := text_of(session.spec, key), (0, None))
        found[key] = KnownEntity(version, latest_of(latest), there.get(key), text in waiting)
    return found


def raised(session: Session, keys: Collection[Key], latest: Mapping[Key, OrderValue]) -> None:
    """See `VersionsEntities.raise_versions`."""
    session.run(
        f"UPDATE {session.names.of(ENTITY)} AS e SET version = version + 1, latest = coalesce(k.latest, e.latest) "
        "FROM unnest(%(keys)s::text[], %(latest)s::text[]) AS k(key, latest) "
        "WHERE e.pipeline = %(pipeline)s AND e.entity_table = %(name)s AND e.key = k.key",
        pipeline=session.spec.pipeline,
        name=session.spec.name,
        keys=[text_of(session.spec, key) for key in keys],
        latest=[json.dumps(latest[key]) if key in latest else None for key in keys],
    )


def forget(session: Session, key: Mapping[str, str]) -> int:
    """Forget an entity, by its key as text; how many there were. The table is there."""
    mine = {"pipeline": session.spec.pipeline, "name": session.spec.name}
    statement = f"DELETE FROM {session.names.of(ENTITY)} WHERE {_OF_KEYS}"
    return session.run(statement, **mine, keys=[*texts_of(session.spec, key)])


def forget_all(session: Session) -> None:
    """Forget all entities of the table. The table is there."""
    mine = {"pipeline": session.spec.pipeline, "name": session.spec.name}
    session.run(f"DELETE FROM {session.names.of(ENTITY)} WHERE {_OF_TABLE}", **mine)


def _named(session: Session, keys: Collection[Key]) -> dict[str, Any]:
    texts = sorted({text_of(session.spec, key) for key in keys})
    return {"pipeline": session.spec.pipeline, "name": session.spec.name, "keys": texts}
