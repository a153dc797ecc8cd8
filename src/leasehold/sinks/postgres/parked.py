"""Parked events in Postgres: the table `leasehold_parked`. The rules are in `sinks.beside.parking` and its `listing`.

Owns the SQL of this table, one for all entity tables of a schema. Every function here runs inside a transaction of the
caller's. Whoever changes parked events has locked the watermark of their partition, or all of the table's, so that they
follow one another; who only reads, without the lock, is told by the watermark row whether that still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from leasehold.sinks.beside import kept_values
from leasehold.sinks.beside.keys import key_of, text_of, texts_of
from leasehold.sinks.beside.parking import reading
from leasehold.sinks.beside.parking.listing import ParkedRow
from leasehold.sinks.beside.set_aside.contract import EventId, Selection
from leasehold.sinks.postgres.names import DROPPED, PARKED
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.parking import ParkedEvent, Parking

_MINE = "pipeline = %(pipeline)s AND entity_table = %(name)s"
_EVENTS = (
    "(hub, partition, sequence_number) IN "
    "(SELECT * FROM unnest(%(hubs)s::text[], %(partitions)s::text[], %(numbers)s::bigint[]))"
)
_APART = 1e-6  # seconds between events of an entity that two partitions park
_LANE = f"{_MINE} AND hub = %(hub)s AND partition = %(partition)s"


def entities(session: Session, lane: Lane) -> dict[Key, float]:
    """See `KeepsParked`."""
    if session.spec.spread:
        table = session.names.of(PARKED)
        firsts = session.rows(
            "SELECT its.key, f.next_at, (f.hub, f.partition) = (%(hub)s, %(partition)s) "
            f"FROM (SELECT DISTINCT key FROM {table} WHERE {_LANE} AND {_read(session)}) AS its "
            f"CROSS JOIN LATERAL ({_first(table, 'its.key')}) AS f",
            **_named(session, lane),
        )
        return dict(reading.entities(session.spec, ((text, at if mine else None) for text, at, mine in firsts)))
    rows = session.rows(
        f"SELECT DISTINCT ON (key) key, next_at FROM {session.names.of(PARKED)} WHERE {_LANE} AND {_read(session)} "
        "ORDER BY key, sequence_number",
        **_named(session, lane),
    )
    return dict(reading.entities(session.spec, rows))


def events(session: Session, lane: Lane, keys: Collection[Key], at_most: int) -> list[ParkedEvent]:
    """See `KeepsParked`."""
    table, asked, before = session.names.of(PARKED), "unnest(%(keys)s::text[]) AS asked(its)", ""
    if session.spec.spread:
        asked += (
            f" LEFT JOIN LATERAL (SELECT b.parked_at FROM {table} AS b WHERE {_MINE} AND b.key = asked.its "
            "AND (b.hub, b.partition) <> (%(hub)s, %(partition)s) ORDER BY b.parked_at LIMIT 1) AS other ON true"
        )
        before = "AND (other.parked_at IS NULL OR p.parked_at <= other.parked_at)"
    rows = session.rows(
        "SELECT key, body, sequence_number, enqueued_time, deliveries, next_at, error "
        f"FROM {asked} JOIN {table} AS p ON p.key = asked.its {before} WHERE {_LANE} AND {_read(session)} "
        "ORDER BY sequence_number LIMIT %(at_most)s",
        **_named(session, lane),
        keys=sorted({text_of(session.spec, key) for key in keys}),
        at_most=at_most,
    )
    return [reading.event(key_of(session.spec, text), *others) for text, *others in rows]


def firsts(session: Session, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
    """See `KeepsVersions.first_parked`."""
    texts = {text_of(session.spec, key): key for key in keys}
    rows = session.rows(
        "SELECT its.key, f.hub, f.partition, f.next_at FROM unnest(%(keys)s::text[]) AS its(key) "
        f"CROSS JOIN LATERAL ({_first(session.names.of(PARKED), 'its.key')}) AS f",
        **_named(session),
        keys=sorted(texts),
    )
    return {texts[text]: ((hub, name), kept_values.seconds(at)) for text, hub, name, at in rows}


def _first(table: str, key: str) -> str:
    """The first parked event of an entity, for a LATERAL join: a plain one reads all that is parked, and sorts it."""
    return (
        f"SELECT hub, partition, next_at FROM {table} AS p WHERE {_MINE} AND p.key = {key} "
        "ORDER BY parked_at, hub, partition, sequence_number LIMIT 1"
    )


def are_there(session: Session, lane: Lane, numbers: Collection[int]) -> bool:
    """See `ParksEvents.are_parked`. The table is there."""
    query = f"SELECT count(*) FROM {session.names.of(PARKED)} WHERE {_LANE} AND sequence_number = ANY(%(numbers)s)"
    [(there,)] = session.rows(query, **_named(session, lane), numbers=sorted(numbers))
    return bool(there == len(numbers))


def change(session: Session, parking: Parking, now: float) -> None:
    """Do what `parking` says. The table is there."""
    lane, table = _named(session, (parking.hub, parking.partition)), session.names.of(PARKED)
    if parking.removed:
        session.run(
            f"DELETE FROM {table} WHERE {_LANE} AND sequence_number = ANY(%(numbers)s::bigint[])",
            **lane,
            numbers=[*parking.removed],
        )
    at = _turns(session, parking, now) if session.spec.spread else {}
    session.many(
        f"INSERT INTO {table} (pipeline, entity_table, hub, partition, sequence_number, key, body, enqueued_time, "
        "deliveries, next_at, error, parked_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (pipeline, entity_table, hub, partition, sequence_number) DO UPDATE SET "
        "deliveries = excluded.deliveries, next_at = excluded.next_at, error = excluded.error",
        [
            (
                *(*lane.values(), one.sequence_number, text_of(session.spec, one.key), one.body, one.enqueued_time),
                *(one.deliveries, one.next_at, one.error.replace("\0", "\\0"), at.get(one.key, now)),
            )
            for one in parking.put
        ],
    )


def _turns(session: Session, parking: Parking, now: float) -> dict[Key, float]:
    """When these are parked: behind all that is parked of their entities, whatever the clocks say."""
    keys = {text_of(session.spec, one.key): one.key for one in parking.put}
    rows = session.rows(
        f"SELECT key, max(parked_at) FROM {session.names.of(PARKED)} WHERE {_MINE} "
        "AND key = ANY(%(keys)s::text[]) GROUP BY key",
        **_named(session),
        keys=sorted(keys),
    )
    return {keys[text]: max(now, last + _APART) for text, last in rows}


def remove_above(session: Session, marks: Mapping[Lane, int]) -> None:
    """See `ParksEvents.unpark_above`. The table is there."""
    for lane, number in marks.items():
        session.run(
            f"DELETE FROM {session.names.of(PARKED)} WHERE {_LANE} AND sequence_number > %(number)s",
            **_named(session, lane),
            number=number,
        )


def remove_all(session: Session) -> None:
    """The entity table is gone, and what was parked for it with it."""
    session.run(f"DELETE FROM {session.names.of(PARKED)} WHERE {_MINE}", **_named(session))


def forget(session: Session, key: Mapping[str, str]) -> int:
    """Forget the parked events of an entity, by its key as text; how many there were. The table is there."""
    return session.run(
        f"DELETE FROM {session.names.of(PARKED)} WHERE {_MINE} AND key = ANY(%(keys)s::text[])",
        **_named(session),
        keys=[*texts_of(session.spec, key)],
    )


def rows(session: Session, selection: Selection, limit: int, after: EventId | None) -> list[ParkedRow]:
    """See `ListsParked`. The table is there."""
    table, where, values = session.names.of(PARKED), [_MINE], _named(session) | {"limit": limit}
    if selection.events is not None:
        chosen = [event for event in sorted(selection.events) if "\0" not in event[0]]
        where.append("(partition, sequence_number) IN (SELECT * FROM unnest(%(names)s::text[], %(numbers)s::bigint[]))")
        values |= {"names": [name for name, _ in chosen], "numbers": [number for _, number in chosen]}
    for given, term, text in (
        ("reason", "strpos(error, %(reason)s) > 0", selection.reason),
        ("hub", "hub = %(hub)s", selection.hub),
    ):
        if text is not None:
            where.append(term if "\0" not in text else "false")  # a text with a NUL is in no column
            values |= {given: text} if "\0" not in text else {}
    if after is not None:
        where.append("(hub, partition, sequence_number) > (%(after_hub)s, %(after_partition)s, %(after_number)s)")
        values |= {"after_hub": after.hub, "after_partition": after.partition, "after_number": after.sequence_number}
    found = session.rows(
        "SELECT hub, partition, key, body, sequence_number, enqueued_time, deliveries, next_at, error, parked_at, "
        f"NOT EXISTS (SELECT 1 FROM {table} AS b WHERE b.pipeline = p.pipeline AND b.entity_table = p.entity_table "
        "AND b.hub = p.hub AND b.partition = p.partition AND b.key = p.key AND b.sequence_number < p.sequence_number) "
        f"FROM {table} AS p WHERE {' AND '.join(where)} ORDER BY hub, partition, sequence_number LIMIT %(limit)s",
        **values,
    )
    return [
        ParkedRow(
            EventId(hub, name, its[1]),
            reading.event(reading.shown_key(session.spec, text), *its),
            kept_values.seconds(at),
            first,
        )
        for hub, name, text, *its, at, first in found
    ]


def counts(session: Session) -> tuple[int, float | None, float | None]:
    """How many are parked, when the oldest was, and when the next is tried, as `SetAsideCounts` has it.

    The table is there.
    """
    table = session.names.of(PARKED)
    [(count, oldest)] = session.rows(f"SELECT count(*), min(parked_at) FROM {table} WHERE {_MINE}", **_named(session))
    following = session.one(
        "SELECT min(at) FROM (SELECT DISTINCT ON (hub, partition, key) "
        f"CASE WHEN next_at > 0 THEN next_at ELSE parked_at END AS at FROM {table} WHERE {_MINE} "
        "ORDER BY hub, partition, key, sequence_number) AS first",
        **_named(session),
    )
    return count, *(None if at is None else kept_values.seconds(at) for at in (oldest, following))


def hurry(session: Session, events: Collection[EventId]) -> int:
    """See `ListsParked`. The table is there, and the watermarks of the events' partitions are locked."""
    statement = f"UPDATE {session.names.of(PARKED)} SET next_at = 0 WHERE {_MINE} AND {_EVENTS}"
    return session.run(statement, **_named(session), **_parted(events))


