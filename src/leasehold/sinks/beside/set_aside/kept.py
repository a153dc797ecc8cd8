"""The rejected rows of a table: listed, tried again, dropped, parked again. The rules are in `set_aside.contract`.

Owns the SQL of lists, and the transactions; the order of what a retry does is in `set_aside.trying`, and what is
written to the table of the rows in `set_aside.rejected`.

Concurrency: beside any number of instances that apply batches. A retry and a drop lock the watermarks of their events'
partitions first, as a batch does, and then their rejected rows (SQLite: the database, and all of it), so that two
operations on the same events run one after the other: the second finds no rejected row. A retry locks what is known of
its keys as a batch does, so it is judged against all that was committed before, and a batch after it finds what it has
written. Whoever is killed before COMMIT has changed nothing; one that stops there holds up batches of these partitions
and keys (SQLite: all who write), until the server ends its transaction, or their time-outs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leasehold.database.tables import Kind
from leasehold.errors import ConfigError
from leasehold.sinks.beside.session import MINE, Access, BesideTransaction, Session, mine_of
from leasehold.sinks.beside.set_aside import dropping, retrying
from leasehold.sinks.beside.set_aside.contract import (
    DroppedRow,
    EventId,
    ParkedAgain,
    ReasonCount,
    RejectedRow,
    RetryResult,
    Selection,
)
from leasehold.sinks.beside.set_aside.dropping import DROPPED
from leasehold.sinks.beside.set_aside.parking_again import ParksAgain, park_again
from leasehold.sinks.beside.set_aside.rejected import EVENT, remove, row_of, select
from leasehold.sinks.beside.set_aside.selecting import terms_of
from leasehold.sinks.beside.set_aside.trying import Tried, try_again
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.transactions import RemembersIdentities

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class RetryTransaction(BesideTransaction, ParksAgain, RemembersIdentities, Protocol):
    """A transaction of a sink in which rejected events may be tried again."""

    def fit(self, schema: pa.Schema) -> None: ...

    def recorded_order(self) -> TableOrder: ...

    def write_again(self, batch: Batch, kept: Kept, order: TableOrder) -> Tried:
        """Write rows of events that are tried again, and the memory of their keys: rule 2 of `set_aside`."""
        ...


class KeptRejectedRows:
    """See `RejectedRows`. `begin` opens a transaction of the sink."""

    def __init__(self, access: Access, begin: Callable[[], AbstractContextManager[RetryTransaction]]) -> None:
        self._access, self._begin = access, begin

    def reasons(self, selection: Selection, limit: int) -> list[ReasonCount]:
        """See `RejectedRows`."""
        with self._begin() as transaction:
            session = transaction.session
            if not transaction.has(session.spec.rejected):
                return []
            where, values = _where(session, selection)
            first, last = session.time_text("min(rejected_at)"), session.time_text("max(rejected_at)")
            rows = session.rows(
                f"SELECT reason, count(*), {first}, {last} FROM {session.of(session.spec.rejected)} {where}"
                f"GROUP BY reason ORDER BY 2 DESC, {session.bytewise('reason')} LIMIT %(limit)s",
                **values,
                limit=limit,
            )
        return [ReasonCount(*row) for row in rows]

    def rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[RejectedRow]:
        """See `RejectedRows`."""
        with self._begin() as transaction:
            session = transaction.session
            if not transaction.has(session.spec.rejected):
                return []
            where, values = _where(session, selection, after)
            found = session.rows(f"{select(session)} {where}ORDER BY {EVENT} LIMIT %(limit)s", **values, limit=limit)
        return [row_of(row) for row in found]

    def retry(self, batch: Batch, events: Collection[EventId]) -> RetryResult:
        """See `RejectedRows`."""

        def once(transaction: RetryTransaction) -> RetryResult:
            now = self._access.wall()
            return try_again(_Retry(transaction, now), transaction.session.spec, batch, events, now)

        return self._changed(once)

    def drop(self, rows: Sequence[RejectedRow], reason: str) -> int:
        """See `RejectedRows`."""
        if not reason.strip():
            raise ConfigError("reason", reason, "a text that is not empty", "Say why these events are not wanted")

        def once(transaction: RetryTransaction) -> int:
            transaction.need(DROPPED)
            transaction.lock_partitions({(row.event.hub, row.event.partition) for row in rows})
            there = remove(transaction.session, rows)
            gone = [dropping.Removal(row.event, row.place, row.reason, row.rejected_at) for row in there]
            dropping.note(transaction.session, gone, reason, self._access.wall())
            return len(there)

        return self._changed(once)

    def park(self, events: Sequence[tuple[RejectedRow, ParkedEvent]]) -> ParkedAgain:
        """See `RejectedRows`."""

        def once(transaction: RetryTransaction) -> ParkedAgain:
            session = transaction.session
            transaction.lock_partitions({(row.event.hub, row.event.partition) for row, _ in events})
            return park_again(transaction, session.spec, partial(remove, session), events, self._access.wall())

        return self._changed(once)

    def dropped(self, limit: int) -> list[DroppedRow]:
        """See `RejectedRows`."""
        with self._begin() as transaction:
            session = transaction.session
            if not transaction.has(DROPPED):
                return []
            rows = session.rows(
                f"SELECT {EVENT}, reason, {session.time_text('rejected_at')}, dropped_for, "
                f"{session.time_text('dropped_at')} FROM {session.of(DROPPED)} WHERE {MINE} "
                f"ORDER BY number DESC LIMIT %(limit)s",
                **mine_of(session.spec),
                limit=limit,
            )
        return [DroppedRow(EventId(*row[:3]), *row[3:]) for row in rows]

    def _changed(self, change: Callable[[RetryTransaction], T]) -> T:
        def once() -> T:
            with self._begin() as transaction:
                return change(transaction)

        result: T = self._access.again(once)
        return result


class _Retry:
    """A retry in a transaction of the sink. See `trying.Retry`."""

    def __init__(self, transaction: RetryTransaction, now: float) -> None:
        self._transaction, self._session, self._now = transaction, transaction.session, now
        self.fit = transaction.fit
        self.write = transaction.write_again
        self.recorded_order = transaction.recorded_order
        self.known_identities = transaction.known_identities
        self.remember_identities = transaction.remember_identities
        self.forget_identities = transaction.forget_identities
        self.identities_reached = transaction.identities_reached
        self.identities_reach = transaction.identities_reach

    def lock(self, lanes: Collection[Lane]) -> None:
        self._transaction.lock_partitions(lanes)

    def watermarks(self, hubs: Iterable[str]) -> Mapping[Lane, Watermark]:
        return self._transaction.watermarks(hubs)

    def found(self, events: Collection[EventId]) -> retrying.Found:
        session = self._session
        found: dict[EventId, list[RejectedRow]] = {event: [] for event in events}
        columns: dict[str, Kind] = {"of_hub": "text", "of_partition": "text", "number": "bigint"}
        asked, values = session.asked(
            "asked", columns, ((e.hub, e.partition, e.sequence_number) for e in sorted(found))
        )
        rows = session.rows(
            f"{select(session)} WHERE (hub, partition, sequence_number) IN "
            f"(SELECT of_hub, of_partition, number FROM {asked}) ORDER BY {EVENT} {session.locking}",
            **values,
        )
        for row in map(row_of, rows):
            found[row.event].append(row)
        return found

    def replace(self, tried: Sequence[RejectedRow], failures: Sequence[Rejected]) -> None:
        remove(self._session, tried)
        self._transaction.set_aside(failures, self._now)


def _where(session: Session, selection: Selection, after: EventId | None = None) -> tuple[str, dict[str, Any]]:
    terms, values = terms_of(session, selection, after, "reason")
    return (f"WHERE {' AND '.join(terms)} " if terms else "", values)
