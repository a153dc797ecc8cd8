"""The events that were set aside, with a reason: the table `<table>_rejected` beside an entity table.

Owns its SQL; how the table is made is a database's own. A row has an identity: hub, partition, sequence number, and its
place among the rows that the transform has made of the event (those that could be read first). Promises that it is
there once however often the event is read, and that the rejected rows of an event are those of its latest reading: one
that is read again after a reset, and then fits, is there no more. So that an event can be tried again when it is gone
from the hub, it keeps what it was given with: `source` is all of that but the body, as JSON. Rows that could be read
and do not fit the table have no `source`; their `body` is the row, as JSON, unless it has a body of its own.

Every function here runs inside a transaction of the caller's, `counts` also in a look. The table is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from leasehold.database.tables import Kind
from leasehold.sinks.beside.forgetting import AT_A_TIME, is_of
from leasehold.sinks.beside.kept_values import as_text, time_text
from leasehold.sinks.beside.session import Session
from leasehold.sinks.rules.again import EventId, RejectedRow
from leasehold.sinks.rules.fence import Admission, Lane
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.transactions import Found

EVENT = "hub, partition, sequence_number, place"


def replace(session: Session, read: Iterable[Admission], rows: Sequence[Rejected], now: float) -> None:
    """Set `rows` aside in the place of whatever an earlier reading of the events `read` has set aside."""
    session.remove_set_aside(
        [(*each.range.lane, max(each.after + 1, each.range.first), each.range.last) for each in read]
    )
    insert(session, rows, now)


def insert(session: Session, rows: Sequence[Rejected], now: float) -> None:
    """Set `rows` aside, of events that have none."""
    if rows:
        session.set_aside(rows, time_text(now))


def remove(session: Session, rows: Sequence[RejectedRow]) -> list[RejectedRow]:
    """Remove those of these rows that are there as they were listed; returns them."""
    columns: dict[str, Kind] = {"of_hub": "text", "of_partition": "text", "number": "bigint", "turn": "bigint"}
    columns["time"] = "timestamptz"
    listed, values = session.asked("listed", columns, ((*_identity(row), row.rejected_at) for row in rows))
    removed = session.rows(
        f"DELETE FROM {session.of(session.spec.rejected)} WHERE ({EVENT}, rejected_at) IN "
        f"(SELECT of_hub, of_partition, number, turn, time FROM {listed}) RETURNING {EVENT}",
        **values,
    )
    gone = {tuple(row) for row in removed}
    return [row for row in rows if _identity(row) in gone]


def of_events(session: Session, events: Collection[EventId]) -> Found:
    """The rejected rows of each of these events, which nobody else changes until the transaction ends."""
    found: dict[EventId, list[RejectedRow]] = {event: [] for event in events}
    columns: dict[str, Kind] = {"of_hub": "text", "of_partition": "text", "number": "bigint"}
    asked, values = session.asked("asked", columns, ((e.hub, e.partition, e.sequence_number) for e in sorted(found)))
    rows = session.rows(
        f"{select(session)} WHERE {ours(session)} AND (hub, partition, sequence_number) IN "
        f"(SELECT of_hub, of_partition, number FROM {asked}) ORDER BY {EVENT} {session.locking}",
        **values,
    )
    for row in map(row_of, rows):
        found[row.event].append(row)
    return found


def between(session: Session, lane: Lane, after: int, before: int, at_most: int) -> list[RejectedRow]:
    """The first rows of events of this partition between these numbers, as many as are asked for."""
    rows = session.rows(
        f"{select(session)} WHERE {ours(session)} AND hub = %(hub)s AND partition = %(partition)s "
        f"AND sequence_number > %(after)s AND sequence_number < %(before)s ORDER BY {EVENT} LIMIT %(at_most)s",
        **{"hub": lane[0], "partition": lane[1], "after": after, "before": before, "at_most": at_most},
    )
    return [*map(row_of, rows)]


def forget(session: Session, key: Mapping[str, str]) -> int:
    """Remove the rows in which the key of an entity can be read; how many there were."""
    count, after = 0, None
    while page := _page(session, after):
        count += len(remove(session, [row for row in page if is_of(row, key)]))
        after = page[-1]
    return count


def _page(session: Session, after: RejectedRow | None) -> list[RejectedRow]:
    """The rows behind this one, some at a time."""
    where, values = ours(session), dict[str, Any]()
    if after is not None:
        where += f" AND ({EVENT}) > (%(hub)s, %(partition)s, %(number)s, %(place)s)"
        values = dict(zip(("hub", "partition", "number", "place"), _identity(after), strict=True))
    query = f"{select(session)} WHERE {where} ORDER BY {EVENT} LIMIT %(at_most)s"
    return [row_of(row) for row in session.rows(query, **values, at_most=AT_A_TIME)]


def counts(session: Session) -> tuple[int, int]:
    """How many rows there are, and how many of dead letters: see `SetAsideCounts`."""
    [(count, dead)] = session.rows(
        f"SELECT count(*), count(*) FILTER (WHERE {session.dead_letter}) FROM {session.of(session.spec.rejected)} "
        f"WHERE {ours(session)}"
    )
    return count, dead


def ours(session: Session) -> str:
    """SQL for the rows that are anybody's business here: others, which say of no event where it stands, or not when
    they were set aside, are somebody else's."""
    return session.sound(("hub", "partition", "rejected_at"), "sequence_number", "place")


def select(session: Session) -> str:
    """SQL for rows as `row_of` reads them."""
    return f"SELECT {EVENT}, {session.rejected_columns} FROM {session.of(session.spec.rejected)}"


def row_of(row: Sequence[Any]) -> RejectedRow:
    """A row that `select` has given."""
    hub, partition, number, place, body, is_text, reason, source, at = row
    kept = as_text(body) if is_text else body
    source = None if source is None else as_text(source)
    return RejectedRow(EventId(hub, partition, number), place, kept, as_text(reason), source, at)


def _identity(row: RejectedRow) -> tuple[str, str, int, int]:
    return row.event.hub, row.event.partition, row.event.sequence_number, row.place
