"""Clearing what is old beside an entity table, step by step: rules 1 to 4 of `forgetting`.

Owns the SQL of two tables, each for all entity tables of a database: `leasehold_place`, the notes of where partitions
were and when, and `leasehold_cleared`, up to which place memories may have been cleared. What is cleared of the memory
of keys, and how, is a database's own.

Concurrency: beside any number of instances that apply batches. A step leaves out what somebody else has locked, so it
keeps nobody waiting and waits for nobody, but for the moment in which it notes places: then it has locked all
watermarks of the table, as a reset does, so that no note is of a time before a reset that it does not know of. It locks
the notes that it goes by until it ends, so that a reset makes them void before it or after it. (SQLite: a step has
locked the database, for at most as long as it takes to look at as many rows as it is told.) Killed at any line, a step
has done nothing; the next one does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasehold.sinks.beside.forgetting import Cleared, Retention
from leasehold.sinks.beside.kept_values import time_text
from leasehold.sinks.beside.session import MINE, BesideTransaction, Places, Session, mine_of
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.watermarks import OF_READER, WATERMARK, of_reader
from leasehold.sinks.rules.fence import Lane

PLACE, CLEARED = "leasehold_place", "leasehold_cleared"

_AT = '"at"'  # a word of SQL in some databases


def clear(
    transaction: BesideTransaction, retention: Retention, now: float, after: tuple[object, ...] | None, at_most: int
) -> Cleared:
    """One step. See `KeepsNotes`. Where memories are to be cleared, the tables of this module are there."""
    spec = transaction.session.spec
    rejected, more = 0, False
    if retention.rejected is not None:
        before = time_text(max(0.0, now - retention.rejected))
        rejected = _clear_oldest(transaction, spec.rejected, "rejected_at", "true", before, at_most)
        _clear_oldest(transaction, DROPPED, "dropped_at", MINE, before, at_most)
        more = rejected == at_most
    if retention.note_every is None or not spec.memory or not transaction.has(spec.memory):
        return Cleared(rejected, 0, None, more)
    _note_places(transaction, retention, now)
    old = _places_before(transaction.session, now, retention.memories)
    old_of_deleted = _places_before(transaction.session, now, retention.of_tombstones)
    gone: Sequence[tuple[Lane, int]] = ()
    if old or old_of_deleted:
        gone, after = transaction.clear_keys(old, old_of_deleted, after, at_most)
        _note_cleared(transaction.session, gone)
        more = more or after is not None
    return Cleared(rejected, len(gone), after, more)


def cleared_up_to(session: Session) -> Places:
    """Up to which sequence number of each partition memories may have been cleared."""
    if not session.there(CLEARED):
        return {}
    query = f"SELECT hub, partition, sequence_number FROM {session.of(CLEARED)} WHERE {MINE}"
    return {(hub, name): number for hub, name, number in session.rows(query, **mine_of(session.spec))}


def _clear_oldest(transaction: BesideTransaction, table: str, time: str, where: str, before: str, at_most: int) -> int:
    """Remove some of the rows whose time is before this one; how many."""
    if not transaction.has(table):
        return 0
    session = transaction.session
    return session.run(
        f"DELETE FROM {session.of(table)} WHERE {session.oldest(session.of(table), time, where)}",
        **mine_of(session.spec),
        before=before,
        at_most=at_most,
    )


def _note_places(transaction: BesideTransaction, retention: Retention, now: float) -> None:
    """Note the places of now, if it is time for it.

    And forget the notes of times that have not come yet, which would keep this from noting anything until they come,
    and those that are older than the oldest one needed.
    """
    session = transaction.session
    place, reader = session.of(PLACE), of_reader(session.spec)
    session.run(f"DELETE FROM {place} WHERE {OF_READER} AND {_AT} > %(now)s", **reader, now=now)
    last = session.one(f"SELECT max({_AT}) FROM {place} WHERE {OF_READER}", **reader)
    if last is not None and retention.note_every is not None and now - last < retention.note_every:
        return
    transaction.lock_watermarks([], whole_table=True)
    session.run(
        f"INSERT INTO {place} (pipeline, entity_table, consumer_group, {_AT}, hub, partition, sequence_number) "
        "SELECT pipeline, entity_table, consumer_group, %(now)s, hub, partition, sequence_number "
        f"FROM {session.of(WATERMARK)} WHERE {OF_READER} ON CONFLICT DO NOTHING",
        **reader,
        now=now,
    )
    assert retention.longest_of_keys is not None
    session.run(
        f"DELETE FROM {place} WHERE {OF_READER} AND {_AT} < "
        f"(SELECT max({_AT}) FROM {place} WHERE {OF_READER} AND {_AT} <= %(oldest)s)",
        **reader,
        oldest=now - retention.longest_of_keys,
    )


def _places_before(session: Session, now: float, seconds: float | None) -> Places:
    """Where partitions were this many seconds ago, by the latest note of that age; it is locked against a reset."""
    if seconds is None:
        return {}
    place = session.of(PLACE)
    rows = session.rows(
        f"SELECT hub, partition, sequence_number FROM {place} WHERE {OF_READER} AND {_AT} = "
        f"(SELECT max({_AT}) FROM {place} WHERE {OF_READER} AND {_AT} <= %(then)s) "
        f"ORDER BY {_AT}, hub, partition {session.sharing}",
        **of_reader(session.spec),
        then=now - seconds,
    )
    return {(hub, partition): number for hub, partition, number in rows}


def _note_cleared(session: Session, gone: Iterable[tuple[Lane, int]]) -> None:
    """Note that memories were cleared which these events had left."""
    reached: dict[Lane, int] = {}
    for lane, number in gone:
        reached[lane] = max(number, reached.get(lane, -1))
    session.many(
        f"INSERT INTO {session.of(CLEARED)} AS was (pipeline, entity_table, hub, partition, sequence_number) "
        "VALUES (%(pipeline)s, %(name)s, %(hub)s, %(partition)s, %(number)s) "
        "ON CONFLICT (pipeline, entity_table, hub, partition) DO UPDATE SET sequence_number = "
        "excluded.sequence_number WHERE was.sequence_number < excluded.sequence_number",
        [{**mine_of(session.spec, lane), "number": number} for lane, number in sorted(reached.items())],
    )