def drop(session: Session, events: Collection[EventId], reason: str, now: float) -> int:
    """See `ListsParked`. Both tables are there, and the watermarks of the events' partitions are locked."""
    return session.run(
        f"WITH gone AS (DELETE FROM {session.names.of(PARKED)} WHERE {_MINE} AND {_EVENTS} RETURNING *) "
        f"INSERT INTO {session.names.of(DROPPED)} (pipeline, entity_table, hub, partition, sequence_number, place, "
        "reason, rejected_at, dropped_for, dropped_at) SELECT pipeline, entity_table, hub, partition, "
        "sequence_number, 0, error, to_timestamp(CASE WHEN parked_at BETWEEN 0 AND %(now)s THEN parked_at "
        "ELSE %(now)s END), %(because)s, to_timestamp(%(now)s) FROM gone",
        **_named(session),
        **_parted(events),
        because=reason.replace("\0", "\\0"),
        now=now,
    )


def _read(session: Session) -> str:
    """No owner parks an event that it has not read."""
    watermark = session.names.of("leasehold_watermark")
    return f"sequence_number BETWEEN 0 AND (SELECT max(w.sequence_number) FROM {watermark} AS w WHERE {_LANE})"


def _parted(events: Collection[EventId]) -> dict[str, Any]:
    return {
        "hubs": [event.hub for event in events],
        "partitions": [event.partition for event in events],
        "numbers": [event.sequence_number for event in events],
    }


def _named(session: Session, lane: Lane | None = None) -> dict[str, Any]:
    its = {"pipeline": session.spec.pipeline, "name": session.spec.name}
    return its if lane is None else {**its, "hub": lane[0], "partition": lane[1]}
