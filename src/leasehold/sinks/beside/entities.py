"""Versions of entities: the table `leasehold_entity`. The rules are in `sinks.beside.versions`.

Owns its SQL, one table for all entity tables of a database. Every function here runs inside a transaction of the
caller's; `known` also in a look. How entities are locked is a database's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from leasehold.sinks.beside.keys import text_of
from leasehold.sinks.beside.parking.table import PARKED
from leasehold.sinks.beside.session import MINE, Asked, Session, mine_of
from leasehold.sinks.beside.versions import latest_of
from leasehold.sinks.rules.batch import KnownEntity, OrderValue
from leasehold.sinks.rules.ordering import Key

ENTITY = "leasehold_entity"

ReadStates = Callable[[Sequence[Key]], Mapping[Key, dict[str, Any]]]


def versions(session: Session, keys: Collection[Key]) -> dict[Key, int]:
    """The versions of these, 0 for one that has none. The table is there."""
    found = _rows(session, keys)
    return {key: found.get(text_of(session.spec, key), (0, None))[0] for key in keys}


def known(session: Session, read_states: ReadStates, keys: Sequence[Key]) -> dict[Key, KnownEntity]:
    """See `KeepsStates.read_entities`: versions are read first. The tables are there."""
    entities = _rows(session, keys)
    asked, values = _asked(session, keys)
    waits = (  # one row of each, however many are parked
        f"SELECT its.key FROM {asked} WHERE "
        f"(SELECT 1 FROM {session.of(PARKED)} AS p WHERE {MINE} AND p.key = its.key LIMIT 1) = 1"
    )
    waiting = {text for (text,) in session.rows(waits, **mine_of(session.spec), **values)}
    there = read_states(keys)
    found = {}
    for key in keys:
        version, latest = entities.get(text := text_of(session.spec, key), (0, None))
        found[key] = KnownEntity(version, latest_of(latest), there.get(key), text in waiting)
    return found


def raised(session: Session, keys: Collection[Key], latest: Mapping[Key, OrderValue]) -> None:
    """See `WritesBeside.raise_versions`. The table is there."""
    given = ((text_of(session.spec, key), json.dumps(latest[key]) if key in latest else None) for key in keys)
    asked, values = session.asked("its", {"key": "text", "latest": "text"}, given)
    session.run(
        f"INSERT INTO {session.of(ENTITY)} AS e (pipeline, entity_table, key, version, latest) "
        f"SELECT %(pipeline)s, %(name)s, its.key, 1, its.latest FROM {asked} WHERE true "
        "ON CONFLICT (pipeline, entity_table, key) DO UPDATE SET version = e.version + 1, "
        "latest = coalesce(excluded.latest, e.latest)",
        **mine_of(session.spec),
        **values,
    )


def _rows(session: Session, keys: Collection[Key]) -> dict[str, tuple[int, object]]:
    asked, values = _asked(session, keys)
    found = session.rows(
        f"SELECT key, {session.number('version')}, {session.text('latest')} FROM {session.of(ENTITY)} "
        f"WHERE {MINE} AND key IN (SELECT its.key FROM {asked})",
        **mine_of(session.spec),
        **values,
    )
    return {text: (version, latest) for text, version, latest in found}


def _asked(session: Session, keys: Collection[Key]) -> Asked:
    texts = sorted({text_of(session.spec, key) for key in keys})
    return session.asked("its", {"key": "text"}, ((text,) for text in texts))
