"""Forgetting in Postgres: an entity, and what is old. The rules are in `sinks.beside.forgetting`.

Owns the SQL of two tables, each for all entity tables of a schema: `leasehold_place`, the notes of where partitions
were and when, and `leasehold_cleared`, up to which place memories may have been cleared. Every function here runs
inside a transaction of the caller's; a step of clearing looks at no more rows than it is told.

Concurrency: beside any number of instances that apply batches. A step leaves out what somebody else has locked, so it
keeps nobody waiting and waits for nobody, but for the moment in which it notes places: then it has locked all
watermarks of the table, as a reset does, so that no note is of a time before a reset that it does not know of. It locks
the notes that it goes by until it ends, so that a reset makes them void before it or after it. Whoever forgets an
entity waits for the batches that are under way. Killed at any line, a step has done nothing; the next one does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from leasehold.postgres.troubles import is_the_rows
from leasehold.sinks.beside.forgetting import AT_A_TIME, Cleared, Forgotten, Retention, is_of
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.set_aside.kept import remove
from leasehold.sinks.postgres import rejected as aside
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.catalog import kind_of_relation, relation
from leasehold.sinks.postgres.names import CLEARED, PLACE
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.table import ordered_keys

_MINE = "pipeline = %(pipeline)s AND entity_table = %(name)s"
_OF_READER = f"{_MINE} AND consumer_group = %(group)s"

Places = Mapping[Lane, int]


def clear(
    session: Session,
    bookkeeping: Bookkeeping,
    retention: Retention,
    now: float,
    after: tuple[object, ...] | None,
    at_most: int,
) -> Cleared:
    """One step. The tables of this module are there."""
    spec = session.spec
    rejected, more = 0, False
    if retention.rejected is not None:
        before = max(0.0, now - retention.rejected)
        rejected = _oldest(session, spec.rejected, "rejected_at", before, at_most, "true")
        _oldest(session, DROPPED, "dropped_at", before, at_most, _MINE)
        more = rejected == at_most
    if retention.note_every is None or not spec.memory or not kind_of_relation(session, spec.memory):
        return Cleared(rejected, 0, None, more)
    _note_places(session, bookkeeping, retention, now)
    memories = 0
    old = _places_before(session, now, retention.memories)
    old_of_deleted = _places_before(session, now, retention.of_tombstones)
    if old or old_of_deleted:
        memories, after = _clear_keys(session, bookkeeping, old, old_of_deleted, after, at_most)
        more = more or after is not None
    return Cleared(rejected, memories, after, more)


def cleared_up_to(session: Session) -> dict[Lane, int]:
    """Up to which sequence number of each partition memories may have been cleared."""
    if kind_of_relation(session, CLEARED) is None:
        return {}
    rows = session.rows(
        f"SELECT hub, partition, sequence_number FROM {session.names.of(CLEARED)} WHERE {_MINE}", **_mine(session)
    )
    return {(hub, name): number for hub, name, number in rows}


def void_places(session: Session) -> None:
    """Events are applied anew: what was noted of places says no more when they were applied."""
    _void(session, PLACE)


def void_cleared(session: Session) -> None:
    """All memories are forgotten, and made anew."""
    _void(session, CLEARED)


def forget(session: Session, key: Mapping[str, str]) -> Forgotten:
    """Forget an entity, with all watermarks of the table locked."""
    spec = session.spec
    memories = rejected = 0
    if spec.memory and kind_of_relation(session, spec.memory):
        memories = _forget_key(session, [key[name] for name in ordered_keys(spec)])
    if kind_of_relation(session, spec.rejected):
        after = None
        while some := aside.page(session, after, AT_A_TIME):
            rejected += len(remove(session, [row for row in some if is_of(row, key)]))
            after = some[-1]
    return Forgotten(memories, rejected)


def _forget_key(session: Session, texts: Sequence[str]) -> int:
    """A text that is no value of the key's column is nobody's key."""
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


def _key_types(session: Session) -> dict[str, str]:
    assert session.spec.memory is not None
    declared = {column.name: column.declared for column in relation(session, session.spec.memory).columns}
    return {name: declared[name] for name in session.names.key_columns}


def _oldest(session: Session, table: str, column: str, before: float, at_most: int, where: str) -> int:
    if kind_of_relation(session, table) is None:
        return 0
    name = session.names.of(table)
    return session.run(
        f"DELETE FROM {name} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {name} WHERE {where} AND {column} < "
        f"to_timestamp(%(before)s) ORDER BY {column} LIMIT %(at_most)s FOR UPDATE SKIP LOCKED))",
        **_mine(session),
        before=before,
        at_most=at_most,
    )


def _note_places(session: Session, bookkeeping: Bookkeeping, retention: Retention, now: float) -> None:
    """Note the places of now, if it is time for it, and forget notes that are older than the oldest one needed."""
    place, mine = session.names.of(PLACE), _mine(session)
    last = session.one(f"SELECT max(at) FROM {place} WHERE {_OF_READER}", **mine)
    if last is not None and retention.note_every is not None and now - last < retention.note_every:
        return
    bookkeeping.lock_watermarks([], others=True)
    session.run(
        f"INSERT INTO {place} (pipeline, entity_table, consumer_group, at, hub, partition, sequence_number) "
        "SELECT pipeline, entity_table, consumer_group, %(now)s, hub, partition, sequence_number "
        f"FROM {session.names.of('leasehold_watermark')} WHERE {_OF_READER} ON CONFLICT DO NOTHING",
        **mine,
        now=now,
    )
    assert retention.longest_of_keys is not None
    session.run(
        f"DELETE FROM {place} WHERE {_OF_READER} AND at < "
        f"(SELECT max(at) FROM {place} WHERE {_OF_READER} AND at <= %(oldest)s)",
        **mine,
        oldest=now - retention.longest_of_keys,
    )


def _places_before(session: Session, now: float, seconds: float | None) -> Places:
    """Where partitions were this many seconds ago, by the latest note of that age; it is locked against a reset."""
    if seconds is None:
        return {}
    place = session.names.of(PLACE)
    rows = session.rows(
        f"SELECT hub, partition, sequence_number FROM {place} WHERE {_OF_READER} AND at = "
        f"(SELECT max(at) FROM {place} WHERE {_OF_READER} AND at <= %(then)s) "
        "ORDER BY at, hub, partition FOR SHARE",
        **_mine(session),
        then=now - seconds,
    )
    return {(hub, partition): number for hub, partition, number in rows}


def _clear_keys(
    session: Session,
    bookkeeping: Bookkeeping,
    old: Places,
    old_of_deleted: Places,
    after: tuple[object, ...] | None,
    at_most: int,
) -> tuple[int, tuple[object, ...] | None]:
    """Look at the keys behind `after`. Returns how many were cleared, and where to go on, None after the last."""
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
        return 0, None
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
    reached: dict[Lane, int] = {}
    for lane, number in gone:
        reached[lanes[lane]] = max(number, reached.get(lanes[lane], -1))
    session.many(
        f"INSERT INTO {session.names.of(CLEARED)} AS was VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT (pipeline, entity_table, hub, partition) DO UPDATE SET sequence_number = "
        "greatest(was.sequence_number, excluded.sequence_number)",
        [(session.spec.pipeline, session.spec.name, *lane, number) for lane, number in sorted(reached.items())],
    )
    return len(gone), tuple(page[-1]) if len(page) == at_most else None


def _void(session: Session, table: str) -> None:
    if kind_of_relation(session, table):
        session.run(f"DELETE FROM {session.names.of(table)} WHERE {_MINE}", **_mine(session))


def _mine(session: Session) -> dict[str, str]:
    spec = session.spec
    return {"pipeline": spec.pipeline, "name": spec.name, "group": spec.consumer_group}
