"""The table `leasehold_skip`: a note for each event that is to be skipped. The rules are in `skipping.contract`.

Owns the SQL of this table, one for all entity tables of a database. Every function here runs inside a transaction of
the caller's that has locked the watermarks of the events' partitions, or in a look. The table is there. Rows that do
not say which event they are about are somebody else's, and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leasehold.database.tables import Kind
from leasehold.sinks.beside.forgetting import is_of
from leasehold.sinks.beside.kept_values import as_bytes, as_text, seconds
from leasehold.sinks.beside.session import MINE, Asked, Session, mine_of
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.set_aside import EventId, RejectedRow

SKIP = "leasehold_skip"

_EVENT = "hub, partition, sequence_number"


def insert(session: Session, note: SkipNote, now: float) -> None:
    """Write the note of an event that has none."""
    session.run(
        f"INSERT INTO {session.of(SKIP)} (pipeline, entity_table, {_EVENT}, body, source, because, noted_by, noted_at) "
        "VALUES (%(pipeline)s, %(name)s, %(hub)s, %(partition)s, %(number)s, %(body)s, %(source)s, %(because)s, "
        "%(noted_by)s, %(noted_at)s)",
        **mine_of(session.spec, note.lane),
        number=note.sequence_number,
        body=note.body,
        source=note.source,
        because=session.storable(note.because),
        noted_by=session.storable(note.noted_by),
        noted_at=now,
    )


def notes(session: Session, up_to: Mapping[Lane, int] | None = None) -> list[SkipNote]:
    """All notes of the table, or those of events up to a sequence number of each of these partitions."""
    source, values = session.of(SKIP), dict[str, Any]()
    if up_to is not None:
        asked, values = _asked(session, up_to)
        source += f" JOIN {asked} ON hub = of_hub AND partition = of_partition AND sequence_number <= up_to"
    columns = ", ".join(("body", *map(session.text, ("source", "because", "noted_by")), session.number("noted_at")))
    rows = session.rows(
        f"SELECT {_EVENT}, {columns} FROM {source} WHERE {MINE} AND {_sound(session)} ORDER BY {_EVENT}",
        **mine_of(session.spec),
        **values,
    )
    return [_note(row) for row in rows]


def numbers(session: Session, hub: str) -> dict[str, frozenset[int]]:
    """See `KeepsNotes.noted`."""
    found: dict[str, set[int]] = {}
    for partition, number in session.rows(
        f"SELECT partition, sequence_number FROM {session.of(SKIP)} WHERE {MINE} AND hub = %(hub)s "
        f"AND {_sound(session)}",
        **mine_of(session.spec),
        hub=hub,
    ):
        found.setdefault(partition, set()).add(number)
    return {partition: frozenset(its) for partition, its in found.items()}


def count(session: Session) -> int:
    """How many notes there are."""
    query = f"SELECT count(*) FROM {session.of(SKIP)} WHERE {MINE} AND {_sound(session)}"
    return int(session.one(query, **mine_of(session.spec)))


def remove(session: Session, up_to: Mapping[Lane, int]) -> None:
    """Remove the notes of events up to a sequence number of each of these partitions."""
    asked, values = _asked(session, up_to)
    session.run(
        f"DELETE FROM {session.of(SKIP)} WHERE {MINE} AND EXISTS (SELECT 1 FROM {asked} WHERE hub = of_hub "
        "AND partition = of_partition AND sequence_number <= up_to)",
        **mine_of(session.spec),
        **values,
    )


def forget(session: Session, key: Mapping[str, str]) -> int:
    """Empty the notes in whose body the key of an entity can be read: rule 6. How many there were."""
    its = [note for note in notes(session) if is_of(RejectedRow(EventId(*note.event), 0, note.body, "", None, ""), key)]
    session.many(
        f"UPDATE {session.of(SKIP)} SET body = NULL, source = '{{}}' WHERE {MINE} AND hub = %(hub)s "
        "AND partition = %(partition)s AND sequence_number = %(number)s",
        [{**mine_of(session.spec, note.lane), "number": note.sequence_number} for note in its],
    )
    return len(its)


def _asked(session: Session, up_to: Mapping[Lane, int]) -> Asked:
    columns: dict[str, Kind] = {"of_hub": "text", "of_partition": "text", "up_to": "bigint"}
    return session.asked("asked", columns, ((*lane, number) for lane, number in sorted(up_to.items())))


def _sound(session: Session) -> str:
    return session.sound(("hub", "partition"), "sequence_number")


def _note(row: Sequence[Any]) -> SkipNote:
    hub, partition, number, body, source, because, noted_by, at = row
    kept = None if body is None else as_bytes(body)
    return SkipNote(hub, partition, number, kept, as_text(source), as_text(because), as_text(noted_by), seconds(at))
