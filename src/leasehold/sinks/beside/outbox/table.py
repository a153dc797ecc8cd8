"""The table `leasehold_outbox`. The rules are in `sinks.beside.outbox.contract`.

Owns what is done to it together with something else. Every function here runs inside a transaction of the caller's.
Numbers are drawn under the lock of the partition's watermark, so that those of one partition rise with its commits; the
database gives none twice. The table is there, but for `counts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.sinks.beside.keys import text_of
from leasehold.sinks.beside.outbox.contract import text_of_properties
from leasehold.sinks.beside.session import MINE, Session, mine_of
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.set_aside import OutboxCounts

OUTBOX = "leasehold_outbox"


def put(session: Session, events: Sequence[EmittedEvent], now: float) -> None:
    """See `WritesBeside`."""
    mine = mine_of(session.spec)
    session.many(
        f"INSERT INTO {session.of(OUTBOX)} (pipeline, entity_table, hub, partition, sequence_number, place, entity, "
        "key, body, properties, emitted_at) VALUES (%(pipeline)s, %(name)s, %(hub)s, %(partition)s, %(number)s, "
        "%(place)s, %(entity)s, %(key)s, %(body)s, %(properties)s, %(now)s)",
        [
            {
                **mine,
                "hub": one.hub,
                "partition": one.partition,
                "number": one.sequence_number,
                "place": one.place,
                "entity": text_of(session.spec, one.entity),
                "key": one.key,
                "body": one.body,
                "properties": text_of_properties(one.properties),
                "now": now,
            }
            for one in events
        ],
    )


def counts(session: Session) -> OutboxCounts:
    """How much is in the outbox."""
    if not session.there(OUTBOX):
        return OutboxCounts()
    [row] = session.rows(
        "SELECT count(*) FILTER (WHERE refused IS NULL), min(emitted_at) FILTER (WHERE refused IS NULL), "
        f"count(refused) FROM {session.of(OUTBOX)} WHERE {MINE}",
        **mine_of(session.spec),
    )
    return OutboxCounts(*row)
