"""What waits in the outbox in Postgres, for whoever sends it. See `sinks.outbox.Outbox`.

Owns the transactions in which it is read, and removed once it was sent: behind the lock of its partition's watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

from leasehold.sinks.outbox import OutboxCounts, WaitingEvent, waiting_event
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

    def counts(self) -> OutboxCounts:
        """See `Outbox`."""
        with self._claimed() as transaction:
            return counts(transaction.session) if transaction.has(OUTBOX) else OutboxCounts()

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
