"""The rejected rows of a table in Postgres: listed, tried again, dropped.

Owns the SQL of it and the transactions; the rules are in `set_aside`, the order of what a retry does in
`set_aside.trying`. The table of the rows is made by `rejected`. What was dropped is noted in `leasehold_dropped`, one
table for all of a schema.

Concurrency: beside any number of instances that apply batches. A retry and a drop lock the watermarks of their events'
partitions first, as a batch does, and then their rejected rows, so that operations on the same events run one
another: the second finds no rejected row. A retry locks what is known of its keys as a batch does, so it is judged
against all that was committed before, and a batch after it finds what it has written. Whoever is killed before COMMIT
has changed nothing; one that stops there holds up batches of these partitions and keys, until the server ends its
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from leasehold.errors import ConfigError
from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.beside.set_aside.contract import (
    DroppedRow,
    EventId,
    ParkedAgain,
    ReasonCount,
    RejectedRow,
    RetryResult,
    Selection,
)
from leasehold.sinks.beside.set_aside.parking_again import park_again
from leasehold.sinks.beside.set_aside.trying import Tried, try_again
from leasehold.sinks.postgres import rejected
from leasehold.sinks.postgres.names import DROPPED
from leasehold.sinks.postgres.rejected import COLUMNS, EVENT, of_event, parted, remove, row_of, time_as_text
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.parking import ParkedEvent
from leasehold.sinks.rules.rejected import Rejected
from leasehold.sinks.rules.remembered_order import TableOrder
from leasehold.sinks.rules.table import TableSpec

T = TypeVar("T")
Begin = Callable[[], AbstractContextManager[PostgresTransaction]]
Again = Callable[[Callable[[], T]], T]


class PostgresRejectedRows:
    """The rejected rows of the table `spec`: see `set_aside.RejectedRows`.

    `begin` opens a transaction of the sink; `again` repeats one that the server undoes for others' sake; `now` is the
    time, in seconds since 1970.
    """

    def __init__(self, spec: TableSpec, begin: Begin, again: Again[Any], now: Callable[[], float]) -> None:
        self._spec, self._begin, self._again, self._now = spec, begin, again, now

    def reasons(self, selection: Selection, limit: int) -> list[ReasonCount]:
        """See `RejectedRows`."""
        where, values = _where(selection)
        rows = self._query(
            self._spec.rejected,
            f"SELECT reason, count(*), {time_as_text('min(rejected_at)')}, {time_as_text('max(rejected_at)')} "
            f"FROM {{}} {where} "
            'GROUP BY reason ORDER BY 2 DESC, reason COLLATE "C" LIMIT %(limit)s',
            **values,
            limit=limit,
        )
        return [ReasonCount(*row) for row in rows]

    def rows(self, selection: Selection, limit: int, after: EventId | None = None) -> list[RejectedRow]:
        """See `RejectedRows`."""
        where, values = _where(selection, after)
        query = f"SELECT {COLUMNS} FROM {{}} {where} ORDER BY {EVENT} LIMIT %(limit)s"
        return [row_of(row) for row in self._query(self._spec.rejected, query, **values, limit=limit)]

    def retry(self, batch: Batch, events: Collection[EventId]) -> RetryResult:
        """See `RejectedRows`."""

        def once() -> RetryResult:
            with self._begin() as transaction:
                now = self._now()
                return try_again(_Retry(transaction, now), self._spec, batch, events, now)

        result: RetryResult = self._again(once)
        return result

    def drop(self, rows: Sequence[RejectedRow], reason: str) -> int:
        """See `RejectedRows`."""
        if not reason.strip():
            raise ConfigError("reason", reason, "a text that is not empty", "Say why these events are not wanted")

        def once() -> int:
            with self._begin() as transaction:
                transaction.need(DROPPED)
                lanes = {(row.event.hub, row.event.partition) for row in rows}
                transaction.bookkeeping.lock_watermarks(lanes, others=False, missing=False)
                there = remove(transaction.session, rows)
                transaction.session.many(
                    f"INSERT INTO {transaction.session.names.of(DROPPED)} (pipeline, entity_table, {EVENT}, reason, "
                    "rejected_at, dropped_for, dropped_at) "
                    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, to_timestamp(%s))",
                    [
                        (
                            *(self._spec.pipeline, self._spec.name, *of_event(row), row.place),
                            *(row.reason, row.rejected_at, reason.replace("\0", "\\0"), self._now()),
                        )
                        for row in there
                    ],
                )
                return len(there)

        count: int = self._again(once)
        return count

    def park(self, events: Sequence[tuple[RejectedRow, ParkedEvent]]) -> ParkedAgain:
        """See `ParksRejected`."""

        def once() -> ParkedAgain:
            with self._begin() as transaction:
                lanes = {(row.event.hub, row.event.partition) for row, _ in events}
                transaction.bookkeeping.lock_watermarks(lanes, others=False, missing=False)
                return park_again(transaction, self._spec, partial(remove, transaction.session), events, self._now())

        result: ParkedAgain = self._again(once)
        return result

    def dropped(self, limit: int) -> list[DroppedRow]:
        """See `RejectedRows`."""
        rows = self._query(
            DROPPED,
            f"SELECT {EVENT}, reason, {time_as_text('rejected_at')}, dropped_for, {time_as_text('dropped_at')} "
            "FROM {} WHERE pipeline = %(pipeline)s AND entity_table = %(name)s ORDER BY id DESC LIMIT %(limit)s",
            pipeline=self._spec.pipeline,
            name=self._spec.name,
            limit=limit,
        )
        return [DroppedRow(EventId(*row[:3]), *row[3:]) for row in rows]

    def _query(self, table: str, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """What a query gives of a table, nothing where it has not been made yet."""
        with self._begin() as transaction:
            session = transaction.session
            if not transaction.has(table):
                return []
            return session.rows(query.format(session.names.of(table)), **values)


class _Retry:
    """A retry in a transaction of the sink. See `trying.Retry`."""

    def __init__(self, transaction: PostgresTransaction, now: float) -> None:
        self._transaction, self._session, self._now = transaction, transaction.session, now
        self.fit = transaction.fit
        self.recorded_order = transaction.recorded_order
        self.known_identities = transaction.known_identities
        self.remember_identities = transaction.remember_identities
        self.forget_identities = transaction.forget_identities
        self.identities_reached = transaction.identities_reached
        self.identities_reach = transaction.identities_reach

    def lock(self, lanes: Collection[Lane]) -> None:
        self._transaction.bookkeeping.lock_watermarks(lanes, others=False, missing=False)

    def watermarks(self, hubs: Iterable[str]) -> Mapping[Lane, Watermark]:
        return self._transaction.watermarks(hubs)

    def found(self, events: Collection[EventId]) -> retrying.Found:
        found: dict[EventId, list[RejectedRow]] = {event: [] for event in events}
        hubs, partitions, numbers = parted(sorted(found))
        rows = self._session.rows(
            f"SELECT {COLUMNS} FROM {self._session.names.rejected} WHERE (hub, partition, sequence_number) IN "
            "(SELECT * FROM unnest(%(hubs)s::text[], %(partitions)s::text[], %(numbers)s::bigint[])) "
            f"ORDER BY {EVENT} FOR UPDATE",
            hubs=hubs,
            partitions=partitions,
            numbers=numbers,
        )
        for row in map(row_of, rows):
            found[row.event].append(row)
        return found

    def write(self, batch: Batch, kept: Kept, order: TableOrder) -> Tried:
        tried = self._transaction.write_rows(batch, kept, order, past=True)
        # An entity of another partition is refused, or a later value of `sequence_by` decides.
        self._transaction.bookkeeping.count_change(set(kept.lanes))
        return tried

    def replace(self, tried: Sequence[RejectedRow], left: Sequence[Rejected]) -> None:
        remove(self._session, tried)
        rejected.insert(self._session, left, self._now)


def _where(selection: Selection, after: EventId | None = None) -> tuple[str, dict[str, Any]]:
    """A condition with its values. A text with a NUL is in no column."""
    terms: list[str] = []
    values: dict[str, Any] = {}
    if selection.events is not None:
        events = [event for event in sorted(selection.events) if "\0" not in event[0] and event[1] < 2**63]
        terms.append(
            "(partition, sequence_number) IN (SELECT * FROM unnest(%(partitions)s::text[], %(numbers)s::bigint[]))"
        )
        values |= {"partitions": [name for name, _ in events], "numbers": [number for _, number in events]}
    for name, term in (("reason", "strpos(reason, %(reason)s) > 0"), ("hub", "hub = %(hub)s")):
        text: str | None = getattr(selection, name)
        if text is not None:
            terms.append("false" if "\0" in text else term)
            values |= {} if "\0" in text else {name: text}
    if after is not None:
        terms.append("(hub, partition, sequence_number) > (%(after_hub)s, %(after_partition)s, %(after_number)s)")
        values |= {
            "after_hub": after.hub,
            "after_partition": after.partition,
            "after_number": after.sequence_number,
        }
    return (f"WHERE {' AND '.join(terms)}" if terms else "", values)
