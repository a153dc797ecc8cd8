"""The rejected rows of a table: listed, dropped, parked again. The rules are in `sinks.set_aside`.

Owns the SQL of lists, and the transactions; what is written to the table of the rows is in `set_aside.rejected`. Events
are tried again by a batch (`Batch.again`, `sinks.door.again`).

Concurrency: beside any number of instances that apply batches. A drop locks the watermarks of its events' partitions
first, as a batch does, and then their rejected rows (SQLite: the database, and all of it), so that it and a retry of
the same events run one after the other: the second finds no rejected row. Whoever is killed before COMMIT has changed
nothing; one that stops there holds up batches of these partitions (SQLite: all who write), until the server ends its
transaction, or their time-outs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from leasehold.errors import ConfigError
from leasehold.sinks.beside.kept_values import as_text
from leasehold.sinks.beside.session import MINE, Access, BesideTransaction, Session, mine_of
from leasehold.sinks.beside.set_aside import dropping
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.set_aside.parking_again import park_again
from leasehold.sinks.beside.set_aside.rejected import EVENT, ours, remove, row_of, select
from leasehold.sinks.beside.set_aside.selecting import terms_of
from leasehold.sinks.rules.again import EventId, RejectedRow
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.set_aside import DroppedRow, ParkedAgain, ReasonCount, Selection


class KeptRejectedRows:
    """See `RejectedRows`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def reasons(self, selection: Selection, limit: int) -> list[ReasonCount]:
        """See `RejectedRows`."""
        with self._access.changing() as transaction:
            session = transaction.session
            if not transaction.has(session.spec.rejected):
                return []
            where, values = _where(session, selection)
            first, last = session.time_text("min(rejected_at)"), session.time_text("max(rejected_at)")
            rows = session.rows(
                f"SELECT {session.text('reason')}, count(*), {first}, {last} "
                f"FROM {session.of(session.spec.rejected)} {where}"
                f"GROUP BY reason ORDER BY 2 DESC, {session.bytewise('reason')} LIMIT %(limit)s",
                **values,
                limit=limit,
            )
        return [ReasonCount(as_text(reason), *counted) for reason, *counted in rows]

    def rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[RejectedRow]:
        """See `RejectedRows`."""
        with self._access.changing() as transaction:
            session = transaction.session
            if not transaction.has(session.spec.rejected):
                return []
            where, values = _where(session, selection, after)
            found = session.rows(f"{select(session)} {where}ORDER BY {EVENT} LIMIT %(limit)s", **values, limit=limit)
        return [row_of(row) for row in found]

    def drop(self, rows: Sequence[RejectedRow], reason: str) -> int:
        """See `RejectedRows`."""
        if not reason.strip():
            raise ConfigError("reason", reason, "a text that is not empty", "Say why these events are not wanted")

        def once(transaction: BesideTransaction) -> int:
            transaction.lock_partitions({(row.event.hub, row.event.partition) for row in rows})
            there = remove(transaction.session, rows)
            gone = [dropping.Removal(row.event, row.place, row.reason, row.rejected_at) for row in there]
            dropping.note(transaction.session, gone, reason, self._access.wall())
            return len(there)

        return self._access.changed(once, DROPPED)

    def park(self, events: Sequence[tuple[RejectedRow, ParkedEvent]]) -> ParkedAgain:
        """See `RejectedRows`."""

        def once(transaction: BesideTransaction) -> ParkedAgain:
            session = transaction.session
            transaction.lock_partitions({(row.event.hub, row.event.partition) for row, _ in events})
            return park_again(transaction, session.spec, partial(remove, session), events, self._access.wall())

        return self._access.changed(once)

    def dropped(self, limit: int) -> list[DroppedRow]:
        """See `RejectedRows`."""
        with self._access.changing() as transaction:
            session = transaction.session
            if not transaction.has(DROPPED):
                return []
            sound = session.sound(("hub", "partition", "rejected_at", "dropped_at"), "sequence_number", "place")
            rows = session.rows(
                f"SELECT {EVENT}, {session.text('reason')}, {session.time_text('rejected_at')}, "
                f"{session.text('dropped_for')}, {session.time_text('dropped_at')} FROM {session.of(DROPPED)} "
                f"WHERE {MINE} AND {sound} ORDER BY number DESC LIMIT %(limit)s",
                **mine_of(session.spec),
                limit=limit,
            )
        return [
            DroppedRow(EventId(*row[:3]), row[3], as_text(reason), at, as_text(why), dropped_at)
            for *row, reason, at, why, dropped_at in rows
        ]


def _where(session: Session, selection: Selection, after: EventId | None = None) -> tuple[str, dict[str, Any]]:
    terms, values = terms_of(session, selection, after, "reason")
    return f"WHERE {' AND '.join([ours(session), *terms])} ", values
