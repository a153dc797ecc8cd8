"""What waits in the outbox, for whoever sends it, and what was refused, for an operator. See `Outbox`.

Owns the transactions in which it is read, and removed once it was sent: behind the lock of its partition's watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from leasehold.sinks.beside.outbox.contract import (
    RefusedEvent,
    WaitingEvent,
    refused_event,
    waiting_event,
)
from leasehold.sinks.beside.outbox.table import OUTBOX, counts
from leasehold.sinks.beside.session import MINE, Access, Asked, BesideTransaction, Session, mine_of, names_in
from leasehold.sinks.set_aside import OutboxCounts

_LANE = f"{MINE} AND hub = %(hub)s AND partition = %(partition)s"


class KeptOutbox:
    """See `Outbox`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def check(self) -> None:
        """Make the table."""
        self._access.changed(lambda transaction: None, OUTBOX)

    def waiting(self, hub: str, partition: str, at_most: int, size: int) -> list[WaitingEvent]:
        """See `Outbox`."""
        with self._access.looking(OUTBOX) as session:
            rows = session.rows(
                f"SELECT number, hub, partition, {_kept(session)} FROM (SELECT *, "
                "sum(length(body)) OVER (ORDER BY number) - length(body) AS before FROM (SELECT * FROM "
                f"{session.of(OUTBOX)} WHERE {_LANE} AND refused IS NULL ORDER BY number LIMIT %(most)s) AS few) "
                "AS summed WHERE before < %(size)s ORDER BY number",
                **mine_of(session.spec, (hub, partition)),
                most=at_most,
                size=size,
            )
        return [waiting_event(*row) for row in rows]

    def lanes(self) -> list[tuple[str, str]]:
        """See `Outbox`."""
        with self._access.looking(OUTBOX) as session:
            rows = session.rows(
                f"SELECT DISTINCT {session.text('hub')}, {session.text('partition')} FROM {session.of(OUTBOX)} "
                f"WHERE {MINE} AND refused IS NULL ORDER BY 1, 2",
                **mine_of(session.spec),
            )
        return [(hub, partition) for hub, partition in names_in(rows)]

    def remove(self, hub: str, partition: str, owner_level: int, numbers: Collection[int]) -> bool:
        """See `Outbox`."""
        return self._changed(hub, partition, owner_level, "DELETE FROM {}", numbers)

    def refuse(self, hub: str, partition: str, owner_level: int, number: int, reason: str) -> bool:
        """See `Outbox`."""
        return self._changed(hub, partition, owner_level, "UPDATE {} SET refused = %(reason)s", [number], reason)

    def refused(self, limit: int, after: int = 0) -> list[RefusedEvent]:
        """See `Outbox`."""
        with self._access.looking(OUTBOX) as session:
            if not session.there(OUTBOX):
                return []
            rows = session.rows(
                f"SELECT {session.text('hub')}, {session.text('partition')}, {session.number('emitted_at')}, "
                f"{session.text('refused')}, number, {_kept(session)} FROM {session.of(OUTBOX)} "
                f"WHERE {MINE} AND refused IS NOT NULL AND number > %(after)s ORDER BY number LIMIT %(limit)s",
                **mine_of(session.spec),
                after=after,
                limit=limit,
            )
        return [refused_event(*row) for row in rows]

    def send_again(self, numbers: Collection[int]) -> int:
        """See `Outbox`."""
        return self._refused_changed("UPDATE {} SET refused = NULL", numbers)

    def drop_refused(self, numbers: Collection[int]) -> int:
        """See `Outbox`."""
        return self._refused_changed("DELETE FROM {}", numbers)

    def counts(self) -> OutboxCounts:
        """See `Outbox`."""
        with self._access.looking(OUTBOX) as session:
            return counts(session)

    def _refused_changed(self, statement: str, numbers: Collection[int]) -> int:
        def change(transaction: BesideTransaction) -> int:
            if not transaction.has(OUTBOX):
                return 0
            session = transaction.session
            listed, values = _listed(session, numbers)
            return session.run(
                f"{statement.format(session.of(OUTBOX))} WHERE {listed} AND {MINE} AND refused IS NOT NULL",
                **mine_of(session.spec),
                **values,
            )

        return self._access.changed(change)

    def _changed(
        self, hub: str, partition: str, owner_level: int, statement: str, numbers: Iterable[int], reason: str = ""
    ) -> bool:
        def change(transaction: BesideTransaction) -> bool:
            lane, session = (hub, partition), transaction.session
            transaction.lock_partitions([lane])
            mark = transaction.watermarks([hub]).get(lane)
            if mark is not None and mark.owner_level > owner_level:
                return False
            listed, values = _listed(session, numbers)
            session.run(
                f"{statement.format(session.of(OUTBOX))} WHERE {listed} AND {_LANE}",
                **mine_of(session.spec, lane),
                **values,
                reason=session.storable(reason),
            )
            return True

        return self._access.changed(change, OUTBOX)


def _listed(session: Session, numbers: Iterable[int]) -> Asked:
    """A condition for the rows of these numbers, and its values."""
    listed, values = session.asked("listed", {"it": "bigint"}, ((number,) for number in numbers))
    return f"number IN (SELECT it FROM {listed})", values


def _kept(session: Session) -> str:
    """What `waiting_event` is given behind the place of its cause's partition."""
    columns: list[Any] = [session.number("sequence_number"), session.number("place")]
    return ", ".join([*columns, *map(session.text, ("key", "body", "properties"))])
