"""The outbox in Postgres: the table `leasehold_outbox`. The rules are in `sinks.beside.outbox`.

Owns the table, one for all entity tables of a schema, and what is done to it together with something else. Every
function here runs inside a transaction of the caller's. Numbers are drawn under the lock of the partition's watermark,
so that those of one partition rise with its commits; the server gives none twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leasehold.sinks.beside.outbox.contract import OutboxCounts, text_of_properties
from leasehold.sinks.beside.parking.keys import text_of, texts_of
from leasehold.sinks.postgres.names import OUTBOX
from leasehold.sinks.postgres.session import Session
from leasehold.sinks.rules.emitted import EmittedEvent

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS {outbox} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        pipeline text COLLATE "C" NOT NULL, entity_table text COLLATE "C" NOT NULL, hub text COLLATE "C" NOT NULL,
        partition text COLLATE "C" NOT NULL, sequence_number bigint NOT NULL, place integer NOT NULL,
        entity text COLLATE "C" NOT NULL, key text, body bytea NOT NULL, properties text NOT NULL,
        emitted_at double precision NOT NULL, refused text)""",
    "CREATE INDEX IF NOT EXISTS leasehold_outbox_lane ON {outbox} (pipeline, entity_table, hub, partition, number)",
)
MINE = "pipeline = %(pipeline)s AND entity_table = %(name)s"


def put(session: Session, events: Sequence[EmittedEvent], now: float) -> None:
    """See `TakesEvents`. The table is there."""
    session.many(
        f"INSERT INTO {session.names.of(OUTBOX)} (pipeline, entity_table, hub, partition, sequence_number, place, "
        "entity, key, body, properties, emitted_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [
            (
                *(*named(session).values(), one.hub, one.partition, one.sequence_number, one.place),
                *(text_of(session.spec, one.entity), one.key, one.body, text_of_properties(one.properties), now),
            )
            for one in events
        ],
    )


def counts(session: Session) -> OutboxCounts:
    """How much is in the outbox. The table is there."""
    [row] = session.rows(
        "SELECT count(*) FILTER (WHERE refused IS NULL), min(emitted_at) FILTER (WHERE refused IS NULL), "
        f"count(refused) FROM {session.names.of(OUTBOX)} WHERE {MINE}",
        **named(session),
    )
    return OutboxCounts(*row)


def forget(session: Session, key: Mapping[str, str]) -> int:
    """Forget what events of an entity have emitted, by its key as text; how many there were. The table is there."""
    return session.run(
        f"DELETE FROM {session.names.of(OUTBOX)} WHERE {MINE} AND entity = ANY(%(keys)s::text[])",
        **named(session),
        keys=[*texts_of(session.spec, key)],
    )


def named(session: Session) -> dict[str, Any]:
    """The values of `MINE`."""
    return {"pipeline": session.spec.pipeline, "name": session.spec.name}
