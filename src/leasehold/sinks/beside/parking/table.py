"""Parked events: the table `leasehold_parked`. The rules are in `sinks.beside.parking.contract` and its `listing`.

Owns the SQL of this table, one for all entity tables of a database. Every function here runs inside a transaction of
the caller's, or in a look. Whoever changes parked events has locked the watermark of their partition, or all of the
table's, so that changes follow one another; who only reads, without the lock, finds out by the watermark row whether
that still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from leasehold.database.tables import Kind
from leasehold.sinks.beside.kept_values import as_text, seconds, time_text
from leasehold.sinks.beside.keys import key_of, text_of
from leasehold.sinks.beside.parking import reading
from leasehold.sinks.beside.parking.contract import ParkedRow
from leasehold.sinks.beside.session import MINE, Asked, Session, mine_of, names_in
from leasehold.sinks.beside.set_aside import dropping
from leasehold.sinks.beside.set_aside.selecting import terms_of
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent, Parking
from leasehold.sinks.set_aside import EventId, Selection

PARKED = "leasehold_parked"

_APART = 1e-6  # seconds between events of an entity that two partitions park
_LANE = f"{MINE} AND hub = %(hub)s AND partition = %(partition)s"


def entities(session: Session, lane: Lane) -> dict[Key, float]:
    """See `KeepsStates`."""
    table, read = session.of(PARKED), _read(session)
    if session.spec.spread:
        is_mine = _first(session, "hub = %(hub)s AND partition = %(partition)s")
        found = session.rows(
            f"SELECT {session.text('its.key')}, {_first(session, session.number('p.next_at'))}, {is_mine} "
            f"FROM (SELECT DISTINCT key FROM {table} WHERE {_LANE} AND {read}) AS its",
            **mine_of(session.spec, lane),
        )
        return dict(reading.entities(session.spec, ((text, at if mine else None) for text, at, mine in found)))
    found = session.rows(
        f"SELECT {session.text('key')}, {session.number('next_at')} FROM (SELECT key, next_at, "
        f"row_number() OVER (PARTITION BY key ORDER BY sequence_number) AS turn FROM {table} WHERE {_LANE} AND {read}) "
        "AS ordered WHERE turn = 1",
        **mine_of(session.spec, lane),
    )
    return dict(reading.entities(session.spec, ((text, at) for text, at in found)))


def events(session: Session, lane: Lane, keys: Collection[Key], at_most: int) -> list[ParkedEvent]:
    """See `KeepsStates`."""
    table = session.of(PARKED)
    asked, values = _asked_keys(session, keys)
    source, first = f"{table} AS p WHERE p.key IN (SELECT its.key FROM {asked})", ""
    if session.spec.spread:
        other = (
            f"(SELECT b.parked_at FROM {table} AS b WHERE {MINE} AND b.key = its.key "
            "AND (b.hub, b.partition) <> (%(hub)s, %(partition)s) ORDER BY b.parked_at LIMIT 1)"
        )
        first = f"WITH asked AS MATERIALIZED (SELECT its.key, {other} AS other FROM {asked}) "
        source = (
            f"asked CROSS JOIN {table} AS p "
            "WHERE p.key = asked.key AND (asked.other IS NULL OR p.parked_at <= asked.other)"
        )
    found = session.rows(
        f"{first}SELECT p.key, {_event(session)} FROM {source} AND {_LANE} AND {_read(session)} "
        "ORDER BY sequence_number LIMIT %(at_most)s",
        **mine_of(session.spec, lane),
        **values,
        at_most=at_most,
    )
    return [reading.event(key_of(session.spec, text), *others) for text, *others in found]


def firsts(session: Session, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
    """See `KeepsStates.first_parked`."""
    texts = {text_of(session.spec, key): key for key in keys}
    asked, values = _asked_keys(session, keys)
    columns = (session.text("p.hub"), session.text("p.partition"), session.number("p.next_at"))
    rows = session.rows(
        f"SELECT its.key, {', '.join(_first(session, column) for column in columns)} FROM {asked}",
        **mine_of(session.spec),
        **values,
    )
    return {
        texts[text]: ((hub, name), seconds(at))
        for text, *place, at in rows
        if None not in place
        for hub, name in names_in([place])  # others may write here
    }


def _first(session: Session, column: str) -> str:
    """What the first parked event of the entity `its.key` has: a join reads all that is parked, and sorts it."""
    return (
        f"(SELECT {column} FROM {session.of(PARKED)} AS p WHERE {MINE} AND p.key = its.key "
        "ORDER BY p.parked_at, p.hub, p.partition, p.sequence_number LIMIT 1)"
    )


def are_there(session: Session, lane: Lane, numbers: Collection[int]) -> bool:
    """See `WritesBeside.are_parked`. The table is there."""
    asked, values = _asked_numbers(session, numbers)
    query = f"SELECT count(*) FROM {session.of(PARKED)} WHERE {_LANE} AND sequence_number IN (SELECT it FROM {asked})"
    return bool(session.one(query, **mine_of(session.spec, lane), **values) == len(set(numbers)))


def change(session: Session, parking: Parking, now: float) -> None:
    """Do what `parking` says. The table is there."""
    mine, table = mine_of(session.spec, (parking.hub, parking.partition)), session.of(PARKED)
    if parking.removed:
        asked, values = _asked_numbers(session, parking.removed)
        session.run(
            f"DELETE FROM {table} WHERE {_LANE} AND sequence_number IN (SELECT it FROM {asked})", **mine, **values
        )
    at = _turns(session, parking, now) if session.spec.spread else {}
    session.many(
        f"INSERT INTO {table} (pipeline, entity_table, hub, partition, sequence_number, key, body, enqueued_time, "
        "deliveries, next_at, error, parked_at) VALUES (%(pipeline)s, %(name)s, %(hub)s, %(partition)s, %(number)s, "
        "%(key)s, %(body)s, %(enqueued)s, %(deliveries)s, %(next_at)s, %(error)s, %(parked_at)s) "
        "ON CONFLICT (pipeline, entity_table, hub, partition, sequence_number) DO UPDATE SET "
        "deliveries = excluded.deliveries, next_at = excluded.next_at, error = excluded.error",
        [
            {
                **mine,
                "number": one.sequence_number,
                "key": text_of(session.spec, one.key),
                "body": one.body,
                "enqueued": one.enqueued_time,
                "deliveries": one.deliveries,
                "next_at": one.next_at,
                "error": session.storable(one.error),
                "parked_at": at.get(one.key, now),
            }
            for one in parking.put
        ],
    )


def _turns(session: Session, parking: Parking, now: float) -> dict[Key, float]:
    """When these are parked: behind all that is parked of their entities, whatever the clocks say."""
    keys = {text_of(session.spec, one.key): one.key for one in parking.put}
    asked, values = _asked_keys(session, keys.values())
    rows = session.rows(
        f"SELECT key, max({session.number('parked_at')}) FROM {session.of(PARKED)} WHERE {MINE} "
        f"AND key IN (SELECT its.key FROM {asked}) GROUP BY key",
        **mine_of(session.spec),
        **values,
    )
    return {keys[text]: max(now, last + _APART) for text, last in rows}


def remove_above(session: Session, marks: Mapping[Lane, int]) -> None:
    """See `WritesBeside.unpark_above`. The table is there."""
    session.many(
        f"DELETE FROM {session.of(PARKED)} WHERE {_LANE} AND sequence_number > %(number)s",
        [{**mine_of(session.spec, lane), "number": number} for lane, number in marks.items()],
    )


def listed(session: Session, selection: Selection, limit: int, after: EventId | None) -> list[ParkedRow]:
    """See `KeepsStates`. A row that says of no event where it stands, since others have written it, is left out."""
    if not session.there(PARKED):
        return []
    table, (terms, values) = session.of(PARKED), terms_of(session, selection, after, "error")
    terms += [MINE, session.sound(("hub", "partition"), "sequence_number")]
    found = session.rows(
        f"SELECT hub, partition, {session.text('key')}, {_event(session)}, {session.number('parked_at')}, "
        f"NOT EXISTS (SELECT 1 FROM {table} AS b WHERE b.pipeline = p.pipeline AND b.entity_table = p.entity_table "
        "AND b.hub = p.hub AND b.partition = p.partition AND b.key = p.key AND b.sequence_number < p.sequence_number) "
        f"FROM {table} AS p WHERE {' AND '.join(terms)} ORDER BY hub, partition, sequence_number LIMIT %(limit)s",
        **mine_of(session.spec),
        **values,
        limit=limit,
    )
    return [
        ParkedRow(
            EventId(hub, name, its[1]),
            reading.event(reading.shown_key(session.spec, text), *its),
            seconds(at),
            bool(first),
        )
        for hub, name, text, *its, at, first in found
    ]


def counts(session: Session) -> tuple[int, float | None, float | None]:
    """How many are parked, when the oldest was, and when the next is tried, as `SetAsideCounts` has it."""
    if not session.there(PARKED):
        return 0, None, None
    table, mine = session.of(PARKED), mine_of(session.spec)
    [(count, oldest)] = session.rows(f"SELECT count(*), min(parked_at) FROM {table} WHERE {MINE}", **mine)
    following = session.one(
        "SELECT min(CASE WHEN next_at > 0 THEN next_at ELSE parked_at END) FROM (SELECT next_at, parked_at, "
        f"row_number() OVER (PARTITION BY hub, partition, key ORDER BY sequence_number) AS turn FROM {table} "
        f"WHERE {MINE}) AS ordered WHERE turn = 1",
        **mine,
    )
    return count, *(None if at is None else seconds(at) for at in (oldest, following))


def hurry(session: Session, events: Collection[EventId]) -> int:
    """See `KeepsStates`. The table is there, and the watermarks of the events' partitions are locked."""
    chosen, values = _chosen(session, events)
    statement = f"UPDATE {session.of(PARKED)} SET next_at = 0 WHERE {MINE} AND {chosen}"
    return session.run(statement, **mine_of(session.spec), **values)


