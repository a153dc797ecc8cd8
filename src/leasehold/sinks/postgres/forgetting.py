"""Forgetting keys in Postgres: one that a person names, and those that are old. The rules are in `beside.forgetting`.

Owns the SQL of it on the memory of keys, which is there. Runs inside a transaction of the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from leasehold.database.postgres.troubles import is_the_rows
from leasehold.database.statements import sent
from leasehold.sinks.beside.session import Places
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.catalog import relation
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.table_spec import ordered_keys


def forget(session: PostgresSession, key: Mapping[str, str]) -> int:
    """Forget what is known of a key, which a person states as text; how many there were.

    A text that is no value of the key's column is nobody's key.
    """
    texts = [key[name] for name in ordered_keys(session.spec)]
    if any("\0" in text for text in texts):
        return 0
    terms = " AND ".join(
        f"{name} = CAST(%({name})s::text AS {declared})" for name, declared in _key_types(session).items()
    )
    values = dict(zip(session.names.key_columns, texts, strict=True))
    try:
        with session.savepoint():
            return session.run(f"DELETE FROM {session.names.memory} WHERE {terms}", **values)
    except psycopg.Error as error:
        if not is_the_rows(error):
            raise
        return 0


def _key_types(session: PostgresSession) -> dict[str, str]:
    """The types of the key's columns, as SQL."""
    assert session.spec.memory is not None
    declared = {column.name: column.declared for column in relation(session, session.spec.memory).columns}
    return {name: sent(declared[name]) for name in session.names.key_columns}


def clear(
    session: PostgresSession,
    bookkeeping: Bookkeeping,
    old: Places,
    old_of_deleted: Places,
    after: tuple[object, ...] | None,
    at_most: int,
) -> tuple[list[tuple[Lane, int]], tuple[object, ...] | None]:
    """See `BesideTransaction.clear_keys`. Keys that somebody else has locked are left out."""
    memory, columns, types = session.names.memory, session.names.key_columns, _key_types(session)
    names = ", ".join(columns)
    given = ", ".join(f"CAST(%({name})s AS {declared})" for name, declared in types.items())
    page = session.rows(
        f"SELECT {names} FROM {memory} {f'WHERE ({names}) > ({given})' if after is not None else ''} "
        f"ORDER BY {names} LIMIT %(at_most)s",
        **dict(zip(columns, after or (), strict=False)),
        at_most=at_most,
    )
    if not page:
        return [], None
    ids = bookkeeping.lane_ids([*{*old, *old_of_deleted}])
    lists = {f"list_{name}": [row[place] for row in page] for place, name in enumerate(columns)}
    arrays = ", ".join(f"%(list_{name})s::{declared}[]" for name, declared in types.items())
    same = " AND ".join(f"m.{name} = page.{name}" for name in columns)
    gone = session.rows(
        f"DELETE FROM {memory} AS d USING (SELECT {', '.join(f'm.{name}' for name in columns)} FROM {memory} AS m "
        f"JOIN unnest({arrays}) AS page({names}) ON {same} "
        "JOIN unnest(%(lanes)s::bigint[], %(of_rows)s::bigint[], %(of_deleted)s::bigint[]) AS old(lane, rows, deleted) "
        "ON old.lane = m.lane AND m.number <= CASE WHEN m.gone THEN old.deleted ELSE old.rows END "
        "FOR UPDATE OF m SKIP LOCKED) AS m "
        f"WHERE {' AND '.join(f'd.{name} = m.{name}' for name in columns)} RETURNING d.lane, d.number",
        **lists,
        lanes=[*ids.values()],
        of_rows=[old.get(lane, -1) for lane in ids],
        of_deleted=[old_of_deleted.get(lane, -1) for lane in ids],
    )
    lanes = {number: lane for lane, number in ids.items()}
    return [(lanes[lane], number) for lane, number in gone], tuple(page[-1]) if len(page) == at_most else None
