"""What waits in the outbox in Postgres, for whoever sends it. See `sinks.beside.outbox.Outbox`.

Owns the transactions in which it is read, and removed once it was sent: behind the lock of its partition's watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

from leasehold.sinks.beside.outbox.contract import OutboxCounts, WaitingEvent, waiting_event
from leasehold.sinks.beside.outbox.listing import RefusedEvent, refused_event
from leasehold.sinks.postgres.names import OUTBOX
from leasehold.sinks.postgres.outbox.table import MINE, counts, named
from leasehold.sinks.postgres.transaction import PostgresTransaction

_LANE = f"{MINE} AND hub = %(hub)s AND partition = %(partition)s"

Opens = Callable[[], AbstractContextManager[PostgresTransaction]]
Again = Callable[[Callable[[], Any]], Any]


class PostgresOutbox:
    """See `Outbox`. `claimed` opens a transaction on the table, and `again` does what the server has undone."""

    def __init__(self, claimed: Opens, again: Again) -> None:
        self._claimed, self._again = claimed, again

    def check(self) -> None:
        """Make the table."""
        with self._claimed() as transaction:
            transaction.need(OUTBOX)

    def waiting(self, hub: str, partition: str, at_most: int, size: int) -> list[WaitingEvent]:
        """See `Outbox`."""
        with self._claimed() as transaction:
            transaction.need(OUTBOX)
            session = transaction.session
            rows = session.rows(
                "SELECT number, hub, partition, sequence_number, place, key, body, properties FROM (SELECT *, "
                "sum(octet_length(body)) OVER (ORDER BY number) - octet_length(body) AS before FROM (SELECT * FROM "
                f"{session.names.of(OUTBOX)} WHERE {_LANE} AND refused IS NULL ORDER BY number LIMIT %(most)s) AS few) "
                "AS summed WHERE before < %(size)s ORDER BY number",
                **named(session),
                hub=hub,
                partition=partition,
                most=at_most,
                size=size,
            )
        return [waiting_event(*row) for row in rows]

    def lanes(self) -> list[tuple[str, str]]:
        """See `Outbox`."""
        with self._claimed() as transaction:
            transaction.need(OUTBOX)
            session = transaction.session
            rows = session.rows(
                f"SELECT DISTINCT hub, partition FROM {session.names.of(OUTBOX)} WHERE {MINE} AND refused IS NULL "
                "ORDER BY 1, 2",
                **named(session),
            )
        return [(hub, partition) for hub, partition in rows]

    def remove(self, hub: str, partition: str, owner_level: int, numbers: Collection[int]) -> bool:
        """See `Outbox`."""
        return self._changed(
            hub, partition, owner_level, "DELETE FROM {} WHERE number = ANY(%(numbers)s::bigint[])", numbers=[*numbers]
        )

    def refuse(self, hub: str, partition: str, owner_level: int, number: int, reason: str) -> bool:
        """See `Outbox`."""
        return self._changed(
            hub,
            partition,
            owner_level,
            "UPDATE {} SET refused = %(reason)s WHERE number = %(number)s",
            number=number,
            reason=reason.replace("\0", "\\0"),
        )

    def refused(self, limit: int, after: int = 0) -> list[RefusedEvent]:
        """See `ListsRefused`."""
        with self._claimed() as transaction:
            if not transaction.has(OUTBOX):
                return []
            session = transaction.session
            rows = session.rows(
                "SELECT hub, partition, emitted_at, refused, number, sequence_number, place, key, body, properties "
                f"FROM {session.names.of(OUTBOX)} WHERE {MINE} AND refused IS NOT NULL AND number > %(after)s "
                "ORDER BY number LIMIT %(limit)s",
                **named(session),
                after=after,
                limit=limit,
            )
        return [refused_event(*row) for row in rows]

    def send_again(self, numbers: Collection[int]) -> int:
        """See `ListsRefused`."""
        return self._refused_changed("UPDATE {} SET refused = NULL", numbers)

    def drop_refused(self, numbers: Collection[int]) -> int:
        """See `ListsRefused`."""
        return self._refused_changed("DELETE FROM {}", numbers)

    def counts(self) -> OutboxCounts:
        """See `Outbox`."""
        with self._claimed() as transaction:
            return counts(transaction.session) if transaction.has(OUTBOX) else OutboxCounts()

    def _refused_changed(self, statement: str, numbers: Collection[int]) -> int:
        def once() -> int:
            with self._claimed() as transaction:
                if not transaction.has(OUTBOX):
                    return 0
                session = transaction.session
                return session.run(
                    f"{statement.format(session.names.of(OUTBOX))} WHERE number = ANY(%(numbers)s::bigint[]) "
                    f"AND {MINE} AND refused IS NOT NULL",
                    **named(session),
                    numbers=[*numbers],
                )

        return int(self._again(once))

    def _changed(self, hub: str, partition: str, owner_level: int, statement: str, **values: Any) -> bool:
        def once() -> bool:
            with self._claimed() as transaction:
                transaction.need(OUTBOX)
                lane, session = (hub, partition), transaction.session
                transaction.bookkeeping.lock_watermarks([lane], others=False, missing=False)
                mark = transaction.watermarks([hub]).get(lane)
                if mark is not None and mark.owner_level > owner_level:
                    return False
                session.run(
                    f"{statement.format(session.names.of(OUTBOX))} AND {_LANE}",
                    **named(session),
                    hub=hub,
                    partition=partition,
                    **values,
                )
                return True

        return bool(self._again(once))