def drop(session: Session, events: Collection[EventId], reason: str, now: float) -> int:
    """See `KeepsStates`. Both tables are there, and the watermarks of the events' partitions are locked."""
    table, mine = session.of(PARKED), mine_of(session.spec)
    chosen, values = _chosen(session, events)
    found = session.rows(
        f"SELECT hub, partition, sequence_number, {session.text('error')}, {session.number('parked_at')} "
        f"FROM {table} WHERE {MINE} AND {chosen}",
        **mine,
        **values,
    )
    gone = [
        dropping.Removal(EventId(*event), 0, as_text(error), time_text(at if 0 <= at <= now else now))
        for *event, error, at in found
    ]
    dropping.note(session, gone, reason, now)
    return session.run(f"DELETE FROM {table} WHERE {MINE} AND {chosen}", **mine, **values)


def _event(session: Session) -> str:
    """What `reading.event` is given behind the key."""
    numbers = map(session.number, ("enqueued_time", "deliveries", "next_at"))
    return ", ".join([session.text("body"), "sequence_number", *numbers, session.text("error")])


def _read(session: Session) -> str:
    """No owner parks an event that it has not read."""
    watermark = session.of("leasehold_watermark")
    return f"sequence_number BETWEEN 0 AND (SELECT max(w.sequence_number) FROM {watermark} AS w WHERE {_LANE})"


def _asked_keys(session: Session, keys: Collection[Key]) -> Asked:
    return session.asked("its", {"key": "text"}, ((text,) for text in sorted({text_of(session.spec, k) for k in keys})))


def _asked_numbers(session: Session, numbers: Collection[int]) -> Asked:
    return session.asked("asked", {"it": "bigint"}, ((number,) for number in numbers))


def _chosen(session: Session, events: Collection[EventId]) -> Asked:
    columns: dict[str, Kind] = {"hub": "text", "partition": "text", "number": "bigint"}
    asked, values = session.asked(
        "chosen",
        columns,
        ((event.hub, event.partition, event.sequence_number) for event in sorted(set(events))),
    )
    return f"(hub, partition, sequence_number) IN (SELECT chosen.hub, chosen.partition, number FROM {asked})", values
